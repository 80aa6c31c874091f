/* The event loop.
 *
 * A worker drives one or more queues. It repeats four moves until every actor
 * it owns has fired its share: take in messages, retire completed firings,
 * start firings, sleep. All of Sluice's flow control is in two numbers per
 * actor, kept up to date by messages: an actor may fire when `missing` is 0,
 * that is when each input port's next key is ready and each output port has a
 * free slot. A firing takes its slots, runs its program, and then walks every
 * port one step along its key map: an input that is done with its slot says
 * `free` to the producer, an output that has completed one says `ready` to the
 * consumers. Ports on the same worker are told directly, without atomics;
 * others through their worker's mailbox.
 *
 * On an asynchronous queue the walk happens at launch, for the order on one
 * queue is the order of launches: consumers on the same queue hear at once.
 * So do those on other queues of its kind, if it can make queues wait for each
 * other on the device: the message brings the firing's fence, and who launches what
 * reads the slot has its queue wait for that first. The same goes for slots that come
 * back, before they are written again. Everyone else hears when the firing has
 * completed.
 *
 * Among the actors that can fire on a queue the choice is by class order, rank
 * and age, all plain numbers made when the actor became able to fire. */
#include "actors/run/state.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define NOINLINE __attribute__((noinline))
#define ALWAYS_INLINE inline __attribute__((always_inline))

/* ---- who can fire -------------------------------------------------------------- */

