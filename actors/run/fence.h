/* SPDX-License-Identifier: Apache-2.0 */
/* Fences: queues of one kind that wait for each other on the device.
 *
 * A firing's outputs on an asynchronous queue are valid when it has completed. If the queues can
 * order themselves, the host need not wait: consumers are notified at launch, with the firing's
 * fence, and make their queue wait for that fence before they launch. Producers wait in the same
 * way before they write a returned slot again. */
#ifndef SLUICE_ACTORS_RUN_FENCE_H
#define SLUICE_ACTORS_RUN_FENCE_H

#include "actors/run/ready.h"

/* Restores a full fence from its low word in a message. `latest` is the previous fence of that
 * queue, which is less than half the word's range away. */
static uint64_t whole_fence(uint64_t *latest, uint32_t end) {
  *latest += (uint64_t)(int64_t)(int32_t)(end - (uint32_t)*latest);
  return *latest;
}

/* Records that another queue's firing in flight makes this key. */
static void fence_key(in_port *p, int64_t key, uint64_t fence) {
  uint64_t *fences = port_fences(p);
  fences[key & p->mask] = fences[p->mask + 1] = fence;
}

static uint64_t *slot_fence(const reg *r, int32_t slot, int32_t consumer) {
  return &r->fences[(size_t)slot * (size_t)r->nconsumers + (size_t)consumer];
}

static uint64_t *latest_of(const worker *w, const reg *r, int32_t consumer) {
  return slot_fence(r, sli_quota_most(&w->rt->plan->regs[r->id]), consumer);
}

/* Fence of the key that a port is about to take, 0 if there is none. */
static inline uint64_t input_fence(const in_port *p) {
  return p->fenced && (p->at.now->flags & SL_FIRST) ? port_fences(p)[p->at.key & p->mask] : 0;
}

/* Before a launch: makes the queue wait for the firings that made the inputs, and for those that
 * read the slots to be written. */
static NOINLINE void wait_on_device(const actor *a) {
  const queue *q = a->queue;
  for (const in_port *p = a->in; p < a->in_end; p++) {
    uint64_t fence = input_fence(p);
    if (fence) q->ops->wait(q->impl, p->reg->producer->actor->queue->impl, fence);
  }
  for (const out_port *p = a->out; p < a->out_end; p++) {
    const reg *r = p->reg;
    if (!r->fences || !(p->at.now->flags & SL_FIRST)) continue;
    for (int32_t c = 0; c < r->nconsumers; c++) {
      uint64_t *fence = slot_fence(r, p->slot, c);
      if (*fence) q->ops->wait(q->impl, r->consumers[c]->actor->queue->impl, *fence);
      *fence = 0;
    }
  }
}

/* Progress of a firing: complete, next on its queue, or behind another firing. */
enum { COMPLETE, NEXT, BEHIND };
static int progress_of(const queue *q, uint64_t fence) {
  if (!fence || q->ops->passed(q->impl, fence)) return COMPLETE;
  return q->ops->passed(q->impl, fence - 1) ? NEXT : BEHIND;
}

/* Least progress among everything an actor would wait for on the device. */
static int readiness(const actor *a) {
  int far = COMPLETE;
  for (const in_port *p = a->in; p < a->in_end; p++)
    if (p->fenced) far = SLI_MAX(far, progress_of(p->reg->producer->actor->queue, input_fence(p)));
  for (const out_port *p = a->out; p < a->out_end; p++) {
    const reg *r = p->reg;
    bool takes = r->fences && (p->at.now->flags & SL_FIRST);
    for (int32_t c = 0; takes && c < r->nconsumers; c++)
      far = SLI_MAX(far, progress_of(r->consumers[c]->actor->queue,
                                     *slot_fence(r, r->free[r->nfree - 1], c)));
  }
  return far;
}

/* Moves a slot that is still being read to the bottom of the stack, to be taken last. */
static void put_last(reg *r) {
  if (r->nfree < 2) return;
  int32_t slot = r->free[r->nfree - 1];
  memmove(&r->free[1], &r->free[0], (r->nfree - 1) * sizeof slot);
  r->free[0] = slot;
}

#endif
