/* SPDX-License-Identifier: Apache-2.0 */
/* Replay of a trace's plan on the virtual clock, with measured durations, and optionally with more
 * slots for some registers.
 *
 * The plan in a trace has no programs, and needs none: every queue is replaced by a timed one, and
 * every actor takes its median duration. Only noise, which the clock cannot know, differs from the
 * run. A quota is tried by a replay, so the answer accounts for everything that depends on it. */
#include "tools/actortrace/actortrace.h"

#include <stdlib.h>
#include <string.h>

/* ---- durations ------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

/* Sorts durations actor by actor; begin[actor] is the first one's index. */
static double *sort_durations(const sl_trace *t, size_t *begin) {
  size_t nactors = (size_t)t->plan->nactors;
  for (size_t i = 0; i < t->nfirings; i++) begin[t->firings[i].record.actor + 1]++;
  for (size_t i = 0; i < nactors; i++) begin[i + 1] += begin[i];
  double *all = sli_calloc(t->nfirings + 1, sizeof *all);
  size_t *at = sli_calloc(nactors + 1, sizeof *at);
  for (size_t i = 0; i < t->nfirings; i++) {
    const sl_trace_record *f = &t->firings[i].record;
    all[begin[f->actor] + at[f->actor]++] = (double)(f->end_ns - f->start_ns) * 1e-9;
  }
  free(at);
  for (size_t i = 0; i < nactors; i++)
    qsort(all + begin[i], begin[i + 1] - begin[i], sizeof *all, by_value);
  return all;
}

double *measured_seconds(const sl_trace *t) {
  size_t nactors = (size_t)t->plan->nactors;
  size_t *begin = sli_calloc(nactors + 1, sizeof *begin);
  double *all = sort_durations(t, begin), *seconds = sli_calloc(nactors + 1, sizeof *seconds);
  for (size_t i = 0; i < nactors; i++) {
    size_t n = begin[i + 1] - begin[i];
    seconds[i] = n ? all[begin[i] + (n - 1) / 2] : t->plan->actors[i].seconds;
  }
  free(begin);
  free(all);
  return seconds;
}

/* ---- replay ----------------------------------------------------------------------- */

sl_status replay_run(const sl_plan *plan, const double *seconds, const int32_t *extra,
                     int64_t steps, replay *out) {
  sli_simulation *r = &out->simulation;
  sli_simulation_init(r, plan, true);
  for (int32_t i = 0; i < plan->nactors; i++) r->plan.actors[i].seconds = seconds[i];
  for (int32_t i = 0; i < plan->nregs; i++) {
    r->plan.regs[i].quota += extra ? extra[i] : 0;
    r->plan.regs[i].quota_most = r->plan.regs[i].quota;
  }
  for (int32_t i = 0; i < plan->npools && extra; i++)
    r->plan.pools[i].quota += extra[plan->nregs + i];
  sl_status status = sli_simulate(r, steps, true);
  if (status) {
    replay_fini(out);
    return status;
  }
  sl_statistics stats = sl_runtime_statistics(r->rt);
  out->step_seconds = stats.step_seconds;
  free(stats.devices);
  return SL_OK;
}

void replay_fini(replay *r) { sli_simulation_fini(&r->simulation); }

/* ---- advice ------------------------------------------------------------------------- */

/* A knob and the time waited for it. */
typedef struct knob {
  advice advice;
  uint64_t waited_ns, most_ns; /* time waited for all its registers, and for the named one */
} knob;

static int32_t stage_of(const sl_plan *plan, const sl_register *r) {
  return plan->actors[r->producer].stage;
}

bool answers(const sl_plan *plan, int32_t reg, const advice *a) {
  const sl_register *r = &plan->regs[reg];
  if (r->producer == SL_NONE || r->held) return false;
  if (a->pool != SL_NONE) return r->pool == a->pool;
  if (strcmp(r->quota_name, a->knob)) return false;
  return a->stage == SL_NONE || stage_of(plan, r) == a->stage;
}

/* Returns how long each register's producer waited for credit, on any queue. */
static uint64_t *credit_waits(const analysis *a) {
  uint64_t *waits = sli_calloc((size_t)a->plan->nregs + 1, sizeof *waits);
  for (size_t i = 0; i < a->nfirings; i++) {
    const cause *c = &a->causes[i];
    if (c->wait != SL_WAIT_CREDIT || c->reg < 0) continue;
    uint64_t before = a->before[i] >= 0 ? a->firings[a->before[i]].record.end_ns : 0;
    waits[c->reg] += c->ready_ns - SLI_MIN(before, c->ready_ns) + 1;
  }
  return waits;
}

static int by_wait(const void *a, const void *b) {
  const knob *x = a, *y = b;
  if (x->waited_ns != y->waited_ns) return x->waited_ns > y->waited_ns ? -1 : 1;
  return x->advice.reg < y->advice.reg ? -1 : x->advice.reg > y->advice.reg;
}

static void add_wait(const analysis *a, knob *knobs, int32_t *count, advice which, uint64_t ns) {
  const sl_plan *plan = a->plan;
  knob *k = knobs;
  while (k < knobs + *count && (strcmp(k->advice.knob, which.knob) ||
                                k->advice.stage != which.stage || k->advice.pool != which.pool))
    k++;
  if (k == knobs + *count) knobs[(*count)++] = (knob){.advice = which};
  k->waited_ns += ns;
  if (ns <= k->most_ns) return;
  k->most_ns = ns;
  k->advice.reg = which.reg;
  k->advice.slots =
      which.pool == SL_NONE ? plan->regs[which.reg].quota : plan->pools[which.pool].quota;
}

