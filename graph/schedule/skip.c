/* --skip: a search for paths that leave out a share of all visits.
 *
 * Each stage between the first and the last is left out equally often, and microbatches leave out equally
 * many, as far as that comes out. The search begins greedily: one microbatch after the other leaves out
 * those that are most in arrears, from a stage on that goes round; of a few ways to go round the best is
 * taken. Then pairs change places as long as a step gets shorter on the virtual clock: a stage that one
 * microbatch leaves out against one that another leaves out, which keeps the balance; and, with --swap, two stages
 * that follow each other on one microbatch's path.
 *
 * The effort is counted in firings, not in seconds, so that every process finds the same paths. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/lower/lower.h"

enum { MOST_FIRINGS = 2000000 };

typedef struct search {
  const sli_inputs *in;
  sli_pick pick;
  sli_paths paths;       /* that it is at */
  int stages, out;       /* stages; how many microbatches leave each of those between the ends out */
  bool swap;
  bool *visits;          /* [m][stages] */
  double seconds;        /* of a step with them */
  int64_t firings;       /* spent so far */
  sl_status failure;     /* of the last that cannot be, */
  char *why;             /* and its text */
} search;

/* ---- what paths are worth ------------------------------------------------------------------ */

static sl_status predict(search *s, sli_lowering *l, double *seconds) {
  sl_figures f;
  sl_status status = sli_lower_predict(l, &s->firings, &f);
  if (status) return status;
  *seconds = f.step_seconds;
  free(f.devices);
  return SL_OK;
}

/* Seconds of a step; INFINITY: there is no such plan. */
static double try_paths(search *s) {
  double seconds = INFINITY;
  s->pick.paths = &s->paths;
  sli_lowering *l = sli_lowering_create(s->in, &s->pick);
  sl_status status = predict(s, l, &seconds);
  sli_lowering_destroy(l);
  if (!status) return seconds;
  free(s->why);
  s->failure = status;
  s->why = sli_strdup(sl_detail());
  return INFINITY;
}

static bool can_go_on(const search *s) { return s->firings < MOST_FIRINGS; }

/* ---- the greedy beginning ------------------------------------------------------------------- */

static bool *visit(search *s, int microbatch, int stage) {
  return &s->visits[microbatch * s->stages + stage];
}

/* The stages that are visited, as they come along the model. */
static void set_path(search *s, int microbatch) {
  sli_path *p = &s->paths.of[microbatch];
  p->length = 0;
  for (int i = 0; i < s->stages; i++)
    if (*visit(s, microbatch, i)) p->stage[p->length++] = i;
}

/* The next that is to be left out: most often still, the first from `at` on in steps of `stride`. */
static int next_out(search *s, int microbatch, const int *left, int at, int stride) {
  int between = s->stages - 2, best = SL_NONE;
  for (int n = 0; n < between; n++) {
    int stage = 1 + (at + n * stride) % between;
    if (*visit(s, microbatch, stage) && (best == SL_NONE || left[stage] > left[best])) best = stage;
  }
  return best;
}

static void begin(search *s, int stride) {
  int between = s->stages - 2, m = s->in->m, at = 0;
  int *left = sli_calloc((size_t)s->stages, sizeof *left);
  for (int i = 1; i <= between; i++) left[i] = s->out;
  memset(s->visits, 1, (size_t)(m * s->stages) * sizeof *s->visits);
  int64_t all = (int64_t)s->out * between;
  for (int i = 0; i < m; i++) {
    for (int n = (int)(all * i / m); n < (int)(all * (i + 1) / m); n++) {
      int stage = next_out(s, i, left, at, stride);
      *visit(s, i, stage) = false;
      left[stage]--;
      at = stage - 1 + stride;
    }
    set_path(s, i);
  }
  free(left);
}

/* Of all ways to go round. Returns the stride of the best. */
static int best_stride(search *s) {
  int best = 1, between = s->stages - 2;
  s->seconds = INFINITY;
  for (int stride = 1; stride < SLI_MAX(between, 2) && can_go_on(s); stride++) {
    if (sli_common_divisor(between, stride) != 1) continue;
    begin(s, stride);
    double seconds = try_paths(s);
    if (seconds >= s->seconds) continue;
    s->seconds = seconds;
    best = stride;
  }
  return best;
}

