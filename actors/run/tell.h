/* SPDX-License-Identifier: Apache-2.0 */
/* Notifications: who is told that a slot is complete or free, and when.
 *
 * On one worker a notification is a function call, without atomics; between workers a message in a
 * mailbox; between processes a message that the peers carry. The consumers of a register are sorted
 * by distance: those of the producer's queue, those of its worker, then those of each other worker,
 * which get one message together. On an asynchronous queue, consumers are notified at launch if
 * they are behind on the same queue or fenced; all others are notified at completion.
 *
 * Producers also announce that they wait for a slot. Lazy W keep their slots until a producer waits
 * for one, so the producer of such a slot notifies them. */
#ifndef SLUICE_ACTORS_RUN_TELL_H
#define SLUICE_ACTORS_RUN_TELL_H

#include "actors/run/fence.h"
#include "actors/run/slots.h"

static void post(worker *from, worker *to, const sli_message *message) {
  if (!sli_mailbox_push(&to->mailbox, message, &to->sleeping)) return;
  from->wakes++;
  sli_worker_wake(to);
}

/* Sends a message to another process, through the carrier. This orders a worker's use of a slot
 * before data that arrives there later: the carrier forwards the worker's FREE message and also
 * receives the data. */
static NOINLINE void send_away(worker *from, int process, const sli_message *message) {
  const sl_peers *peers = from->peers;
  sli_message m = *message;
  m.kind = SLI_CARRY;
  m.flags = message->kind;
  m.group = (uint32_t)process;
  if (peers) peers->tell(peers->ctx, process, message);
  else post(from, from->rt->carrier, &m);
}

static void send(worker *from, worker *to, const sli_message *message) {
  from->messages++;
  if (UNLIKELY(to->process >= 0)) send_away(from, to->process, message);
  else post(from, to, message);
}

/* Marks a lazy W whose slot the producer waits for; it is no longer postponed. */
static void want(worker *w, in_port *p, int64_t step) {
  if (p->actor->step < step || !p->actor->lazy.wanted) return; /* the slot is back by then */
  p->actor->lazy.wanted[p - p->actor->in] = p->at.key;
  if (has_runnable(p->actor->queue)) list_queue(w, p->actor->queue);
}

static void want_back(worker *w, const reg *r, int64_t step) {
  for (int32_t g = 0; g < r->nfar; g++)
    send(w, r->far[g].worker,
         &(sli_message){.key = step, .reg = r->id, .kind = SLI_WANTED, .group = (uint32_t)g});
  for (int32_t i = 0; i < r->nlocal; i++) want(w, r->consumers[i], step);
}

/* Marks the lazy W of all registers of a slot pool, any of which may hold the slot. */
static void want_from_slot_pool(worker *w, const slot_pool *b, int64_t step) {
  for (reg *r = b->members; r; r = r->shared.next) {
    if (!r->lazy || r->shared.notified) continue;
    r->shared.notified = true;
    want_back(w, r, step);
  }
}

static void notify_lazy(worker *w, const actor *a) {
  for (const out_port *p = a->out; p < a->out_end; p++) {
    const reg *r = p->reg;
    if (!p->waiting) continue;
    if (r->shared.slot_pool) want_from_slot_pool(w, r->shared.slot_pool, a->step);
    else if (r->lazy) want_back(w, r, a->step);
  }
}

/* Counts a consumer that is done with a slot. On the producer's worker. */
static void slot_free(worker *w, reg *r, int32_t slot) {
  if (!r->only) {
    SLI_CHECK(r->pending[slot] > 0, "register %s: slot %d was freed too often",
              w->rt->plan->regs[r->id].name, slot);
    if (--r->pending[slot]) return;
  }
  if (UNLIKELY(r->resize.owed)) {
    retire_slot(r, slot);
    notify_lazy(w, r->producer->actor);
  } else if (LIKELY(!r->shared.slot_pool)) {
    add_free(w, r, slot);
  } else {
    r->shared.notified = false;
    repay(w, r->shared.slot_pool, slot);
  }
  if (r->counted) count_freed(w, r, slot);
}

static void tell_free(worker *w, reg *r, int64_t key, int32_t slot) {
  if (r->worker == w) slot_free(w, r, slot);
  else send(w, r->worker, &(sli_message){.key = key, .reg = r->id, .slot = slot, .kind = SLI_FREE});
}

