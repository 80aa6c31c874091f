/* Which actors can fire.
 *
 * An actor counts what it lacks: `missing` is the number of its ports that are not satisfied,
 * plus one while its next step has not begun. Whatever satisfies one of them takes one off; at 0
 * the actor joins the runnable ones of its queue, which are kept in order, and the queue joins
 * the ring of those with something to start. The order is by class order, rank and tick: plain
 * numbers that are known when an actor becomes able to fire. */
#ifndef SLUICE_ACTORS_READY_H
#define SLUICE_ACTORS_READY_H

#include <sched.h>

#include "actors/run/state.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define NOINLINE __attribute__((noinline))
#define ALWAYS_INLINE inline __attribute__((always_inline))

/* Before it looks at a clock or a mailbox again: with more workers than cores another may have its
 * core meanwhile. */
static inline void pause_worker(const sl_runtime *rt) {
  if (rt->oversubscribed) sched_yield();
  else __builtin_ia32_pause();
}

static inline void walk_next(walk *at) {
  const map_step *s = at->now;
  at->key += s->delta;
  at->now = s->next;
}

/* The queues with something to start are a ring; the turn is of the one after
 * the last. */
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

/* How long the next firing takes, where that goes by tick. */
static NOINLINE void look_up_duration(actor *a) {
  a->duration_ns = a->bound.durations[a->tick_number % a->plan->nseconds];
}

/* The rank of the next firing: a group of ticks, counted within the step, goes before the
 * next. */
static void look_at_tick(const sl_runtime *rt, actor *a) {
  const sl_actor *plan = a->plan;
  int64_t in_step = (int64_t)a->tick->microbatch * rt->plan->pieces + a->tick->piece, group = 0;
  if (plan->rank_group) group = (in_step + plan->rank_shift) / plan->rank_group;
  a->rank = a->order_base + (uint64_t)(group * plan->rank_stride);
  if (UNLIKELY(a->bound.durations)) look_up_duration(a);
}

/* The runnable actors of a queue are kept in order, the next one last: most
 * newcomers belong near the end. */
static inline void make_runnable(worker *w, actor *a) {
  queue *q = a->queue;
  a->since_ns = w->now_ns;
  actor **at = q->top++;
  for (; at[-1]->order <= a->order; at--) *at = at[-1];
  *at = a;
  list_queue(w, q);
}

/* Takes an actor out of the runnable ones. */
static void leave_runnable(queue *q, actor **at) {
  for (q->top--; at < q->top; at++) *at = at[1];
}

static inline void satisfy(worker *w, actor *a, int32_t cause) {
  a->cause = cause;
  if (--a->missing == 0) make_runnable(w, a);
}

#endif
