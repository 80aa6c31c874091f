/* SPDX-License-Identifier: Apache-2.0 */
/* A step as passes alone: each device runs its forward and backward passes in the order of the
 * microbatches, the class that the schedule prefers first. A forward pass needs a free slot of
 * activations, which the backward pass returns. Messages take the latency from stage to stage.
 *
 * The sketch leaves out everything else that a plan has: other quotas, exchanges, transfers. It
 * takes microseconds where a plan takes milliseconds, and orders paths well enough that the best of
 * a few dozen candidates is nearly always among the best plans. */
#include "graph/search/sketch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { F, B, W, PASSES }; /* classes, in the order of their places */

/* Progress of a stage: next visit of each class, and the pass that it runs next. */
typedef struct stage_state {
  double free;
  int next[PASSES];
  int pass; /* its class; SL_NONE: none is ready */
  double begins;
} stage_state;

struct sli_sketch {
  int stages, m;
  bool split;
  double (*seconds)[PASSES]; /* [stages] */
  double crossing;
  int place[PASSES];        /* of each class in the order of preference */
  int *slots, *late;        /* [stages] slots of activations; W passes that may be deferred */
  stage_state *at;          /* [stages] */
  double *ready[2];         /* [stages][m] time at which F and B may begin */
  int (*before)[2], *which; /* [stages * m] neighbours on the path; [stages * m] visits in order */
  int *visits;              /* [stages] */
};

/* ---- creation -------------------------------------------------------------------------------- */

static bool fits(const sli_inputs *in, const sli_pick *pick) {
  const sli_schedule *row = pick->schedule;
  return pick->v == 1 && in->k == 1 && !row->pool && !row->phases && !row->grouped;
}

static void read_stage(sli_sketch *s, const sli_lowering *l, int stage) {
  const sli_pick *pick = sli_lowering_pick(l);
  const sli_at at = sli_lower_at(l, stage);
  double of[SL_CLASS_COUNT];
  sli_lowering_seconds(l, stage, of);
  s->seconds[stage][F] = of[SL_CLASS_F];
  s->seconds[stage][B] = of[SL_CLASS_B] + (s->split ? 0 : of[SL_CLASS_W]);
  s->seconds[stage][W] = s->split ? of[SL_CLASS_W] : 0;
  sli_formula *slots =
      s->split && pick->schedule->act_w ? pick->schedule->act_w : pick->schedule->act_b;
  s->slots[stage] = SLI_MIN(pick->schedule->act_b(&at), slots(&at));
  s->late[stage] = pick->schedule->watermark ? pick->schedule->watermark(&at) : 0;
}

sli_sketch *sli_sketch_create(const sli_inputs *in, const sli_lowering *l) {
  const sli_pick *pick = sli_lowering_pick(l);
  if (!fits(in, pick)) return NULL;
  sli_sketch *s = sli_calloc(1, sizeof *s);
  size_t stages = (size_t)in->p, all = stages * (size_t)in->m;
  *s = (sli_sketch){.stages = in->p,
                    .m = in->m,
                    .split = pick->split,
                    .seconds = sli_calloc(stages, sizeof *s->seconds),
                    .crossing = sli_lower_crossing(in),
                    .slots = sli_calloc(stages, sizeof(int)),
                    .late = sli_calloc(stages, sizeof(int)),
                    .at = sli_calloc(stages, sizeof *s->at),
                    .ready = {sli_calloc(all, sizeof(double)), sli_calloc(all, sizeof(double))},
                    .before = sli_calloc(all, sizeof *s->before),
                    .which = sli_calloc(all, sizeof(int)),
                    .visits = sli_calloc(stages, sizeof(int))};
  const sl_class classes[] = {SL_CLASS_F, SL_CLASS_B, SL_CLASS_W};
  for (int c = 0, rank; c < PASSES; c++)
    sli_schedule_order(pick->schedule, in->p, in->m, classes[c], 0, &s->place[c], &rank);
  for (int i = 0; i < s->stages; i++) read_stage(s, l, i);
  return s;
}

void sli_sketch_destroy(sli_sketch *s) {
  if (!s) return;
  void *const parts[] = {s->seconds,  s->slots,  s->late,  s->at,    s->ready[F],
                         s->ready[B], s->before, s->which, s->visits};
  for (size_t i = 0; i < SLI_COUNT(parts); i++) free(parts[i]);
  free(s);
}