/* Lists every knob whose credit was waited for, by stage and for all stages. */
static knob *list_knobs(const analysis *a, int32_t *count) {
  const sl_plan *plan = a->plan;
  uint64_t *waits = credit_waits(a);
  knob *knobs = sli_calloc(3 * (size_t)plan->nregs + 1, sizeof *knobs);
  *count = 0;
  for (int32_t r = 0; r < plan->nregs; r++) {
    const sl_register *g = &plan->regs[r];
    if (!waits[r] || g->producer == SL_NONE) continue;
    advice k = {.knob = g->quota_name, .stage = stage_of(plan, g), .pool = SL_NONE, .reg = r};
    add_wait(a, knobs, count, k, waits[r]);
    if (k.stage != SL_NONE) {
      k.stage = SL_NONE;
      add_wait(a, knobs, count, k, waits[r]);
    }
    if (g->pool == SL_NONE) continue;
    k.knob = plan->pools[g->pool].name;
    k.pool = g->pool;
    add_wait(a, knobs, count, k, waits[r]);
  }
  free(waits);
  qsort(knobs, (size_t)*count, sizeof *knobs, by_wait);
  return knobs;
}

/* Sets the extra slots and their cost. A slot of a pool costs as much as the largest of its
 * registers. */
static void set_extra(const sl_plan *plan, advice *k, int32_t *extra) {
  for (int32_t r = 0; r < plan->nregs; r++) {
    bool is_its = answers(plan, r, k);
    extra[r] = is_its && k->pool == SL_NONE;
    k->nregs += is_its;
    uint64_t bytes = is_its ? sl_slot_device_bytes(&plan->regs[r]) : 0;
    k->more_bytes = k->pool == SL_NONE ? k->more_bytes + bytes : SLI_MAX(k->more_bytes, bytes);
  }
  for (int32_t p = 0; p < plan->npools; p++) extra[plan->nregs + p] = p == k->pool;
}

static sl_status try_knob(const analysis *a, const double *seconds, int32_t *extra, advice *k,
                          int64_t steps) {
  set_extra(a->plan, k, extra);
  replay run;
  sl_status status = replay_run(a->plan, seconds, extra, steps, &run);
  if (status) return status;
  k->step_seconds = run.step_seconds;
  replay_fini(&run);
  return SL_OK;
}

/* Orders by speed; ties by cost. */
static int by_gain(const void *a, const void *b) {
  const advice *x = a, *y = b;
  if (x->step_seconds != y->step_seconds) return x->step_seconds < y->step_seconds ? -1 : 1;
  if (x->more_bytes != y->more_bytes) return x->more_bytes < y->more_bytes ? -1 : 1;
  return x->reg < y->reg ? -1 : x->reg > y->reg;
}

/* Returns whether more slots at one stage are as good as more slots at every stage, so that the
 * latter are not advised. */
static bool is_better_elsewhere(const advices *all, const advice *k) {
  for (int32_t i = 0; i < all->count; i++) {
    const advice *other = &all->items[i];
    if (k->stage == SL_NONE && k->pool == SL_NONE && other != k && other->pool == SL_NONE &&
        !strcmp(other->knob, k->knob) && other->nregs <= k->nregs &&
        other->step_seconds <= k->step_seconds * (1 + 1e-9))
      return true;
  }
  return false;
}

static void drop_repeated(advices *all) {
  int32_t kept = 0;
  for (int32_t i = 0; i < all->count; i++)
    if (!is_better_elsewhere(all, &all->items[i])) all->items[kept++] = all->items[i];
  all->count = kept;
}

sl_status advise(const analysis *a, double limit_seconds, advices *out) {
  enum { STEPS = 4 };
  uint64_t start = sli_now_ns();
  double *seconds = measured_seconds(a->trace);
  replay base;
  sl_status status = replay_run(a->plan, seconds, NULL, STEPS, &base);
  if (status) {
    free(seconds);
    return status;
  }
  advices all = {.step_seconds = base.step_seconds};
  replay_fini(&base);
  knob *knobs = list_knobs(a, &all.candidates);
  int32_t *extra = sli_calloc((size_t)(a->plan->nregs + a->plan->npools) + 1, sizeof *extra);
  all.items = sli_calloc((size_t)all.candidates + 1, sizeof *all.items);
  for (; all.tried < all.candidates && !status; all.tried++) {
    if ((double)(sli_now_ns() - start) * 1e-9 > limit_seconds) break;
    advice *k = &knobs[all.tried].advice;
    status = try_knob(a, seconds, extra, k, STEPS);
    if (!status && k->step_seconds < all.step_seconds * (1 - 1e-6)) all.items[all.count++] = *k;
  }
  free(extra);
  free(knobs);
  free(seconds);
  if (status) {
    free(all.items);
    return status;
  }
  qsort(all.items, (size_t)all.count, sizeof *all.items, by_gain);
  drop_repeated(&all);
  *out = all;
  return SL_OK;
}
