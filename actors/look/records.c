/* Reading the trace rings. */
#include "actors/look/look.h"
#include "actors/run/run.h"

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

static uint64_t kept(const sli_ring *ring) { return SLI_MIN(ring->written, ring->mask + 1); }

size_t sli_runtime_records(const sl_runtime *rt, sl_trace_record **out, uint64_t *dropped) {
  const sli_remote *remotes = sli_runtime_remotes(rt);
  uint64_t total = 0, lost = 0, n = 0;
  for (int32_t i = 0; i < sli_runtime_workers(rt); i++) {
    sli_ring ring = sli_runtime_ring(rt, i);
    total += kept(&ring);
    lost += ring.written - kept(&ring);
  }
  for (const sli_remote *r = remotes; r; r = r->next) total += r->nrecords, lost += r->dropped;
  sl_trace_record *all = sli_calloc(total, sizeof *all);
  for (int32_t i = 0; i < sli_runtime_workers(rt); i++) {
    sli_ring ring = sli_runtime_ring(rt, i);
    for (uint64_t r = ring.written - kept(&ring); r < ring.written; r++)
      all[n++] = ring.records[r & ring.mask];
  }
  for (const sli_remote *r = remotes; r; n += r->nrecords, r = r->next)
    memcpy(all + n, r->records, r->nrecords * sizeof *all);
  if (dropped) *dropped = lost;
  *out = all;
  return total;
}

size_t sl_runtime_trace(const sl_runtime *rt, sl_trace_record **out, uint64_t *dropped) {
  size_t n = sli_runtime_records(rt, out, dropped);
  qsort(*out, n, sizeof **out, by_start);
  return n;
}
