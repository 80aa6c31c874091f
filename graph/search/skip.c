/* SPDX-License-Identifier: Apache-2.0 */
/* --skip: a search for paths that skip a given fraction of all visits.
 *
 * Every inner stage (between the first and the last) is skipped equally often: at first in turn,
 * equally many by each microbatch. A walk starts from there. A move transfers a skip to another
 * microbatch or exchanges two skips. With --swap a move may also shift a stage along a path, for
 * one microbatch or for all with the same path. All moves preserve the balance. To cross plateaus,
 * the walk accepts a move if the step takes no longer than it did a fixed number of tries ago
 * (Burke and Bykov, "The late acceptance hill-climbing heuristic", EJOR 258(1), 2017). The best
 * result is kept.
 *
 * Walks over sketches (sketch.c) then try a hundred times as many paths, without their plans.
 * Plans are made of the best sketches.
 *
 * With skip_in_turn, for plans that are themselves candidates of another search, stages are skipped
 * round-robin without a search.
 *
 * The effort is counted in firings, not in seconds, and random numbers are seeded, so that every
 * process finds the same paths. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/search/search.h"
#include "graph/search/sketch.h"

/* Limits: firings, and tries that a walk looks back. */
enum { MOST_FIRINGS = 2000000, BACK = 24 };

/* Limits of the walks over sketches: passes, walks, candidates whose plans are made. */
enum { SKETCHED_PASSES = 80000000, WALKS = 2, CANDIDATES = 48 };

typedef struct search {
  const sli_inputs *in;
  sli_pick pick;
  sli_paths paths, best;        /* current paths, and the best paths so far */
  double seconds, best_seconds; /* step times with these paths; INFINITY: no valid plan */
  int stages, out;              /* stages; number of microbatches that skip each inner stage */
  bool swap;                    /* also tries other orders of stages */
  uint64_t drawn;               /* state of the random numbers */
  int64_t firings, most;        /* firings spent so far; limit */
  sl_status failure;            /* status of the last plan that failed */
  char *why;                    /* error text of the failure */
} search;

static void copy_paths(const search *s, sli_paths *to, const sli_paths *from) {
  for (int i = 0; i < s->in->m; i++) {
    to->items[i].length = from->items[i].length;
    memcpy(to->items[i].stage, from->items[i].stage, (size_t)from->items[i].length * sizeof(int));
  }
}

/* ---- evaluation ---------------------------------------------------------------------------- */

static sl_status predict(search *s, sli_lowering *l, double *seconds) {
  sl_statistics f;
  sl_status status = sli_lower_predict(l, &s->firings, &f);
  if (status) return status;
  *seconds = f.step_seconds;
  free(f.devices);
  return SL_OK;
}

/* Returns the seconds of a step, or INFINITY if there is no valid plan. */
static double try_paths(search *s) {
  double seconds = INFINITY;
  s->pick.paths = &s->paths;
  sli_lowering *l = sli_lowering_create(s->in, &s->pick);
  sl_status status = predict(s, l, &seconds);
  sli_lowering_destroy(l);
  if (!status) return seconds;
  s->firings += MOST_FIRINGS / 1000; /* so that the search ends even if no plan is possible */
  free(s->why);
  s->failure = status;
  s->why = sli_strdup(sl_detail());
  return INFINITY;
}

static bool can_go_on(const search *s) { return s->firings < s->most; }

static void keep_best(search *s) {
  if (s->seconds >= s->best_seconds * (1 - 1e-9)) return;
  s->best_seconds = s->seconds;
  copy_paths(s, &s->best, &s->paths);
}

/* ---- paths --------------------------------------------------------------------------------- */

static int find_stage(const sli_path *p, int stage) {
  int n = 0;
  while (n < p->length && p->stage[n] != stage) n++;
  return n < p->length ? n : SL_NONE;
}

static void remove_at(sli_path *p, int at) {
  p->length--;
  memmove(p->stage + at, p->stage + at + 1, (size_t)(p->length - at) * sizeof(int));
}

static void insert_at(sli_path *p, int at, int stage) {
  memmove(p->stage + at + 1, p->stage + at, (size_t)(p->length - at) * sizeof(int));
  p->stage[at] = stage;
  p->length++;
}

static void leave_out(sli_path *p, int stage) { remove_at(p, find_stage(p, stage)); }

/* Inserts a stage before the first stage that follows it along the model. */
static void take_in(sli_path *p, int stage) {
  int at = 1;
  while (at + 1 < p->length && p->stage[at] < stage) at++;
  insert_at(p, at, stage);
}

