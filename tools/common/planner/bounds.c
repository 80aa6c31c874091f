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
  int tensor, sequence, experts, pieces, rows, recompute, microbatches; /* what it hangs on */
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
  return (stage){.tensor = c->at[PLAN_TENSOR], .sequence = c->at[PLAN_SEQUENCE],
                 .experts = c->at[PLAN_EXPERTS], .pieces = c->at[PLAN_PIECES], .rows = rows, .recompute = c->at[PLAN_RECOMPUTE], .choice = *c,
                 .microbatches = c->at[PLAN_TENSOR] > 1 ? SLI_MIN(c->at[PLAN_MICROBATCHES], PLANNER_FEW) : 1};
}

static bool same(const stage *a, const stage *b) {
  return a->tensor == b->tensor && a->sequence == b->sequence && a->experts == b->experts && a->pieces == b->pieces && a->rows == b->rows &&
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
  int microbatches = p->batch ? s->microbatches : c.at[PLAN_DATA] * c.at[PLAN_MICROBATCHES] / s->experts;
  if (p->batch) c.at[PLAN_MICROBATCHES] = p->batch / s->rows / s->experts;
  c.at[PLAN_STAGES] = c.at[PLAN_CHUNKS] = 1;
  c.at[PLAN_DATA] = s->experts;
  c.at[PLAN_SCHEDULE] = c.at[PLAN_SHARD] = c.at[PLAN_HOME] = 0;
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

static bool state_is_away(const plan_choice *c) {
  const char *word = planner_word(PLAN_HOME, c->at[PLAN_HOME]);
  return !strcmp(word, "state") || !strcmp(word, "both");
}

static bool acts_are_away(const plan_choice *c) {
  const char *word = planner_word(PLAN_HOME, c->at[PLAN_HOME]);
  return !strcmp(word, "act") || !strcmp(word, "both");
}

/* Of a microbatch's activations, what all stages keep at once where each goes as far ahead as it is far
 * from the last: the mean of them. */
static double kept_ahead(const plan_choice *c) {
  double sum = 0;
  int S = c->at[PLAN_STAGES];
  for (int d = 0; d < S; d++) sum += SLI_MIN(c->at[PLAN_MICROBATCHES], S - d);
  return sum / S;
}

static double least_bytes(const plan_choice *c, const stage *s, double ahead) {
  double S = c->at[PLAN_STAGES], shared = (double)c->at[PLAN_DATA] * c->at[PLAN_SEQUENCE];
  double bytes = (state_is_away(c) ? 0 : s->optimizer) / (c->at[PLAN_SHARD] > 0 ? shared : 1) + s->gradients / (c->at[PLAN_SHARD] > 1 ? shared : 1) +
                 s->parameters / (c->at[PLAN_SHARD] > 2 ? shared : 1);
  bool kept = c->at[PLAN_PIECES] == 1 && !acts_are_away(c);
  return 0.98 * (bytes + (kept ? 0.9 * s->activations * ahead : 0)) / S;
}

/* What lives elsewhere goes there and back, each way at once. */
static double seconds_of_copies(const planner *p, const plan_choice *c, const stage *s) {
  const sl_hardware *h = &p->settings->modelled.hardware;
  bool host = planner_away(p) == SL_SPACE_HOST;
  double rate = host ? h->copy_bytes_per_second : SLI_MIN(h->disk_read_bytes_per_second, h->disk_write_bytes_per_second);
  double shared = c->at[PLAN_SHARD] ? (double)c->at[PLAN_DATA] * c->at[PLAN_SEQUENCE] : 1;
  double bytes = (state_is_away(c) ? s->optimizer / shared : 0) +
                 (acts_are_away(c) ? 0.8 * s->activations * c->at[PLAN_MICROBATCHES] : 0);
  return rate > 0 ? 0.98 * bytes / c->at[PLAN_STAGES] / rate : 0;
}

/* ---- what does not fit as it is ---------------------------------------------------------------------------- */

/* With fewer slots, which together are as many as there is room for, a microbatch leaves a stage no sooner
 * than those before it let it in: it is away for as long as all stages behind take for it. */
static double seconds_with_fewer(const planner *p, const plan_choice *c, const stage *s) {
  double S = c->at[PLAN_STAGES], none = least_bytes(c, s, 0), ahead = kept_ahead(c);
  double one = least_bytes(c, s, 1) - none, slots = one > 0 ? ((double)p->budget - none) / one : ahead;
  if (p->fixed[PLAN_QUOTAS] >= 0 || slots < 1) return INFINITY;
  if (c->at[PLAN_CHUNKS] > 1 || c->at[PLAN_PIECES] > 1) return c->bound;
  double rounds = SLI_MAX(c->at[PLAN_MICROBATCHES] - S, 0);
  return 0.98 * 0.66 * rounds * s->passes / S * ahead / SLI_MIN(slots, ahead);
}

/* With some blocks that compute again: as large a share of them as of what that saves in all is too much. */
static double seconds_with_some(const planner *p, const plan_choice *c, const stage *again) {
  if (!again || p->fixed[PLAN_RECOMPUTE] >= 0 || c->at[PLAN_RECOMPUTE]) return INFINITY;
  double all = least_bytes(c, again, kept_ahead(c)), budget = (double)p->budget;
  if (all > budget) return INFINITY;
  double share = (c->least - budget) / (c->least - all), most = least_seconds(c, again);
  return c->bound + share * SLI_MAX(most - c->bound, 0);
}

/* The same, with all of it computed again that some blocks may; NULL: that was not looked at. */
static const stage *all_again(const stages *all, const stage *s) {
  stage key = *s;
  key.recompute = s->tensor > 1 ? 2 : 1;
  size_t at = find(all, &key);
  return at < all->count && all->of[at].known ? &all->of[at] : NULL;
}

/* False: it is known not to be, or not to fit. */
static bool bound(const stages *all, plan_choice *c, const stage *s) {
  const planner *p = all->planner;
  c->least = INFINITY;
  if (!s->known) return false;
  if (c->at[PLAN_STAGES] * c->at[PLAN_CHUNKS] > s->blocks) return false;
  c->bound = SLI_MAX(least_seconds(c, s), seconds_of_copies(p, c, s)), c->least = least_bytes(c, s, kept_ahead(c));
  if (p->all || !p->budget || c->least <= (double)p->budget) return true;
  double fewer = seconds_with_fewer(p, c, s), some = seconds_with_some(p, c, all_again(all, s));
  c->bound = SLI_MAX(c->bound, SLI_MIN(fewer, some));
  return c->bound < INFINITY;
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
    bool good = bound(&all, &c, &all.of[find(&all, &key)]);
    p->choices[i] = p->choices[kept];
    if (good) p->choices[kept++] = c;
    else p->choices[i] = c;
  }
  p->left_out = p->count - kept;
  qsort(p->choices, kept, sizeof *p->choices, by_bound);
  free(all.of);
}
