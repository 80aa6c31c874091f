/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of a run, from its trace: step times, utilisation of devices, durations of
 * actors. */
#include "actors/status/status_inner.h"
#include "actors/status/status.h"

#include <stdlib.h>
#include <string.h>

/* Times of one device in one step. */
typedef struct span {
  uint64_t first, last, busy;
  uint64_t update; /* duration of its updates, which are outside the span */
} span;

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median(double *values, size_t n) {
  if (!n) return 0;
  qsort(values, n, sizeof *values, by_value);
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* Adds a record to the span of its device in its step. A firing on a lane keeps its share busy. */
static void add_to_span(const sl_actor *a, const sl_trace_record *r, int64_t tick, span *s) {
  if (a->cls == SL_CLASS_U) s->update += r->end_ns - r->start_ns;
  if (!sli_is_work(a)) return;
  if (!s->busy && !s->last) s->first = r->start_ns;
  s->first = SLI_MIN(s->first, r->start_ns);
  s->last = SLI_MAX(s->last, r->end_ns);
  uint64_t ns = r->end_ns - r->start_ns;
  s->busy += a->nshares ? (uint64_t)((double)ns * sli_share_of(a, tick).part + 0.5) : ns;
}

/* Returns [steps][devices] spans of the steps whose records are complete in the rings. */
static span *measure_spans(const sl_runtime *rt, int64_t *first_step, int64_t *nsteps) {
  const sl_plan *plan = sli_runtime_plan(rt);
  size_t devices = (size_t)plan->ndevices;
  int64_t from = sli_first_whole_step(rt);
  int64_t count = SLI_MAX(sl_runtime_steps(rt) - from, 0);
  span *spans = sli_calloc((size_t)count * devices, sizeof *spans);
  for (sli_records all = sli_records_of(rt); sli_records_next(&all);)
    for (const sl_trace_record *r = all.now, *end = r + all.count; r < end; r++) {
      const sl_actor *a = &plan->actors[r->actor];
      if (sli_every(a) > 1) continue; /* evaluations are not part of a step */
      sl_tick tick = sl_plan_tick(plan, r->actor, r->firing);
      int64_t step = tick.step - from;
      if (step >= 0 && step < count)
        add_to_span(a, r, tick.number,
                    &spans[(size_t)step * devices + (size_t)plan->queues[a->queue].device]);
    }
  *first_step = from;
  *nsteps = count;
  return spans;
}

void sli_step_ends(const sl_runtime *rt, int64_t count, uint64_t *end_ns) {
  const sl_plan *plan = sli_runtime_plan(rt);
  memset(end_ns, 0, (size_t)count * sizeof *end_ns);
  for (sli_records all = sli_records_of(rt); sli_records_next(&all);)
    for (const sl_trace_record *r = all.now, *end = r + all.count; r < end; r++) {
      int64_t step = sl_plan_tick(plan, r->actor, r->firing).step;
      if (step < count) end_ns[step] = SLI_MAX(end_ns[step], r->end_ns);
    }
}

/* Idle fraction of devices between their first and last pass: 1 minus the mean of their busy times
 * over the longest such span. */
static double bubble(double busy, double span_) { return span_ > 0 ? 1 - busy / span_ : 0; }

typedef struct series {
  double *busy, *length, *share, *update; /* [steps] scratch for the medians */
} series;

static sl_device_statistics device_statistics(const sl_runtime *rt, const span *spans, size_t steps,
                                              size_t d, series *x) {
  size_t devices = (size_t)sli_runtime_plan(rt)->ndevices;
  for (size_t s = 0; s < steps; s++) {
    const span *at = &spans[s * devices + d];
    x->busy[s] = (double)at->busy * 1e-9;
    x->length[s] = (double)(at->last - at->first) * 1e-9;
    x->share[s] = bubble(x->busy[s], x->length[s]);
    x->update[s] = (double)at->update * 1e-9;
  }
  return (sl_device_statistics){
      median(x->busy, steps), median(x->length, steps), median(x->share, steps),
      sl_runtime_peak_activations(rt, (int32_t)d), median(x->update, steps)};
}

/* Statistics over all devices. A step lasts from the end of the previous step's last pass to the
 * end of its own; `before` steps precede `spans`. */
static void whole_statistics(const span *spans, size_t devices, size_t before, size_t steps,
                             series *x, sl_statistics *out) {
  for (size_t s = 0; s < steps; s++) {
    double busy = 0, longest = 0;
    uint64_t last = 0, previous = 0;
    for (size_t d = 0; d < devices; d++) {
      const span *at = &spans[s * devices + d];
      busy += (double)at->busy / (double)devices;
      longest = SLI_MAX(longest, (double)(at->last - at->first));
      last = SLI_MAX(last, at->last);
      if (s + before) previous = SLI_MAX(previous, at[-(ptrdiff_t)devices].last);
    }
    x->share[s] = bubble(busy, longest);
    x->length[s] = (double)(last - previous) * 1e-9;
    x->busy[s] = longest * 1e-9;
  }
  out->bubble_fraction = median(x->share, steps);
  out->step_seconds = median(x->length, steps);
  out->passes_seconds = SLI_MIN(median(x->busy, steps), out->step_seconds);
}

/* Splits a step's time. If steps overlap, an update runs among the passes of the next step. */
static void account(size_t devices, sl_statistics *statistics) {
  double left = statistics->step_seconds - statistics->passes_seconds;
  for (size_t d = 0; d < devices; d++)
    statistics->update_seconds =
        SLI_MAX(statistics->update_seconds, statistics->devices[d].update_seconds);
  statistics->update_seconds = SLI_MIN(statistics->update_seconds, left);
  statistics->other_seconds = left - statistics->update_seconds;
}

sl_statistics sl_runtime_statistics(const sl_runtime *rt) {
  size_t devices = (size_t)sli_runtime_plan(rt)->ndevices;
  int64_t first, count;
  span *spans = measure_spans(rt, &first, &count);
  /* Leaves out the first step of a run, a warm-up, if there is another. */
  size_t skip = first == sli_runtime_first_step(rt) && count > 1,
         steps = (size_t)count - (count ? skip : 0);
  double *scratch = sli_calloc(4 * (steps + 1), sizeof *scratch);
  series x = {scratch, scratch + steps + 1, scratch + 2 * (steps + 1), scratch + 3 * (steps + 1)};
  sl_statistics f = {.devices = sli_calloc(devices, sizeof *f.devices)};
  for (size_t d = 0; d < devices; d++)
    f.devices[d] = device_statistics(rt, spans + skip * devices, steps, d, &x);
  whole_statistics(spans + skip * devices, devices, skip, steps, &x, &f);
  account(devices, &f);
  free(scratch);
  free(spans);
  return f;
}

/* ---- bubble of recent steps ------------------------------------------------------------- */

/* Number of steps whose passes have all ended on this process's devices. */
static int64_t steps_passed(const sl_runtime *rt) {
  const sl_plan *plan = sli_runtime_plan(rt);
  int64_t least = INT64_MAX;
  for (int32_t i = 0; i < plan->nactors; i++) {
    const sl_actor *a = &plan->actors[i];
    if (sli_is_work(a) && sli_every(a) <= 1 && sli_runtime_has_actor(rt, i))
      least = SLI_MIN(least, sli_runtime_done(rt, i) / a->firings_per_step);
  }
  return least == INT64_MAX ? 0 : least;
}

/* Steps [from, end) whose records the rings still have. */
typedef struct recent {
  int64_t from, end;
} recent;

/* Lowers *first to the first step with a pass of this worker that ended after `since`. Returns the
 * first step whose records the worker is certain to have completely. */
static int64_t look_back(const sl_runtime *rt, int32_t worker, uint64_t since, int64_t *first) {
  const sl_plan *plan = sli_runtime_plan(rt);
  sli_past p = sli_recent_records(rt, worker);
  int64_t step = 0;
  for (const sl_trace_record *r; (r = sli_earlier(&p));) {
    const sl_actor *a = &plan->actors[r->actor];
    if (!sli_is_work(a) || sli_every(a) > 1) continue;
    step = sl_plan_tick(plan, r->actor, r->firing).step;
    if (r->end_ns <= since) return step;
    *first = SLI_MIN(*first, step);
  }
  return p.oldest ? step + 2 : 0;
}

static recent find_recent(const sl_runtime *rt, uint64_t since) {
  int64_t first = INT64_MAX, least = 0;
  for (int32_t i = 0; i < sli_runtime_workers(rt); i++)
    least = SLI_MAX(least, look_back(rt, i, since, &first));
  return (recent){SLI_MAX(first, least), steps_passed(rt)};
}

/* Adds the passes of a worker to spans[steps][devices]. */
static void add_recent(const sl_runtime *rt, int32_t worker, recent steps, span *spans) {
  const sl_plan *plan = sli_runtime_plan(rt);
  sli_past p = sli_recent_records(rt, worker);
  for (const sl_trace_record *r; (r = sli_earlier(&p));) {
    const sl_actor *a = &plan->actors[r->actor];
    if (sli_every(a) > 1) continue;
    sl_tick tick = sl_plan_tick(plan, r->actor, r->firing);
    int64_t step = tick.step;
    if (step < steps.from - 1) return;
    if (step >= steps.from && step < steps.end)
      add_to_span(a, r, tick.number,
                  &spans[(size_t)(step - steps.from) * (size_t)plan->ndevices +
                         (size_t)plan->queues[a->queue].device]);
  }
}

/* Bubble of a step on the devices of this process. */
static double bubble_here(const sl_runtime *rt, const span *of) {
  double busy = 0, longest = 0;
  int32_t here = 0;
  for (int32_t d = 0; d < sli_runtime_plan(rt)->ndevices; d++) {
    here += sli_runtime_has_device(rt, d);
    busy += (double)of[d].busy;
    longest = SLI_MAX(longest, (double)(of[d].last - of[d].first));
  }
  return bubble(busy, longest * here);
}

double sl_runtime_live_bubble(const sl_runtime *rt, uint64_t since_ns) {
  size_t devices = (size_t)sli_runtime_plan(rt)->ndevices;
  uint64_t base = sli_runtime_base_ns(rt);
  recent steps = find_recent(rt, SLI_MAX(since_ns, base) - base);
  if (steps.end <= steps.from) return -1;
  size_t count = (size_t)(steps.end - steps.from);
  span *spans = sli_calloc(count * devices, sizeof *spans);
  double *of = sli_calloc(count, sizeof *of);
  for (int32_t i = 0; i < sli_runtime_workers(rt); i++) add_recent(rt, i, steps, spans);
  for (size_t s = 0; s < count; s++) of[s] = bubble_here(rt, spans + s * devices);
  double middle = median(of, count);
  free(of);
  free(spans);
  return middle;
}

/* ---- durations of actors -------------------------------------------------------- */

static int by_actor_and_length(const void *a, const void *b) {
  const sl_trace_record *x = a, *y = b;
  if (x->actor != y->actor) return x->actor - y->actor;
  uint64_t lx = x->end_ns - x->start_ns, ly = y->end_ns - y->start_ns;
  return lx < ly ? -1 : lx > ly;
}

void sl_runtime_durations(const sl_runtime *rt, double *seconds) {
  sl_trace_record *records;
  size_t n = sli_runtime_records(rt, &records, NULL);
  memset(seconds, 0, (size_t)sli_runtime_plan(rt)->nactors * sizeof *seconds);
  qsort(records, n, sizeof *records, by_actor_and_length);
  for (size_t i = 0, count; i < n; i += count) {
    for (count = 1; i + count < n && records[i + count].actor == records[i].actor; count++) {}
    const sl_trace_record *middle = &records[i + count / 2];
    seconds[middle->actor] = (double)(middle->end_ns - middle->start_ns) * 1e-9;
  }
  free(records);
}