/* ---- exchanging ------------------------------------------------------------------------------- */

/* Is what is there now better? */
static bool is_better(search *s) {
  double seconds = try_paths(s);
  bool better = seconds < s->seconds * (1 - 1e-9);
  if (better) s->seconds = seconds;
  return better;
}

/* Puts a stage in the place of another one on a path: where it comes along the model, if the path goes
 * along it. */
static void replace(search *s, int microbatch, int stage, int by) {
  *visit(s, microbatch, stage) = false;
  *visit(s, microbatch, by) = true;
  set_path(s, microbatch);
}

/* Microbatch i takes stage `a` again and leaves `b` out, which j left out until now. */
static bool exchange(search *s, int i, int j, int a, int b) {
  replace(s, i, b, a);
  replace(s, j, a, b);
  if (is_better(s)) return true;
  replace(s, i, a, b);
  replace(s, j, b, a);
  return false;
}

static bool exchange_two(search *s, int i, int j) {
  bool better = false;
  for (int a = 1; a + 1 < s->stages; a++)
    for (int b = 1; b + 1 < s->stages; b++) {
      bool fits = !*visit(s, i, a) && *visit(s, j, a) && *visit(s, i, b) && !*visit(s, j, b);
      if (fits && can_go_on(s)) better |= exchange(s, i, j, a, b);
    }
  return better;
}

/* Those near each other first. */
static void exchange_all(search *s) {
  bool better = true;
  while (better && can_go_on(s)) {
    better = false;
    for (int apart = 1; apart < s->in->m; apart++)
      for (int i = 0; i + apart < s->in->m; i++) better |= exchange_two(s, i, i + apart);
  }
}

static void turn(sli_path *p, int at) {
  int stage = p->stage[at];
  p->stage[at] = p->stage[at + 1];
  p->stage[at + 1] = stage;
}

static void swap_all(search *s) {
  bool better = s->swap;
  while (better && can_go_on(s)) {
    better = false;
    for (int i = 0; i < s->in->m; i++)
      for (int n = 1; n + 2 < s->paths.of[i].length && can_go_on(s); n++) {
        turn(&s->paths.of[i], n);
        if (is_better(s)) better = true;
        else turn(&s->paths.of[i], n);
      }
  }
}

/* ---- the search ----------------------------------------------------------------------------------- */

/* As many as come nearest to the share of all visits. */
static sl_status count_out(search *s, double share) {
  int between = s->stages - 2, m = s->in->m;
  double most = between > 0 ? (double)(m - 1) * between / ((double)m * s->stages) : 0;
  s->out = between > 0 ? (int)lround(share * m * s->stages / between) : 0;
  if (s->out >= 1 && s->out < m) return SL_OK;
  return sl_fail(SL_E_USAGE, "skip %g: of %d microbatches on %d stages, of which the first and the last are "
                 "always visited, from %.3g to %.3g of all visits can be left out", share, m, s->stages,
                 SLI_MIN(most, (double)between / ((double)m * s->stages)), most);
}

static void make_room(search *s) {
  int m = s->in->m;
  s->visits = sli_calloc((size_t)(m * s->stages), sizeof *s->visits);
  s->paths = (sli_paths){.file = "skip", .microbatches = m};
  s->paths.of = sli_arena_alloc(&s->in->g->arena, (size_t)m * sizeof *s->paths.of);
  for (int i = 0; i < m; i++)
    s->paths.of[i].stage = sli_arena_alloc(&s->in->g->arena, (size_t)s->stages * sizeof(int));
}

static sl_status find(search *s) {
  int stride = best_stride(s);
  if (s->seconds == INFINITY) return sl_fail(s->failure, "%s", s->why);
  begin(s, stride);
  exchange_all(s);
  swap_all(s);
  return SL_OK;
}

sl_status sli_skip(const sli_inputs *in, double share, bool swap, sli_pick *pick) {
  search s = {.in = in, .pick = *pick, .stages = in->p * pick->v, .swap = swap};
  sl_status status = count_out(&s, share);
  if (status) return status;
  make_room(&s);
  status = find(&s);
  if (!status) {
    sli_paths *found = sli_arena_alloc(&in->g->arena, sizeof *found);
    *found = s.paths;
    pick->paths = found;
  }
  free(s.visits);
  free(s.why);
  return status;
}
