/* SPDX-License-Identifier: Apache-2.0 */
/* Access to the trace rings; no other file reads them. */
#include "actors/status/status_inner.h"
#include "actors/status/status.h"

#include <stdlib.h>
#include <string.h>

#include <sluice/trace.h>

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

/* ---- between runs ------------------------------------------------------------------------ */

static uint64_t kept(const sli_ring *ring) { return SLI_MIN(ring->written, ring->mask + 1); }

int64_t sli_first_whole_step(const sl_runtime *rt) {
  const sl_plan *plan = sli_runtime_plan(rt);
  int64_t from = sli_runtime_first_step(rt);
  for (int32_t i = 0; i < sli_runtime_workers(rt); i++) {
    sli_ring ring = sli_runtime_ring(rt, i);
    if (ring.written <= ring.mask) continue;
    /* A worker's oldest record may belong to a partly overwritten step. */
    const sl_trace_record *r = &ring.records[ring.written & ring.mask];
    from = SLI_MAX(from, sl_plan_tick(plan, r->actor, r->firing).step + 2);
  }
  for (const sli_remote *r = sli_runtime_remotes(rt); r; r = r->next)
    from = SLI_MAX(from, r->first_whole);
  return from;
}

sli_records sli_records_of(const sl_runtime *rt) {
  return (sli_records){.rt = rt, .remote = sli_runtime_remotes(rt)};
}

/* Takes the rest of the worker's ring, up to its wrap-around. */
static void next_of_ring(sli_records *r) {
  sli_ring ring = sli_runtime_ring(r->rt, r->worker);
  uint64_t from = SLI_MAX(r->next, ring.written - kept(&ring)), at = from & ring.mask;
  r->now = &ring.records[at];
  r->count = (size_t)SLI_MIN(ring.written - from, ring.mask + 1 - at);
  r->next = from + r->count;
}

bool sli_records_next(sli_records *r) {
  for (; r->worker < sli_runtime_workers(r->rt); r->worker++, r->next = 0) {
    next_of_ring(r);
    if (r->count) return true;
  }
  if (!r->remote) return false;
  r->now = r->remote->records;
  r->count = r->remote->nrecords;
  r->remote = r->remote->next;
  return true;
}

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
  for (sli_records r = sli_records_of(rt); sli_records_next(&r); n += r.count)
    if (r.count) memcpy(all + n, r.now, r.count * sizeof *all);
  if (dropped) *dropped = lost;
  *out = all;
  return total;
}

size_t sl_runtime_trace(const sl_runtime *rt, sl_trace_record **out, uint64_t *dropped) {
  size_t n = sli_runtime_records(rt, out, dropped);
  qsort(*out, n, sizeof **out, by_start);
  return n;
}

/* ---- during a run ------------------------------------------------------------------------ */

sli_past sli_recent_records(const sl_runtime *rt, int32_t worker) {
  sli_ring ring = sli_runtime_ring(rt, worker);
  return (sli_past){ring, ring.written, ring.written - SLI_MIN(ring.written, ring.mask / 2)};
}

const sl_trace_record *sli_earlier(sli_past *p) {
  return p->next > p->oldest ? &p->ring.records[--p->next & p->ring.mask] : NULL;
}

/* Converts a record. Numbers of rows are kept in a ring, too, and may be overwritten. */
static sl_trace_firing firing_of(const sl_runtime *rt, const sl_trace_record *r) {
  bool known = r->firing + SLI_NOTES / 2 >= sli_runtime_done(rt, r->actor);
  return (sl_trace_firing){.record = *r,
                           .tick = sl_plan_tick(sli_runtime_plan(rt), r->actor, r->firing),
                           .rows = known ? sli_runtime_rows(rt, r->actor, r->firing) : SL_NONE};
}

/* Adds a worker's firings to a trace snapshot. Returns false if some are no longer in the ring. */
static bool add_firings(const sl_runtime *rt, int32_t worker, uint64_t since_ns,
                        sl_trace_snapshot *to, size_t *capacity) {
  sli_past p = sli_recent_records(rt, worker);
  bool all = !p.oldest;
  for (const sl_trace_record *r; (r = sli_earlier(&p));) {
    if ((all = r->end_ns < since_ns)) break;
    SLI_GROW(to->firings, to->nfirings, *capacity);
    to->firings[to->nfirings++] = firing_of(rt, r);
    all = !p.oldest;
  }
  return all;
}

sl_trace_snapshot sl_runtime_trace_snapshot(const sl_runtime *rt, uint64_t since_ns,
                                            uint64_t fired) {
  sl_trace_snapshot x = {.base_ns = sli_runtime_base_ns(rt)};
  uint64_t since = since_ns > x.base_ns ? since_ns - x.base_ns : 0, now = sl_runtime_fired(rt);
  size_t capacity = 0;
  bool all = true;
  for (int32_t i = 0; i < sli_runtime_workers(rt); i++)
    all &= add_firings(rt, i, since, &x, &capacity);
  if (!all && now - fired > x.nfirings) x.dropped = now - fired - x.nfirings;
  return x;
}