/* Lets microbatches skip equally many stages one after another, in turn. */
static void skip_in_turn(search *s) {
  int between = s->stages - 2, all = s->out * between;
  for (int i = 0, at = 0; i < s->in->m; i++) {
    sli_path *p = &s->paths.items[i];
    for (p->length = 0; p->length < s->stages; p->length++) p->stage[p->length] = p->length;
    for (int end = (int)((int64_t)all * (i + 1) / s->in->m); at < end; at++)
      leave_out(p, 1 + at % between);
  }
}

/* ---- moves ----------------------------------------------------------------------------------- */

/* Returns a random number from 0 to n - 1 (splitmix64). */
static int draw(search *s, int n) {
  uint64_t x = (s->drawn += UINT64_C(0x9E3779B97F4A7C15));
  x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
  return (int)((x >> 33) % (uint64_t)n);
}

/* Moves a skip to another microbatch, or exchanges two skips. Returns false if the drawn move is
 * not possible. */
static bool change_visits(search *s, bool two) {
  sli_path *p = &s->paths.items[draw(s, s->in->m)], *q = &s->paths.items[draw(s, s->in->m)];
  int a = 1 + draw(s, s->stages - 2), b = 1 + draw(s, s->stages - 2);
  if (find_stage(p, a) != SL_NONE || find_stage(q, a) == SL_NONE) return false;
  if (two && (find_stage(p, b) == SL_NONE || find_stage(q, b) != SL_NONE)) return false;
  take_in(p, a), leave_out(q, a);
  if (two) take_in(q, b), leave_out(p, b);
  return true;
}

static bool same_path(const sli_path *p, const sli_path *q) {
  return p->length == q->length && !memcmp(p->stage, q->stage, (size_t)p->length * sizeof(int));
}

static void move(sli_path *p, int from, int to) {
  int stage = p->stage[from];
  remove_at(p, from);
  insert_at(p, to, stage);
}

/* Moves a stage within a path, and with `alike` in all equal paths. */
static bool change_order(search *s, bool alike) {
  int chosen = draw(s, s->in->m), inner = s->paths.items[chosen].length - 2;
  if (inner < 2) return false;
  int from = 1 + draw(s, inner), to = 1 + draw(s, inner);
  for (int i = 0; i < s->in->m; i++)
    if (i != chosen && alike && same_path(&s->paths.items[i], &s->paths.items[chosen]))
      move(&s->paths.items[i], from, to);
  move(&s->paths.items[chosen], from, to);
  return from != to;
}

static bool change(search *s) {
  int kind = draw(s, s->swap ? 4 : 2);
  return kind < 2 ? change_visits(s, kind) : change_order(s, kind == 3);
}