static inline void walk_next(walk *at) {
  const step *s = at->now;
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

/* The rank of the next firing: a group of ticks, counted within the step, goes before the
 * next. */
static void find_rank(const sl_runtime *rt, actor *a) {
  const sl_actor *plan = a->plan;
  int64_t in_step = (int64_t)a->tick->microbatch * rt->plan->pieces + a->tick->piece, group = 0;
  if (plan->rank_group) group = (in_step + plan->rank_shift) / plan->rank_group;
  a->rank = a->order_base + (uint64_t)(group * plan->rank_stride);
}

/* The runnable actors of a queue are kept in order, the next one last: most
 * newcomers belong near the end. */
static inline void make_runnable(worker *w, actor *a) {
  queue *q = a->queue;
  a->since_ns = w->now_ns;
  actor **at = q->runnable + q->nrunnable++;
  for (; at > q->runnable && at[-1]->order <= a->order; at--) *at = at[-1];
  *at = a;
  list_queue(w, q);
}

static inline void satisfy(worker *w, actor *a, int32_t cause) {
  a->cause = cause;
  if (--a->missing == 0) make_runnable(w, a);
}

/* ---- slots ---------------------------------------------------------------------- */

static inline int32_t slots_used(const reg *r) {
  return atomic_load_explicit(&r->quota, memory_order_relaxed) - (int32_t)r->nfree;
}

/* A pooled register may take a slot of those kept for it, or of what the pool
 * has left beyond all that is kept. */
static inline bool pool_allows(const reg *r) {
  const pool *p = r->pool;
  return !p || slots_used(r) < r->kept || p->used + p->kept < p->quota;
}

/* A slot of several registers is taken. The others' producers are waiting for something
 * else; those without a slot left wait for one too. */
static void take_from_others(reg *r) {
  for (reg *s = r->ring; s != r; s = s->ring) {
    out_port *p = s->producer;
    if (--s->nfree || p->waiting) continue;
    SLI_CHECK(p->actor->missing, "actors %s and %s share slots, but do not take turns",
              r->producer->actor->plan->name, p->actor->plan->name);
    p->waiting = true;
    p->actor->missing++;
  }
}

/* After a slot has been taken ... */
static void count_taken(reg *r) {
  if (r->ring) take_from_others(r);
  if (r->pool) {
    r->pool->used++;
    r->pool->kept -= slots_used(r) <= r->kept;
  }
  r->device->held += r->activation;
  r->device->peak = SLI_MAX(r->device->peak, r->device->held);
}

static ALWAYS_INLINE void add_free(worker *w, reg *r, int32_t slot);

/* ... and after one has come back. */
static void count_freed(worker *w, reg *r, int32_t slot) {
  for (reg *s = r->ring; s && s != r; s = s->ring) add_free(w, s, slot);
  r->device->held -= r->activation;
  if (!r->pool) return;
  r->pool->used--;
  r->pool->kept += slots_used(r) < r->kept;
  for (int32_t i = 0; i < r->pool->nqueues; i++)
    if (r->pool->queues[i]->nrunnable) list_queue(w, r->pool->queues[i]);
}

/* May the actor take all the slots its outputs need now? Several may draw on
 * one pool, so they are taken on trial, one after another. */
static bool pools_allow(const actor *a) {
  const out_port *p = a->out;
  bool allowed = true;
  for (; p < a->out_end && allowed; p++) {
    if (!(p->at.now->flags & SL_FIRST) || !p->reg->pool) continue;
    allowed = pool_allows(p->reg);
    p->reg->pool->used++;
    p->reg->pool->kept -= slots_used(p->reg) < p->reg->kept;
  }
  while (p-- > a->out) {
    if (!(p->at.now->flags & SL_FIRST) || !p->reg->pool) continue;
    p->reg->pool->used--;
    p->reg->pool->kept += slots_used(p->reg) < p->reg->kept;
  }
  return allowed;
}

/* A slot has been taken that is counted, or leaves fewer free than ever. */
static NOINLINE void watch_slots(reg *r) {
  r->least_free = SLI_MIN(r->least_free, (int32_t)r->nfree);
  if (r->counted) count_taken(r);
  else r->watch = r->nfree;
}

static inline void take_slot(out_port *p) {
  reg *r = p->reg;
  p->slot = r->free[--r->nfree];
  if (UNLIKELY(r->nfree < r->watch)) watch_slots(r);
}

/* A slot that comes back and is not wanted any more: the quota was lowered. */
static NOINLINE void retire_slot(reg *r, int32_t slot) {
  r->owed--;
  r->quota--;
  r->least_free--; /* the most in use stays what it was */
  r->retired[r->nretired++] = slot;
}

static ALWAYS_INLINE void add_free(worker *w, reg *r, int32_t slot) {
  r->free[r->nfree++] = slot;
  out_port *p = r->producer;
  if (!p->waiting) return;
  p->waiting = false;
  satisfy(w, p->actor, p->cause);
}

static void tell_wanted(worker *w, const actor *a);

/* A consumer is done with a slot. On the producer's worker. */
static void slot_free(worker *w, reg *r, int32_t slot) {
  if (!r->only) {
    SLI_CHECK(r->pending[slot] > 0, "register %s: slot %d freed once too often",
              w->rt->plan->regs[r->id].name, slot);
    if (--r->pending[slot]) return;
  }
  if (UNLIKELY(r->owed)) {
    retire_slot(r, slot);
    tell_wanted(w, r->producer->actor);
  } else {
    add_free(w, r, slot);
  }
  if (r->counted) count_freed(w, r, slot);
}

/* From now on slots come back the long way, by slot_free(), which retires them. */
static void watch_returns(reg *r) {
  if (!r->only) return;
  for (int32_t s = 0; s < r->made; s++) r->pending[s] = 1;
  r->only = NULL;
}

/* Gives a register the number of slots last asked for. More: a credit is a slot that comes
 * free. Fewer: free slots retire at once, but for the one that the producer, if
 * it is not waiting, counts on; others as they come back. */
static void set_quota(worker *w, reg *r) {
  atomic_exchange(&r->asked, false);
  int32_t more = atomic_load(&r->wanted) - (r->quota - r->owed);
  for (; more > 0 && r->owed; more--) r->owed--;
  for (; more > 0; more--) {
    r->quota++;
    r->least_free++;
    add_free(w, r, r->nretired ? r->retired[--r->nretired] : r->made++);
  }
  r->owed += -SLI_MIN(more, 0);
  while (r->owed && r->nfree > 1) retire_slot(r, r->free[--r->nfree]);
  if (r->owed) watch_returns(r);
}

/* A slot is complete. On the consumer's worker. */
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

/* ---- fences ------------------------------------------------------------------------- */

/* A fence of which a message brought the end; `latest` is the one before it of the same
 * queue, which lies less than half a turn of that end behind. */
static uint64_t whole_fence(uint64_t *latest, uint32_t end) {
  *latest += (uint64_t)(int64_t)(int32_t)(end - (uint32_t)*latest);
  return *latest;
}

/* What makes this key is under way on another queue. */
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

/* The fence of what a port is about to take, 0 if there is none. */
static inline uint64_t input_fence(const in_port *p) {
  return p->waits && (p->at.now->flags & SL_FIRST) ? port_fences(p)[p->at.key & p->mask] : 0;
}

/* Before a launch: the queue waits for those who made what is read, and for those who read
 * what was in the slots that are written. */
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

/* How far a firing is: complete, or next of all on its queue, or behind something else. */
enum { COMPLETE, NEXT, BEHIND };
static int progress_of(const queue *q, uint64_t fence) {
  if (!fence || q->ops->passed(q->impl, fence)) return COMPLETE;
  return q->ops->passed(q->impl, fence - 1) ? NEXT : BEHIND;
}

/* The same of all that an actor would wait for on the device. */
static int readiness(const actor *a) {
  int far = COMPLETE;
  for (const in_port *p = a->in; p < a->in_end; p++)
    if (p->waits) far = SLI_MAX(far, progress_of(p->reg->producer->actor->queue, input_fence(p)));
  for (const out_port *p = a->out; p < a->out_end; p++) {
    const reg *r = p->reg;
    bool takes = r->fences && (p->at.now->flags & SL_FIRST);
    for (int32_t c = 0; takes && c < r->nconsumers; c++)
      far = SLI_MAX(far, progress_of(r->consumers[c]->actor->queue,
                                     *slot_fence(r, r->free[r->nfree - 1], c)));
  }
  return far;
}

/* A slot that is still read is to be taken after those that are not. */
static void put_last(reg *r) {
  if (r->nfree < 2) return;
  int32_t slot = r->free[r->nfree - 1];
  memmove(&r->free[1], &r->free[0], (r->nfree - 1) * sizeof slot);
  r->free[0] = slot;
}

/* ---- messages --------------------------------------------------------------------- */

static void send(worker *from, worker *to, const sli_message *message) {
  from->messages++;
  if (UNLIKELY(to->process >= 0)) {
    const sl_peers *peers = from->rt->options.peers;
    peers->tell(peers->ctx, to->process, message);
    return;
  }
  if (!sli_mailbox_push(&to->mailbox, message, &to->sleeping)) return;
  from->wakes++;
  sli_worker_wake(to);
}

static void tell_free(worker *w, reg *r, int64_t key, int32_t slot) {
  if (r->worker == w) slot_free(w, r, slot);
  else send(w, r->worker, &(sli_message){.key = key, .reg = r->id, .slot = slot, .kind = SLI_FREE});
}

/* Tells all consumers. */
static void tell_ready(worker *w, reg *r, int64_t key, int32_t slot) {
  if (UNLIKELY(r->carried)) return;
  for (int32_t g = 0; g < r->nfar; g++)
    send(w, r->far[g].worker, &(sli_message){.key = key, .reg = r->id, .slot = slot,
                                             .kind = SLI_READY, .group = (uint32_t)g});
  for (int32_t i = 0; i < r->nlocal; i++) slot_ready(w, r->consumers[i], key, slot);
}

/* At launch: those who can wait for it. Whether there are others. */
static NOINLINE bool tell_ready_early(worker *w, reg *r, int64_t key, int32_t slot,
                                      uint64_t fence) {
  bool others = false;
  for (int32_t g = 0; g < r->nfar; g++)
    if (!r->far[g].waits) others = true;
    else send(w, r->far[g].worker, &(sli_message){.key = key, .reg = r->id, .slot = slot,
                                                  .kind = SLI_READY, .flags = SLI_FENCED,
                                                  .group = (uint32_t)g, .fence = (uint32_t)fence});
  for (int32_t i = 0; i < r->nlocal; i++) {
    in_port *p = r->consumers[i];
    others |= i >= r->nsame && !p->waits;
    if (i >= r->nsame && !p->waits) continue;
    if (p->waits) fence_key(p, key, fence);
    slot_ready(w, p, key, slot);
  }
  return others;
}

/* At completion: those who could not. */
static void tell_ready_late(worker *w, reg *r, int64_t key, int32_t slot) {
  if (UNLIKELY(r->carried)) return;
  bool some = r->fences; /* have been told */
  for (int32_t g = 0; g < r->nfar; g++)
    if (!some || !r->far[g].waits)
      send(w, r->far[g].worker, &(sli_message){.key = key, .reg = r->id, .slot = slot,
                                               .kind = SLI_READY, .group = (uint32_t)g});
  for (int32_t i = r->nsame; i < r->nlocal; i++)
    if (!some || !r->consumers[i]->waits) slot_ready(w, r->consumers[i], key, slot);
}

/* At launch: the producer, who can wait for it. */
static void tell_free_early(worker *w, in_port *p, int64_t key, int32_t slot, uint64_t fence) {
  reg *r = p->reg;
  if (r->worker != w) {
    send(w, r->worker, &(sli_message){.key = key, .reg = r->id, .slot = slot, .kind = SLI_FREE,
                                      .flags = SLI_FENCED, .group = (uint32_t)p->number,
                                      .fence = (uint32_t)fence});
    return;
  }
  *slot_fence(r, slot, p->number) = *latest_of(w, r, p->number) = fence;
  slot_free(w, r, slot);
  put_last(r);
}

/* The producer waits for a slot: the one that a lazy W has is not to be put off. */
static void want(worker *w, in_port *p, int64_t step) {
  if (p->actor->step < step || !p->actor->wanted) return; /* by then it is back */
  p->actor->wanted[p - p->actor->in] = p->at.key;
  if (p->actor->queue->nrunnable) list_queue(w, p->actor->queue);
}

static void tell_wanted(worker *w, const actor *a) {
  for (const out_port *p = a->out; p < a->out_end; p++) {
    const reg *r = p->reg;
    if (!p->waiting || !r->lazy) continue;
    for (int32_t g = 0; g < r->nfar; g++)
      send(w, r->far[g].worker, &(sli_message){.key = a->step, .reg = r->id, .kind = SLI_WANTED,
                                               .group = (uint32_t)g});
    for (int32_t i = 0; i < r->nlocal; i++) want(w, r->consumers[i], a->step);
  }
}

void sli_worker_take(worker *w, const sli_message *m) {
  reg *r = &w->rt->regs[m->reg];
  bool fenced = m->flags & SLI_FENCED;
  if (m->kind == SLI_FREE) {
    int32_t c = (int32_t)m->group;
    if (UNLIKELY(fenced)) *slot_fence(r, m->slot, c) = whole_fence(latest_of(w, r, c), m->fence);
    slot_free(w, r, m->slot);
    if (UNLIKELY(fenced)) put_last(r);
    return;
  }
  if (UNLIKELY(m->kind == SLI_QUOTA)) {
    set_quota(w, r);
    return;
  }
  const group *g = &r->far[m->group];
  for (int32_t i = 0; i < g->nports; i++) {
    in_port *p = g->ports[i];
    if (UNLIKELY(fenced))
      fence_key(p, m->key, whole_fence(&port_fences(p)[p->mask + 1], m->fence));
    if (LIKELY(m->kind == SLI_READY)) slot_ready(w, p, m->key, m->slot);
    else want(w, g->ports[i], m->key);
  }
}

static void drain(worker *w) {
  sli_message m;
  while (sli_mailbox_pop(&w->mailbox, &m)) sli_worker_take(w, &m);
}

/* ---- steps ---------------------------------------------------------------------- */

/* Everything of a run goes through this word once per actor and step: the request
 * to stop, and the number of steps begun. A step is begun by
 * the first actor that asks; after a stop no new one is. So every actor fires
 * its share of the steps begun and not once more, whatever its inputs. */
static bool gate_open(sl_runtime *rt, int64_t step) {
  if (step >= rt->goal) return false;
  uint64_t word = atomic_load_explicit(&rt->gate, memory_order_relaxed);
  for (;;) {
    if ((uint64_t)step < word >> SLI_GATE_BITS) return true;
    if (word & SLI_GATE_CLOSED) return false;
    uint64_t next = (uint64_t)(step + 1) << SLI_GATE_BITS;
    if (atomic_compare_exchange_weak_explicit(&rt->gate, &word, next, memory_order_relaxed,
                                              memory_order_relaxed))
      return true;
  }
}

int64_t sli_final_steps(sl_runtime *rt) {
  uint64_t word = atomic_load(&rt->gate);
  return word & SLI_GATE_CLOSED ? (int64_t)(word >> SLI_GATE_BITS) : rt->goal;
}

/* An actor that sits steps out is not asked: its inputs tell it when, and it must
 * not begin the steps up to its own. */
static void ask_gate(worker *w, actor *a) {
  a->gated = a->every == 1 && !gate_open(w->rt, a->step);
  a->missing += a->gated;
}

static inline void next_tick(worker *w, actor *a) {
  const tick_step *t = a->tick;
  a->fired++;
  a->tick_number += t->delta;
  a->tick = t->next;
  if (LIKELY(!t->turns)) return;
  find_rank(w->rt, a);
  if (!t->last) return;
  a->step += a->every;
  ask_gate(w, a);
}

/* ---- firing ---------------------------------------------------------------------- */

static inline void look_at_input(in_port *p) {
  p->entry = &p->ready[p->at.key & p->mask];
  if ((p->at.now->flags & SL_FIRST) && !*p->entry) {
    p->waiting = true;
    p->actor->missing++;
  }
}

static inline void look_at_output(out_port *p) {
  if ((p->at.now->flags & SL_FIRST) && !p->reg->nfree) {
    p->waiting = true;
    p->actor->missing++;
  }
}

void sli_actor_start(worker *w, actor *a) {
  a->missing = 1;
  find_rank(w->rt, a);
  for (in_port *p = a->in; p < a->in_end; p++) look_at_input(p);
  for (out_port *p = a->out; p < a->out_end; p++) look_at_output(p);
  a->cause = SL_WAIT_START;
  ask_gate(w, a);
  if (--a->missing == 0) make_runnable(w, a);
}

static inline void note(flight *f, sli_message_kind kind, reg *r, int64_t key, int32_t slot) {
  f->notices[f->nnotices++] = (notice){r, key, slot, kind};
}

/* The slot an output has completed: told at once if the firing is complete (no
 * flight), else to those behind it on its queue, and the flight takes note. */
static inline void announce(worker *w, out_port *p, flight *f) {
  reg *r = p->reg;
  int32_t slot = p->slot;
  if (LIKELY(r->only && (!f || r->nsame))) {
    slot_ready(w, r->only, p->at.key, slot);
    return;
  }
  r->pending[slot] = r->nconsumers;
  if (!r->nconsumers) {
    r->pending[slot] = 1;
    slot_free(w, r, slot);
  } else if (!f) {
    tell_ready(w, r, p->at.key, slot);
  } else if (LIKELY(!r->fences)) {
    for (int32_t i = 0; i < r->nsame; i++) slot_ready(w, r->consumers[i], p->at.key, slot);
    if (r->nsame < r->nconsumers) note(f, SLI_READY, r, p->at.key, slot);
  } else if (tell_ready_early(w, r, p->at.key, slot, f->fence)) {
    note(f, SLI_READY, r, p->at.key, slot);
  }
}

static inline void give_back(worker *w, in_port *p, flight *f) {
  int32_t slot = *p->entry - 1;
  *p->entry = 0;
  if (LIKELY(p->reg->only && (!f || p->early))) add_free(w, p->reg, slot);
  else if (!f || p->early) tell_free(w, p->reg, p->at.key, slot);
  else if (p->waits) tell_free_early(w, p, p->at.key, slot, f->fence);
  else note(f, SLI_FREE, p->reg, p->at.key, slot);
}

/* Walks every port one step on and tells what that step says. Outputs go first:
 * somebody waits for them. */
static ALWAYS_INLINE void advance(worker *w, actor *a, flight *f, bool plain) {
  a->missing = 1; /* held back until every port has been looked at */
  for (out_port *p = a->out; p < a->out_end; p++) {
    if (p->at.now->flags & SL_LAST) announce(w, p, f);
    walk_next(&p->at);
    look_at_output(p);
  }
  for (in_port *p = a->in; p < a->in_end; p++) {
    if (p->at.now->flags & SL_LAST) give_back(w, p, f);
    walk_next(&p->at);
    look_at_input(p);
  }
  next_tick(w, a);
  if (!plain && UNLIKELY(a->hurries)) tell_wanted(w, a);
  if (LIKELY(--a->missing)) return;
  a->cause = SL_WAIT_NONE;
  make_runnable(w, a);
}

/* Why the queue was idle before a firing that began at `start`: it was not; or
 * the actor could have gone while the queue was busy, and the worker was slow;
 * or what made it able to go. */
static NOINLINE uint32_t cause_of_gap(const queue *q, uint64_t since, int32_t cause) {
  return since <= q->busy_until_ns || cause == SL_WAIT_NONE ? SL_WAIT_DEVICE : (uint32_t)cause;
}

_Static_assert(sizeof(sl_trace_record) == 32, "a record ends with the word of its cause");

static inline void record(worker *w, queue *q, actor *a, int64_t firing, uint32_t cause,
                          uint64_t start, uint64_t end) {
  uint64_t fired = worker_fired(w);
  sl_trace_record *t = &w->ring[fired & w->ring_mask];
  t->start_ns = start;
  t->end_ns = end;
  t->firing = firing;
  t->actor = a->id;
  memcpy(&t->actor + 1, &cause, sizeof cause); /* wait and reg */
  q->busy_until_ns = end;
  atomic_store_explicit(&a->done, firing + 1, memory_order_relaxed);
  /* release: pairs with the acquire of who reads records while the run is on */
  atomic_store_explicit(&w->fired, fired + 1, memory_order_release);
}

/* Tells the program its tick and where its slots are: NULL at a port that sits
 * this firing out. */
static void bind(actor *a) {
  const tick_step *t = a->tick;
  void **base = a->bases;
  uint8_t *first = a->first;
  for (const in_port *p = a->in; p < a->in_end; p++, base++, first++)
    *base = p->at.now->flags & SL_SKIP
                ? NULL : slot_address(p->reg, *p->entry - 1);
  for (const out_port *p = a->out; p < a->out_end; p++, base++, first++) {
    *base = p->at.now->flags & SL_SKIP ? NULL : slot_address(p->reg, p->slot);
    *first = (p->at.now->flags & SL_FIRST) != 0;
  }
  a->firing = (sl_firing){.tick = {.number = a->tick_number, .step = a->step + t->ahead,
                                   .microbatch = t->microbatch, .piece = t->piece},
                          .name = a->plan->name, .bases = a->bases, .first = a->first, .move = a->move};
  if (a->move) a->move->key = a->out->at.key, a->move->slot = a->out->slot;
}

static uint64_t next_random(worker *w) { /* xorshift64* */
  w->random ^= w->random >> 12;
  w->random ^= w->random << 25;
  w->random ^= w->random >> 27;
  return w->random * UINT64_C(2685821657736338717);
}

/* A random delay: on the virtual clock the firing takes longer, on the real one
 * the worker waits. */
static uint64_t jitter(worker *w) {
  uint64_t delay = next_random(w) % (w->rt->options.jitter_ns + 1);
  if (!w->real) return delay;
  uint64_t until = sli_clock_now(&w->clock) + delay;
  while (sli_clock_now(&w->clock) < until) sched_yield();
  w->now_ns = until;
  return 0;
}

/* What the first firing of all, and every one under jitter, do besides. */
static uint64_t unusual_firing(worker *w) {
  uint64_t none = 0;
  atomic_compare_exchange_strong(&w->rt->first_firing_ns, &none, sli_now_ns());
  w->unusual = w->rt->options.jitter_seed != 0;
  w->plain = !w->unusual && w->real && sli_clock_is_fast(&w->clock) && !w->peers;
  for (int32_t i = 0; i < w->nqueues; i++) w->plain &= !w->queues[i]->selective;
  return w->unusual ? jitter(w) : 0;
}

static void set_timer(worker *w, queue *q, uint64_t fence);

/* The device has failed: so has the run. `a` is the actor of which it was seen. */
static void look_for_failure(worker *w, const queue *q, const actor *a) {
  const char *why = q->ops->failure ? q->ops->failure(q->impl) : NULL;
  if (LIKELY(!why)) return;
  char *text = sli_format("actor %s on %s: %s", a->plan->name,
                          w->rt->plan->devices[q->plan->device].name, why);
  sl_runtime_abort(w->rt, SL_E_DEVICE, text);
  free(text);
}

/* Tells whoever looks on which firing is the oldest under way, since when. */
static void show_flying(queue *q, uint64_t since) {
  int32_t id = q->inflight ? q->flights[q->head].actor->id : SL_NONE;
  atomic_store_explicit(&q->flying_ns, since, memory_order_relaxed);
  atomic_store_explicit(&q->flying, id, memory_order_relaxed);
}

static NOINLINE bool take_off(worker *w, queue *q, actor *a, uint64_t start, uint64_t duration,
                              uint64_t fence) {
  look_for_failure(w, q, a);
  int32_t at = q->head + q->inflight++;
  flight *f = &q->flights[at < q->run_ahead ? at : at - q->run_ahead];
  f->actor = a;
  f->firing = a->fired;
  f->start_ns = start;
  f->since_ns = a->since_ns;
  f->duration_ns = duration;
  f->fence = fence;
  f->cause = a->cause;
  f->nnotices = 0;
  w->plain = false;
  if (q->inflight == 1) show_flying(q, start);
  if (w->real) w->now_ns = sli_clock_now(&w->clock);
  advance(w, a, f, false);
  if (q->inflight == 1) set_timer(w, q, fence);
  return q->inflight < q->run_ahead;
}

/* Returns whether the queue takes another. */
static ALWAYS_INLINE bool fire(worker *w, queue *q, actor *a, bool plain) {
  uint64_t duration = a->duration_ns, fence;
  for (out_port *p = a->out; p < a->out_end; p++)
    if (p->at.now->flags & SL_FIRST) take_slot(p);
  if (a->binds) bind(a);
  if (!plain && UNLIKELY(a->waits)) wait_on_device(a);
  if (!plain && w->unusual) duration += unusual_firing(w);
  uint64_t start = w->now_ns;
  atomic_store_explicit(&w->current, a->id, memory_order_relaxed);
  if (UNLIKELY(!q->launch(q->impl, a->program, &a->firing, start, duration, &fence)))
    return take_off(w, q, a, start, duration, fence);
  if (plain) w->now_ns = sli_clock_now_fast(&w->clock);
  else if (w->real) w->now_ns = sli_clock_now(&w->clock);
  uint64_t end = w->now_ns;
  uint32_t cause = SL_WAIT_NONE;
  if (UNLIKELY(start > q->busy_until_ns)) cause = cause_of_gap(q, a->since_ns, a->cause);
  record(w, q, a, a->fired, cause, start, end);
  advance(w, a, NULL, plain);
  return true;
}

/* ---- completions ------------------------------------------------------------------- */

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
  w->nawaited++;
  uint64_t due = q->ops->due(q->impl, fence);
  if (due == UINT64_MAX) {
    w->polled[w->npolled++] = q;
    return;
  }
  w->timers[w->ntimers] = (timer){due, q};
  heap_up(w->timers, w->ntimers++);
}

