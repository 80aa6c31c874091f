/* --schedule auto: a search for placement, quotas and priorities on the virtual
 * clock.
 *
 * A candidate is a row of the schedule table, a number of chunks, and a tune:
 * numbers added to the row's credits. What a candidate is worth is what the
 * virtual clock says its plan does with the durations at hand (--profile, --cost
 * or the ops' costs); what it needs is its activations and bytes, which must fit
 * the budget. The search tries every row, as published and squeezed into the
 * budget by a device pool, then credits from the modulo-scheduling bound: a slot
 * lives from F to the end of B or W, a microbatch enters once per initiation
 * interval, so  slots = ceil(lifetime / interval)  (Rau, "Iterative Modulo
 * Scheduling", 1994). From the best few it then climbs: one credit more or
 * less, at one stage or at all, as long as that helps. Since the rows are among
 * the candidates, the result is never worse than the best of them that fits.
 *
 * The effort is counted in firings, not in seconds, so that every process finds
 * the same plan. */
#include "graph/lower/ir.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FIRINGS = 30000000, KEPT = 3, STEPS = 3 };

typedef struct candidate {
  const sli_schedule *row;
  int v;
  sli_tune tune;
  double score;        /* smaller is better; INFINITY: does not fit or finish */
} candidate;

typedef struct search {
  const sli_lowering *origin; /* graph and options of the run */
  int64_t firings;            /* spent so far */
  int ncandidates;
  size_t capacity;
  candidate *candidates;      /* best first, after sorting */
} search;

/* ---- evaluating -------------------------------------------------------------------- */

static double peak_activations(const sl_figures *f, int devices) {
  double peak = 0;
  for (int d = 0; d < devices; d++) peak = SLI_MAX(peak, f->devices[d].peak_activations);
  return peak;
}

static int64_t plan_firings(const sl_plan *plan) {
  int64_t sum = 0;
  for (int32_t i = 0; i < plan->nactors; i++) sum += plan->actors[i].firings_per_step;
  return sum;
}

/* First the bubble, then the time of a step: they differ by what lies between
 * steps, which all candidates share. */
static double score_of(const sli_lowering *l, const sl_figures *f) {
  double budget = l->options->activations;
  if (budget > 0 && peak_activations(f, l->devices) > budget + 1e-9) return INFINITY;
  return f->bubble_fraction + 1e-6 * f->step_seconds / (1e-9 + f->devices[0].busy_seconds);
}

static void lowering_of(const search *s, const candidate *c, sli_lowering *l) {
  const sli_lowering *o = s->origin;
  *l = (sli_lowering){.g = o->g, .options = o->options, .kind = o->kind, .m = o->m, .k = o->k,
                      .flops = o->flops, .grid = o->grid, .two_exchanges = o->two_exchanges,
                      .p = o->p, .v = c->v, .stages = o->p * c->v, .ranks = o->ranks,
                      .tensor = o->tensor, .devices = o->devices, .by_block = o->by_block,
                      .sharding = o->sharding, .schedule = c->row, .split = c->row->split,
                      .tune = &c->tune, .stores = o->stores};
}

static void evaluate(search *s, candidate *c) {
  sli_lowering l;
  sl_figures f;
  lowering_of(s, c, &l);
  c->score = INFINITY;
  if (!sli_lower_once(&l)) {
    s->firings += STEPS * plan_firings(l.plan);
    if (!sl_plan_predict(l.plan, NULL, &f)) {
      c->score = score_of(&l, &f);
      free(f.devices);
    }
  }
  sl_plan_destroy(l.plan);
  sli_lower_free(&l);
}

static int by_score(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  return x->score < y->score ? -1 : x->score > y->score;
}

/* ---- starting points ------------------------------------------------------------------ */

static candidate *add(search *s, const sli_schedule *row, int v) {
  SLI_GROW(s->candidates, (size_t)s->ncandidates, s->capacity);
  candidate *c = &s->candidates[s->ncandidates++];
  *c = (candidate){.row = row, .v = v};
  return c;
}

/* Durations of one microbatch's passes on a stage. */
typedef struct passes {
  double f, b, w;
} passes;

static passes stage_passes(const sli_lowering *l, int stage) {
  passes t = {0};
  for (int i = 0; i < l->ngroups; i++) {
    const sli_group *g = &l->groups[i];
    if (g->stage != stage || g->phase || g->rank) continue;
    if (g->cls == SL_CLASS_F) t.f += g->seconds;
    if (g->cls == SL_CLASS_B) t.b += g->seconds;
    if (g->cls == SL_CLASS_W) t.w += g->seconds;
  }
  return t;
}

