/* SPDX-License-Identifier: Apache-2.0 */
/* The search over all choices of a plan.
 *
 * All choices whose sizes divide evenly are listed (space.c) and bounded (bounds.c). Plans are then
 * made in the order of their bounds and simulated (trial.c), if they fit the budget or can give up
 * something. The search ends when the next bound is above the best plan's time. To be fast with
 * many devices, one device represents all devices of its stage. The best plans are made again
 * exactly as actorrun would make them, so the results shown are exact.
 *
 * Plans are made in rounds of a fixed size, so the result does not depend on the number of
 * threads. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/devices/devices.h"
#include "graph/lower/lower.h"
#include "tools/planner/search_inner.h"

enum { ROUND = 8 };

/* ---- the search ------------------------------------------------------------------------------ */

/* Orders by time; ties by memory. */
static int by_worth(const void *a, const void *b) {
  const plan_choice *x = a, *y = b;
  if (x->seconds < y->seconds || x->seconds > y->seconds) return x->seconds < y->seconds ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return memcmp(x->at, y->at, sizeof x->at);
}

static int by_floor(const void *a, const void *b) {
  const plan_choice *x = a, *y = b;
  if (x->floor < y->floor || x->floor > y->floor) return x->floor < y->floor ? -1 : 1;
  return memcmp(x->at, y->at, sizeof x->at);
}

static void keep_smallest(planner *p) {
  for (size_t i = 0; i < p->count; i++) {
    plan_choice *c = &p->choices[i];
    if (!c->bytes || (p->smallest.bytes && p->smallest.bytes <= c->bytes)) continue;
    planner_relaxation_destroy(p->smallest.relaxation);
    p->smallest = *c;
    c->relaxation = NULL;
  }
}

/* Takes plans that fit after all, although their estimates did not; returns whether any does. */
static bool take_fitting(planner *p, size_t from, size_t end) {
  size_t before = p->tried;
  for (size_t i = from; i < end; i++) {
    plan_choice c = p->choices[i];
    if (!c.bytes || c.bytes > p->budget) continue;
    planner_weigh(p, &c);
    c.exact = true;
    p->choices[i] = p->choices[p->tried];
    p->choices[p->tried++] = c;
  }
  qsort(p->choices, p->tried, sizeof *p->choices, by_worth);
  return p->tried > before && p->choices[0].seconds < INFINITY;
}

/* Finds the smallest plan among those not made, each made as small as possible. Stops when no
 * remaining estimate is smaller. */
static void find_smallest(planner *p) {
  enum { MOST = 24 };
  size_t first = p->tried, most = SLI_MIN(first + MOST, p->count);
  qsort(p->choices + first, p->count - first, sizeof *p->choices, by_floor);
  for (size_t end; first < most && !planner_stopped(p); first = end) {
    keep_smallest(p);
    if (p->smallest.bytes && p->choices[first].floor >= (double)p->smallest.bytes) return;
    end = SLI_MIN(first + ROUND, most);
    planner_each(p, first, end, planner_try_least, p);
    if (take_fitting(p, first, end)) return;
  }
  keep_smallest(p);
}

static sl_status nothing_fits(const planner *p) {
  const plan_choice *least = &p->smallest;
  char needs[32], has[32];
  if (!least->bytes && planner_stopped(p))
    return sl_fail(SL_E_STOPPED, "stopped before any plan was found");
  if (!least->bytes)
    return sl_fail(SL_E_USAGE, "none of %zu plans is possible; the last failed with: %s", p->count,
                   sl_detail());
  char *said = planner_said(p, least);
  sl_fail(SL_E_BUDGET, "no plan fits in %s: the smallest plan needs %s (%s)",
          sli_format_bytes(has, (double)p->budget), sli_format_bytes(needs, (double)least->bytes),
          said);
  free(said);
  return SL_E_BUDGET;
}