static void retire_head(worker *w, queue *q, uint64_t end) {
  flight *f = &q->flights[q->head];
  w->ask_ns = 0;
  if (++q->head == q->run_ahead) q->head = 0;
  q->inflight--;
  uint64_t start = q->ops->overlaps ? f->start_ns
                   : q->ops->timed  ? end - f->duration_ns
                                    : SLI_MAX(f->start_ns, q->busy_until_ns);
  uint32_t cause = start <= q->busy_until_ns ? SL_WAIT_NONE : cause_of_gap(q, f->since_ns, f->cause);
  record(w, q, f->actor, f->firing, cause, start, end);
  show_flying(q, end);
  for (const notice *n = f->notices, *last = n + f->nnotices; n < last; n++)
    if (n->kind == SLI_READY) tell_ready_late(w, n->reg, n->key, n->slot);
    else tell_free(w, n->reg, n->key, n->slot);
  if (q->inflight + 1 == q->run_ahead) q->listed = false;
  if (q->nrunnable) list_queue(w, q);
}

static void retire(worker *w) {
  while (w->ntimers && w->timers[0].due_ns <= w->now_ns) {
    timer t = w->timers[0];
    w->timers[0] = w->timers[--w->ntimers];
    heap_down(w->timers, w->ntimers);
    w->nawaited--;
    retire_head(w, t.queue, t.due_ns);
    if (t.queue->inflight) set_timer(w, t.queue, t.queue->flights[t.queue->head].fence);
  }
  if (w->npolled && w->real) w->now_ns = sli_clock_now(&w->clock);
  for (int32_t i = 0; i < w->npolled; i++) {
    queue *q = w->polled[i];
    while (q->inflight && q->ops->done(q->impl, q->flights[q->head].fence, w->now_ns))
      retire_head(w, q, w->now_ns);
    if (q->inflight) {
      look_for_failure(w, q, q->flights[q->head].actor);
      continue;
    }
    w->polled[i--] = w->polled[--w->npolled];
    w->nawaited--;
  }
}

