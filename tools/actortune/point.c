/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation of points.
 *
 * A point is a schedule with other values of its knobs: credits of activations, pools, watermarks.
 * It is lowered as actorrun would lower it, and simulated without data for three steps. The
 * simulation shows its time and the most slots of each register ever in use. Slots beyond that have
 * no effect: a plan with only the used slots runs identically. They are dropped, and points are
 * compared by the remaining memory.
 *
 * Points of the frontier are then confirmed. The shortest list of --quota with these values is
 * found, lowered and simulated again, so that the command shown has exactly the results shown. */
#include "tools/actortune/actortune.h"

#include <stdlib.h>
#include <string.h>

#include "actors/plan/plan.h"
#include "graph/devices/devices.h"
#include "graph/lower/lower.h"

enum { STEPS = 3 };

/* ---- lists of quotas ---------------------------------------------------------------------- */

typedef struct list {
  size_t count, capacity;
  quota_value *items;
} list;

static quota_value *list_find(const list *l, const char *name, int stage) {
  for (size_t i = 0; i < l->count; i++)
    if (l->items[i].stage == stage && !strcmp(l->items[i].name, name)) return &l->items[i];
  return NULL;
}

static void list_add(list *l, const char *name, int stage, int slots) {
  SLI_GROW(l->items, l->count, l->capacity);
  quota_value *q = &l->items[l->count++];
  *q = (quota_value){.stage = stage, .slots = slots};
  snprintf(q->name, sizeof q->name, "%s", name);
}

/* Adds a quota. Registers of one quota may differ until the quota is set; the largest counts. */
static void take_quota(void *ctx, const char *name, int stage, int slots) {
  quota_value *q = list_find(ctx, name, stage);
  if (q) q->slots = SLI_MAX(q->slots, slots);
  else list_add(ctx, name, stage, slots);
}

/* Lists the quotas in force in a plan. */
static list quotas_of(const planned *made) {
  list l = {0};
  sl_lowered_quotas(made->lowered, take_quota, &l);
  return l;
}

static bool is_knob(const char *name) {
  return sli_quota_counts_activations(name) || !strcmp(name, "pool") || !strcmp(name, "watermark");
}

/* Returns whether a register's slots are never dropped: they are free, or are few and small and
 * follow from others. */
static bool keeps_slots(const char *name) {
  return strcmp(name, "pool") && strcmp(name, "watermark") && strcmp(name, "load") &&
         strcmp(name, "report");
}

/* Returns whether the user gave this quota, which is then kept. */
static bool is_fixed(const settings *s, const quota_value *q) {
  for (int i = 0; i < s->lower.memory.nquotas; i++)
    if (sli_quota_names(&s->lower.memory.quotas[i], q->name, q->stage)) return true;
  return false;
}

/* ---- making a plan -------------------------------------------------------------------------- */

/* Makes the configuration's plan with these quotas, overridden by the user's. */
static sl_status make(const config *c, const quota_value *quotas, size_t count, bool modelled,
                      planned *out) {
  settings s = c->settings;
  s.lower.memory.nquotas = (int)count + c->settings.lower.memory.nquotas;
  sl_quota *all = sli_calloc((size_t)s.lower.memory.nquotas + 1, sizeof *all);
  for (size_t i = 0; i < count; i++)
    all[i] = (sl_quota){quotas[i].name, quotas[i].stage, quotas[i].slots};
  if (c->settings.lower.memory.nquotas)
    memcpy(all + count, c->settings.lower.memory.quotas,
           (size_t)c->settings.lower.memory.nquotas * sizeof *all);
  s.lower.memory.quotas = all;
  if (modelled) s.lower.devices.kind = sli_kind_model(sli_kind_find(s.lower.devices.kind))->name;
  const sl_lower_options run = {.schedule.skip_in_turn = true};
  sl_status status = plan_make(&s, &run, out);
  free(all);
  return status;
}