/* Makes a random valid move; returns false if none was found. */
static bool change_any(search *s) {
  enum { DRAWS = 10000 };
  int n = 0;
  while (n < DRAWS && !change(s)) n++;
  return n < DRAWS;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static void walk(search *s, sli_paths *before) {
  double back[BACK];
  copy_paths(s, &s->paths, &s->best);
  s->seconds = s->best_seconds;
  for (int i = 0; i < BACK; i++) back[i] = s->seconds;
  for (int n = 0; can_go_on(s); n = (n + 1) % BACK) {
    copy_paths(s, before, &s->paths);
    if (!change_any(s)) return;
    double seconds = try_paths(s);
    if (seconds <= s->seconds || seconds <= back[n]) s->seconds = seconds;
    else copy_paths(s, &s->paths, before);
    back[n] = s->seconds;
    keep_best(s);
  }
}

/* ---- the walk over sketches ------------------------------------------------------------------ */

typedef struct sketching {
  search *s;
  sli_sketch *sketch;
  sli_paths start, before; /* where walks begin; paths before a move */
  double least;            /* seconds of the candidates */
  int count;               /* candidates found, of which the last CANDIDATES are there */
  sli_paths candidates[CANDIDATES];
} sketching;

/* Adds the paths to the candidates, which all take equally long. */
static void sketch_keep(sketching *k, double seconds) {
  if (seconds > k->least * (1 + 1e-9)) return;
  if (seconds < k->least * (1 - 1e-9)) k->count = 0;
  k->least = SLI_MIN(seconds, k->least);
  copy_paths(k->s, &k->candidates[k->count++ % CANDIDATES], &k->s->paths);
}

/* Walks from the start until its passes are spent. A step may become longer by a threshold, which
 * falls to 0 (Dueck and Scheuer, "Threshold accepting", Journal of Computational Physics 90(1),
 * 1990). */
static void sketch_walk(sketching *k, int64_t passes) {
  const double first = 0.04; /* threshold as a fraction of a step */
  search *s = k->s;
  int64_t tries = passes / sli_sketch_passes(k->sketch);
  double now = sli_sketch_seconds(k->sketch, &k->start), most = first * now;
  copy_paths(s, &s->paths, &k->start);
  for (int64_t n = tries; n > 0; n--) {
    copy_paths(s, &k->before, &s->paths);
    if (!change_any(s)) return;
    double seconds = sli_sketch_seconds(k->sketch, &s->paths);
    if (seconds - now <= most * (double)n / (double)tries) sketch_keep(k, now = seconds);
    else copy_paths(s, &s->paths, &k->before);
  }
}

/* Makes the plans of the candidates. */
static void try_candidates(sketching *k) {
  search *s = k->s;
  for (int i = 0; i < SLI_MIN(k->count, CANDIDATES) && can_go_on(s); i++) {
    copy_paths(s, &s->paths, &k->candidates[i]);
    s->seconds = try_paths(s);
    keep_best(s);
  }
}

static void make_room(const search *s, sli_paths *to);

/* Takes the durations of passes from the plan of the best paths so far. */
static sli_sketch *make_sketch(search *s) {
  s->pick.paths = &s->best;
  sli_lowering *l = sli_lowering_create(s->in, &s->pick);
  sli_sketch *sketch = sli_lower(l) ? NULL : sli_sketch_create(s->in, l);
  sli_lowering_destroy(l);
  return sketch;
}

static void walk_sketches(search *s) {
  sketching k = {.s = s, .sketch = make_sketch(s), .least = INFINITY};
  if (!k.sketch) return;
  make_room(s, &k.start);
  make_room(s, &k.before);
  for (int i = 0; i < CANDIDATES; i++) make_room(s, &k.candidates[i]);
  copy_paths(s, &k.start, &s->best);
  for (int i = 0; i < WALKS; i++) sketch_walk(&k, SKETCHED_PASSES / WALKS);
  sli_sketch_destroy(k.sketch);
  try_candidates(&k);
}

/* ---- the search ------------------------------------------------------------------------------ */

/* Sets the number of skips per inner stage that comes closest to a fraction `share` of all
 * visits. */
static sl_status count_out(search *s, double share) {
  int between = s->stages - 2, m = s->in->m;
  double most = between > 0 ? (double)(m - 1) * between / ((double)m * s->stages) : 0;
  s->out = between > 0 ? (int)lround(share * m * s->stages / between) : 0;
  if (s->out >= 1 && s->out < m) return SL_OK;
  return sl_fail(
      SL_E_USAGE,
      "skip %g: with %d microbatches on %d stages, the first and last of which are always "
      "visited, must be from %.3g to %.3g",
      share, m, s->stages, SLI_MIN(most, (double)between / ((double)m * s->stages)), most);
}

static void make_room(const search *s, sli_paths *to) {
  int m = s->in->m;
  *to = (sli_paths){.file = "skip", .microbatches = m};
  to->items = sli_arena_alloc(&s->in->g->arena, (size_t)m * sizeof *to->items);
  for (int i = 0; i < m; i++)
    to->items[i].stage = sli_arena_alloc(&s->in->g->arena, (size_t)s->stages * sizeof(int));
}

static sl_status skip_find(search *s, bool swap) {
  sli_paths before;
  make_room(s, &before);
  s->seconds = try_paths(s);
  if (s->seconds == INFINITY) return sl_fail(s->failure, "%s", s->why);
  keep_best(s);
  walk(s, &before);
  s->most += MOST_FIRINGS / 4; /* for the candidates */
  walk_sketches(s);
  s->swap = swap;
  s->most += MOST_FIRINGS; /* continues from the best result without swaps, so that it is never
                              worse */
  if (swap) walk(s, &before);
  return SL_OK;
}

sl_status sli_skip(const sli_inputs *in, sli_pick *pick) {
  const sl_lower_options *o = in->options;
  search s = {.in = in,
              .pick = *pick,
              .stages = in->p * pick->v,
              .most = MOST_FIRINGS,
              .best_seconds = INFINITY};
  sl_status status = count_out(&s, o->schedule.skip);
  make_room(&s, &s.paths);
  make_room(&s, &s.best);
  if (!status) skip_in_turn(&s);
  if (!status && o->schedule.skip_in_turn) copy_paths(&s, &s.best, &s.paths);
  else if (!status) status = skip_find(&s, o->schedule.swap);
  if (!status) {
    sli_paths *found = sli_arena_alloc(&in->g->arena, sizeof *found);
    *found = s.best;
    pick->paths = found;
  }
  free(s.why);
  return status;
}