/* Lazy W: weight gradients are put off into the time that nothing else can use.
 * At most `watermark` of them, only while the step has input gradients left to
 * compute here, and never one whose slots somebody waits for. */
static bool is_held_back(const actor *a) {
  const actor *b = a->backward;
  if (!b || b->step > a->step || b->fired - a->fired > a->queue->plan->watermark) return false;
  for (const in_port *p = a->in; p < a->in_end; p++)
    if (a->wanted[p - a->in] == p->at.key || (p->reg->device == a->queue->device && !pool_allows(p->reg)))
      return false;
  return true;
}

/* Will this input be ready within the queue's look-ahead? Known where the firing
 * that makes it is under way on the same worker and says when it will end. */
static bool is_near(const worker *w, const queue *q, const in_port *p) {
  const out_port *from = p->reg->producer;
  if (!from || from->actor->queue->worker != w) return false;
  const queue *maker = from->actor->queue;
  for (int32_t i = 0; i < maker->inflight; i++) {
    const flight *f = &maker->flights[(maker->head + i) % maker->run_ahead];
    for (int32_t n = 0; n < f->nnotices; n++) {
      const notice *x = &f->notices[n];
      if (x->kind == SLI_READY && x->reg == p->reg && x->key == p->at.key)
        return maker->ops->due(maker->impl, f->fence) <= w->now_ns + q->look_ahead_ns;
    }
  }
  return false;
}

