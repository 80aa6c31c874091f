/* What a choice takes at least, in time and memory, before its plan is made.
 *
 * Of each number of devices that share tensors and sequences, rows of a microbatch and way to compute again
 * one plan is made, of one stage (and of as many microbatches, as far as the way to share tensors hangs on
 * that): what a device takes for one, to compute and to
 * exchange, and how many bytes of each kind it holds. S stages have at least an S-th each: the busiest of
 * them no less than their mean. So a step takes no less than its microbatches on one stage, the filling and
 * draining of the pipeline where the schedule leaves it empty, and the update; and the largest device no
 * less than its share of the parameters, of what belongs to them, and of the activations that the first
 * passes leave. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"
#include "tools/common/planner/inner.h"

typedef struct stage {
  int tensor, sequence, pieces, rows, recompute, microbatches; /* what it hangs on */
  plan_choice choice;                            /* the first that hangs on it */
  bool known;
  int blocks;
  double passes, exchanges, update;              /* seconds: of a microbatch, of a step */
  double parameters, gradients, optimizer, activations; /* bytes */
} stage;

typedef struct stages {
  planner *planner;
  size_t count, capacity;
  stage *of;
} stages;

static int rows_of(const planner *p, const plan_choice *c) {
  return p->batch ? p->batch / c->at[PLAN_DATA] / c->at[PLAN_MICROBATCHES] : 0;
}

/* Without a batch rows are as many as the parts that a step is cut into leave. */
static stage key_of(const planner *p, const plan_choice *c) {
  int rows = p->batch ? rows_of(p, c) : -c->at[PLAN_DATA] * c->at[PLAN_MICROBATCHES];
  return (stage){.tensor = c->at[PLAN_TENSOR], .sequence = c->at[PLAN_SEQUENCE], .pieces = c->at[PLAN_PIECES],
                 .rows = rows, .recompute = c->at[PLAN_RECOMPUTE], .choice = *c,
                 .microbatches = c->at[PLAN_TENSOR] > 1 ? SLI_MIN(c->at[PLAN_MICROBATCHES], PLANNER_FEW) : 1};
}

static bool same(const stage *a, const stage *b) {
  return a->tensor == b->tensor && a->sequence == b->sequence && a->pieces == b->pieces && a->rows == b->rows &&
         a->recompute == b->recompute && a->microbatches == b->microbatches;
}

static size_t find(const stages *all, const stage *key) {
  size_t i = 0;
  while (i < all->count && !same(&all->of[i], key)) i++;
  return i;
}

/* ---- one stage -------------------------------------------------------------------------------------- */

static void add_times(stage *s, const sl_plan *plan) {
  for (int32_t i = 0; i < plan->nactors; i++) {
    const sl_actor *a = &plan->actors[i];
    if (plan->queues[a->queue].device) continue;
    double seconds = a->seconds * (double)a->firings_per_step;
    if (a->cls <= SL_CLASS_W) s->passes += seconds / plan->microbatches;
    else if (a->cls == SL_CLASS_U) s->update += seconds;
    else if (a->cls == SL_CLASS_C && a->firings_per_step >= plan->microbatches) s->exchanges += seconds / plan->microbatches;
  }
}

static void make_stage(void *ctx, size_t i) {
  stages *all = ctx;
  stage *s = &all->of[i];
  const planner *p = all->planner;
  plan_choice c = s->choice;
  plan_made made;
  int microbatches = p->batch ? s->microbatches : c.at[PLAN_DATA] * c.at[PLAN_MICROBATCHES];
  if (p->batch) c.at[PLAN_MICROBATCHES] = p->batch / s->rows;
  c.at[PLAN_STAGES] = c.at[PLAN_DATA] = c.at[PLAN_CHUNKS] = 1;
  c.at[PLAN_SCHEDULE] = c.at[PLAN_SHARD] = 0;
  if (planner_make(p, &c, microbatches, planner_alike(p), &made)) return;
  const sl_plan *plan = made.planned.plan;
  add_times(s, plan);
  s->blocks = made.planned.graph->nblocks;
  s->parameters = (double)sl_plan_memory(plan, 0, SL_MEMORY_PARAMETERS);
  s->gradients = (double)sl_plan_memory(plan, 0, SL_MEMORY_GRADIENTS);
  s->optimizer = (double)sl_plan_memory(plan, 0, SL_MEMORY_OPTIMIZER);
  s->activations = (double)sl_plan_memory(plan, 0, SL_MEMORY_ACTIVATIONS);
  s->known = true;
  planner_unmake(&made);
}

