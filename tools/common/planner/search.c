/* The search: everything there is to choose of a plan.
 *
 * All that come out even are listed (space.c) and bounded (bounds.c). Plans are then made in the order of
 * their bounds and run on the virtual clock, if their memory is within the budget; the search ends when
 * the next bound is above the best plan's time. To look at so many, of more than a few
 * devices one stands for all of a stage, and of many microbatches two smaller numbers are run: a step grows by as much with each. The best are made
 * once more as actorrun would make them, so that what is shown of them is exact.
 *
 * Plans are made in rounds of as many, whatever the number of threads, so any number finds the same. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/devices/devices.h"
#include "graph/lower/lower.h"
#include "tools/common/planner/inner.h"

enum { ROUND = 8 };

/* ---- plans ------------------------------------------------------------------------------------------ */

static size_t largest(const sl_plan *plan) {
  size_t most = 0;
  for (int32_t d = 0; d < plan->ndevices; d++) most = SLI_MAX(most, sl_device_bytes(&plan->devices[d]));
  return most;
}

/* Seconds of a step; of one that does not fit they are not asked for. */
static double run(const planner *p, const plan_choice *c, int microbatches, bool alike, size_t *bytes) {
  plan_made made;
  sl_figures f;
  double seconds = INFINITY;
  *bytes = 0;
  if (planner_make(p, c, microbatches, alike, &made)) return INFINITY;
  *bytes = largest(made.planned.plan);
  bool fits = !p->budget || *bytes <= p->budget;
  if (fits && !sl_plan_predict(made.planned.plan, NULL, &f)) {
    seconds = f.step_seconds;
    free(f.devices);
  }
  planner_unmake(&made);
  return seconds;
}

/* Of many microbatches from two numbers that are multiples of the chunks on the way, and more than those. */
static void try_one(void *ctx, size_t i) {
  const planner *p = ctx;
  plan_choice *c = &p->choices[i];
  int m = c->at[PLAN_MICROBATCHES], unit = c->at[PLAN_STAGES] * c->at[PLAN_CHUNKS];
  int few = (PLANNER_FEW + 2 * unit - 1) / unit * unit, more = few + unit;
  bool alike = planner_alike(p);
  size_t bytes;
  if (!p->batch || m <= more + unit) {
    c->seconds = run(p, c, m, alike, &c->bytes);
    c->exact = !alike;
    return;
  }
  double first = run(p, c, few, alike, &bytes);
  c->bytes = bytes;
  if (!(first < INFINITY)) return;
  double second = run(p, c, more, alike, &c->bytes);
  c->seconds = second < INFINITY ? first + (second - first) * (m - few) / (more - few) : INFINITY;
}

/* As actorrun would make it. */
static void make_exact(void *ctx, size_t i) {
  const planner *p = ctx;
  plan_choice *c = &p->choices[i];
  if (c->exact || !(c->seconds < INFINITY)) return;
  c->seconds = run(p, c, c->at[PLAN_MICROBATCHES], false, &c->bytes);
  c->exact = true;
}

/* ---- the search ---------------------------------------------------------------------------------------- */

/* The fastest first; of two as fast that which takes less memory. */
static int by_worth(const void *a, const void *b) {
  const plan_choice *x = a, *y = b;
  if (x->seconds < y->seconds || x->seconds > y->seconds) return x->seconds < y->seconds ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return memcmp(x->at, y->at, sizeof x->at);
}

static int by_least(const void *a, const void *b) {
  const plan_choice *x = a, *y = b;
  if (x->least < y->least || x->least > y->least) return x->least < y->least ? -1 : 1;
  return memcmp(x->at, y->at, sizeof x->at);
}

/* Of what was left out as too large, those that are smallest by what is known are made. */
static const plan_choice *find_smallest(planner *p) {
  enum { SOME = 32 };
  const plan_choice *least = NULL;
  plan_choice *out = p->choices + p->count - p->left_out;
  qsort(out, p->left_out, sizeof *out, by_least);
  size_t first = p->count - p->left_out, end = SLI_MIN(first + SOME, p->count);
  planner_each(p, first, end, try_one, p);
  for (size_t i = 0; i < p->count; i++)
    if (p->choices[i].bytes && (!least || p->choices[i].bytes < least->bytes)) least = &p->choices[i];
  return least;
}