/* Is an actor that goes before `a` about to become able to fire? */
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

/* Does the queue's policy want something else first? A fixed order is all of it. */
static bool is_untimely(const worker *w, const queue *q, const actor *a) {
  if (q->plan->order) return q->plan->order[q->in_order] != a->id;
  return is_held_back(a) || (q->look_ahead_ns && better_is_near(w, q, a));
}

/* Why an actor that could fire may not: the cause to record, or SL_WAIT_NONE. */
static int32_t refusal(const worker *w, const queue *q, const actor *a) {
  if (is_untimely(w, q, a)) return SL_WAIT_POLICY;
  return pools_allow(a) ? SL_WAIT_NONE : SL_WAIT_CREDIT | pooled_register(a) << 3;
}

/* From here on it is this that keeps an actor which could fire. */
static void keep_back(const worker *w, actor *a, int32_t cause) {
  a->cause = cause;
  a->since_ns = w->now_ns + 1;
}

/* Puts runnable actor i last. */
static void bring(queue *q, int32_t i) {
  actor *a = q->runnable[i];
  if (q->plan->order && ++q->in_order == q->plan->norder) q->in_order = 0;
  memmove(&q->runnable[i], &q->runnable[i + 1], (size_t)(q->nrunnable - 1 - (uint32_t)i) * sizeof a);
  q->runnable[q->nrunnable - 1] = a;
}

