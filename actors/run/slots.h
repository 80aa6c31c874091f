/* SPDX-License-Identifier: Apache-2.0 */
/* Slots: taking, freeing, completing, and the accounts that change with them.
 *
 * A register's producer keeps its free slots on a stack, and each consumer a table of the keys that
 * are ready. Taking a slot and putting it back is a stack's pop and push. More is done only if the
 * slot is accounted for elsewhere (`counted`: a pool's quota, the activations of a device,
 * registers that share slots), or if fewer are free than ever.
 *
 * plan/flow.h says when a pool admits a register. */
#ifndef SLUICE_ACTORS_RUN_SLOTS_H
#define SLUICE_ACTORS_RUN_SLOTS_H

#include "actors/run/ready.h"
#include "actors/run/tags.h"

static inline int32_t slots_used(const reg *r) {
  return atomic_load_explicit(&r->quota, memory_order_relaxed) - (int32_t)r->nfree;
}

static inline bool pool_admits(const reg *r) {
  return !r->pool || sli_level_admits(&r->pool->level, slots_used(r), r->kept);
}

/* True if the actor may take all the slots its outputs need now. Several may use one pool, so they
 * are taken on trial, one after another. */
static bool pools_admit(const actor *a) {
  const out_port *p = a->out;
  bool admitted = true;
  for (; p < a->out_end && admitted; p++) {
    const reg *r = p->reg;
    if (!(p->at.now->flags & SL_FIRST) || !r->pool) continue;
    admitted = pool_admits(r);
    sli_level_take(&r->pool->level, slots_used(r), r->kept);
  }
  while (p-- > a->out) {
    const reg *r = p->reg;
    if (!(p->at.now->flags & SL_FIRST) || !r->pool) continue;
    sli_level_free(&r->pool->level, slots_used(r), r->kept);
  }
  return admitted;
}

/* Updates the accounts after a slot has been taken ... */
static void count_taken(reg *r) {
  if (r->contents.tags) tag_taken(r);
  if (r->pool) sli_level_take(&r->pool->level, slots_used(r) - 1, r->kept);
  if (!(r->activation > 0)) return; /* 0 on a queue with `apart`, which runs on another worker */
  r->device->held += r->activation;
  r->device->peak = SLI_MAX(r->device->peak, r->device->held);
}

/* Slow path after taking a slot that is counted, or that leaves fewer free than ever. */
static NOINLINE void watch_slots(reg *r) {
  r->nfree += r->shared.slot_pool != NULL; /* another slot may be lent to it */
  r->least_free = SLI_MIN(r->least_free,
                          (int32_t)(r->shared.slot_pool ? r->shared.slot_pool->nfree : r->nfree));
  if (r->counted) count_taken(r);
  else r->watch = r->nfree;
}

static inline void take_slot(out_port *p) {
  reg *r = p->reg;
  p->slot = r->free[--r->nfree];
  if (UNLIKELY(r->nfree < r->watch)) watch_slots(r);
}

static ALWAYS_INLINE void add_free(worker *w, reg *r, int32_t slot) {
  r->free[r->nfree++] = slot;
  out_port *p = r->producer;
  if (!p->waiting) return;
  p->waiting = false;
  satisfy(w, p->actor, p->cause);
}

/* ... and after one has been returned. */
static void count_freed(worker *w, reg *r, int32_t slot) {
  if (UNLIKELY(r->contents.tags != NULL)) tag_free(r, slot);
  if (r->activation > 0) r->device->held -= r->activation;
  if (!r->pool) return;
  sli_level_free(&r->pool->level, slots_used(r), r->kept);
  for (int32_t i = 0; i < r->pool->nqueues; i++)
    if (has_runnable(r->pool->queues[i])) list_queue(w, r->pool->queues[i]);
}

/* ---- slots of a slot pool -------------------------------------------------------------- */

static bool borrows_now(const out_port *p) {
  return p->reg->shared.slot_pool && (p->at.now->flags & SL_FIRST);
}

/* Returns the port of an actor whose slot pool has no free slot, or NULL. */
static out_port *find_empty_slot_pool(const actor *a) {
  for (out_port *p = a->out; p < a->out_end; p++)
    if (borrows_now(p) && !p->reg->shared.slot_pool->nfree) return p;
  return NULL;
}