static void keep_failure(point *p, sl_status status) {
  p->status = status;
  free(p->failure);
  p->failure = status ? options_named(sl_detail()) : NULL;
}

/* ---- evaluating -------------------------------------------------------------------- */

static sl_status run_virtually(const sl_plan *plan, sl_runtime **out) {
  sl_runtime_options options = {.clock = SL_CLOCK_VIRTUAL,
                                .no_data = true,
                                .trace_records = STEPS * (size_t)sli_plan_firings(plan)};
  sl_runtime *rt = NULL;
  sl_status status = sl_runtime_create(plan, &options, &rt);
  if (!status) status = sl_runtime_run(rt, STEPS);
  if (status) sl_runtime_destroy(rt);
  else *out = rt;
  return status;
}

/* Returns the quota of a register, if its unused slots can be dropped. */
static quota_value *quota_of(const settings *s, const list *quotas, const sl_plan *plan,
                             const sl_register *r) {
  if (r->producer == SL_NONE || r->held || !keeps_slots(r->quota_name)) return NULL;
  quota_value *q = list_find(quotas, r->quota_name, plan->actors[r->producer].stage);
  return q && !is_fixed(s, q) ? q : NULL;
}

/* Lowers each quota to the number of slots used. */
static void drop_unused(const settings *s, list *quotas, const sl_plan *plan,
                        const sl_runtime *rt) {
  list used = {0};
  for (int32_t i = 0; i < plan->nregs; i++) {
    const quota_value *q = quota_of(s, quotas, plan, &plan->regs[i]);
    if (q) take_quota(&used, q->name, q->stage, SLI_MAX(sl_runtime_peak_slots(rt, i), 1));
  }
  for (size_t i = 0; i < used.count; i++) {
    quota_value *q = list_find(quotas, used.items[i].name, used.items[i].stage);
    q->slots = SLI_MIN(q->slots, used.items[i].slots);
  }
  free(used.items);
}

/* Returns the memory of the largest device with these quotas. */
static size_t bytes_with(const settings *s, const list *quotas, const sl_plan *plan) {
  size_t *bytes = sli_calloc((size_t)plan->ndevices, sizeof *bytes), most = 0;
  for (int32_t d = 0; d < plan->ndevices; d++) bytes[d] = sl_device_bytes(&plan->devices[d]);
  for (int32_t i = 0; i < plan->nregs; i++) {
    const sl_register *r = &plan->regs[i];
    const quota_value *q = quota_of(s, quotas, plan, r);
    if (q && q->slots < r->quota)
      bytes[r->device] -= (size_t)(r->quota - q->slots) * sl_slot_device_bytes(r);
  }
  for (int32_t d = 0; d < plan->ndevices; d++) most = SLI_MAX(most, bytes[d]);
  free(bytes);
  return most;
}

/* Returns the factor that makes steps with different numbers of items comparable. */
static double scale(const tuning *t, const config *c) {
  return c->items > 0 ? (double)t->reference->items / (double)c->items : 1;
}

static void measure_point(const tuning *t, const planned *made, const sl_runtime *rt, point *p) {
  const config *c = &t->configs[p->config];
  sl_statistics f = sl_runtime_statistics(rt);
  free(f.devices);
  p->seconds = f.step_seconds;
  p->scaled = p->seconds * scale(t, c);
  p->bubble = f.bubble_fraction;
  list quotas = quotas_of(made);
  p->published_bytes = sli_plan_most_bytes(made->plan);
  drop_unused(&c->settings, &quotas, made->plan, rt);
  p->bytes = bytes_with(&c->settings, &quotas, made->plan);
  free(p->quotas);
  p->quotas = quotas.items;
  p->nquotas = (int)quotas.count;
}

/* Lists the knobs that differ from the schedule's values. */
static size_t changed_knobs(const config *c, const point *p, quota_value *out) {
  size_t n = 0;
  for (int i = 0; i < c->nknobs; i++) {
    if (p->values[i] == c->knobs[i].slots) continue;
    out[n] = c->knobs[i];
    out[n++].slots = p->values[i];
  }
  return n;
}