/* Puts the best actor last on a queue where not every one that could fire may:
 * a pool can be empty, weight gradients can be held back, an order be fixed, or
 * something better about to come. To launch what still waits on the device is to decide
 * early: it goes after all that does not wait, and only if what it waits for is next on
 * its own queue; else the queue looks again soon. */
static bool bring_allowed(worker *w, queue *q) {
  int32_t next = SL_NONE;
  for (int32_t i = (int32_t)q->nrunnable - 1; i >= 0; i--) {
    actor *a = q->runnable[i];
    int32_t cause = refusal(w, q, a);
    int far = !cause && a->waits ? readiness(a) : COMPLETE;
    if (!cause && far == COMPLETE) {
      bring(q, i);
      return true;
    }
    if (cause) keep_back(w, a, cause);
    else if (far == NEXT && next == SL_NONE) next = i;
    else if (far == BEHIND) q->held = w->held = true;
  }
  if (next == SL_NONE) return false;
  bring(q, next);
  return true;
}

/* Starts the best firing of the queue whose turn it is. The queue stays listed
 * meanwhile, so that what the firing makes runnable there need not list it; it
 * leaves the ring when it has no more to start, or takes no more. */
static ALWAYS_INLINE void start_one(worker *w, bool plain) {
  queue *q = w->last->next;
  if (!plain && UNLIKELY(q->look_ahead_ns) && !q->passed) {
    q->passed = true; /* others go first: what they start is what there is to see */
    w->last = q;
    return;
  }
  if (!plain) q->passed = false;
  if (plain || !q->selective || bring_allowed(w, q)) {
    bool takes = fire(w, q, q->runnable[--q->nrunnable], plain);
    if (LIKELY(takes && q->nrunnable)) {
      w->last = q;
      return;
    }
  }
  q->listed = q->inflight == q->run_ahead; /* a full one is listed when a firing retires */
  if (q == w->last) w->last = NULL;
  else w->last->next = q->next;
}

