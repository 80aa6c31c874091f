/* Why devices were idle.
 *
 * The key maps of the plan say which slots a firing took, completed and gave
 * back. Together with the times of the firings that is the whole history of
 * every slot: taken, ready, free again. From it follows, to the nanosecond, when
 * each firing could have gone and what it waited for last: the input that was
 * ready last, or the credit that came back last. A gap before a firing is split
 * there: up to that moment it waited for that register; from then on nothing
 * kept it but the worker (device), or the plan's wish (policy).
 *
 * The reason of a gap says who is to blame next door. walk_back() asks on: what
 * did the producer do meanwhile? It ran, or it waited too, for another, and so
 * on to a firing that ran. From the last firing of a step that is the critical
 * path: what was on it at some moment is what every idle device was waiting for
 * in the end. A wait for credit is to blame itself while the one who held the
 * slot was waiting in turn; if it was running, it was slow. */
#include "tools/actortrace/actortrace.h"

#include <stdlib.h>

#include "actors/plan/plan.h"

bool is_work(sl_class cls) {
  return cls == SL_CLASS_F || cls == SL_CLASS_B || cls == SL_CLASS_W;
}

int32_t actor_device(const sl_plan *plan, int32_t actor) {
  return plan->queues[plan->actors[actor].queue].device;
}

analysis *analysis_create(const sl_trace *trace) {
  analysis *a = sli_calloc(1, sizeof *a);
  a->trace = trace;
  a->plan = trace->plan;
  a->firings = trace->firings;
  a->nfirings = trace->nfirings;
  a->flow = sli_flow_create(a->plan);
  make_holds(a);
  find_causes(a);
  find_queues(a);
  find_before(a);
  find_shelves(a);
  draw_lines(a);
  return a;
}

void analysis_destroy(analysis *a) {
  if (!a) return;
  for (int32_t d = 0; d < a->plan->ndevices; d++) free(a->lines[d].pieces);
  free(a->lines);
  free(a->causes);
  free(a->before);
  free(a->shelf);
  free(a->shelves);
  free(a->holds);
  free(a->first_hold);
  free(a->work_queue);
  sli_flow_destroy(a->flow);
  free(a);
}

/* ---- steps ---------------------------------------------------------------- */

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

step_range steps_to_count(const analysis *a) {
  const sl_trace *t = a->trace;
  uint64_t whole = 0;
  for (int32_t i = 0; i < a->plan->nactors; i++)
    whole += (uint64_t)a->plan->actors[i].firings_per_step;
  step_range range = {0, -1};
  size_t count = 0;
  int64_t newest = a->nfirings ? a->firings[a->nfirings - 1].tick.step : -1;
  for (size_t i = 0; i < t->nsteps; i++) {
    bool cut = t->truncated && t->step[i].step >= newest;
    if (t->step[i].firings < whole || cut) continue;
    if (!count++) range.first = t->step[i].step;
    range.last = t->step[i].step;
  }
  if (range.first == 0 && count > 1) range.first = 1;
  if (count || !t->nsteps) return range;
  return (step_range){t->step[0].step, t->step[0].step}; /* none is whole: what there is */
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
