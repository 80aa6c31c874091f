/* SPDX-License-Identifier: Apache-2.0 */
/* --schedule auto: a search for placement, quotas and priorities on the virtual clock.
 *
 * A candidate is a row of the schedule table, a number of chunks, and a tune: numbers added to the
 * row's credits. Its score is the simulated result of its plan with the known durations (--profile,
 * --cost or the ops' costs). Its activations and bytes must fit the budget. The search tries every
 * row, as published and squeezed into the budget by a device pool. Then it tries credits from the
 * modulo-scheduling bound. A slot lives from F to the end of B or W, and a microbatch enters once
 * per initiation interval. Hence slots = ceil(lifetime / interval) (Rau, "Iterative Modulo
 * Scheduling", 1994). A row that takes too many bytes gives up credits until it fits. From the best
 * few candidates the search hill-climbs: one credit more or less, at one stage or at all stages, as
 * long as the score improves. The rows are among the candidates, so the result is never worse than
 * the best row that fits.
 *
 * The effort is counted in firings, not in seconds, so that every process finds the same plan. */
#include "graph/search/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FIRINGS = 30000000, KEPT = 3 };

typedef struct candidate {
  sli_pick pick;
  double score; /* smaller is better; INFINITY: does not fit or finish */
} candidate;

typedef struct search {
  const sli_inputs *in;
  int64_t firings; /* spent so far */
  int ncandidates;
  size_t capacity;
  candidate *candidates; /* best first, after sorting */
  bool over_budget;      /* some plan exceeded the budget */
  size_t least_bytes;    /* fewest bytes per device that such a plan needs */
  sli_pick least;        /* the candidate of that plan */
  sl_status failure;     /* status of the first candidate that failed for another reason */
  char *why;             /* error text of the failure */
  sli_pick failed;       /* the candidate that failed */
} search;

/* ---- evaluation -------------------------------------------------------------------- */

static double peak_activations(const sl_statistics *statistics, int devices) {
  double peak = 0;
  for (int d = 0; d < devices; d++) peak = SLI_MAX(peak, statistics->devices[d].peak_activations);
  return peak;
}

/* Scores by the bubble, then by the time of a step, which adds the work between steps that all
 * candidates share. */
static double score_of(const sl_statistics *statistics) {
  return statistics->bubble_fraction +
         1e-6 * statistics->step_seconds / (1e-9 + statistics->devices[0].busy_seconds);
}

/* Simulates a candidate's plan on the virtual clock. */
static sl_status try_plan(search *s, const candidate *c, sli_lowering *l, double *score) {
  double budget = s->in->options->schedule.activations;
  sl_statistics f;
  sl_status status = sli_lower_predict(l, &s->firings, &f);
  if (status) return status;
  if (budget > 0 && peak_activations(&f, s->in->devices) > budget + 1e-9)
    status =
        sl_fail(SL_E_BUDGET, "%s keeps more activations than %g", c->pick.schedule->name, budget);
  else *score = score_of(&f);
  free(f.devices);
  return status;
}

/* Returns the bytes of the device that needs most, or 0 if there is no plan. */
static size_t bytes_of(const sl_plan *plan, sl_space space) {
  size_t most = 0;
  for (int32_t d = 0; plan && d < plan->ndevices; d++)
    most = SLI_MAX(most, plan->devices[d].room[space].arena_bytes);
  return most;
}

static bool is_over_disk(const search *s, const sl_plan *plan) {
  size_t budget = s->in->options->memory.homes.disk_bytes;
  return budget && bytes_of(plan, SL_SPACE_DISK) > budget;
}

/* Returns whether a plan exceeds a budget of bytes. Records the plan with the fewest bytes among
 * those over the device budget. */
static bool keep_size(search *s, const candidate *c, const sl_plan *plan) {
  size_t bytes = bytes_of(plan, SL_SPACE_DEVICE), budget = s->in->options->devices.budget_bytes;
  if (!budget || bytes <= budget) return is_over_disk(s, plan);
  if (!s->least_bytes || bytes < s->least_bytes) {
    s->least_bytes = bytes;
    s->least = c->pick;
  }
  return true;
}

