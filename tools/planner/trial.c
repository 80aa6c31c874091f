/* SPDX-License-Identifier: Apache-2.0 */
/* Trial of one choice: the cost of its plan, and what it gives up to fit.
 *
 * A plan that is too large is made again with fewer slots of activations, or with some blocks that
 * recompute, where the user left that open. It gives up as little as suffices, device by device,
 * and tries both if one is not enough. The faster plan represents the choice. A choice that is too
 * large with everything given up is dropped, as is one that is slower than the best before giving
 * up anything. With many microbatches, two smaller numbers are simulated and the time is
 * extrapolated, because it grows linearly. */
#include <math.h>
#include <stdlib.h>

#include "tools/planner/search_inner.h"
#include "actors/plan/plan.h"

/* One way to relax a plan: what it may give up, and the word for that in the choice. */
typedef struct way {
  plan_dim dim;
  int value;
  bool slots;
} way;
static const way ways[] = {{PLAN_QUOTAS, 1, true}, {PLAN_RECOMPUTE, 4, false}};
enum { WAYS = SLI_COUNT(ways), ROUNDS = 8 };

static double seconds_of(const sl_plan *plan) {
  sl_statistics f;
  if (sl_plan_predict(plan, NULL, &f)) return INFINITY;
  free(f.devices);
  return f.step_seconds;
}

static bool fits(const planner *p, const plan_choice *choice) {
  return choice->bytes && (!p->budget || choice->bytes <= p->budget);
}

/* ---- relaxation ------------------------------------------------------------------------------ */

static bool may(const planner *p, const plan_choice *choice, const way *w) {
  return p->fixed[w->dim] < 0 && (choice->at[w->dim] == 0 || choice->at[w->dim] == w->value);
}

static bool give_up(const planner *p, plan_choice *choice, const plan_made *made, const way *w) {
  if (!may(p, choice, w)) return false;
  if (!choice->relaxation) choice->relaxation = planner_relaxation_create(&made->planned, choice);
  bool some = planner_relax(choice->relaxation, &made->planned, p->budget, w->slots);
  if (some) choice->at[w->dim] = w->value;
  return some;
}

/* Relaxes the plan in this way, or in any other once nothing is left to give up in this one. */
static bool give_up_any(const planner *p, plan_choice *choice, const plan_made *made,
                        const way *first) {
  bool some = give_up(p, choice, made, first);
  for (int w = 0; w < WAYS && !some; w++) some = give_up(p, choice, made, &ways[w]);
  return some;
}

/* Returns whether a choice is too slow to be worth relaxing, which never makes it faster. The
 * margin keeps runners-up, which are shown for each dimension. */
static bool is_slow(const planner *p, double seconds) { return 0.98 * seconds > 1.05 * p->best; }

/* Returns the seconds of a step with that many microbatches, or INFINITY if it is impossible. *more
 * is set if the plan was too large and gave up something in way w. With w NULL it gives up
 * nothing. */
static double weigh(const planner *p, plan_choice *choice, int microbatches, plan_care care,
                    const way *w, bool *more) {
  plan_made made;
  *more = false;
  choice->bytes = 0;
  if (planner_make(p, choice, microbatches, care, &made)) return INFINITY;
  choice->bytes = sli_plan_most_bytes(made.planned.plan), choice->hash = made.planned.plan->hash;
  choice->firings = sli_plan_firings(made.planned.plan);
  double seconds = seconds_of(made.planned.plan);
  if (!fits(p, choice) && w && !is_slow(p, seconds)) *more = give_up_any(p, choice, &made, w);
  planner_unmake(&made);
  return seconds;
}

/* Relaxes the plan until it fits or nothing is left to give up. */
static double lessen(const planner *p, plan_choice *choice, int microbatches, plan_care care,
                     const way *w) {
  bool more = true;
  double seconds = INFINITY;
  for (int round = 0; round < ROUNDS && more; round++)
    seconds = weigh(p, choice, microbatches, care, w, &more);
  return fits(p, choice) ? seconds : INFINITY;
}

/* Gives up everything that may be given up. */
static void give_up_all(const planner *p, plan_choice *choice, int microbatches) {
  plan_made made;
  choice->bytes = 0;
  if (planner_make(p, choice, microbatches, PLAN_ROUGH, &made)) return;
  choice->relaxation = planner_relaxation_create(&made.planned, choice);
  for (int w = 0; w < WAYS; w++)
    if (may(p, choice, &ways[w]) &&
        planner_relax(choice->relaxation, &made.planned, 0, ways[w].slots))
      choice->at[ways[w].dim] = ways[w].value;
  planner_unmake(&made);
  if (planner_make(p, choice, microbatches, PLAN_ROUGH, &made)) return;
  choice->bytes = sli_plan_most_bytes(made.planned.plan);
  planner_unmake(&made);
}