/* Notifies all consumers that a slot is ready. */
static void tell_ready(worker *w, reg *r, int64_t key, int32_t slot) {
  if (UNLIKELY(r->carried)) return;
  for (int32_t g = 0; g < r->nfar; g++)
    send(w, r->far[g].worker,
         &(sli_message){
             .key = key, .reg = r->id, .slot = slot, .kind = SLI_READY, .group = (uint32_t)g});
  for (int32_t i = 0; i < r->nlocal; i++) slot_ready(w, r->consumers[i], key, slot);
}

/* Notifies, at launch, the consumers that can wait on the device. Returns true if there are other
 * consumers. */
static NOINLINE bool tell_ready_early(worker *w, reg *r, int64_t key, int32_t slot,
                                      uint64_t fence) {
  bool others = false;
  for (int32_t g = 0; g < r->nfar; g++)
    if (!r->far[g].fenced) others = true;
    else
      send(w, r->far[g].worker,
           &(sli_message){.key = key,
                          .reg = r->id,
                          .slot = slot,
                          .kind = SLI_READY,
                          .flags = SLI_FENCED,
                          .group = (uint32_t)g,
                          .fence = (uint32_t)fence});
  for (int32_t i = 0; i < r->nlocal; i++) {
    in_port *p = r->consumers[i];
    others |= i >= r->nsame && !p->fenced;
    if (i >= r->nsame && !p->fenced) continue;
    if (p->fenced) fence_key(p, key, fence);
    slot_ready(w, p, key, slot);
  }
  return others;
}

/* Notifies, at completion, the consumers that could not wait on the device. */
static void tell_ready_late(worker *w, reg *r, int64_t key, int32_t slot) {
  if (LIKELY(r->only && !r->fences)) {
    slot_ready(w, r->only, key, slot);
    return;
  }
  if (UNLIKELY(r->carried)) return;
  bool some = r->fences; /* fenced consumers have been notified */
  for (int32_t g = 0; g < r->nfar; g++)
    if (!some || !r->far[g].fenced)
      send(w, r->far[g].worker,
           &(sli_message){
               .key = key, .reg = r->id, .slot = slot, .kind = SLI_READY, .group = (uint32_t)g});
  for (int32_t i = r->nsame; i < r->nlocal; i++)
    if (!some || !r->consumers[i]->fenced) slot_ready(w, r->consumers[i], key, slot);
}

/* Tells the producer at launch that a slot is free, if it can wait on the device. */
static void tell_free_early(worker *w, in_port *p, int64_t key, int32_t slot, uint64_t fence) {
  reg *r = p->reg;
  if (r->worker != w) {
    send(w, r->worker,
         &(sli_message){.key = key,
                        .reg = r->id,
                        .slot = slot,
                        .kind = SLI_FREE,
                        .flags = SLI_FENCED,
                        .group = (uint32_t)p->number,
                        .fence = (uint32_t)fence});
    return;
  }
  *slot_fence(r, slot, p->number) = *latest_of(w, r, p->number) = fence;
  slot_free(w, r, slot);
  put_last(r);
}

/* Sends another worker's message to another process. */
static void carry(const worker *w, const sli_message *m) {
  sli_message plain = *m;
  plain.kind = m->flags;
  plain.flags = plain.group = 0;
  w->peers->tell(w->peers->ctx, (int)m->group, &plain);
}

static void take(worker *w, const sli_message *m) {
  reg *r = &w->rt->regs[m->reg];
  bool fenced = m->flags & SLI_FENCED;
  if (m->kind == SLI_FREE) {
    int32_t c = (int32_t)m->group;
    if (UNLIKELY(fenced)) *slot_fence(r, m->slot, c) = whole_fence(latest_of(w, r, c), m->fence);
    slot_free(w, r, m->slot);
    if (UNLIKELY(fenced)) put_last(r);
    return;
  }
  if (UNLIKELY(m->kind >= SLI_QUOTA)) {
    if (m->kind == SLI_QUOTA) set_quota(w, r);
    else carry(w, m);
    return;
  }
  const group *g = &r->far[m->group];
  for (int32_t i = 0; i < g->nports; i++) {
    in_port *p = g->ports[i];
    if (UNLIKELY(fenced)) fence_key(p, m->key, whole_fence(&port_fences(p)[p->mask + 1], m->fence));
    if (LIKELY(m->kind == SLI_READY)) slot_ready(w, p, m->key, m->slot);
    else want(w, g->ports[i], m->key);
  }
}

static NOINLINE void drain(worker *w) {
  sli_message m;
  while (sli_mailbox_pop(&w->mailbox, &m)) take(w, &m);
}

#endif