/* ---- nothing to do -------------------------------------------------------------------- */

void sli_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns) {
  struct timespec t = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
  const struct timespec *timeout = timeout_ns == UINT64_MAX ? NULL : &t;
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, timeout, NULL, 0);
}

void sli_futex_wake(_Atomic uint32_t *word) {
  int saved = errno;
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
  errno = saved;
}

void sli_worker_wake(worker *w) {
  if (!atomic_exchange(&w->sleeping, 0)) return;
  if (w->peers) w->peers->wake(w->peers->ctx);
  else sli_futex_wake(&w->sleeping);
}

static bool has_fired_its_share(worker *w) {
  uint64_t fired = worker_fired(w), word = atomic_load(&w->rt->gate);
  if (word & SLI_GATE_ABORTED) return true;
  if (word & SLI_GATE_HELD) return false;
  if (fired == w->target) return true;
  return (word & SLI_GATE_CLOSED) && fired == worker_share(w, (int64_t)(word >> SLI_GATE_BITS));
}

/* The carrier stays until the others are done, who need what it brings. */
static bool finished(worker *w) {
  return has_fired_its_share(w) &&
         (!w->peers || atomic_load_explicit(&w->rt->active, memory_order_acquire) == 1);
}

/* How long until the next known completion; UINT64_MAX: unknown. */
static uint64_t until_timer(worker *w) {
  if (!w->ntimers) return UINT64_MAX;
  uint64_t due = w->timers[0].due_ns;
  return due > w->now_ns ? due - w->now_ns : 0;
}

/* Looks for a message until `spin` ns have passed; a few looks go by between
 * two readings of the clock. With more workers than cores it gives its core
 * away instead. */
static bool look_for_news(worker *w, uint64_t start, uint64_t spin) {
  sl_runtime *rt = w->rt;
  do {
    if (finished(w)) return true;
    for (int i = 0; i < 64 && !w->peers; i++)
      if (sli_mailbox_ready(&w->mailbox)) return true;
    if (w->peers && (w->peers->progress(w->peers->ctx) || sli_mailbox_ready(&w->mailbox)))
      return true;
    if (rt->oversubscribed) sched_yield();
    else __builtin_ia32_pause();
  } while (sli_clock_now(&w->clock) - start < spin);
  return false;
}