int64_t sli_sketch_passes(const sli_sketch *s) {
  return (int64_t)s->stages * s->m * (s->split ? 3 : 2);
}

/* ---- one step -------------------------------------------------------------------------------- */

/* Sets the visits of each stage and what comes before and after them. */
static void read_paths(sli_sketch *s, const sli_paths *paths) {
  memset(s->visits, 0, (size_t)s->stages * sizeof(int));
  memset(s->at, 0, (size_t)s->stages * sizeof *s->at);
  for (int i = 0; i < s->m; i++) {
    const sli_path *p = &paths->items[i];
    for (int n = 0; n < p->length; n++) {
      int stage = p->stage[n], at = stage * s->m + i;
      s->before[at][0] = n ? p->stage[n - 1] : SL_NONE;
      s->before[at][1] = n + 1 < p->length ? p->stage[n + 1] : SL_NONE;
      s->ready[F][at] = n ? INFINITY : 0;
      s->ready[B][at] = INFINITY;
      s->which[stage * s->m + s->visits[stage]++] = i;
    }
  }
}

/* Returns the time from which a stage can run its next pass of a class; INFINITY: not yet known. */
static double begins(const sli_sketch *s, int stage, int c) {
  const stage_state *x = &s->at[stage];
  if (x->next[c] >= s->visits[stage]) return INFINITY;
  int freed = s->split ? x->next[W] : x->next[B];
  if (c == F && x->next[F] - freed >= s->slots[stage]) return INFINITY;
  if (c == W) return x->next[W] < x->next[B] ? x->free : INFINITY;
  int i = s->which[stage * s->m + x->next[c]];
  return SLI_MAX(x->free, s->ready[c][stage * s->m + i]);
}

/* Returns the place of a class in the order: lazy W comes last until enough of it is deferred. */
static int place_of(const sli_sketch *s, int stage, int c) {
  const stage_state *x = &s->at[stage];
  bool lazy = c == W && x->next[B] - x->next[W] <= s->late[stage];
  return lazy ? PASSES + SL_CLASS_COUNT : s->place[c];
}

/* Finds the pass that a stage runs next, and when. */
static void choose(sli_sketch *s, int stage) {
  const int classes = s->split ? PASSES : W;
  stage_state *x = &s->at[stage];
  double at[PASSES];
  x->pass = SL_NONE;
  x->begins = INFINITY;
  for (int c = 0; c < classes; c++) {
    at[c] = begins(s, stage, c);
    x->begins = SLI_MIN(x->begins, at[c]);
  }
  for (int c = 0; c < classes && x->begins < INFINITY; c++)
    if (at[c] <= x->begins &&
        (x->pass == SL_NONE || place_of(s, stage, c) < place_of(s, stage, x->pass)))
      x->pass = c;
}

/* Runs a stage's next pass, which makes its neighbour's pass ready. */
static void run(sli_sketch *s, int stage) {
  stage_state *x = &s->at[stage];
  const int c = x->pass, i = s->which[stage * s->m + x->next[c]++];
  x->free = x->begins + s->seconds[stage][c];
  int to = c == W ? SL_NONE : s->before[stage * s->m + i][c == F];
  if (to != SL_NONE) s->ready[c][to * s->m + i] = x->free + s->crossing;
  else if (c == F) s->ready[B][stage * s->m + i] = x->free;
  choose(s, stage);
  if (to != SL_NONE) choose(s, to);
}

/* Returns the stage whose next pass begins first, or SL_NONE. */
static int first_stage(const sli_sketch *s) {
  int first = SL_NONE;
  for (int i = 0; i < s->stages; i++)
    if (s->at[i].pass != SL_NONE && (first == SL_NONE || s->at[i].begins < s->at[first].begins))
      first = i;
  return first;
}

double sli_sketch_seconds(sli_sketch *s, const sli_paths *paths) {
  double end = 0;
  read_paths(s, paths);
  for (int i = 0; i < s->stages; i++) choose(s, i);
  for (int stage; (stage = first_stage(s)) != SL_NONE;) run(s, stage);
  for (int i = 0; i < s->stages; i++) {
    if (s->at[i].next[B] < s->visits[i]) return INFINITY; /* the stages wait for each other */
    end = SLI_MAX(end, s->at[i].free);
  }
  return end;
}