/* Fails the run, because two actors lack only a slot of the same slot pool. The plan's proof
 * assumed that this cannot happen. */
static NOINLINE void collide(const actor *taker, const actor *other) {
  char *text = sli_format("actors %s and %s share slots, but do not take turns", taker->plan->name,
                          other->plan->name);
  sl_runtime_abort(taker->queue->worker->rt, SL_E_INPUT, text);
  free(text);
}

/* Checks, when the last slot of a slot pool is taken, that no other runnable actor needs one. */
static NOINLINE void look_for_others(const actor *taker, const slot_pool *b) {
  const queue *q = taker->queue;
  for (actor **at = q->runnable; at < q->top; at++) {
    const actor *a = *at;
    for (const out_port *p = a->out; a != taker && p < a->out_end; p++)
      if (p->reg->shared.slot_pool == b && borrows_now(p)) collide(taker, a);
  }
}

/* Lends each output its slot before a firing. */
static void borrow(const actor *a) {
  for (const out_port *p = a->out; p < a->out_end; p++) {
    if (!borrows_now(p)) continue;
    slot_pool *b = p->reg->shared.slot_pool;
    p->reg->free[0] = b->free[--b->nfree];
    if (!b->nfree) look_for_others(a, b);
  }
}

/* Makes a runnable actor wait for a slot of a slot pool, as it would wait for a slot of its
 * register. */
static void park(queue *q, actor **at, out_port *p) {
  slot_pool *b = p->reg->shared.slot_pool;
  if (b->parked) collide(b->parked->actor, p->actor);
  b->parked = p;
  p->waiting = true;
  p->actor->missing++;
  leave_runnable(q, at);
}

static void repay(worker *w, slot_pool *b, int32_t slot) {
  out_port *p = b->parked;
  b->free[b->nfree++] = slot;
  if (!p) return;
  b->parked = NULL;
  p->waiting = false;
  satisfy(w, p->actor, p->cause);
}

/* ---- quota changes --------------------------------------------------------------- */

/* Retires a slot that is returned after the quota was lowered. */
static NOINLINE void retire_slot(reg *r, int32_t slot) {
  r->resize.owed--;
  r->quota--;
  r->least_free--; /* the largest number in use stays the same */
  r->resize.retired[r->resize.nretired++] = slot;
}

/* Routes returned slots through slot_free(), which retires them. */
static void watch_returns(reg *r) {
  if (!r->only) return;
  for (int32_t s = 0; s < r->resize.made; s++) r->pending[s] = 1;
  r->only = NULL;
}

/* Applies the quota last requested. More slots: each becomes free, like a returned credit. Fewer:
 * free slots retire immediately, except one on which a producer that is not waiting relies. The
 * rest retire when they are returned. */
static void set_quota(worker *w, reg *r) {
  atomic_exchange(&r->resize.asked, false);
  int32_t more = atomic_load(&r->resize.wanted) - (r->quota - r->resize.owed);
  for (; more > 0 && r->resize.owed; more--) r->resize.owed--;
  for (; more > 0; more--) {
    r->quota++;
    r->least_free++;
    add_free(w, r, r->resize.nretired ? r->resize.retired[--r->resize.nretired] : r->resize.made++);
  }
  r->resize.owed += -SLI_MIN(more, 0);
  while (r->resize.owed && r->nfree > 1) retire_slot(r, r->free[--r->nfree]);
  if (r->resize.owed) watch_returns(r);
}

/* ---- consumers --------------------------------------------------------------------- */

/* Records that a slot is complete. On the consumer's worker. */
static inline void slot_ready(worker *w, in_port *p, int64_t key, int32_t slot) {
  if (LIKELY(p->waiting && p->at.key == key)) {
    *p->entry = slot + 1;
    p->waiting = false;
    satisfy(w, p->actor, p->cause);
    return;
  }
  int32_t *entry = &p->ready[key & p->mask];
  SLI_CHECK(*entry == 0, "actor %s: key %lld of register %s arrived twice", p->actor->plan->name,
            (long long)key, w->rt->plan->regs[p->reg->id].name);
  *entry = slot + 1;
}

#endif
