/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a trace: all steps, the complete ones, and the typical one. */
#include "tools/actortrace/actortrace.h"

#include <stdlib.h>

const sl_trace_step *find_step(const sl_trace *t, int64_t step) {
  size_t at = next_step(t, (step_range){step, step}, 0);
  return at < t->nsteps ? &t->step[at] : NULL;
}

size_t next_step(const sl_trace *t, step_range r, size_t at) {
  size_t low = at, high = t->nsteps;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (t->step[middle].step < r.first) low = middle + 1;
    else high = middle;
  }
  return low < t->nsteps && t->step[low].step <= r.last ? low : t->nsteps;
}

int64_t count_steps(const sl_trace *t, step_range r) {
  int64_t n = 0;
  for (size_t i = next_step(t, r, 0); i < t->nsteps; i = next_step(t, r, i + 1)) n++;
  return n;
}

/* Returns whether an actor fires in every step. Evaluations and checkpoints do not. */
static bool fires_always(const analysis *a, int32_t actor) {
  return a->plan->actors[actor].every <= 1;
}

/* Counts, for each step, firings of actors that fire in every step. */
static uint64_t *count_firings(const analysis *a) {
  uint64_t *count = sli_calloc(a->trace->nsteps + 1, sizeof *count);
  for (size_t i = 0; i < a->nfirings; i++) {
    const sl_trace_step *step = find_step(a->trace, a->firings[i].tick.step);
    if (step && fires_always(a, a->firings[i].record.actor)) count[step - a->trace->step]++;
  }
  return count;
}

step_range steps_to_count(const analysis *a) {
  const sl_trace *t = a->trace;
  uint64_t whole = 0, *firings = count_firings(a);
  for (int32_t i = 0; i < a->plan->nactors; i++)
    if (fires_always(a, i)) whole += (uint64_t)a->plan->actors[i].firings_per_step;
  step_range range = {0, -1};
  size_t count = 0;
  int64_t newest = a->nfirings ? a->firings[a->nfirings - 1].tick.step : -1;
  for (size_t i = 0; i < t->nsteps; i++) {
    bool cut = t->truncated && t->step[i].step >= newest;
    if (firings[i] < whole || cut) continue;
    if (!count++) range.first = t->step[i].step;
    range.last = t->step[i].step;
  }
  free(firings);
  if (range.first == 0 && count > 1) range.first = 1;
  if (count || !t->nsteps) return range;
  return (step_range){t->step[0].step, t->step[0].step}; /* none is complete: use the first one */
}

typedef struct length {
  uint64_t ns;
  int64_t step;
} length;

static int by_length(const void *a, const void *b) {
  const length *x = a, *y = b;
  if (x->ns != y->ns) return x->ns < y->ns ? -1 : 1;
  return x->step < y->step ? -1 : x->step > y->step;
}

int64_t typical_step(const analysis *a) {
  step_range range = steps_to_count(a);
  length *lengths = sli_calloc(a->trace->nsteps + 1, sizeof *lengths);
  size_t n = 0;
  for (size_t i = 0; i < a->trace->nsteps; i++) {
    const sl_trace_step *s = &a->trace->step[i];
    if (s->step < range.first || s->step > range.last) continue;
    lengths[n++] = (length){s->end_ns - s->start_ns, s->step};
  }
  qsort(lengths, n, sizeof *lengths, by_length);
  int64_t step = n ? lengths[(n - 1) / 2].step : 0;
  free(lengths);
  return step;
}