static void keep_failure(search *s, const candidate *c, sl_status status) {
  if (status == SL_E_BUDGET) s->over_budget = true;
  if (!status || status == SL_E_BUDGET || s->failure) return;
  s->failure = status;
  s->failed = c->pick;
  s->why = sli_strdup(sl_detail());
}

/* Scores a candidate; returns true if it takes too many bytes. */
static bool evaluate(search *s, candidate *c) {
  sli_lowering *l = sli_lowering_create(s->in, &c->pick);
  c->score = INFINITY;
  sl_status status = try_plan(s, c, l, &c->score);
  keep_failure(s, c, status);
  bool large = status == SL_E_BUDGET && keep_size(s, c, sli_lowering_plan(l));
  sli_lowering_destroy(l);
  return large;
}

/* Gives up credits, twice as many each time and down to one per stage, until the plan fits. */
static void squeeze(search *s, candidate *c) {
  int most = s->in->m * s->in->k;
  for (int less = 1; evaluate(s, c) && less < 2 * most; less *= 2)
    c->pick.tune.act_b = c->pick.tune.act_w = -less;
}

static int by_score(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  return x->score < y->score ? -1 : x->score > y->score;
}

/* ---- starting points ------------------------------------------------------------------ */

static candidate *search_add(search *s, const sli_schedule *row, int v) {
  SLI_GROW(s->candidates, (size_t)s->ncandidates, s->capacity);
  candidate *c = &s->candidates[s->ncandidates++];
  *c = (candidate){.pick = {.schedule = row,
                            .v = v,
                            .split = sli_schedule_splits(row, s->in->options->schedule.backward),
                            .paths = s->in->paths}};
  return c;
}

static double sum_of(const double seconds[SL_CLASS_COUNT]) {
  return seconds[SL_CLASS_F] + seconds[SL_CLASS_B] + seconds[SL_CLASS_W];
}

/* Returns the work per microbatch of the busiest device. */
static double interval_of(const search *s, const sli_lowering *l, int stages) {
  double interval = 0, work[s->in->p], seconds[SL_CLASS_COUNT];
  memset(work, 0, sizeof work);
  for (int i = 0; i < stages; i++) {
    double *of = &work[sli_lower_at(l, i).d];
    sli_lowering_seconds(l, i, seconds);
    *of += sum_of(seconds);
    interval = SLI_MAX(interval, *of);
  }
  return interval;
}

/* Sets the tune to the modulo-scheduling bound. */
static void bound_credits(const search *s, const sli_lowering *l, sli_pick *pick) {
  const sli_schedule *row = pick->schedule;
  int stages = s->in->p * pick->v;
  double interval = interval_of(s, l, stages), t[SL_CLASS_COUNT];
  double life = 0; /* from F to the end of B at this stage */
  for (int i = stages - 1; i >= 0; i--) {
    sli_lowering_seconds(l, i, t);
    life += t[SL_CLASS_F] + t[SL_CLASS_B] + (i + 1 < stages ? 2 * sli_lower_crossing(s->in) : 0);
    sli_at at = sli_lower_at(l, i);
    int b = row->act_b(&at), w = row->act_w ? row->act_w(&at) : b;
    double weights = life + t[SL_CLASS_W] + (pick->split ? interval : 0);
    pick->tune.stage_b[i] = (int)ceil(life / interval - 1e-9) - b;
    pick->tune.stage_w[i] = (int)ceil(weights / interval - 1e-9) - w;
  }
}

static void add_bound(search *s, const sli_schedule *row, int v) {
  candidate *c = search_add(s, row, v);
  sli_lowering *l = sli_lowering_create(s->in, &c->pick);
  if (s->in->p * v <= SLI_TUNED_STAGES && !sli_lower(l)) bound_credits(s, l, &c->pick);
  else s->ncandidates--;
  sli_lowering_destroy(l);
}

static bool allowed(const sli_schedule *row, int v) {
  if (row->chunks_fixed) return v == row->chunks;
  return strcmp(row->placement, "line") ? v > 1 : v == 1;
}