/* ---- bounds ------------------------------------------------------------------------------------------ */

/* Without zero-bubble schedules the last stage waits for its first microbatch, and the first one for the
 * last to come back. What is exchanged goes beside passes, but in line within a microbatch. */
static double least_seconds(const plan_choice *c, const stage *s) {
  double S = c->at[PLAN_STAGES], busy = fmax(s->passes, s->exchanges) / S;
  bool fills = !strncmp(planner_word(PLAN_SCHEDULE, c->at[PLAN_SCHEDULE]), "zb", 2);
  double way = (s->passes + s->exchanges) / S / c->at[PLAN_CHUNKS] / c->at[PLAN_PIECES];
  double shared = c->at[PLAN_SHARD] ? c->at[PLAN_DATA] * c->at[PLAN_SEQUENCE] : 1;
  return 0.98 * (c->at[PLAN_MICROBATCHES] * busy + (fills ? 0 : (S - 1) * way) + s->update / S / shared);
}

/* Of a microbatch's activations, what all stages keep at once where each goes as far ahead as it is far
 * from the last: the mean of them. */
static double kept_ahead(const plan_choice *c) {
  double sum = 0;
  int S = c->at[PLAN_STAGES];
  for (int d = 0; d < S; d++) sum += SLI_MIN(c->at[PLAN_MICROBATCHES], S - d);
  return sum / S;
}

static double least_bytes(const plan_choice *c, const stage *s) {
  double S = c->at[PLAN_STAGES], shared = c->at[PLAN_DATA] * c->at[PLAN_SEQUENCE];
  double bytes = s->optimizer / (c->at[PLAN_SHARD] > 0 ? shared : 1) + s->gradients / (c->at[PLAN_SHARD] > 1 ? shared : 1) +
                 s->parameters / (c->at[PLAN_SHARD] > 2 ? shared : 1);
  double kept = c->at[PLAN_PIECES] == 1 ? 0.9 * s->activations * kept_ahead(c) : 0;
  return 0.98 * (bytes + kept) / S;
}

/* False: it is known not to be, or not to fit. */
static bool bound(const planner *p, plan_choice *c, const stage *s) {
  c->least = INFINITY;
  if (!s->known) return false;
  if (c->at[PLAN_STAGES] * c->at[PLAN_CHUNKS] > s->blocks) return false;
  c->bound = least_seconds(c, s), c->least = least_bytes(c, s);
  return p->all || !p->budget || c->least <= (double)p->budget;
}

static int by_bound(const void *a, const void *b) {
  const plan_choice *x = a, *y = b;
  if (x->bound < y->bound || x->bound > y->bound) return x->bound < y->bound ? -1 : 1;
  return memcmp(x->at, y->at, sizeof x->at);
}

/* What is left out stays behind the rest: if nothing fits, the smallest is to be named. */
void planner_bound(planner *p) {
  stages all = {.planner = p};
  for (size_t i = 0; i < p->count; i++) {
    const stage key = key_of(p, &p->choices[i]);
    if (find(&all, &key) < all.count) continue;
    SLI_GROW(all.of, all.count, all.capacity);
    all.of[all.count++] = key;
  }
  planner_each(p, 0, all.count, make_stage, &all);
  size_t kept = 0;
  for (size_t i = 0; i < p->count; i++) {
    plan_choice c = p->choices[i];
    const stage key = key_of(p, &c);
    bool good = bound(p, &c, &all.of[find(&all, &key)]);
    p->choices[i] = p->choices[kept];
    if (good) p->choices[kept++] = c;
    else p->choices[i] = c;
  }
  p->left_out = p->count - kept;
  qsort(p->choices, kept, sizeof *p->choices, by_bound);
  free(all.of);
}
