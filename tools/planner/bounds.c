/* SPDX-License-Identifier: Apache-2.0 */
/* Lower bounds of a choice's time and memory, before anything is made of it.
 *
 * A sample without data parallelism (samples.c) shows what a device computes and exchanges for a
 * microbatch. Each of S stages has an S-th of this on average, and the busiest stage has at least
 * the mean. A step therefore takes at least the sum of three times: its microbatches on one stage,
 * the filling and draining of the pipeline where the schedule leaves it empty, and the update. The
 * largest device holds at least its share of parameters, gradients and optimizer state. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/planner/search_inner.h"

/* Seconds and bytes of a stage that has all blocks. */
typedef struct whole {
  double passes, exchanges, update; /* seconds of a microbatch, and of a step */
  double exposed;                   /* fraction of the shorter of the two that is not hidden */
  double bytes[SL_MEMORY_COUNT], activations;
} whole;

static whole add_up(const planner *p, const planner_prices *prices) {
  whole all = {.exposed = prices->exposed};
  for (int b = 0; b < p->blocks->count; b++) {
    const sli_block_price *one = &prices->blocks[p->blocks->like[b]];
    all.passes += one->pass[0] + one->pass[1] + one->pass[2];
    all.exchanges += one->exchange[0] + one->exchange[1] + one->ahead;
    all.update += one->update;
    for (int r = 0; r < SLI_ROLES; r++) {
      all.bytes[sli_roles[r].memory] += one->bytes[r];
      all.activations += sli_roles[r].activation ? one->bytes[r] : 0;
    }
  }
  return all;
}

/* Lower bound of a step's seconds. Unless the schedule fills the pipeline with weight gradients,
 * the last stage waits for its first microbatch, and the first stage for the last one to return.
 * Exchange overlaps passes as far as it did in the sample, but is serial within a microbatch. */
static double least_seconds(const plan_choice *choice, const whole *all) {
  double S = choice->at[PLAN_STAGES];
  double busy =
      (fmax(all->passes, all->exchanges) + all->exposed * fmin(all->passes, all->exchanges)) / S;
  bool fills = planner_schedule(choice->at[PLAN_SCHEDULE])->split;
  double way =
      (all->passes + all->exchanges) / S / choice->at[PLAN_CHUNKS] / choice->at[PLAN_PIECES];
  double shared = (double)choice->at[PLAN_DATA] * choice->at[PLAN_SEQUENCE]; /* if --shard does */
  return 0.98 * (choice->at[PLAN_MICROBATCHES] * busy + (fills ? 0 : (S - 1) * way) +
                 all->update / S / shared);
}

/* Lower bound of the bytes of the largest device, which has at least the mean: its part of the
 * parameters, gradients and state, and one slot of the activations that `kept` keeps. */
static double least_bytes(const plan_choice *choice, const whole *all, const whole *kept) {
  double shared = (double)choice->at[PLAN_DATA] * choice->at[PLAN_SEQUENCE];
  double bytes = (planner_state_is_away(choice) ? 0 : all->bytes[SL_MEMORY_OPTIMIZER]) /
                     (choice->at[PLAN_SHARD] > 0 ? shared : 1) +
                 all->bytes[SL_MEMORY_GRADIENTS] / (choice->at[PLAN_SHARD] > 1 ? shared : 1) +
                 all->bytes[SL_MEMORY_PARAMETERS] / (choice->at[PLAN_SHARD] > 2 ? shared : 1);
  if (!planner_acts_are_away(choice)) bytes += kept->activations;
  return 0.95 * bytes / choice->at[PLAN_STAGES];
}

/* Returns a copy of prices with a part of the rows. */
static planner_prices scaled(const planner_prices *from, double part) {
  planner_prices to = *from;
  size_t count = (size_t)from->nblocks + 1;
  to.blocks = sli_calloc(count, sizeof *to.blocks);
  to.rest *= part;
  for (size_t b = 0; b < count; b++) {
    sli_block_price *one = &to.blocks[b];
    *one = from->blocks[b];
    for (int i = 0; i < 3; i++) one->pass[i] *= part;
    for (int i = 0; i < 2; i++) one->exchange[i] *= part;
    one->ahead *= part, one->shared *= part, one->crossing *= part;
    for (int r = 0; r < SLI_ROLES; r++)
      if (sli_roles[r].memory == SL_MEMORY_ACTIVATIONS) one->bytes[r] *= part;
  }
  return to;
}