/* Makes plans in the order of their bounds, until no remaining bound is better. */
static void try_plans(planner *p) {
  size_t most = p->count - p->left_out;
  while (p->tried < most && !planner_stopped(p) && p->choices[p->tried].bound < p->best) {
    size_t end = SLI_MIN(p->tried + ROUND, most);
    planner_each(p, p->tried, end, planner_try, p);
    for (; p->tried < end; p->tried++)
      if (!p->all) p->best = SLI_MIN(p->best, p->choices[p->tried].seconds);
  }
  qsort(p->choices, p->tried, sizeof *p->choices, by_worth);
}

/* ---- estimates ------------------------------------------------------------------------------- */

static bool is_over(const planner *p, const plan_choice *c) {
  return p->budget && c->estimated_bytes > (double)p->budget;
}

/* Estimates a round of choices; those that are too large again, with blocks that recompute. */
static void estimate_round(planner *p, size_t from, size_t end) {
  for (size_t i = from; i < end; i++) {
    p->choices[i].sample = planner_sample_of(p, &p->choices[i]);
    p->choices[i].sample_again = SIZE_MAX;
    planner_sample_want(p, p->choices[i].sample);
  }
  planner_samples_make(p);
  planner_each(p, from, end, planner_estimate, p);
  for (size_t i = from; i < end; i++) {
    plan_choice again = planner_again(p, &p->choices[i]);
    if (!is_over(p, &again)) continue;
    p->choices[i].sample_again = planner_sample_of(p, &again);
    planner_sample_want(p, p->choices[i].sample_again);
  }
  planner_samples_make(p);
  for (size_t i = from; i < end; i++)
    if (is_over(p, &p->choices[i])) planner_estimate(p, i);
}

static int by_estimate(const void *a, const void *b) {
  const plan_choice *x = a, *y = b;
  if (x->estimate < y->estimate || x->estimate > y->estimate)
    return x->estimate < y->estimate ? -1 : 1;
  if (x->estimated_bytes < y->estimated_bytes || x->estimated_bytes > y->estimated_bytes)
    return x->estimated_bytes < y->estimated_bytes ? -1 : 1;
  return memcmp(x->at, y->at, sizeof x->at);
}

/* Estimates of a family: the least --shard with which it fits without giving up anything, by
 * recompute mode. More sharding, or recomputation beside it, would only be slower. */
typedef struct family {
  int least[PLAN_WORDS];
  size_t round; /* the most recent round with one of its choices */
} family;

static bool is_dominated(const planner *p, const family *families, const plan_choice *c) {
  const int *least = families[c->family].least, shard = c->at[PLAN_SHARD];
  if (p->away || c->at[PLAN_HOME]) return false;
  return shard > least[c->at[PLAN_RECOMPUTE]] || shard >= least[0];
}

static void note_fit(const planner *p, family *families, const plan_choice *c) {
  int *least = &families[c->family].least[c->at[PLAN_RECOMPUTE]];
  if (!is_over(p, c) && c->estimate < INFINITY) *least = SLI_MIN(*least, c->at[PLAN_SHARD]);
}

/* Moves the next choices to estimate to the front, at most one of a family: how it does decides
 * about the others. Drops dominated ones. Returns how many. */
static size_t take_round(planner *p, family *families, size_t round, double limit) {
  enum { ESTIMATES = 32 };
  size_t taken = 0;
  for (size_t i = p->estimated; i < p->count - p->left_out && taken < ESTIMATES; i++) {
    plan_choice c = p->choices[i];
    if (c.bound >= limit) break;
    bool dominated = is_dominated(p, families, &c);
    if (!dominated && families[c.family].round == round) continue;
    size_t front = p->estimated + (dominated ? 0 : taken);
    memmove(&p->choices[front + 1], &p->choices[front], (i - front) * sizeof c);
    c.estimate = c.estimated_bytes = INFINITY;
    p->choices[front] = c;
    if (dominated) p->estimated++;
    else families[c.family].round = round, taken++;
  }
  return taken;
}

static family *families_create(const planner *p) {
  family *families = sli_calloc(p->count + 1, sizeof *families);
  for (size_t i = 0; i < p->count; i++)
    for (int r = 0; r < PLAN_WORDS; r++) families[i].least[r] = INT_MAX;
  return families;
}

