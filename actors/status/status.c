/* SPDX-License-Identifier: Apache-2.0 */
/* Status of a run, observed from outside.
 *
 * A worker in the middle of a kernel cannot respond to a query, and one that hangs never will.
 * Workers are therefore not queried. Each worker publishes a few numbers as it runs, with plain
 * stores that cost almost nothing: the completed firings of each actor, and its current activity.
 * The rest follows from the rules of flow (actors/plan/flow.h): ready keys, used slots, and what
 * any actor lacks for its next firing. This also works across processes, by merging their numbers.
 *
 * The numbers are not a consistent snapshot. An actor may seem to lack an input that is on its way,
 * or to have everything and not fire. Both effects disappear once nothing has moved for a while. */
#include "actors/status/status_inner.h"
#include "actors/status/status.h"

#include <stdlib.h>

/* ---- merged state ------------------------------------------------------------------- */

sl_run_status *sl_run_status_create(const sl_plan *plan) {
  sl_run_status *rs = sli_calloc(1, sizeof *rs);
  rs->plan = plan;
  rs->memory = sli_calloc(1, sizeof *rs->memory);
  sli_arena *arena = &rs->memory->arena;
  rs->fired = sli_arena_alloc(arena, (size_t)plan->nactors * sizeof *rs->fired);
  rs->slots = sli_arena_alloc(arena, (size_t)plan->nregs * sizeof *rs->slots);
  rs->memory->begun = sli_arena_alloc(arena, (size_t)plan->nactors * sizeof *rs->fired);
  rs->queues = sli_arena_alloc(arena, (size_t)plan->nqueues * sizeof *rs->queues);
  rs->idle = sli_arena_alloc(arena, (size_t)plan->ndevices * sizeof *rs->idle);
  for (int32_t i = 0; i < plan->nactors; i++) rs->fired[i] = SL_UNKNOWN;
  for (int32_t i = 0; i < plan->nregs; i++) rs->slots[i] = SL_UNKNOWN;
  for (int32_t i = 0; i < plan->nqueues; i++) rs->queues[i].running = SL_UNKNOWN;
  for (int32_t i = 0; i < plan->ndevices; i++) rs->idle[i] = SL_UNKNOWN;
  rs->memory->flow = sli_flow_create(plan);
  return rs;
}

void sl_run_status_destroy(sl_run_status *rs) {
  if (!rs) return;
  sli_flow_destroy(rs->memory->flow);
  sli_arena_fini(&rs->memory->arena);
  free(rs->memory);
  free(rs);
}

/* ---- one process ---------------------------------------------------------------------- */

/* Time when the last firing of a queue ended, or the earliest time on record. */
static uint64_t last_end_ns(const sl_runtime *rt, int32_t queue, int32_t worker) {
  enum { MOST = 4096 };
  const sl_plan *plan = sli_runtime_plan(rt);
  sli_past p = sli_recent_records(rt, worker);
  uint64_t end = 0;
  const sl_trace_record *r;
  for (int i = 0; i < MOST && (r = sli_earlier(&p)); i++) {
    end = r->start_ns;
    if (plan->actors[r->actor].queue == queue) return r->end_ns;
  }
  return end;
}

static double since(const sl_runtime *rt, uint64_t then_ns) {
  uint64_t now = sli_runtime_now_ns(rt);
  return now > then_ns ? (double)(now - then_ns) * 1e-9 : 0;
}

static sl_queue_status queue_status(const sl_runtime *rt, int32_t id) {
  sli_queue_state q = sli_runtime_queue(rt, id);
  if (q.flying != SL_NONE) return (sl_queue_status){q.flying, since(rt, q.flying_ns)};
  if (q.current == SL_NONE || sli_runtime_plan(rt)->actors[q.current].queue != id)
    return (sl_queue_status){SL_NONE, since(rt, last_end_ns(rt, id, q.worker))};
  sli_past p = sli_recent_records(rt, q.worker);
  const sl_trace_record *last = sli_earlier(&p);
  return (sl_queue_status){q.current, since(rt, SLI_MAX(q.woke_ns, last ? last->end_ns : 0))};
}

/* Adds a worker's passes of the last two steps or seconds to busy[ndevices], and returns the
 * beginning of that period. */
static uint64_t count_busy(const sl_runtime *rt, int32_t worker, uint64_t now, double *busy) {
  const uint64_t least_ns = 2000000000u;
  const sl_plan *plan = sli_runtime_plan(rt);
  sli_past p = sli_recent_records(rt, worker);
  uint64_t begin = now;
  int64_t newest = -1;
  for (const sl_trace_record *r; (r = sli_earlier(&p)); begin = r->start_ns) {
    const sl_actor *a = &plan->actors[r->actor];
    int64_t step = sl_plan_tick(plan, r->actor, r->firing).step;
    newest = SLI_MAX(newest, step);
    if (r->end_ns + least_ns < now && step < newest - 2) return r->end_ns;
    if (sli_is_work(a))
      busy[plan->queues[a->queue].device] += (double)(r->end_ns - r->start_ns) * 1e-9;
  }
  return p.oldest ? begin : sli_runtime_began_ns(rt);
}

static void add_devices_idle(const sl_runtime *rt, sl_run_status *rs) {
  const sl_plan *plan = rs->plan;
  uint64_t now = sli_runtime_now_ns(rt);
  int32_t nworkers = sli_runtime_workers(rt);
  double *busy = sli_calloc((size_t)plan->ndevices, sizeof *busy);
  uint64_t *begin = sli_calloc((size_t)nworkers, sizeof *begin);
  for (int32_t i = 0; i < nworkers; i++) begin[i] = count_busy(rt, i, now, busy);
  for (int32_t i = 0; i < plan->nqueues; i++) {
    const sl_queue_status *q = &rs->queues[i];
    if (q->running >= 0 && sli_is_work(&plan->actors[q->running]) &&
        sli_runtime_has_device(rt, plan->queues[i].device))
      busy[plan->queues[i].device] += q->seconds;
  }
  for (int32_t d = 0; d < plan->ndevices; d++) {
    int32_t worker = sli_runtime_device_worker(rt, d);
    if (!sli_runtime_has_device(rt, d) || worker == SL_NONE) continue;
    double span = (double)(now - SLI_MIN(begin[worker], now)) * 1e-9;
    rs->idle[d] = span > 0 ? SLI_MAX(1 - busy[d] / span, 0) : 0;
  }
  free(busy);
  free(begin);
}

void sl_runtime_run_status(const sl_runtime *rt, sl_run_status *rs) {
  const sl_plan *plan = sli_runtime_plan(rt);
  for (int32_t i = 0; i < plan->nqueues; i++)
    if (sli_runtime_has_queue(rt, i)) rs->queues[i] = queue_status(rt, i);
  for (int32_t i = 0; i < plan->nactors; i++)
    if (sli_runtime_has_actor(rt, i)) rs->fired[i] = sli_runtime_done(rt, i);
  for (int32_t i = 0; i < plan->nregs; i++)
    if (sli_runtime_has_register(rt, i)) rs->slots[i] = sl_runtime_slots(rt, i);
  add_devices_idle(rt, rs);
}
