/* Firings under way: when their queues want to be asked.
 *
 * A queue is awaited for its oldest firing alone. If the queue knows when that completes it is
 * in a heap of timers, else among those that are polled. */
#ifndef SLUICE_ACTORS_TIMER_H
#define SLUICE_ACTORS_TIMER_H

#include "actors/run/ready.h"

/* Puts a timer where it belongs from `at` on towards the top: those due later move down. */
static void heap_up(timer *heap, int32_t at, timer t) {
  while (at > 0) {
    int32_t parent = (at - 1) / 2;
    if (heap[parent].due_ns <= t.due_ns) break;
    heap[at] = heap[parent];
    at = parent;
  }
  heap[at] = t;
}

/* Takes out the top: the last goes where it belongs from there on, and those due earlier move up.
 * Its own place, behind the others, is due never, so the last of them may have no neighbour. */
static inline void heap_pop(timer *heap, int32_t count) {
  timer t = heap[--count];
  heap[count].due_ns = UINT64_MAX;
  int32_t at = 0;
  for (int32_t child = 1; child < count; child = 2 * at + 1) {
    child += heap[child + 1].due_ns < heap[child].due_ns;
    if (t.due_ns <= heap[child].due_ns) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = t;
}

/* Asks to be told when the oldest firing of a queue completes. */
static ALWAYS_INLINE void set_timer(worker *w, queue *q, uint64_t fence) {
  w->awaited.count++;
  uint64_t due = q->ops->due(q->impl, fence);
  if (due == UINT64_MAX) {
    w->awaited.polled[w->awaited.npolled++] = q;
    return;
  }
  heap_up(w->awaited.timers, w->awaited.ntimers++, (timer){due, q});
}

#endif
