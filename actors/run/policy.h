/* SPDX-License-Identifier: Apache-2.0 */
/* Policy: which of the runnable actors may fire.
 *
 * On most queues all of them may, and the first in order fires. A selective queue checks each one:
 * a pool may have no slot for it, or weight gradients may be held back for idle times. The order of
 * passes may be fixed, or a better firing may be imminent. The reason for holding an actor back is
 * recorded as its cause. */
#ifndef SLUICE_ACTORS_RUN_POLICY_H
#define SLUICE_ACTORS_RUN_POLICY_H

#include <string.h>

#include "actors/run/tell.h"

/* Lazy W: weight gradients are postponed into otherwise idle time. At most `watermark` of them,
 * only while the step has input gradients left to compute here, and never one whose slots a
 * producer waits for. */
static bool is_held_back(const actor *a) {
  const actor *b = a->lazy.backward;
  if (!b || b->step > a->step || b->fired - a->fired > a->queue->plan->watermark) return false;
  for (const in_port *p = a->in; p < a->in_end; p++)
    if (a->lazy.wanted[p - a->in] == p->at.key ||
        (p->reg->device == a->queue->device && !pool_admits(p->reg)))
      return false;
  return true;
}

/* True if this input will be ready within the queue's look-ahead. Known if the firing that makes it
 * is in flight on the same worker with a known end. */
static bool is_near(const worker *w, const queue *q, const in_port *p) {
  const out_port *from = p->reg->producer;
  if (!from || from->actor->queue->worker != w) return false;
  const queue *maker = from->actor->queue;
  for (int32_t i = 0; i < maker->inflight; i++) {
    const flight *f = &maker->flights[(maker->head + i) % maker->nflights];
    for (const notice *n = f->notices; n < f->end; n++)
      if (n->kind == SLI_READY && n->reg == p->reg && n->key == p->at.key)
        return maker->ops->due(maker->impl, f->fence) <= w->now_ns + q->look_ahead_ns;
  }
  return false;
}

/* True if an actor that goes before `a` is about to become ready. */
static bool better_is_near(const worker *w, const queue *q, const actor *a) {
  for (int32_t i = 0; i < q->nactors; i++) {
    const actor *b = q->actors[i];
    if (b->missing != 1 || b->gated || b->order >= a->order) continue;
    for (const in_port *p = b->in; p < b->in_end; p++)
      if (p->waiting && is_near(w, q, p)) return true;
  }
  return false;
}

static int32_t pooled_register(const actor *a) {
  for (const out_port *p = a->out; p < a->out_end; p++)
    if (p->reg->pool && (p->at.now->flags & SL_FIRST)) return p->reg->id;
  return 0;
}

/* True if the queue's policy wants another firing first. A fixed order decides alone; actors
 * outside it go when they can. */
static bool is_untimely(const worker *w, const queue *q, const actor *a) {
  int32_t in_order = q->lanes ? q->lanes->in_order : q->in_order;
  if (q->plan->order) return a->ordered && q->plan->order[in_order] != a->id;
  return is_held_back(a) || (q->look_ahead_ns && better_is_near(w, q, a));
}

/* Reason why a runnable actor may not fire: the cause to record, or SL_WAIT_NONE. */
static int32_t refusal(const worker *w, const queue *q, const actor *a) {
  if (is_untimely(w, q, a)) return SL_WAIT_POLICY;
  if (q->lanes && share_asked(a) > q->lanes->unused) return SL_WAIT_SHARE;
  return pools_admit(a) ? SL_WAIT_NONE : SL_WAIT_CREDIT | pooled_register(a) << 3;
}

/* Records that policy holds back a runnable actor from now on. */
static void keep_back(const worker *w, actor *a, int32_t cause) {
  a->cause = cause;
  a->since_ns = w->now_ns + 1;
}

/* Advances in the fixed order. The next firing of the order may be on another lane. */
static void step_order(worker *w, queue *q) {
  int32_t *in_order = q->lanes ? &q->lanes->in_order : &q->in_order;
  if (++*in_order == q->plan->norder) *in_order = 0;
  if (q->lanes) list_lanes(w, q->lanes);
}

/* Moves a runnable actor to the end, where it fires next. */
static void bring(worker *w, queue *q, actor **at) {
  actor *a = *at;
  if (a->ordered) step_order(w, q);
  if (q->lanes) q->lanes->unused -= share_asked(a);
  leave_runnable(q, at);
  *q->top++ = a;
  if (a->borrows) borrow(a);
}

/* Parks a runnable actor that lacks a shared slot; it is then no longer runnable. Returns false if
 * it lacks none. */
static bool is_parked(worker *w, queue *q, actor **at) {
  actor *a = *at;
  out_port *p = a->borrows ? find_empty_slot_pool(a) : NULL;
  if (!p) return false;
  park(q, at, p);
  if (a->notifies) notify_lazy(w, a);
  return true;
}

/* Moves the best allowed actor to the end of a selective queue. An actor that still waits on the
 * device is launched only after all that do not, because its launch fixes the order early. The
 * firing it waits for must also be next on its queue; otherwise the worker looks again soon. */
static NOINLINE bool bring_allowed(worker *w, queue *q) {
  actor **next = NULL;
  for (actor **at = q->top; at-- > q->runnable;) {
    int32_t cause = refusal(w, q, *at);
    if (!cause && is_parked(w, q, at)) {
      next -= next != NULL; /* later actors have moved up */
      continue;
    }
    int far = !cause && (*at)->fenced ? readiness(*at) : COMPLETE;
    if (!cause && far == COMPLETE) {
      bring(w, q, at);
      return true;
    }
    if (cause) keep_back(w, *at, cause);
    else if (far == NEXT && !next) next = at;
    else if (far == BEHIND) q->held = w->held = true;
  }
  if (!next) return false;
  bring(w, q, next);
  return true;
}

#endif
