/* SPDX-License-Identifier: Apache-2.0 */
/* Retiring: records completed firings and sends the notifications noted at their launch. */
#ifndef SLUICE_ACTORS_RUN_RETIRE_H
#define SLUICE_ACTORS_RUN_RETIRE_H

#include "actors/run/fire.h"

static inline void tell_noted(worker *w, const notice *n) {
  if (n->kind == SLI_READY) tell_ready_late(w, n->reg, n->key, n->slot);
  else if (LIKELY(n->reg->only)) add_free(w, n->reg, n->slot);
  else tell_free(w, n->reg, n->key, n->slot);
}

static ALWAYS_INLINE void retire_head(worker *w, queue *q, uint64_t end) {
  flight *f = &q->flights[q->head];
  w->awaited.ask_ns = 0;
  if (++q->head == q->nflights) q->head = 0;
  q->inflight--;
  uint64_t start = q->ops->overlaps ? f->start_ns
                   : q->ops->timed  ? end - f->duration_ns
                                    : SLI_MAX(f->start_ns, q->busy_until_ns);
  uint32_t cause =
      start <= q->busy_until_ns ? SL_WAIT_NONE : cause_of_gap(q, f->since_ns, f->cause);
  record(w, q, f->actor, f->firing, cause, start, end);
  if (w->real) show_flying(q, end);
  for (const notice *n = f->notices, *end = f->end; n < end; n++) tell_noted(w, n);
  if (UNLIKELY(q->lanes)) return_share(w, q, f->share);
  if (q->inflight + 1 == q->run_ahead) q->listed = false;
  if (has_runnable(q)) list_queue(w, q);
}

static void retire_due(worker *w) {
  while (first_due(&w->awaited.timers) <= w->now_ns) {
    queue *q = take_timer(&w->awaited.timers);
    retire_head(w, q, q->due_ns);
    if (q->inflight) set_timer(w, q, q->flights[q->head].fence);
  }
}

static NOINLINE void retire_polled(worker *w) {
  if (w->real) w->now_ns = sli_clock_now(&w->clock);
  for (int32_t i = 0; i < w->awaited.npolled; i++) {
    queue *q = w->awaited.polled[i];
    while (q->inflight && q->ops->done(q->impl, q->flights[q->head].fence, w->now_ns))
      retire_head(w, q, w->now_ns);
    if (q->inflight) {
      look_for_failure(w, q, q->flights[q->head].actor);
      continue;
    }
    w->awaited.polled[i--] = w->awaited.polled[--w->awaited.npolled];
    w->awaited.nmute -= is_mute(w, q);
  }
}

static inline void retire(worker *w) {
  retire_due(w);
  if (w->awaited.npolled) retire_polled(w);
}

#endif
