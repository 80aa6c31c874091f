/* SPDX-License-Identifier: Apache-2.0 */
/* Status (look) of a run, taken from outside.
 *
 * A worker in the middle of a kernel cannot answer, and one that hangs never will. Therefore no
 * worker is asked. Each worker publishes a few numbers as it goes, with plain stores that cost next
 * to nothing: the completed firings of each actor, and its current activity. The rest follows from
 * the rules of flow (actors/plan/flow.h): ready keys, used slots, and what any actor lacks for its
 * next firing. This holds across processes too: their numbers only have to be merged.
 *
 * The numbers are not of one moment. An actor may seem to lack an input that is on its way, or to
 * have everything and not fire; if nothing moves for a while, both effects are gone. */
#include "actors/look/inner.h"
#include "actors/look/look.h"

#include <stdlib.h>

/* ---- merged state ------------------------------------------------------------------- */

sl_look *sl_look_create(const sl_plan *plan) {
  sl_look *look = sli_calloc(1, sizeof *look);
  look->plan = plan;
  look->memory = sli_calloc(1, sizeof *look->memory);
  sli_arena *arena = &look->memory->arena;
  look->fired = sli_arena_alloc(arena, (size_t)plan->nactors * sizeof *look->fired);
  look->slots = sli_arena_alloc(arena, (size_t)plan->nregs * sizeof *look->slots);
  look->memory->begun = sli_arena_alloc(arena, (size_t)plan->nactors * sizeof *look->fired);
  look->queues = sli_arena_alloc(arena, (size_t)plan->nqueues * sizeof *look->queues);
  look->idle = sli_arena_alloc(arena, (size_t)plan->ndevices * sizeof *look->idle);
  for (int32_t i = 0; i < plan->nactors; i++) look->fired[i] = SL_UNKNOWN;
  for (int32_t i = 0; i < plan->nregs; i++) look->slots[i] = SL_UNKNOWN;
  for (int32_t i = 0; i < plan->nqueues; i++) look->queues[i].running = SL_UNKNOWN;
  for (int32_t i = 0; i < plan->ndevices; i++) look->idle[i] = SL_UNKNOWN;
  look->memory->flow = sli_flow_create(plan);
  return look;
}

void sl_look_destroy(sl_look *look) {
  if (!look) return;
  sli_flow_destroy(look->memory->flow);
  sli_arena_fini(&look->memory->arena);
  free(look->memory);
  free(look);
}

/* ---- one process ---------------------------------------------------------------------- */

/* Time when the last firing of a queue ended, or the earliest time on record. */
static uint64_t last_end_ns(const sl_runtime *rt, int32_t queue, int32_t worker) {
  enum { MOST = 4096 };
  const sl_plan *plan = sli_runtime_plan(rt);
  sli_past p = sli_look_back(rt, worker);
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

static sl_queue_look look_at_queue(const sl_runtime *rt, int32_t id) {
  sli_queue_state q = sli_runtime_queue(rt, id);
  if (q.flying != SL_NONE) return (sl_queue_look){q.flying, since(rt, q.flying_ns)};
  if (q.current == SL_NONE || sli_runtime_plan(rt)->actors[q.current].queue != id)
    return (sl_queue_look){SL_NONE, since(rt, last_end_ns(rt, id, q.worker))};
  sli_past p = sli_look_back(rt, q.worker);
  const sl_trace_record *last = sli_earlier(&p);
  return (sl_queue_look){q.current, since(rt, SLI_MAX(q.woke_ns, last ? last->end_ns : 0))};
}

/* Adds a worker's passes of the last two steps or seconds to busy[ndevices], and returns the
 * beginning of that period. */
static uint64_t count_busy(const sl_runtime *rt, int32_t worker, uint64_t now, double *busy) {
  const uint64_t least_ns = 2000000000u;
  const sl_plan *plan = sli_runtime_plan(rt);
  sli_past p = sli_look_back(rt, worker);
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

static void look_at_devices(const sl_runtime *rt, sl_look *look) {
  const sl_plan *plan = look->plan;
  uint64_t now = sli_runtime_now_ns(rt);
  int32_t nworkers = sli_runtime_workers(rt);
  double *busy = sli_calloc((size_t)plan->ndevices, sizeof *busy);
  uint64_t *begin = sli_calloc((size_t)nworkers, sizeof *begin);
  for (int32_t i = 0; i < nworkers; i++) begin[i] = count_busy(rt, i, now, busy);
  for (int32_t i = 0; i < plan->nqueues; i++) {
    const sl_queue_look *q = &look->queues[i];
    if (q->running >= 0 && sli_is_work(&plan->actors[q->running]) &&
        sli_runtime_has_device(rt, plan->queues[i].device))
      busy[plan->queues[i].device] += q->seconds;
  }
  for (int32_t d = 0; d < plan->ndevices; d++) {
    int32_t worker = sli_runtime_device_worker(rt, d);
    if (!sli_runtime_has_device(rt, d) || worker == SL_NONE) continue;
    double span = (double)(now - SLI_MIN(begin[worker], now)) * 1e-9;
    look->idle[d] = span > 0 ? SLI_MAX(1 - busy[d] / span, 0) : 0;
  }
  free(busy);
  free(begin);
}

void sl_runtime_look(const sl_runtime *rt, sl_look *look) {
  const sl_plan *plan = sli_runtime_plan(rt);
  for (int32_t i = 0; i < plan->nqueues; i++)
    if (sli_runtime_has_queue(rt, i)) look->queues[i] = look_at_queue(rt, i);
  for (int32_t i = 0; i < plan->nactors; i++)
    if (sli_runtime_has_actor(rt, i)) look->fired[i] = sli_runtime_done(rt, i);
  for (int32_t i = 0; i < plan->nregs; i++)
    if (sli_runtime_has_register(rt, i)) look->slots[i] = sl_runtime_slots(rt, i);
  look_at_devices(rt, look);
}