/* ---- many microbatches ----------------------------------------------------------------------- */

planner_counts planner_counts_of(const planner *p, const plan_choice *choice) {
  int m = choice->at[PLAN_MICROBATCHES], unit = choice->at[PLAN_STAGES] * choice->at[PLAN_CHUNKS];
  int few = (PLANNER_FEW + 2 * unit - 1) / unit * unit, more = few + unit;
  bool all = !p->batch || planner_leaves_out(p) || m <= more + unit;
  return all ? (planner_counts){0, m} : (planner_counts){few, more};
}

/* Extrapolates the time of a step from the seconds at the larger number. */
static void extrapolate(const planner *p, plan_choice *choice, planner_counts n, double seconds) {
  plan_care care = planner_care(p);
  bool more;
  choice->seconds = seconds;
  choice->exact = (care == PLAN_EXACT || plan_is_alike(p->settings, p->devices)) && !n.few;
  if (!n.few || !(seconds < INFINITY) || !fits(p, choice)) return;
  plan_choice fewer = *choice;
  double first = weigh(p, &fewer, n.few, care, NULL, &more);
  choice->seconds =
      first < INFINITY
          ? first + (seconds - first) * (choice->at[PLAN_MICROBATCHES] - n.few) / (n.more - n.few)
          : INFINITY;
}

/* ---- interface ------------------------------------------------------------------------------- */

/* Compares by time; two choices that do not fit are compared by memory. */
static bool is_better(const planner *p, const plan_choice *a, const plan_choice *b) {
  if (fits(p, a) != fits(p, b)) return fits(p, a);
  if (fits(p, a)) return a->seconds < b->seconds;
  return a->bytes && a->bytes < b->bytes;
}

static void try_way(const planner *p, const plan_choice *given, plan_choice *choice,
                    planner_counts n, const way *w) {
  plan_choice x = *given;
  extrapolate(p, &x, n, lessen(p, &x, n.more, planner_care(p), w));
  bool better = is_better(p, &x, choice);
  planner_relaxation_destroy(better ? choice->relaxation : x.relaxation);
  if (better) *choice = x;
}

/* Returns whether the estimate does not prefer another way. */
static bool is_promising(const plan_choice *choice, const way *w) {
  return !choice->refined || choice->estimate == INFINITY || w->slots == choice->by_slots;
}

/* Returns whether a choice is too large even at its smallest. */
static bool cannot_fit(const planner *p, plan_choice *choice, planner_counts n) {
  plan_choice least = *choice;
  give_up_all(p, &least, n.more);
  bool large = least.bytes && !fits(p, &least);
  if (large && least.bytes < choice->bytes) *choice = least;
  else planner_relaxation_destroy(least.relaxation);
  return large;
}

void planner_try(void *ctx, size_t i) {
  const planner *p = ctx;
  plan_choice *choice = &p->choices[i];
  const plan_choice given = *choice;
  const planner_counts n = planner_counts_of(p, choice);
  bool more;
  bool large = choice->refined && p->budget && choice->estimated_bytes > (double)p->budget,
       slow = false;
  if (!large) {
    extrapolate(p, choice, n, weigh(p, choice, n.more, planner_care(p), NULL, &more));
    if (!choice->bytes || fits(p, choice)) return;
    slow = is_slow(p, choice->seconds);
  }
  choice->seconds = INFINITY;
  if (slow || (!large && cannot_fit(p, choice, n))) return;
  for (int w = 0; w < WAYS; w++)
    if (may(p, &given, &ways[w]) && is_promising(choice, &ways[w]))
      try_way(p, &given, choice, n, &ways[w]);
}

void planner_weigh(const planner *p, plan_choice *choice) {
  bool more;
  choice->seconds = weigh(p, choice, choice->at[PLAN_MICROBATCHES], PLAN_EXACT, NULL, &more);
  if (!fits(p, choice)) choice->seconds = INFINITY;
}

void planner_try_least(void *ctx, size_t i) {
  const planner *p = ctx;
  plan_choice *choice = &p->choices[i];
  give_up_all(p, choice, planner_counts_of(p, choice).more);
}

/* Returns the way in which a choice was relaxed. */
static const way *way_of(const plan_choice *choice) {
  for (int w = 0; choice->relaxation && w < WAYS; w++)
    if (choice->at[ways[w].dim] == ways[w].value) return &ways[w];
  return NULL;
}

void planner_try_exact(void *ctx, size_t i) {
  const planner *p = ctx;
  plan_choice *choice = &p->choices[i];
  if (choice->exact || !(choice->seconds < INFINITY)) return;
  choice->seconds = lessen(p, choice, choice->at[PLAN_MICROBATCHES], PLAN_EXACT, way_of(choice));
  choice->exact = true;
}
