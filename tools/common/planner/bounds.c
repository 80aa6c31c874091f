/* SPDX-License-Identifier: Apache-2.0 */
/* Lower bounds of a choice's time and memory, computed before its plan is made.
 *
 * For each combination of tensor and sequence parallelism, rows of a microbatch and recompute mode,
 * one plan of a single stage is made. It shows what a device computes and exchanges for a
 * microbatch, and how many bytes of each kind it holds. Each of S stages has an S-th of this on
 * average, and the busiest stage has at least the mean. A step therefore takes at least the sum of
 * three times: its microbatches on one stage, the filling and draining of the pipeline where the
 * schedule leaves it empty, and the update. The largest device holds at least its share of the
 * parameters, of their gradients and optimizer state, and of the activations that the first passes
 * leave.
 *
 * If the model declares its number of layers, and the cost proves to grow evenly with it, these
 * plans are made with few layers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"
#include "tools/common/planner/planner_inner.h"

/* Costs of a stage: seconds of a microbatch, the exchange part of them, and seconds of an update;
 * and bytes. */
enum { PASSES, EXCHANGES, UPDATE, PARAMETERS, GRADIENTS, OPTIMIZER, ACTIVATIONS, BLOCKS, FIGURES };

typedef struct stage {
  /* dimensions that decide the cost */
  int tensor, sequence, experts, expert_tensor, pieces, rows, recompute;
  plan_choice choice; /* the first choice with these dimensions */
  bool known;
  double of[FIGURES];
} stage;

typedef struct stages {
  planner *planner;
  bool even; /* all layers cost the same */
  size_t count, capacity;
  stage *of;
} stages;

static int bounds_rows_of(const planner *p, const plan_choice *choice) {
  return p->batch ? p->batch / choice->at[PLAN_DATA] / choice->at[PLAN_MICROBATCHES] : 0;
}

/* Returns the key of a choice's stage. If the batch size is unknown, rows follow from the number
 * of parts a step is cut into. */
static stage key_of(const planner *p, const plan_choice *choice) {
  int rows =
      p->batch ? bounds_rows_of(p, choice) : -choice->at[PLAN_DATA] * choice->at[PLAN_MICROBATCHES];
  return (stage){.tensor = choice->at[PLAN_TENSOR],
                 .sequence = choice->at[PLAN_SEQUENCE],
                 .experts = choice->at[PLAN_EXPERTS],
                 .expert_tensor = choice->at[PLAN_EXPERT_TENSOR],
                 .pieces = choice->at[PLAN_PIECES],
                 .rows = rows,
                 .recompute = choice->at[PLAN_RECOMPUTE],
                 .choice = *choice};
}

static bool same(const stage *a, const stage *b) {
  return a->tensor == b->tensor && a->sequence == b->sequence && a->experts == b->experts &&
         a->expert_tensor == b->expert_tensor && a->pieces == b->pieces && a->rows == b->rows &&
         a->recompute == b->recompute;
}

static size_t bounds_find(const stages *all, const stage *key) {
  size_t i = 0;
  while (i < all->count && !same(&all->of[i], key)) i++;
  return i;
}

/* ---- one stage ------------------------------------------------------------------------------- */

static void add_times(double to[FIGURES], const sl_plan *plan) {
  for (int32_t i = 0; i < plan->nactors; i++) {
    const sl_actor *a = &plan->actors[i];
    if (plan->queues[a->queue].device) continue;
    double seconds = a->seconds * (double)a->firings_per_step;
    if (a->cls <= SL_CLASS_W) to[PASSES] += seconds / plan->microbatches;
    else if (a->cls == SL_CLASS_U) to[UPDATE] += seconds;
    else if (a->cls == SL_CLASS_C && a->firings_per_step >= plan->microbatches)
      to[EXCHANGES] += seconds / plan->microbatches;
  }
}

/* Returns the smallest data-parallel degree over which the experts can be distributed. */
static int data_of(const stage *s) {
  bool own = s->tensor > 1 && s->expert_tensor == 1;
  return own ? s->experts / (int)sli_common_divisor(s->experts, s->tensor) : s->experts;
}