void point_evaluate(const tuning *t, point *p) {
  const config *c = &t->configs[p->config];
  quota_value *changed = sli_calloc((size_t)c->nknobs + 1, sizeof *changed);
  planned made;
  sl_runtime *rt = NULL;
  sl_status status = make(c, changed, changed_knobs(c, p, changed), true, &made);
  free(changed);
  if (!status) {
    status = run_virtually(made.plan, &rt);
    if (!status) measure_point(t, &made, rt, p);
    sl_runtime_destroy(rt);
    plan_free(&made);
  }
  if (status) keep_failure(p, status);
}

/* ---- a configuration's first point ------------------------------------------------- */

/* Returns whether all plans have equally many chunks on each device. */
static bool same_chunks(const tuning *t) {
  bool same = true;
  for (int i = 1; i < t->nconfigs; i++)
    same &= t->configs[i].settings.lower.schedule.chunks ==
            t->configs[0].settings.lower.schedule.chunks;
  return same;
}

/* Scales --cost for a configuration. As in actorrun, it is given for one chunk and a microbatch of
 * the first size. If plans differ in their chunks, it is for a device's whole share, which is
 * divided among its chunks. A smaller microbatch takes proportionally less. */
static void share_cost(const tuning *t, config *c) {
  const sl_cost *given = &t->settings->lower.simulation.cost;
  const config *first = t->reference;
  double rows = 1;
  if (first->items > 0 && c->items > 0)
    rows = (double)c->items / c->settings.microbatches /
           ((double)first->items / first->settings.microbatches);
  double share = same_chunks(t) || given->nstages ? rows : rows / c->settings.lower.schedule.chunks;
  c->settings.lower.simulation.cost = cost_scaled(&c->settings.arena, given, share);
}

static void take_knobs(config *c, const planned *made, point *p) {
  list quotas = quotas_of(made);
  c->knobs = sli_calloc(quotas.count + 1, sizeof *c->knobs);
  for (size_t i = 0; i < quotas.count; i++)
    if (is_knob(quotas.items[i].name) && !is_fixed(&c->settings, &quotas.items[i]))
      c->knobs[c->nknobs++] = quotas.items[i];
  free(quotas.items);
  p->values = sli_calloc((size_t)c->nknobs + 1, sizeof *p->values);
  for (int i = 0; i < c->nknobs; i++) p->values[i] = c->knobs[i].slots;
}

void config_open(tuning *t, int index, point *out) {
  config *c = &t->configs[index];
  *out = (point){.config = index, .published = true};
  planned made;
  sl_status status = make(c, NULL, 0, true, &made);
  if (status) {
    keep_failure(out, status);
    return;
  }
  c->items = made.items;
  c->word = made.word;
  take_knobs(c, &made, out);
  plan_free(&made);
}

sl_status configs_settle(tuning *t) {
  const point *failed = NULL;
  t->reference = NULL;
  t->same_items = true;
  for (int i = 0; i < t->nconfigs; i++) {
    if (t->points[i].status) failed = failed ? failed : &t->points[i];
    else if (!t->reference) t->reference = &t->configs[i];
  }
  if (!t->reference) return sl_fail(failed->status, "%s", failed->failure);
  for (int i = 0; i < t->nconfigs; i++) {
    if (t->points[i].status) continue;
    share_cost(t, &t->configs[i]);
    t->same_items = t->same_items && t->configs[i].items == t->reference->items;
  }
  return SL_OK;
}

/* ---- confirming -------------------------------------------------------------------- */

/* Adds to `given` the quotas in which its plan differs from the wanted one: first the knobs, on
 * which other quotas depend. Returns how many were added. */