/* Until a message comes or a timer is due. */
static void sleep_for_news(worker *w, uint64_t timeout_ns) {
  /* A write of both, see push(): a message is seen here or the sleeper there. */
  atomic_exchange(&w->sleeping, 1);
  if (!sli_mailbox_ready(&w->mailbox) && !finished(w)) {
    if (w->peers) w->peers->wait(w->peers->ctx, timeout_ns);
    else sli_futex_wait(&w->sleeping, 1, timeout_ns);
  }
  atomic_store_explicit(&w->sleeping, 0, memory_order_relaxed);
}

static void note_news(worker *w) {
  w->now_ns = sli_clock_now(&w->clock);
  atomic_store_explicit(&w->woke_ns, w->now_ns, memory_order_relaxed);
}

/* What was held may go on by now. */
static void look_at_held(worker *w) {
  w->held = false;
  for (int32_t i = 0; i < w->nqueues; i++) {
    queue *q = w->queues[i];
    if (q->held && q->nrunnable) list_queue(w, q);
    q->held = false;
  }
}

/* A queue that must be asked for its completions is left alone for a while between two
 * questions, the longer the longer none has come. Messages are seen meanwhile. */
static void wait_to_ask(worker *w, uint64_t start, uint64_t timer_in) {
  enum { ASK_FIRST = 1000, ASK_MOST = 50000, SPIN_MOST = 10000 };
  w->ask_ns = w->ask_ns ? SLI_MIN(2 * w->ask_ns, (uint64_t)ASK_MOST) : ASK_FIRST;
  uint64_t wait = SLI_MIN(w->ask_ns, timer_in);
  if (wait <= SPIN_MOST && !w->rt->oversubscribed) look_for_news(w, start, wait);
  else sleep_for_news(w, wait);
  note_news(w);
  if (w->held) look_at_held(w);
}

/* Looks for a message for a while, then sleeps until one or a timer comes. The
 * time to spend looking doubles when news came so soon that looking for it was,
 * or would have been, cheaper than a sleep and a wake; else it halves. Completions of
 * links are news themselves; other queues may have to be asked. */
static void wait_for_news(worker *w) {
  enum { SPIN_LEAST = 1000, SPIN_MOST = 50000 };
  uint64_t start = w->now_ns = sli_clock_now(&w->clock);
  atomic_store_explicit(&w->current, SL_NONE, memory_order_relaxed);
  uint64_t timer_in = until_timer(w), spin = w->spin_ns;
  if (((w->npolled && !w->peers) || w->held) && timer_in) {
    wait_to_ask(w, start, timer_in);
    return;
  }
  if (w->rt->oversubscribed) spin = SPIN_LEAST;
  if (!timer_in || look_for_news(w, start, SLI_MIN(spin, timer_in))) {
    note_news(w);
    return;
  }
  if (timer_in == UINT64_MAX) sleep_for_news(w, UINT64_MAX);
  else if (timer_in > spin) sleep_for_news(w, timer_in - spin);
  note_news(w);
  w->spin_ns = w->now_ns - start < SPIN_MOST ? SLI_MIN(2 * w->spin_ns, (uint64_t)SPIN_MOST)
                                             : SLI_MAX(w->spin_ns / 2, (uint64_t)SPIN_LEAST);
}

/* The virtual clock jumps to the next completion. False: there is none. */
static bool jump(worker *w) {
  if (!w->ntimers) return false;
  w->now_ns = w->timers[0].due_ns;
  return true;
}

static void open_gates(worker *w) {
  for (int32_t i = 0; i < w->nactors; i++) {
    actor *a = w->actors[i];
    if (!a->gated || !gate_open(w->rt, a->step)) continue;
    a->gated = false;
    satisfy(w, a, SL_WAIT_START);
  }
}

/* A run that was held goes on to its end: more steps may begin. */
static bool look_at_gates(worker *w) {
  uint32_t now = atomic_load_explicit(&w->rt->reopened, memory_order_acquire);
  if (LIKELY(now == w->reopened)) return false;
  w->reopened = now;
  open_gates(w);
  return true;
}

void sli_worker_run(worker *w) {
  sl_runtime *rt = w->rt;
  w->target = worker_share(w, rt->goal);
  if (w->real) w->now_ns = sli_clock_now(&w->clock);
  open_gates(w);
  for (;;) {
    if (UNLIKELY(sli_mailbox_ready(&w->mailbox))) drain(w);
    if (LIKELY(w->plain && w->last)) {
      start_one(w, true);
      continue;
    }
    if (w->peers) w->peers->progress(w->peers->ctx);
    if (w->nawaited) retire(w);
    if (w->last) {
      start_one(w, false);
      continue;
    }
    if (UNLIKELY(look_at_gates(w))) continue;
    if (finished(w)) break;
    if (w->real) wait_for_news(w);
    else if (!jump(w)) break; /* stuck: the caller sees what has not fired */
  }
  atomic_store_explicit(&w->current, SL_NONE, memory_order_relaxed);
}
