/* Reading the trace rings, and the figures that come out of them. */
#include "actors/runtime.h"

#include <stdlib.h>
#include <string.h>

static const char *const wait_names[SL_WAIT_COUNT] = {
#define X(name, text) [SL_WAIT_##name] = text,
    SL_WAIT_TABLE(X)
#undef X
};

const char *sl_wait_name(sl_wait wait) {
  return (unsigned)wait < SL_WAIT_COUNT ? wait_names[wait] : "?";
}

static int by_start(const void *a, const void *b) {
  const sl_trace_record *x = a, *y = b;
  if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
  if (x->end_ns != y->end_ns) return x->end_ns < y->end_ns ? -1 : 1;
  if (x->actor != y->actor) return x->actor < y->actor ? -1 : 1;
  return x->firing < y->firing ? -1 : x->firing > y->firing;
}

size_t sl_runtime_trace(const sl_runtime *rt, sl_trace_record **out, uint64_t *dropped) {
  uint64_t total = 0, lost = 0, n = 0;
  for (int32_t i = 0; i < rt->nworkers; i++) {
    const worker *w = &rt->workers[i];
    uint64_t kept = SLI_MIN(worker_fired(w), w->ring_mask + 1);
    total += kept;
    lost += worker_fired(w) - kept;
  }
  sl_trace_record *all = sli_calloc(total, sizeof *all);
  for (int32_t i = 0; i < rt->nworkers; i++) {
    const worker *w = &rt->workers[i];
    uint64_t kept = SLI_MIN(worker_fired(w), w->ring_mask + 1);
    for (uint64_t r = worker_fired(w) - kept; r < worker_fired(w); r++) all[n++] = w->ring[r & w->ring_mask];
  }
  qsort(all, total, sizeof *all, by_start);
  if (dropped) *dropped = lost;
  *out = all;
  return total;
}

/* ---- figures ----------------------------------------------------------------- */

/* One device in one step. */
typedef struct span {
  uint64_t first, last, busy;
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

/* Does a firing count as work of its device? Loading, reporting and links have
 * queues of their own; a device's figures are those of its passes. */
static bool is_work(const sl_actor *a) {
  return a->cls == SL_CLASS_F || a->cls == SL_CLASS_B || a->cls == SL_CLASS_W ||
         a->cls == SL_CLASS_R;
}

/* [steps][devices] spans of the steps that are whole in the rings. */
static span *measure_spans(const sl_runtime *rt, int64_t *first_step, int64_t *nsteps) {
  const sl_plan *plan = rt->plan;
  sl_trace_record *records;
  uint64_t dropped;
  size_t n = sl_runtime_trace(rt, &records, &dropped), devices = (size_t)plan->ndevices;
  int64_t from = 0;
  if (dropped)
    for (int32_t i = 0; i < rt->nworkers; i++) {
      const worker *w = &rt->workers[i];
      if (worker_fired(w) <= w->ring_mask) continue;
      /* A worker's oldest record may be of a step partly overwritten. */
      const sl_trace_record *r = &w->ring[worker_fired(w) & w->ring_mask];
      int64_t step = sl_plan_tick(plan, r->actor, r->firing).step + 2;
      from = SLI_MAX(from, step);
    }
  int64_t count = SLI_MAX(rt->steps - from, 0);
  span *spans = sli_calloc((size_t)count * devices, sizeof *spans);
  for (size_t i = 0; i < n; i++) {
    const sl_actor *a = &plan->actors[records[i].actor];
    int64_t step = sl_plan_tick(plan, records[i].actor, records[i].firing).step - from;
    if (step < 0 || step >= count || !is_work(a)) continue;
    span *s = &spans[(size_t)step * devices + (size_t)plan->queues[a->queue].device];
    if (!s->busy && !s->last) s->first = records[i].start_ns;
    s->first = SLI_MIN(s->first, records[i].start_ns);
    s->last = SLI_MAX(s->last, records[i].end_ns);
    s->busy += records[i].end_ns - records[i].start_ns;
  }
  free(records);
  *first_step = from;
  *nsteps = count;
  return spans;
}

static double bubble(double busy, double span_) { return span_ > 0 ? 1 - busy / span_ : 0; }

sl_figures sl_runtime_figures(const sl_runtime *rt) {
  size_t devices = (size_t)rt->plan->ndevices;
  int64_t first, count;
  span *spans = measure_spans(rt, &first, &count);
  /* The first step of a run warms up: it is left out if there is another. */
  size_t skip = first == 0 && count > 1, steps = (size_t)count - (count ? skip : 0);
  double *busy = sli_calloc(steps + 1, sizeof *busy), *length = sli_calloc(steps + 1, sizeof *length),
         *share = sli_calloc(steps + 1, sizeof *share);
  sl_figures f = {.devices = sli_calloc(devices, sizeof *f.devices)};
  for (size_t d = 0; d < devices; d++) {
    for (size_t s = 0; s < steps; s++) {
      const span *x = &spans[(s + skip) * devices + d];
      busy[s] = (double)x->busy * 1e-9;
      length[s] = (double)(x->last - x->first) * 1e-9;
      share[s] = bubble(busy[s], length[s]);
    }
    f.devices[d] = (sl_device_figures){median(busy, steps), median(length, steps),
                                       median(share, steps)};
  }
  for (size_t s = 0; s < steps; s++) {
    double sum_busy = 0, sum_length = 0;
    uint64_t last = 0, before = 0;
    for (size_t d = 0; d < devices; d++) {
      const span *x = &spans[(s + skip) * devices + d];
      sum_busy += (double)x->busy;
      sum_length += (double)(x->last - x->first);
      last = SLI_MAX(last, x->last);
      if (s + skip) before = SLI_MAX(before, x[-(ptrdiff_t)devices].last);
    }
    share[s] = bubble(sum_busy, sum_length);
    length[s] = (double)(last - before) * 1e-9;
  }
  f.bubble_fraction = median(share, steps);
  f.step_seconds = median(length, steps);
  free(busy);
  free(length);
  free(share);
  free(spans);
  return f;
}
