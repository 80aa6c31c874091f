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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FIRINGS = 30000000, KEPT = 3, STEPS = 3 };

typedef struct candidate {
  sli_pick pick;
  double score;        /* smaller is better; INFINITY: does not fit or finish */
} candidate;

typedef struct search {
  const sli_inputs *in;
  int64_t firings;            /* spent so far */
  int ncandidates;
  size_t capacity;
  candidate *candidates;      /* best first, after sorting */
  bool over_budget;           /* some plan was */
  sl_status failure;          /* of the first that cannot be for another reason, */
  char *why;                  /* and its text */
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
static double score_of(const sl_figures *f) {
  return f->bubble_fraction + 1e-6 * f->step_seconds / (1e-9 + f->devices[0].busy_seconds);
}

static sli_lowering lowering_of(const search *s, const candidate *c) {
  return (sli_lowering){.in = s->in, .pick = c->pick, .stages = s->in->p * c->pick.v};
}

/* A plan as the virtual clock sees it. */
static sl_status try_plan(search *s, const candidate *c, sli_lowering *l, double *score) {
  double budget = s->in->options->activations;
  sl_figures f;
  sl_status status = sli_lower_once(l);
  if (status) return status;
  s->firings += STEPS * plan_firings(l->plan);
  status = sl_plan_predict(l->plan, NULL, &f);
  if (status) return status;
  if (budget > 0 && peak_activations(&f, s->in->devices) > budget + 1e-9)
    status = sl_fail(SL_E_BUDGET, "%s keeps more activations than %g", c->pick.schedule->name,
                     budget);
  else *score = score_of(&f);
  free(f.devices);
  return status;
}

static void keep_failure(search *s, sl_status status) {
  if (status == SL_E_BUDGET) s->over_budget = true;
  if (!status || status == SL_E_BUDGET || s->failure) return;
  s->failure = status;
  s->why = sli_strdup(sl_detail());
}

static void evaluate(search *s, candidate *c) {
  sli_lowering l = lowering_of(s, c);
  c->score = INFINITY;
  keep_failure(s, try_plan(s, c, &l, &c->score));
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
  *c = (candidate){.pick = {.schedule = row, .v = v, .split = sli_lower_splits(s->in, row)}};
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
  double interval = 0, work[l->in->p];
  memset(work, 0, sizeof work);
  for (int s = 0; s < l->stages; s++) {
    passes t = stage_passes(l, s);
    work[l->device_of[s]] += t.f + t.b + t.w;
    interval = SLI_MAX(interval, work[l->device_of[s]]);
  }
  double life = 0; /* from F here to the end of B here */
  for (int s = l->stages - 1; s >= 0; s--) {
    passes t = stage_passes(l, s);
    life += t.f + t.b + (s + 1 < l->stages ? 2 * sli_lower_crossing(l->in) : 0);
    sli_at at = sli_lower_at(l, s);
    int b = l->pick.schedule->act_b(&at), w = l->pick.schedule->act_w ? l->pick.schedule->act_w(&at) : b;
    tune->stage_b[s] = (int)ceil(life / interval - 1e-9) - b;
    tune->stage_w[s] = (int)ceil((life + t.w + (l->pick.split ? interval : 0)) / interval - 1e-9) - w;
  }
}

static void add_bound(search *s, const sli_schedule *row, int v) {
  candidate *c = add(s, row, v);
  sli_lowering l = lowering_of(s, c);
  if (!sli_lower_once(&l) && l.stages <= SLI_TUNED_STAGES) bound_credits(&l, &c->pick.tune);
  else s->ncandidates--;
  sl_plan_destroy(l.plan);
  sli_lower_free(&l);
}

static bool allowed(const sli_schedule *row, int v) {
  if (row->chunks_fixed) return v == row->chunks;
  return strcmp(row->placement, "line") ? v > 1 : v == 1;
}

static void add_starts(search *s, int v) {
  double budget = s->in->options->activations;
  int pool = (int)floor(budget * v * s->in->k + 1e-9);
  for (const sli_schedule *row = sli_schedule_first(); row; row = sli_schedule_next(row)) {
    if (!allowed(row, v)) continue;
    add(s, row, v);
    if (pool >= v) add(s, row, v)->pick.tune.pool_most = pool;
    add_bound(s, row, v);
    for (int order = 1; order <= 2 && sli_lower_crossing(s->in) > 0; order++)
      add(s, row, v)->pick.tune.order = order;
  }
}

/* ---- climbing ---------------------------------------------------------------------------- */

/* The i-th neighbour of a tune; false when there are no more. */
static bool neighbour(const candidate *c, int stages, int i, sli_tune *out) {
  *out = c->pick.tune;
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
    for (int i = 0; can_go_on(s) && neighbour(c, s->in->p * c->pick.v, i, &next.pick.tune); i++) {
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

static sl_status nothing_fits(const search *s) {
  const sl_lower_options *o = s->in->options;
  char most[48] = "", size[32];
  if (o->activations > 0) snprintf(most, sizeof most, " --activations %g", o->activations);
  if (!o->devices.budget_bytes)
    return sl_fail(SL_E_BUDGET, "no schedule of %d devices keeps to%s", s->in->p, most);
  return sl_fail(SL_E_BUDGET, "no schedule of %d devices fits in %s a device%s%s", s->in->p,
                 sli_format_bytes(size, (double)o->devices.budget_bytes), *most ? " with" : "", most);
}

/* Why there is nothing. */
static sl_status nothing_found(const search *s) {
  int p = s->in->p;
  if (s->over_budget) return nothing_fits(s);
  if (s->failure) return sl_fail(s->failure, "%s", s->why);
  return sl_fail(SL_E_USAGE, "%d stages asked for, but the model has only %d blocks", p,
                 s->in->g->nblocks);
}

sl_status sli_lower_auto(const sli_inputs *in, int chunks, int most_chunks, sli_lowering *out) {
  search s = {.in = in};
  if (chunks) add_starts(&s, chunks);
  for (int v = 1; !chunks && v <= most_chunks; v++)
    if (in->p * v <= in->g->nblocks) add_starts(&s, v);
  try_all(&s);
  bool found = s.ncandidates && s.candidates[0].score < INFINITY;
  if (found) *out = lowering_of(&s, &s.candidates[0]);
  sl_status status = found ? sli_lower_once(out) : nothing_found(&s);
  free(s.candidates);
  free(s.why);
  return status;
}