/* Returns how many microbatches a plan needs. Tensor parallelism needs many, because the cheapest
 * sharding depends on their number. Other exchanges need two, to tell exchange per step from
 * exchange per microbatch. */
static int microbatches_of(const stage *s) {
  return s->tensor > 1 ? PLANNER_FEW : s->experts * s->sequence > 1 ? 2 : 1;
}

/* Makes the plan with this many layers; 0 means the model's number. */
static bool make_with(const planner *p, const stage *s, int layers, double of[FIGURES]) {
  plan_choice c = s->choice;
  plan_made made;
  int data = data_of(s), microbatches = p->batch ? microbatches_of(s)
                                                 : c.at[PLAN_DATA] * c.at[PLAN_MICROBATCHES] / data;
  if (p->batch) c.at[PLAN_MICROBATCHES] = p->batch / s->rows / data;
  c.at[PLAN_STAGES] = c.at[PLAN_CHUNKS] = 1;
  c.at[PLAN_DATA] = data;
  c.at[PLAN_SCHEDULE] = c.at[PLAN_SHARD] = c.at[PLAN_HOME] = 0;
  if (planner_make_with(p, &c, microbatches, PLAN_ROUGH, layers, &made)) return false;
  const sl_plan *plan = made.planned.plan;
  memset(of, 0, FIGURES * sizeof *of);
  add_times(of, plan);
  of[BLOCKS] = made.planned.graph->nblocks;
  of[PARAMETERS] = (double)sl_plan_memory(plan, 0, SL_MEMORY_PARAMETERS);
  of[GRADIENTS] = (double)sl_plan_memory(plan, 0, SL_MEMORY_GRADIENTS);
  of[OPTIMIZER] = (double)sl_plan_memory(plan, 0, SL_MEMORY_OPTIMIZER);
  of[ACTIVATIONS] = (double)sl_plan_memory(plan, 0, SL_MEMORY_ACTIVATIONS);
  planner_unmake(&made);
  return true;
}

enum { FEW_LAYERS = 2, SOME_LAYERS = 4, MANY_LAYERS = 8 };

/* Extrapolates from two plans with few layers. Returns false if the part independent of layers
 * would be negative. */
static bool make_few(const planner *p, const stage *s, double of[FIGURES]) {
  double few[FIGURES], some[FIGURES];
  bool good = make_with(p, s, FEW_LAYERS, few) && make_with(p, s, SOME_LAYERS, some);
  for (int f = 0; f < FIGURES && good; f++) {
    double layer = (some[f] - few[f]) / (SOME_LAYERS - FEW_LAYERS),
           rest = few[f] - FEW_LAYERS * layer;
    good = layer >= 0 && rest >= 0;
    of[f] = rest + p->layers * layer;
  }
  return good;
}

static void make_stage(void *ctx, size_t i) {
  stages *all = ctx;
  stage *s = &all->of[i];
  s->known =
      (all->even && make_few(all->planner, s, s->of)) || make_with(all->planner, s, 0, s->of);
}

