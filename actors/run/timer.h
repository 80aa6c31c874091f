/* Firings under way: when their queues want to be asked.
 *
 * A queue is awaited for its oldest firing alone. If the queue knows when that completes it is in a heap of
 * timers, else among those that are polled. */
#ifndef SLUICE_ACTORS_TIMER_H
#define SLUICE_ACTORS_TIMER_H

#include "actors/run/ready.h"

static void heap_up(timer *heap, int32_t at) {
  while (at > 0) {
    int32_t parent = (at - 1) / 2;
    if (heap[parent].due_ns <= heap[at].due_ns) return;
    timer t = heap[parent];
    heap[parent] = heap[at];
    heap[at] = t;
    at = parent;
  }
}

static void heap_down(timer *heap, int32_t count) {
  int32_t at = 0;
  for (;;) {
    int32_t child = 2 * at + 1;
    if (child >= count) return;
    if (child + 1 < count && heap[child + 1].due_ns < heap[child].due_ns) child++;
    if (heap[at].due_ns <= heap[child].due_ns) return;
    timer t = heap[child];
    heap[child] = heap[at];
    heap[at] = t;
    at = child;
  }
}

/* Asks to be told when the oldest firing of a queue completes. */
static void set_timer(worker *w, queue *q, uint64_t fence) {
  w->awaited.count++;
  uint64_t due = q->ops->due(q->impl, fence);
  if (due == UINT64_MAX) {
    w->awaited.polled[w->awaited.npolled++] = q;
    return;
  }
  w->awaited.timers[w->awaited.ntimers] = (timer){due, q};
  heap_up(w->awaited.timers, w->awaited.ntimers++);
}

#endif
