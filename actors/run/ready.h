/* SPDX-License-Identifier: Apache-2.0 */
/* Runnable actors: which can fire, and in which order.
 *
 * An actor counts what it lacks: `missing` is the number of its ports that are not satisfied, plus
 * one while its next step has not begun. Each event that satisfies one decrements it. At 0 the
 * actor joins the runnable actors of its queue, which are sorted, and the queue joins the ring of
 * queues with firings to start. The order is by class order, rank and tick: plain numbers that are
 * known when an actor becomes ready. */
#ifndef SLUICE_ACTORS_RUN_READY_H
#define SLUICE_ACTORS_RUN_READY_H

#include <sched.h>

#include "actors/run/state.h"
#include "base/pause.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define NOINLINE __attribute__((noinline))
#define ALWAYS_INLINE inline __attribute__((always_inline))

/* Pauses before another look at a clock or a mailbox. With more workers than cores another worker
 * may use the core meanwhile. */
static inline void pause_worker(const sl_runtime *rt) {
  if (rt->oversubscribed) sched_yield();
  else sli_pause();
}

static inline void walk_next(walk *at) {
  const map_step *s = at->now;
  at->key += s->delta;
  at->now = s->next;
}

/* Adds a queue to the ring of queues with firings to start; the one after `last` has the next
 * turn. */
static inline void list_queue(worker *w, queue *q) {
  if (q->listed) return;
  q->listed = true;
  if (w->last) {
    q->next = w->last->next;
    w->last->next = q;
  } else {
    q->next = q;
  }
  w->last = q;
}

/* Looks up the duration of the next firing, if it depends on the tick. */
static NOINLINE void look_up_duration(actor *a) {
  a->duration_ns = a->bound.durations[a->tick_number % a->bound.ndurations];
}

/* Updates the rank for the next firing: a group of ticks, counted within the step, goes before the
 * next. */
static void look_at_tick(const sl_runtime *rt, actor *a) {
  const sl_actor *plan = a->plan;
  int64_t in_step = (int64_t)a->tick->microbatch * rt->plan->pieces + a->tick->piece, group = 0;
  if (plan->rank_group) group = (in_step + plan->rank_shift) / plan->rank_group;
  a->rank = a->order_base + (uint64_t)(group * plan->rank_stride);
  if (UNLIKELY(a->bound.durations)) look_up_duration(a);
}

/* Inserts an actor into its queue's runnable actors, sorted, the next one last: most newcomers
 * belong near the end. */
static inline void make_runnable(worker *w, actor *a) {
  queue *q = a->queue;
  a->since_ns = w->now_ns;
  actor **at = q->top++;
  for (; at[-1]->order <= a->order; at--) *at = at[-1];
  *at = a;
  list_queue(w, q);
}

/* Share that an actor on a lane asks for, of WHOLE_DEVICE. */
static inline int32_t share_asked(const actor *a) {
  return a->bound.asks ? a->bound.asks[a->tick_number % a->plan->nshares] : WHOLE_DEVICE;
}

/* Lets the lanes of a device look again at what they may start. */
static inline void list_lanes(worker *w, const lanes *l) {
  for (int32_t i = 0; i < l->nqueues; i++)
    if (has_runnable(l->queues[i]) && l->queues[i]->inflight < l->queues[i]->run_ahead)
      list_queue(w, l->queues[i]);
}

/* Returns a completed firing's share. */
static NOINLINE void return_share(worker *w, queue *q, int32_t share) {
  q->lanes->unused += share;
  list_lanes(w, q->lanes);
}

/* Removes an actor from the runnable ones. */
static void leave_runnable(queue *q, actor **at) {
  for (q->top--; at < q->top; at++) *at = at[1];
}

static inline void satisfy(worker *w, actor *a, int32_t cause) {
  a->cause = cause;
  if (--a->missing == 0) make_runnable(w, a);
}

#endif
