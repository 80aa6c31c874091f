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
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/devices/devices.h"
#include "graph/lower/lower.h"
#include "tools/common/planner/planner_inner.h"

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

/* Finds the smallest plan among those excluded as too large, each made as small as possible. Stops
 * when no remaining bound is smaller. */
static void find_smallest(planner *p) {
  enum { MOST = 48 };
  size_t first = p->count - p->left_out, most = SLI_MIN(first + MOST, p->count);
  qsort(p->choices + first, p->left_out, sizeof *p->choices, by_floor);
  for (size_t end; first < most && !planner_stopped(p); first = end) {
    keep_smallest(p);
    if (p->smallest.bytes && p->choices[first].floor >= (double)p->smallest.bytes) return;
    end = SLI_MIN(first + ROUND, most);
    planner_each(p, first, end, planner_try_least, p);
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
  planner_bound(p);
  p->best = INFINITY;
  do {
    try_plans(p);
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
  p->count = p->left_out = p->tried = 0;
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