static sl_status nothing_fits(planner *p) {
  const plan_choice *least = find_smallest(p);
  char needs[32], has[32];
  if (!least && planner_stopped(p)) return sl_fail(SL_E_STOPPED, "stopped before any plan was made");
  if (!least) return sl_fail(SL_E_USAGE, "none of %zu plans can be: the last said: %s", p->count, sl_detail());
  char *said = sli_strdup("");
  for (int d = 0; d < PLAN_DIMS; d++) {
    const char *word = planner_word((plan_dim)d, least->at[d]);
    char *more = word ? sli_format("%s%s--%s %s", said, d ? " " : "", plan_dims[d].option, word)
                      : sli_format("%s%s--%s %d", said, d ? " " : "", plan_dims[d].option, least->at[d]);
    free(said);
    said = more;
  }
  sl_fail(SL_E_BUDGET, "nothing fits in %s: the smallest plan needs %s (%s)",
          sli_format_bytes(has, (double)p->budget), sli_format_bytes(needs, (double)least->bytes), said);
  free(said);
  return SL_E_BUDGET;
}

/* Plans in the order of their bounds, until none that is left can be better. */
static void try_plans(planner *p, double best) {
  size_t most = p->count - p->left_out;
  while (p->tried < most && !planner_stopped(p) && (p->all || p->choices[p->tried].bound < best)) {
    size_t end = SLI_MIN(p->tried + ROUND, most);
    planner_each(p, p->tried, end, try_one, p);
    for (; p->tried < end; p->tried++) best = SLI_MIN(best, p->choices[p->tried].seconds);
  }
  qsort(p->choices, p->tried, sizeof *p->choices, by_worth);
}

/* The best are made exactly. One that turns out slower, or too large after all, leaves its place to the
 * next. False: all of the best were exact. */
static bool settle(planner *p) {
  size_t end = SLI_MIN((size_t)p->points, p->tried);
  bool any = false;
  for (size_t i = 0; i < end; i++) any |= !p->choices[i].exact && p->choices[i].seconds < INFINITY;
  if (!any || planner_stopped(p)) return false;
  planner_each(p, 0, end, make_exact, p);
  qsort(p->choices, p->tried, sizeof *p->choices, by_worth);
  return true;
}

sl_status planner_search(planner *p) {
  uint64_t start = sli_now_ns();
  sl_status status = planner_list(p);
  if (status) return status;
  planner_bound(p);
  do {
    try_plans(p, p->tried ? p->choices[0].seconds : INFINITY);
  } while (settle(p));
  p->seconds = (double)(sli_now_ns() - start) * 1e-9;
  return p->tried && p->choices[0].seconds < INFINITY ? SL_OK : nothing_fits(p);
}

const plan_choice *planner_second(const planner *p, plan_dim dim) {
  for (size_t i = 1; i < p->tried; i++)
    if (p->choices[i].at[dim] != p->choices[0].at[dim] && p->choices[i].seconds < INFINITY) return &p->choices[i];
  return NULL;
}

/* ---- beginning and end ----------------------------------------------------------------------------------- */

static int batch_of(const settings *s) {
  for (const sl_option *o = s->model->options; o && o->name; o++)
    if (!strcmp(o->name, "batch") && o->kind == SL_OPTION_INT) return (int)sl_arg_int(s->model_args, "batch");
  return 0;
}

sl_status planner_init(planner *p, const settings *s) {
  const sli_kind *kind = sli_kind_find(s->devices.kind);
  bool known = sli_cost_is_given(&s->modelled.cost) || s->profile || s->modelled.hardware.flops_per_second > 0;
  *p = (planner){.settings = s, .devices = SLI_MAX(s->devices.count, 1), .batch = batch_of(s), .points = 1,
                 .threads = (int)SLI_MAX(sysconf(_SC_NPROCESSORS_ONLN), 1), .budget = s->devices.budget_bytes};
  for (int d = 0; d < PLAN_DIMS; d++) p->fixed[d] = -1;
  if (known || kind->modelled) return SL_OK;
  return sl_fail(SL_E_USAGE, "plan on %s devices: how long anything takes there is not known; --machine FILE "
                 "says, or --profile REPORT of an earlier run, or actortune machine measures it (--machine here)", kind->name);
}

void planner_fini(planner *p) { free(p->choices); }
