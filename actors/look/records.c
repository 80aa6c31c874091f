/* Reading the trace rings. */
#include "actors/run/state.h"

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

size_t sli_runtime_records(const sl_runtime *rt, sl_trace_record **out, uint64_t *dropped) {
  uint64_t total = 0, lost = 0, n = 0;
  for (int32_t i = 0; i < rt->nworkers; i++) {
    const worker *w = &rt->workers[i];
    uint64_t kept = SLI_MIN(worker_fired(w), w->ring_mask + 1);
    total += kept;
    lost += worker_fired(w) - kept;
  }
  for (const visitor *v = rt->visitors; v; v = v->next) total += v->nrecords, lost += v->dropped;
  sl_trace_record *all = sli_calloc(total, sizeof *all);
  for (int32_t i = 0; i < rt->nworkers; i++) {
    const worker *w = &rt->workers[i];
    uint64_t kept = SLI_MIN(worker_fired(w), w->ring_mask + 1);
    for (uint64_t r = worker_fired(w) - kept; r < worker_fired(w); r++) all[n++] = w->ring[r & w->ring_mask];
  }
  for (const visitor *v = rt->visitors; v; n += v->nrecords, v = v->next)
    memcpy(all + n, v->records, v->nrecords * sizeof *all);
  if (dropped) *dropped = lost;
  *out = all;
  return total;
}

size_t sl_runtime_trace(const sl_runtime *rt, sl_trace_record **out, uint64_t *dropped) {
  size_t n = sli_runtime_records(rt, out, dropped);
  qsort(*out, n, sizeof **out, by_start);
  return n;
}