/* Estimates choices in the order of their bounds, until no remaining bound is better. */
static void estimate_plans(planner *p) {
  const double margin = 1.05;
  double best = INFINITY;
  family *families = families_create(p);
  for (size_t round = 1; !planner_stopped(p); round++) {
    size_t taken = take_round(p, families, round, margin * best);
    if (!taken) break;
    if (planner_bound_again(p, p->estimated, p->estimated + taken)) continue;
    size_t end = p->estimated + taken;
    estimate_round(p, p->estimated, end);
    for (; p->estimated < end; p->estimated++) {
      best = SLI_MIN(best, p->choices[p->estimated].estimate);
      note_fit(p, families, &p->choices[p->estimated]);
    }
  }
  free(families);
  qsort(p->choices, p->estimated, sizeof *p->choices, by_estimate);
}

/* Estimates the best choices again with skeletons, until no rough estimate is better. */
static void refine_plans(planner *p) {
  enum { FEW = 8, MOST = 64 };
  const double margin = 1.03;
  size_t most = SLI_MIN((size_t)MOST, p->estimated);
  double best = INFINITY;
  while (p->refined < most && !planner_stopped(p) &&
         p->choices[p->refined].estimate < margin * best) {
    size_t end = SLI_MIN(p->refined + FEW, most);
    planner_each(p, p->refined, end, planner_refine, p);
    for (; p->refined < end; p->refined++) best = SLI_MIN(best, p->choices[p->refined].estimate);
  }
  qsort(p->choices, p->estimated, sizeof *p->choices, by_estimate);
}

/* Returns the least that an estimate could be below the time of its plan: a little, or as much as
 * the closest of the plans that were made, once there are some. */
static double least_error(const planner *p) {
  enum { SOME = 4 };
  double least = INFINITY;
  for (size_t i = 0; i < p->tried; i++)
    least = SLI_MIN(least, p->choices[i].seconds / p->choices[i].estimate);
  return 0.97 * (p->tried >= SOME && least < INFINITY ? SLI_MAX(least, 1) : 1);
}

/* Makes the plans with the best estimates: those to be shown unless there are many devices, then
 * until none can be better by more than estimates err, and no more than a fixed number, unless none
 * of them fits. */
static void lower_best(planner *p) {
  enum { FEW = 2, MOST = 16, LESS = 6, MANY_DEVICES = 64 };
  bool many = p->devices >= MANY_DEVICES;
  size_t wanted = many ? FEW : (size_t)p->points, most = many ? LESS : MOST;
  while (p->tried < p->estimated && !planner_stopped(p)) {
    const plan_choice *next = &p->choices[p->tried];
    bool enough =
        p->tried >= wanted && (p->tried >= most || least_error(p) * next->estimate > p->best);
    if (!(next->estimate < INFINITY) || (enough && p->best < INFINITY)) break;
    size_t end = SLI_MIN(p->tried + FEW, p->estimated);
    planner_each(p, p->tried, end, planner_try, p);
    for (; p->tried < end; p->tried++) p->best = SLI_MIN(p->best, p->choices[p->tried].seconds);
  }
  qsort(p->choices, p->tried, sizeof *p->choices, by_worth);
}

/* Makes the best plans exactly. A plan that proves slower or too large yields its place to the
 * next. Returns false if all of the best were already exact. */
static bool settle(planner *p) {
  size_t end = SLI_MIN((size_t)p->points, p->tried);
  bool any = false;
  for (size_t i = 0; i < end; i++) any |= !p->choices[i].exact && p->choices[i].seconds < INFINITY;
  if (!any || planner_stopped(p)) return false;
  planner_each(p, 0, end, planner_try_exact, p);
  qsort(p->choices, p->tried, sizeof *p->choices, by_worth);
  p->best = p->all ? INFINITY : p->choices[0].seconds;
  return true;
}

/* Permutes the devices of the best plans. */
static void assign(planner *p) {
  enum { BEST = 3 };
  if (!planner_assigns(p) || planner_stopped(p)) return;
  planner_each(p, 0, SLI_MIN(SLI_MIN((size_t)p->points, BEST), p->tried), planner_try_assigned, p);
  qsort(p->choices, p->tried, sizeof *p->choices, by_worth);
}

