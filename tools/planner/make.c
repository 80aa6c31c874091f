/* SPDX-License-Identifier: Apache-2.0 */
/* Makes plans of choices, on several threads in parallel. */
#include <string.h>

#include "tools/planner/each.h"
#include "tools/planner/search_inner.h"

enum { FEW_DEVICES = 2 };

bool planner_stopped(const planner *p) { return p->interrupted && p->interrupted(); }

void planner_each(const planner *p, size_t from, size_t end, void (*fn)(void *ctx, size_t i),
                  void *ctx) {
  each(p->threads, p->interrupted, from, end, fn, ctx);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void apply_home(const planner *p, const char *word, sli_arena *arena, settings *to) {
  sl_home_options *homes = &to->lower.memory.homes;
  bool both = !strcmp(word, "both");
  if (!strcmp(word, "device")) return;
  sl_home *all = sli_arena_alloc(arena, (size_t)(homes->count + 2) * sizeof *all);
  if (homes->count) memcpy(all, homes->homes, (size_t)homes->count * sizeof *all);
  if (both || !strcmp(word, "state"))
    all[homes->count++] = (sl_home){.name = "state", .space = planner_away(p)};
  if (both || !strcmp(word, "act"))
    all[homes->count++] = (sl_home){.name = "act", .space = planner_away(p)};
  homes->homes = all;
}

typedef struct said {
  sli_arena *arena;
  const char *text;
} said;

static void add_said(void *ctx, const char *text) {
  said *s = ctx;
  s->text = sli_arena_format(s->arena, "%s,%s", s->text, text);
}

static void apply_relaxation(const plan_relaxation *relaxation, sli_arena *arena, settings *to) {
  sl_quota *quotas = sli_arena_alloc(
      arena, (size_t)(to->lower.memory.nquotas + 2 * relaxation->stages) * sizeof *quotas);
  said recompute = {arena, to->lower.memory.recompute};
  if (to->lower.memory.nquotas)
    memcpy(quotas, to->lower.memory.quotas, (size_t)to->lower.memory.nquotas * sizeof *quotas);
  to->lower.memory.nquotas +=
      planner_relaxation_quotas(relaxation, quotas + to->lower.memory.nquotas);
  to->lower.memory.quotas = quotas;
  planner_relaxation_recompute(relaxation, add_said, &recompute);
  to->lower.memory.recompute = recompute.text;
}

static const char *recompute_of(const plan_choice *choice) {
  const char *word = planner_word(PLAN_RECOMPUTE, choice->at[PLAN_RECOMPUTE]);
  return strcmp(word, "some") ? word : "none";
}

static void planner_make_apply(const planner *p, const plan_choice *choice, sli_arena *arena,
                               settings *to) {
  *to = *p->settings;
  to->lower.parallel.stages = choice->at[PLAN_STAGES];
  to->lower.parallel.tensor = choice->at[PLAN_TENSOR];
  to->lower.parallel.data = choice->at[PLAN_DATA];
  to->lower.parallel.sequence = choice->at[PLAN_SEQUENCE];
  to->pieces = choice->at[PLAN_PIECES];
  to->lower.schedule.chunks = choice->at[PLAN_CHUNKS];
  to->lower.schedule.name = planner_word(PLAN_SCHEDULE, choice->at[PLAN_SCHEDULE]);
  to->lower.experts.parallel = choice->at[PLAN_EXPERTS];
  if (p->experts) to->lower.experts.tensor = choice->at[PLAN_EXPERT_TENSOR];
  to->lower.memory.recompute = recompute_of(choice);
  to->lower.memory.shard = planner_word(PLAN_SHARD, choice->at[PLAN_SHARD]);
  to->lower.devices.count = to->lower.parallel.stages * settings_ranks(to);
  to->lower.devices.budget_bytes = 0;
  apply_home(p, planner_word(PLAN_HOME, choice->at[PLAN_HOME]), arena, to);
  if (choice->relaxation) apply_relaxation(choice->relaxation, arena, to);
}

sl_status planner_args_with(const settings *s, int batch, int layers, sl_args **out) {
  words w = {0};
  sl_status status = sl_args_create(s->model->options, out);
  for (const sl_option *o = s->model->options; o && o->name; o++) {
    int other = !strcmp(o->name, "batch") ? batch : !strcmp(o->name, "layers") ? layers : 0;
    if (other) words_add(&w, "--%s", o->name), words_add(&w, "%d", other);
    else words_given(o, s->model_args, &w);
  }
  for (int i = 0, used = 0; i < (int)w.count && !status; i += SLI_MAX(used, 1))
    status = sl_args_take(*out, (int)w.count - i, w.items + i, &used);
  words_fini(&w);
  return status;
}

plan_care planner_care(const planner *p) {
  return p->devices > FEW_DEVICES ? PLAN_ALIKE : PLAN_EXACT;
}

sl_status planner_make(const planner *p, const plan_choice *choice, int microbatches,
                       plan_care care, plan_made *out) {
  return planner_make_with(p, choice, microbatches, care, 0, out);
}

sl_status planner_make_with(const planner *p, const plan_choice *choice, int microbatches,
                            plan_care care, int layers, plan_made *out) {
  settings s;
  sl_status status = SL_OK;
  const bool alike = care != PLAN_EXACT && planner_care(p) != PLAN_EXACT;
  sl_lower_options run = p->run;
  run.simulation.alike = alike, run.simulation.any_order = care == PLAN_ROUGH,
  run.simulation.microbatches = p->batch ? choice->at[PLAN_MICROBATCHES] : 0,
  run.parallel.assign = choice->assign;
  run.schedule.skip_in_turn = true;
  sli_arena arena = {0};
  *out = (plan_made){0};
  planner_make_apply(p, choice, &arena, &s);
  s.microbatches = microbatches;
  bool fewer = p->batch && microbatches != choice->at[PLAN_MICROBATCHES];
  if (fewer || layers) {
    int batch = fewer ? p->batch / choice->at[PLAN_MICROBATCHES] * microbatches : 0;
    status = planner_args_with(p->settings, batch, layers, &out->args);
    s.model_args = out->args;
  }
  if (!status) status = plan_make(&s, &run, &out->planned);
  sli_arena_fini(&arena);
  if (status) sl_args_destroy(out->args);
  return status;
}

void planner_unmake(plan_made *m) {
  plan_free(&m->planned);
  sl_args_destroy(m->args);
}