static void add_starts(search *s, int v) {
  double budget = s->in->options->schedule.activations;
  int pool = (int)floor(budget * v * s->in->k + 1e-9);
  for (const sli_schedule *row = sli_schedule_first(); row; row = sli_schedule_next(row)) {
    if (!allowed(row, v) || row->phases) continue; /* a script needs its credits */
    search_add(s, row, v);
    if (pool >= v) search_add(s, row, v)->pick.tune.pool_most = pool;
    add_bound(s, row, v);
    for (int order = 1; order <= 2 && sli_lower_crossing(s->in) > 0; order++)
      search_add(s, row, v)->pick.tune.order = order;
  }
}

/* ---- climbing ---------------------------------------------------------------------------- */

/* Returns the i-th neighbour of a tune; false when there are no more. */
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

/* Moves to better neighbours until none improves the score. */
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

static void sort(search *s) {
  if (s->ncandidates) qsort(s->candidates, (size_t)s->ncandidates, sizeof *s->candidates, by_score);
}

static void try_all(search *s) {
  for (int i = 0; i < s->ncandidates; i++) squeeze(s, &s->candidates[i]);
  sort(s);
  for (int i = 0; i < SLI_MIN(KEPT, s->ncandidates); i++)
    if (s->candidates[i].score < INFINITY) climb(s, &s->candidates[i]);
  sort(s);
}

/* Lists further limits: " schedule.activations 2 memory.homes.disk of 1.0 MiB". */
static void name_limits(const sl_lower_options *o, char *text, size_t size) {
  char disk[32];
  size_t n = 0;
  *text = 0;
  if (o->schedule.activations > 0)
    n = (size_t)snprintf(text, size, " schedule.activations %g", o->schedule.activations);
  if (o->memory.homes.disk_bytes)
    snprintf(text + n, size - n, " memory.homes.disk of %s",
             sli_format_bytes(disk, (double)o->memory.homes.disk_bytes));
}

static sl_status nothing_fits(const search *s) {
  const sl_lower_options *o = s->in->options;
  char most[96], size[32];
  name_limits(o, most, sizeof most);
  if (!o->devices.budget_bytes)
    return sl_fail(SL_E_BUDGET, "no schedule of %d devices stays within%s", s->in->p, most);
  char need[32];
  sli_format_bytes(size, (double)o->devices.budget_bytes);
  sli_format_bytes(need, (double)s->least_bytes);
  if (s->least_bytes)
    return sl_fail(
        SL_E_BUDGET,
        "no schedule of %d devices fits in %s per device%s%s: the smallest that was tried, %s "
        "with as few slots as possible, needs %s",
        s->in->p, size, *most ? " with" : "", most, s->least.schedule->name, need);
  return sl_fail(SL_E_BUDGET, "no schedule of %d devices fits in %s per device with%s", s->in->p,
                 size, most);
}

/* Fails with the reason why no schedule was found. If all candidates deadlock, returns the first
 * one: the proof of its plan names the quota that is too small. */
static sl_status nothing_found(const search *s, sli_pick *out) {
  int p = s->in->p;
  if (s->over_budget && s->failure != SL_E_MEMORY) return nothing_fits(s);
  if (s->failure == SL_E_STUCK) return *out = s->failed, SL_OK;
  if (s->failure) return sl_fail(s->failure, "%s", s->why);
  return sl_fail(SL_E_USAGE, "%d stages asked for, but the model has only %d blocks", p,
                 sli_blocks_in_line(s->in->g));
}

sl_status sli_search(const sli_inputs *in, int chunks, int most_chunks, sli_pick *out) {
  search s = {.in = in};
  if (chunks) add_starts(&s, chunks);
  for (int v = 1; !chunks && v <= most_chunks; v++)
    if (in->p * v <= sli_blocks_in_line(in->g)) add_starts(&s, v);
  try_all(&s);
  bool found = s.ncandidates && s.candidates[0].score < INFINITY && s.failure != SL_E_MEMORY;
  if (found) *out = s.candidates[0].pick;
  sl_status status = found ? SL_OK : nothing_found(&s, out);
  free(s.candidates);
  free(s.why);
  return status;
}