/* Checks whether a plan of few layers predicts the whole model. */
static void compare_layers(stages *all) {
  const planner *p = all->planner;
  double few[FIGURES];
  stage *s = &all->of[0];
  if (!all->count || !(s->known = make_with(p, s, 0, s->of))) return;
  all->even = p->layers >= MANY_LAYERS && make_few(p, s, few);
  for (int f = 0; f < FIGURES; f++) all->even &= fabs(few[f] - s->of[f]) <= 0.01 * s->of[f];
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* Lower bound of a step's seconds. Without zero-bubble schedules the last stage waits for its
 * first microbatch, and the first stage for the last one to return. Exchange overlaps passes,
 * but is serial within a microbatch. */
static double least_seconds(const plan_choice *choice, const stage *s) {
  double S = choice->at[PLAN_STAGES], busy = fmax(s->of[PASSES], s->of[EXCHANGES]) / S;
  bool fills = !strncmp(planner_word(PLAN_SCHEDULE, choice->at[PLAN_SCHEDULE]), "zb", 2);
  double way =
      (s->of[PASSES] + s->of[EXCHANGES]) / S / choice->at[PLAN_CHUNKS] / choice->at[PLAN_PIECES];
  double shared = choice->at[PLAN_SHARD] ? choice->at[PLAN_DATA] * choice->at[PLAN_SEQUENCE] : 1;
  return 0.98 * (choice->at[PLAN_MICROBATCHES] * busy + (fills ? 0 : (S - 1) * way) +
                 s->of[UPDATE] / S / shared);
}

static bool state_is_away(const plan_choice *choice) {
  const char *word = planner_word(PLAN_HOME, choice->at[PLAN_HOME]);
  return !strcmp(word, "state") || !strcmp(word, "both");
}

static bool acts_are_away(const plan_choice *choice) {
  const char *word = planner_word(PLAN_HOME, choice->at[PLAN_HOME]);
  return !strcmp(word, "act") || !strcmp(word, "both");
}

/* Returns how many microbatches' activations a stage holds at once, on average, if each stage runs
 * ahead by its distance from the last one. */
static double kept_ahead(const plan_choice *choice) {
  double sum = 0;
  int S = choice->at[PLAN_STAGES];
  for (int d = 0; d < S; d++) sum += SLI_MIN(choice->at[PLAN_MICROBATCHES], S - d);
  return sum / S;
}

static double least_bytes(const plan_choice *choice, const stage *s, double ahead) {
  double S = choice->at[PLAN_STAGES],
         shared = (double)choice->at[PLAN_DATA] * choice->at[PLAN_SEQUENCE];
  double bytes =
      (state_is_away(choice) ? 0 : s->of[OPTIMIZER]) / (choice->at[PLAN_SHARD] > 0 ? shared : 1) +
      s->of[GRADIENTS] / (choice->at[PLAN_SHARD] > 1 ? shared : 1) +
      s->of[PARAMETERS] / (choice->at[PLAN_SHARD] > 2 ? shared : 1);
  bool kept = choice->at[PLAN_PIECES] == 1 && !acts_are_away(choice);
  return 0.98 * (bytes + (kept ? 0.9 * s->of[ACTIVATIONS] * ahead : 0)) / S;
}

/* Returns the seconds to copy offloaded data out and in. Both directions run concurrently. */
static double seconds_of_copies(const planner *p, const plan_choice *choice, const stage *s) {
  const sl_hardware *h = &p->settings->modelled.hardware;
  bool host = planner_away(p) == SL_SPACE_HOST;
  double rate = host ? h->copy_bytes_per_second
                     : SLI_MIN(h->disk_read_bytes_per_second, h->disk_write_bytes_per_second);
  double shared =
      choice->at[PLAN_SHARD] ? (double)choice->at[PLAN_DATA] * choice->at[PLAN_SEQUENCE] : 1;
  double bytes =
      (state_is_away(choice) ? s->of[OPTIMIZER] / shared : 0) +
      (acts_are_away(choice) ? 0.8 * s->of[ACTIVATIONS] * choice->at[PLAN_MICROBATCHES] : 0);
  return rate > 0 ? 0.98 * bytes / choice->at[PLAN_STAGES] / rate : 0;
}

/* ---- choices that do not fit unchanged ------------------------------------------------------- */

/* Returns a lower bound with fewer slots than the schedule wants. With all slots that fit in use, a
 * microbatch leaves a stage no faster than earlier ones make room, so the round trip through later
 * stages limits the rate. */
static double seconds_with_fewer(const planner *p, const plan_choice *choice, const stage *s) {
  double S = choice->at[PLAN_STAGES], none = least_bytes(choice, s, 0), ahead = kept_ahead(choice);
  double one = least_bytes(choice, s, 1) - none,
         slots = one > 0 ? ((double)p->budget - none) / one : ahead;
  if (p->fixed[PLAN_QUOTAS] >= 0 || slots < 1) return INFINITY;
  if (choice->at[PLAN_CHUNKS] > 1 || choice->at[PLAN_PIECES] > 1) return choice->bound;
  double rounds = SLI_MAX(choice->at[PLAN_MICROBATCHES] - S, 0);
  return 0.98 * 0.66 * rounds * s->of[PASSES] / S * ahead / SLI_MIN(slots, ahead);
}

/* Returns a lower bound if some blocks recompute: the fraction of blocks is the excess memory
 * divided by what full recompute saves. */
static double seconds_with_some(const planner *p, const plan_choice *choice, const stage *again) {
  if (!again || p->fixed[PLAN_RECOMPUTE] >= 0 || choice->at[PLAN_RECOMPUTE]) return INFINITY;
  double all = least_bytes(choice, again, kept_ahead(choice)), budget = (double)p->budget;
  if (all > budget) return INFINITY;
  double share = (choice->least - budget) / (choice->least - all),
         most = least_seconds(choice, again);
  return choice->bound + share * SLI_MAX(most - choice->bound, 0);
}

/* Returns a lower bound of bytes with one slot per register and all possible recomputation. */
static double floor_bytes(const planner *p, const plan_choice *choice, const stage *s,
                          const stage *again) {
  bool fewer = p->fixed[PLAN_QUOTAS] < 0,
       some = again && p->fixed[PLAN_RECOMPUTE] < 0 && !choice->at[PLAN_RECOMPUTE];
  double ahead = fewer ? 1 : kept_ahead(choice), kept = least_bytes(choice, s, ahead);
  return some ? SLI_MIN(kept, least_bytes(choice, again, ahead)) : kept;
}

/* Returns the same stage with full recompute, or NULL if it was not examined. */
static const stage *all_again(const stages *all, const stage *s) {
  stage key = *s;
  key.recompute = s->tensor > 1 ? 2 : 1;
  size_t at = bounds_find(all, &key);
  return at < all->count && all->of[at].known ? &all->of[at] : NULL;
}

/* Bounds a choice. Returns false if it is known to be impossible, or too large. */
static bool bound(const stages *all, plan_choice *choice, const stage *s) {
  const planner *p = all->planner;
  choice->least = choice->floor = INFINITY;
  if (!s->known) return false;
  if (choice->at[PLAN_STAGES] * choice->at[PLAN_CHUNKS] > s->of[BLOCKS]) return false;
  const stage *again = all_again(all, s);
  choice->bound = SLI_MAX(least_seconds(choice, s), seconds_of_copies(p, choice, s)),
  choice->least = least_bytes(choice, s, kept_ahead(choice));
  choice->floor = floor_bytes(p, choice, s, again);
  if (!p->budget || choice->least <= (double)p->budget) return true;
  if (choice->floor > (double)p->budget) return false;
  if (p->all) return true;
  double relaxation =
      SLI_MIN(seconds_with_fewer(p, choice, s), seconds_with_some(p, choice, again));
  if (relaxation < INFINITY)
    choice->bound = SLI_MAX(choice->bound, relaxation); /* else it needs both */
  return true;
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
  stages all = {.planner = p};
  if (planner_leaves_out(p)) return; /* a stage alone has other microbatches: nothing is bounded */
  for (size_t i = 0; i < p->count; i++) {
    const stage key = key_of(p, &p->choices[i]);
    if (bounds_find(&all, &key) < all.count) continue;
    SLI_GROW(all.of, all.count, all.capacity);
    all.of[all.count++] = key;
  }
  compare_layers(&all);
  planner_each(p, all.count && all.of[0].known, all.count, make_stage, &all);
  size_t kept = 0;
  for (size_t i = 0; i < p->count; i++) {
    plan_choice c = p->choices[i];
    const stage key = key_of(p, &c);
    bool good = bound(&all, &c, &all.of[bounds_find(&all, &key)]);
    p->choices[i] = p->choices[kept];
    if (good) p->choices[kept++] = c;
    else p->choices[i] = c;
  }
  p->left_out = p->count - kept;
  qsort(p->choices, kept, sizeof *p->choices, by_bound);
  free(all.of);
}