/* Bounds a choice by prices (again: NULL if not open). Returns false if it is known not to fit. */
static bool bound_by(const planner *p, plan_choice *choice, const planner_prices *prices,
                     const planner_prices *again) {
  const whole all = add_up(p, prices), least = add_up(p, again ? again : prices);
  choice->bound = least_seconds(choice, &all);
  choice->least = choice->floor =
      fmax(least_bytes(choice, &all, &least), 0.95 * planner_floor(p, choice, prices, again));
  return !p->budget || choice->least <= (double)p->budget;
}

/* Bounds a choice by its samples, of which it has this part of the rows. Returns false if it is
 * known to be impossible, or too large. */
static bool bound(const planner *p, plan_choice *choice, double part) {
  const planner_prices *prices = planner_prices_at(p, choice->sample),
                       *again = planner_prices_at(p, choice->sample_again);
  choice->least = choice->floor = INFINITY;
  if (!prices || choice->at[PLAN_STAGES] * choice->at[PLAN_CHUNKS] > p->blocks->count) return false;
  if (part >= 1) return bound_by(p, choice, prices, again);
  planner_prices less = scaled(prices, part), less_again = {0};
  if (again) less_again = scaled(again, part);
  bool good = bound_by(p, choice, &less, again ? &less_again : NULL);
  free(less.blocks);
  free(less_again.blocks);
  return good;
}

static int by_bound(const void *a, const void *b) {
  const plan_choice *x = a, *y = b;
  if (x->bound < y->bound || x->bound > y->bound) return x->bound < y->bound ? -1 : 1;
  return memcmp(x->at, y->at, sizeof x->at);
}

/* Sorts choices from `from` on: good ones by their bounds, then the others, which stay at the end
 * of the list: if nothing fits, the smallest is reported. */
static void sort_choices(planner *p, size_t from, bool (*is_good)(const planner *, plan_choice *)) {
  size_t kept = from;
  for (size_t i = from; i < p->count - p->left_out; i++) {
    plan_choice choice = p->choices[i];
    bool good = is_good(p, &choice);
    p->choices[i] = p->choices[kept];
    if (good) p->choices[kept++] = choice;
    else p->choices[i] = choice;
  }
  p->left_out = p->count - kept;
  qsort(p->choices + from, kept - from, sizeof *p->choices, by_bound);
}

static plan_choice coarse_of(const planner *p, const plan_choice *c, double *part) {
  plan_choice alone = planner_alone(c);
  if (!p->all) return planner_coarse(p, &alone, part);
  *part = 1;
  return alone;
}

static bool bound_roughly(const planner *p, plan_choice *choice) {
  double part;
  coarse_of(p, choice, &part);
  choice->bounded = part >= 1;
  return bound(p, choice, part);
}

/* Finds the samples of a choice in the list. */
static void find_samples(planner *p, plan_choice *choice, const plan_choice *alike) {
  plan_choice again = planner_again(p, alike);
  choice->sample = planner_sample_of(p, alike);
  choice->sample_again = planner_sample_of(p, &again);
}

static void want_samples(planner *p, const plan_choice *choice) {
  planner_sample_want(p, choice->sample);
  planner_sample_want(p, choice->sample_again);
}

void planner_bound(planner *p) {
  if (planner_leaves_out(p)) return; /* a stage alone has other microbatches: nothing is bounded */
  for (size_t i = 0; i < p->count; i++) {
    double part;
    plan_choice coarse = coarse_of(p, &p->choices[i], &part);
    find_samples(p, &p->choices[i], &coarse);
    want_samples(p, &p->choices[i]);
  }
  planner_samples_make(p);
  sort_choices(p, 0, bound_roughly);
  for (size_t i = 0; i < p->count - p->left_out; i++) {
    plan_choice alone = planner_alone(&p->choices[i]);
    if (!p->choices[i].bounded) find_samples(p, &p->choices[i], &alone);
  }
}

/* Bounds a choice by its own samples if they have been made. */
static bool bound_exactly(const planner *p, plan_choice *choice) {
  if (choice->bounded || !planner_sample_is_made(p, choice->sample) ||
      !planner_sample_is_made(p, choice->sample_again))
    return true;
  choice->bounded = true;
  return bound(p, choice, 1);
}

bool planner_bound_again(planner *p, size_t from, size_t end) {
  bool any = false;
  for (size_t i = from; i < end; i++) {
    if (p->choices[i].bounded) continue;
    want_samples(p, &p->choices[i]);
    any = true;
  }
  if (!any) return false;
  planner_samples_make(p);
  sort_choices(p, from, bound_exactly);
  return true;
}