static size_t add_missing(const config *c, const list *want, const list *have, list *given) {
  size_t before = given->count;
  for (int others = 0; others < 2 && given->count == before; others++)
    for (size_t i = 0; i < want->count; i++) {
      const quota_value *q = &want->items[i], *now = list_find(have, q->name, q->stage);
      if (!keeps_slots(q->name) && !is_knob(q->name)) continue;
      if (is_knob(q->name) != !others || is_fixed(&c->settings, q)) continue;
      if (now && now->slots == q->slots) continue;
      if (list_find(given, q->name, q->stage)) continue;
      list_add(given, q->name, q->stage, q->slots);
    }
  return given->count - before;
}

/* Replaces quotas by NAME=N if they are the same in all stages. */
static void shorten(const list *want, list *given) {
  for (size_t i = 0; i < given->count; i++) {
    char name[sizeof given->items[i].name];
    memcpy(name, given->items[i].name, sizeof name);
    int slots = given->items[i].slots, count = 0;
    bool same = true;
    for (size_t w = 0; w < want->count; w++)
      if (!strcmp(want->items[w].name, name)) {
        same = same && want->items[w].slots == slots;
        count++;
      }
    if (!same || count < 2 || given->items[i].stage == SL_NONE) continue;
    given->items[i].stage = SL_NONE;
    size_t n = i + 1;
    for (size_t g = i + 1; g < given->count; g++)
      if (strcmp(given->items[g].name, name)) given->items[n++] = given->items[g];
    given->count = n;
  }
}

static void take_confirmed(const tuning *t, const planned *made, const sl_statistics *statistics,
                           point *p) {
  p->bytes = sli_plan_most_bytes(made->plan);
  p->seconds = statistics->step_seconds;
  p->scaled = p->seconds * scale(t, &t->configs[p->config]);
  p->bubble = statistics->bubble_fraction;
}

/* Computes the plan hash of the command. Durations are part of the hash, and a command without
 * --profile does not have the durations measured for the search. */
static sl_status hash_as_commanded(const config *c, const list *given, uint64_t *out) {
  config plain = *c;
  if (!c->profile_path) plain.settings.profile = NULL;
  planned made;
  sl_status status = make(&plain, given->items, given->count, false, &made);
  if (status) return status;
  *out = made.plan->hash;
  plan_free(&made);
  return SL_OK;
}

/* Computes the statistics that actorrun shows: those of its simulation if devices are modelled,
 * otherwise its prediction beside a real run. */
static sl_status predict(const config *c, const sl_plan *plan, sl_statistics *out) {
  if (sl_device_computes(c->settings.lower.devices.kind)) return sl_plan_predict(plan, NULL, out);
  sl_runtime *rt;
  sl_status status = run_virtually(plan, &rt);
  if (status) return status;
  *out = sl_runtime_statistics(rt);
  sl_runtime_destroy(rt);
  return SL_OK;
}

static sl_status confirm_with(const tuning *t, const list *given, point *p) {
  const config *c = &t->configs[p->config];
  planned made;
  sl_statistics f;
  sl_status status = make(c, given->items, given->count, false, &made);
  if (status) return status;
  status = predict(c, made.plan, &f);
  if (!status) {
    take_confirmed(t, &made, &f, p);
    free(f.devices);
  }
  plan_free(&made);
  return status ? status : hash_as_commanded(c, given, &p->plan_hash);
}

void point_confirm(const tuning *t, point *p) {
  const config *c = &t->configs[p->config];
  list want = {.count = (size_t)p->nquotas, .items = p->quotas}, given = {0};
  sl_status status = SL_OK;
  for (size_t missing = 1; missing && !status;) {
    planned made;
    status = make(c, given.items, given.count, false, &made);
    if (status) break;
    list have = quotas_of(&made);
    missing = add_missing(c, &want, &have, &given);
    free(have.items);
    plan_free(&made);
  }
  shorten(&want, &given);
  if (!status) status = confirm_with(t, &given, p);
  free(p->quotas);
  p->quotas = given.items;
  p->nquotas = (int)given.count;
  keep_failure(p, status);
}
