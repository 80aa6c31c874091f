/* SPDX-License-Identifier: Apache-2.0 */
/* Firings in flight: when to check their queues for completions.
 *
 * A queue is awaited for its oldest firing only. If the queue knows when that completes, it has a
 * timer; otherwise it is polled.
 *
 * Timers are taken in the order of their times, and time never goes back: no timer is due earlier
 * than the one taken last. A radix heap is therefore enough. A timer is in the bucket whose number
 * is the highest bit in which its time differs from the last one taken, counted from 1; bucket 0
 * has timers of exactly that time. All timers in a lower bucket are due before all in a higher one.
 * When bucket 0 is empty, the lowest other bucket is distributed by its own smallest time, and all
 * its timers go to lower buckets. Timers with equal times keep the order in which they were set,
 * because they are always in the same bucket. Simultaneous events therefore have a defined
 * order. */
#ifndef SLUICE_ACTORS_RUN_TIMER_H
#define SLUICE_ACTORS_RUN_TIMER_H

#include "actors/run/ready.h"

static inline void add_timer(timers *t, queue *q, uint64_t due_ns) {
  uint64_t differs = due_ns ^ t->taken_ns;
  int b = differs ? 64 - __builtin_clzll(differs) : 0;
  bucket *to = &t->buckets[b];
  q->due_ns = due_ns;
  q->due_next = NULL;
  if (t->filled >> b & 1) {
    *to->end = q;
    to->due_ns = SLI_MIN(to->due_ns, due_ns);
  } else {
    t->filled |= UINT64_C(1) << b;
    to->first = q;
    to->due_ns = due_ns;
  }
  to->end = &q->due_next;
}

/* Due time of the first timer; UINT64_MAX: none. */
static inline uint64_t first_due(const timers *t) {
  return t->filled ? t->buckets[__builtin_ctzll(t->filled)].due_ns : UINT64_MAX;
}

/* Distributes the lowest bucket: timers due next go to bucket 0, the rest to the buckets
 * between. */
static NOINLINE void share_out(timers *t) {
  bucket *from = &t->buckets[__builtin_ctzll(t->filled)], *to = &t->buckets[0];
  uint64_t next_ns = t->taken_ns = to->due_ns = from->due_ns;
  t->filled &= t->filled - 1;
  to->end = &to->first;
  for (queue *q = from->first, *next; q; q = next) {
    next = q->due_next;
    if (q->due_ns != next_ns) {
      add_timer(t, q, q->due_ns);
    } else {
      *to->end = q;
      to->end = &q->due_next;
    }
  }
  *to->end = NULL;
  t->filled |= 1;
}

/* Takes the first timer, which must exist. */
static inline queue *take_timer(timers *t) {
  if (!(t->filled & 1)) share_out(t);
  queue *q = t->buckets[0].first, *next = q->due_next;
  t->buckets[0].first = next;
  if (next) __builtin_prefetch(&next->flights[next->head]);
  else t->filled &= ~UINT64_C(1);
  return q;
}

/* True if the queue must be polled. Peers report the completions of links. */
static bool is_mute(const worker *w, const queue *q) { return !w->peers || !q->ops->link; }

static void poll_queue(worker *w, queue *q) {
  w->awaited.polled[w->awaited.npolled++] = q;
  w->awaited.nmute += is_mute(w, q);
}

/* Arranges for the completion of a queue's oldest firing to be noticed. */
static ALWAYS_INLINE void set_timer(worker *w, queue *q, uint64_t fence) {
  uint64_t due = q->ops->due(q->impl, fence);
  if (due == UINT64_MAX) poll_queue(w, q);
  else add_timer(&w->awaited.timers, q, SLI_MAX(due, w->awaited.timers.taken_ns));
}

#endif
