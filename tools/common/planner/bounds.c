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

#include "tools/common/planner/planner_inner.h"

/* Seconds and bytes of a stage that has all blocks. */
typedef struct whole {
  double passes, exchanges, update; /* seconds of a microbatch, and of a step */
  double bytes[SL_MEMORY_COUNT], activations;
} whole;

static whole add_up(const planner *p, const planner_prices *prices) {
  whole all = {0};
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
 * Exchange overlaps passes, but is serial within a microbatch. */
static double least_seconds(const plan_choice *choice, const whole *all) {
  double S = choice->at[PLAN_STAGES], busy = fmax(all->passes, all->exchanges) / S;
  bool fills = planner_schedule(choice->at[PLAN_SCHEDULE])->split;
  double way =
      (all->passes + all->exchanges) / S / choice->at[PLAN_CHUNKS] / choice->at[PLAN_PIECES];
  double shared = choice->at[PLAN_SHARD] ? choice->at[PLAN_DATA] * choice->at[PLAN_SEQUENCE] : 1;
  return 0.98 * (choice->at[PLAN_MICROBATCHES] * busy + (fills ? 0 : (S - 1) * way) +
                 all->update / S / shared);
}

static bool state_is_away(const plan_choice *choice) {
  const char *word = planner_word(PLAN_HOME, choice->at[PLAN_HOME]);
  return !strcmp(word, "state") || !strcmp(word, "both");
}

static bool acts_are_away(const plan_choice *choice) {
  const char *word = planner_word(PLAN_HOME, choice->at[PLAN_HOME]);
  return !strcmp(word, "act") || !strcmp(word, "both");
}

/* Lower bound of the bytes of the largest device, which has at least the mean: its part of the
 * parameters, gradients and state, and one slot of the activations that `kept` keeps. */
static double least_bytes(const plan_choice *choice, const whole *all, const whole *kept) {
  double shared = (double)choice->at[PLAN_DATA] * choice->at[PLAN_SEQUENCE];
  double bytes = (state_is_away(choice) ? 0 : all->bytes[SL_MEMORY_OPTIMIZER]) /
                     (choice->at[PLAN_SHARD] > 0 ? shared : 1) +
                 all->bytes[SL_MEMORY_GRADIENTS] / (choice->at[PLAN_SHARD] > 1 ? shared : 1) +
                 all->bytes[SL_MEMORY_PARAMETERS] / (choice->at[PLAN_SHARD] > 2 ? shared : 1);
  if (!acts_are_away(choice)) bytes += kept->activations;
  return 0.95 * bytes / choice->at[PLAN_STAGES];
}

double planner_copy_seconds(const planner *p, const plan_choice *choice,
                            const sli_block_price *sum) {
  const sl_hardware *h = &p->settings->modelled.hardware;
  bool host = planner_away(p) == SL_SPACE_HOST;
  double rate = host ? h->copy_bytes_per_second
                     : SLI_MIN(h->disk_read_bytes_per_second, h->disk_write_bytes_per_second);
  double bytes = 0;
  for (int r = 0; r < SLI_ROLES; r++) {
    if (sli_roles[r].memory == SL_MEMORY_OPTIMIZER && state_is_away(choice)) bytes += sum->bytes[r];
    if (sli_roles[r].activation && acts_are_away(choice))
      bytes += 0.8 * sum->bytes[r] * choice->at[PLAN_MICROBATCHES];
  }
  return rate > 0 ? bytes / rate : 0;
}

/* Bounds a choice. Returns false if it is known to be impossible, or too large. */
static bool bound(const planner *p, plan_choice *choice) {
  const planner_prices *prices = planner_prices_at(p, choice->sample),
                       *again = planner_prices_at(p, choice->sample_again);
  choice->least = choice->floor = INFINITY;
  if (!prices || choice->at[PLAN_STAGES] * choice->at[PLAN_CHUNKS] > p->blocks->count) return false;
  const whole all = add_up(p, prices), least = add_up(p, again ? again : prices);
  choice->bound = least_seconds(choice, &all);
  choice->least = choice->floor = least_bytes(choice, &all, &least);
  return !p->budget || choice->least <= (double)p->budget;
}

static int by_bound(const void *a, const void *b) {
  const plan_choice *x = a, *y = b;
  if (x->bound < y->bound || x->bound > y->bound) return x->bound < y->bound ? -1 : 1;
  return memcmp(x->at, y->at, sizeof x->at);
}

bool planner_leaves_out(const planner *p) {
  return p->settings->lower.schedule.paths || p->settings->lower.schedule.skip > 0;
}

/* Bounds all choices. Excluded choices stay at the end of the list: if nothing fits, the smallest
 * is reported. */
void planner_bound(planner *p) {
  if (planner_leaves_out(p)) return; /* a stage alone has other microbatches: nothing is bounded */
  for (size_t i = 0; i < p->count; i++) {
    plan_choice alone = planner_alone(&p->choices[i]), again = planner_again(p, &alone);
    p->choices[i].sample = planner_sample_of(p, &alone);
    p->choices[i].sample_again = planner_sample_of(p, &again);
  }
  planner_samples_make(p);
  size_t kept = 0;
  for (size_t i = 0; i < p->count; i++) {
    plan_choice choice = p->choices[i];
    bool good = bound(p, &choice);
    p->choices[i] = p->choices[kept];
    if (good) p->choices[kept++] = choice;
    else p->choices[i] = choice;
  }
  p->left_out = p->count - kept;
  qsort(p->choices, kept, sizeof *p->choices, by_bound);
}