/* The modulo bound, as a tune of the row. */
static void bound_credits(const sli_lowering *l, sli_tune *tune) {
  double interval = 0, work[l->p];
  memset(work, 0, sizeof work);
  for (int s = 0; s < l->stages; s++) {
    passes t = stage_passes(l, s);
    work[l->device_of[s]] += t.f + t.b + t.w;
    interval = SLI_MAX(interval, work[l->device_of[s]]);
  }
  double life = 0; /* from F here to the end of B here */
  for (int s = l->stages - 1; s >= 0; s--) {
    passes t = stage_passes(l, s);
    life += t.f + t.b + (s + 1 < l->stages ? 2 * sli_lower_crossing(l) : 0);
    sli_at at = sli_lower_at(l, s);
    int b = l->schedule->act_b(&at), w = l->schedule->act_w ? l->schedule->act_w(&at) : b;
    tune->stage_b[s] = (int)ceil(life / interval - 1e-9) - b;
    tune->stage_w[s] = (int)ceil((life + t.w + (l->split ? interval : 0)) / interval - 1e-9) - w;
  }
}

static void add_bound(search *s, const sli_schedule *row, int v) {
  sli_lowering l;
  candidate plain = {.row = row, .v = v};
  lowering_of(s, &plain, &l);
  if (!sli_lower_once(&l) && l.stages <= SLI_TUNED_STAGES)
    bound_credits(&l, &add(s, row, v)->tune);
  sl_plan_destroy(l.plan);
  sli_lower_free(&l);
}

static bool allowed(const sli_schedule *row, int v) {
  if (row->chunks_fixed) return v == row->chunks;
  return strcmp(row->placement, "line") ? v > 1 : v == 1;
}

static void add_starts(search *s, int v) {
  double budget = s->origin->options->activations;
  int pool = (int)floor(budget * v * s->origin->k + 1e-9);
  for (const sli_schedule *row = sli_schedule_first(); row; row = sli_schedule_next(row)) {
    if (!allowed(row, v)) continue;
    add(s, row, v);
    if (pool >= v) add(s, row, v)->tune.pool_most = pool;
    add_bound(s, row, v);
    for (int order = 1; order <= 2 && sli_lower_crossing(s->origin) > 0; order++)
      add(s, row, v)->tune.order = order;
  }
}

/* ---- climbing ---------------------------------------------------------------------------- */

/* The i-th neighbour of a tune; false when there are no more. */
static bool neighbour(const candidate *c, int stages, int i, sli_tune *out) {
  *out = c->tune;
  int change = i % 2 ? -1 : 1, what = i / 2;
  int *wide[] = {&out->act_b, &out->act_w, &out->pool, &out->watermark};
  if (what < (int)SLI_COUNT(wide)) {
    *wide[what] += change;
    return true;
  }
  what -= (int)SLI_COUNT(wide);
  if (what >= 2 * stages || stages > SLI_TUNED_STAGES) return false;
  (what % 2 ? out->stage_w : out->stage_b)[what / 2] += change;
  return true;
}

static bool can_go_on(const search *s) { return s->firings < MOST_FIRINGS; }

/* Takes the first neighbour that is better, again and again. */
static void climb(search *s, candidate *c) {
  for (bool better = true; better && can_go_on(s);) {
    better = false;
    candidate next = *c;
    for (int i = 0; can_go_on(s) && neighbour(c, s->origin->p * c->v, i, &next.tune); i++) {
      evaluate(s, &next);
      if (next.score >= c->score - 1e-9) continue;
      *c = next;
      better = true;
    }
  }
}

/* ---- the search ----------------------------------------------------------------------------- */

static void try_all(search *s) {
  for (int i = 0; i < s->ncandidates; i++) evaluate(s, &s->candidates[i]);
  qsort(s->candidates, (size_t)s->ncandidates, sizeof *s->candidates, by_score);
  for (int i = 0; i < SLI_MIN(KEPT, s->ncandidates); i++)
    if (s->candidates[i].score < INFINITY) climb(s, &s->candidates[i]);
  qsort(s->candidates, (size_t)s->ncandidates, sizeof *s->candidates, by_score);
}

sl_status sli_lower_auto(const sli_lowering *origin, int most_chunks, sli_lowering *out) {
  search s = {.origin = origin};
  if (origin->v) add_starts(&s, origin->v);
  for (int v = 1; !origin->v && v <= most_chunks; v++)
    if (origin->p * v <= origin->g->nblocks) add_starts(&s, v);
  try_all(&s);
  if (!s.ncandidates || s.candidates[0].score == INFINITY) {
    free(s.candidates);
    return sl_fail(SL_E_BUDGET, "no schedule of %d devices fits the memory budget", origin->p);
  }
  const candidate *best = &s.candidates[0];
  lowering_of(&s, best, out);
  out->tune = sli_arena_alloc(&out->arena, sizeof *out->tune);
  memcpy((sli_tune *)out->tune, &best->tune, sizeof best->tune);
  free(s.candidates);
  return sli_lower_once(out);
}