static bool found(const planner *p) { return p->tried && p->choices[0].seconds < INFINITY; }

static sl_status search(planner *p) {
  sl_status status = planner_list(p);
  if (status) return status;
  status = planner_blocks_find(p);
  if (status) return status;
  planner_bound(p);
  p->best = INFINITY;
  bool whole = p->all || planner_leaves_out(p);
  if (!whole) estimate_plans(p);
  if (!whole) refine_plans(p);
  do {
    if (whole) try_plans(p);
    else lower_best(p);
  } while (settle(p));
  assign(p);
  if (!found(p)) find_smallest(p);
  return SL_OK;
}

static void forget(planner *p) {
  for (size_t i = 0; i < p->count; i++) {
    planner_relaxation_destroy(p->choices[i].relaxation);
    free(p->choices[i].assign);
  }
  planner_samples_forget(p);
  planner_blocks_forget(p);
  p->count = p->left_out = p->estimated = p->refined = p->tried = 0;
}

/* Searches; if nothing fits the devices, searches again with offloading. */
sl_status planner_search(planner *p) {
  uint64_t start = sli_now_ns();
  sl_status status = search(p);
  if (!status && !found(p) && !p->away && p->fixed[PLAN_HOME] < 0 && !planner_stopped(p)) {
    forget(p);
    p->away = true;
    status = search(p);
  }
  p->seconds = (double)(sli_now_ns() - start) * 1e-9;
  if (status) return status;
  return found(p) ? SL_OK : nothing_fits(p);
}

const plan_choice *planner_second(const planner *p, plan_dim dim) {
  for (size_t i = 1; i < p->tried; i++)
    if (p->choices[i].at[dim] != p->choices[0].at[dim] && p->choices[i].seconds < INFINITY)
      return &p->choices[i];
  return NULL;
}

const plan_choice *planner_second_estimate(const planner *p, plan_dim dim) {
  for (size_t i = p->tried; i < p->estimated; i++)
    if (p->choices[i].at[dim] != p->choices[0].at[dim] && p->choices[i].estimate < INFINITY)
      return &p->choices[i];
  return NULL;
}

/* ---- lifetime -------------------------------------------------------------------------------- */

/* Returns the value of a model option, or 0 if the model does not have it. */
static int number_of(const settings *s, const char *name) {
  const sl_option *o = sl_options_find(s->model->options, name);
  return o && o->kind == SL_OPTION_INT ? (int)sl_arg_int(s->model_args, name) : 0;
}

sl_status planner_init(planner *p, const settings *s) {
  const sli_kind *kind = sli_kind_find(s->lower.devices.kind);
  bool known = sli_cost_is_given(&s->lower.simulation.cost) || s->profile ||
               s->modelled.hardware.flops_per_second > 0;
  *p = (planner){.settings = s,
                 .devices = SLI_MAX(s->lower.devices.count, 1),
                 .batch = number_of(s, "batch"),
                 .layers = number_of(s, "layers"),
                 .experts = number_of(s, "experts"),
                 .points = 1,
                 .threads = (int)SLI_MAX(sysconf(_SC_NPROCESSORS_ONLN), 1),
                 .budget = s->lower.devices.budget_bytes};
  for (int d = 0; d < PLAN_DIMS; d++) p->fixed[d] = -1;
  if (sl_arg_given(s->run, "quota", 0)) p->fixed[PLAN_QUOTAS] = 0;
  if (sl_arg_given(s->run, "home", 0)) p->fixed[PLAN_HOME] = 0;
  if (known || kind->modelled) return SL_OK;
  return sl_fail(
      SL_E_USAGE,
      "plan on %s devices: durations are not known; give --machine FILE or --profile REPORT of an earlier run, or run actortune machine and give --machine here",
      kind->name);
}

void planner_fini(planner *p) {
  forget(p);
  planner_relaxation_destroy(p->smallest.relaxation);
  free(p->choices);
}
