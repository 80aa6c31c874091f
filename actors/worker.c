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
 * queue is the order of launches: consumers on the same queue hear at once,
 * everyone else when the firing has completed.
 *
 * Among the actors that can fire on a queue the choice is by class order, rank
 * and age, all plain numbers made when the actor became able to fire. */
#include "actors/runtime.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- walking along key maps ------------------------------------------------- */

static inline void walk_load(walk *at) {
  const sl_map_entry *e = &at->entries[at->index];
  at->key = at->base + e->offset;
  at->flags = e->flags;
}

static inline void walk_next(walk *at) {
  if (++at->index == at->period) at->index = 0, at->base += at->stride;
  walk_load(at);
}

void sli_walk_init(walk *at, const sl_map *map) {
  *at = (walk){.entries = map->entries, .period = map->period, .stride = map->stride};
  walk_load(at);
}

/* ---- who can fire -------------------------------------------------------------- */

static inline void list_queue(worker *w, queue *q) {
  if (q->listed) return;
  q->listed = true;
  int32_t at = w->listed_head + w->nlisted++;
  w->listed[at < w->nqueues ? at : at - w->nqueues] = q;
}

static inline void make_runnable(worker *w, actor *a) {
  queue *q = a->queue;
  const sl_actor *p = a->plan;
  int64_t tick = a->tick.key, rank = p->rank;
  if (p->rank_group) rank += tick / p->rank_group * p->rank_stride;
  a->order_high = (uint64_t)q->plan->class_order[a->cls] << 56 | (uint64_t)(rank + (INT64_C(1) << 40));
  a->order_low = (uint64_t)tick;
  a->since_ns = w->now_ns;
  q->runnable[q->nrunnable++] = a;
  list_queue(w, q);
}

static inline void satisfy(worker *w, actor *a, sl_wait wait, int32_t reg_id) {
  a->cause = (int32_t)wait | reg_id << 3;
  if (--a->missing == 0) make_runnable(w, a);
}

/* A pooled register may take a slot out of its own reserve, or out of what the
 * pool has left when a slot is kept for every register that holds none. */
static inline bool pool_allows(const reg *r) {
  const pool *p = r->pool;
  return !p || r->used == 0 || p->used + p->empty < p->quota;
}

static bool outputs_allowed(const actor *a) {
  for (int32_t i = 0; i < a->nout; i++)
    if ((a->out[i].at.flags & SL_FIRST) && !pool_allows(a->out[i].reg)) return false;
  return true;
}

static inline int32_t pick(const queue *q) {
  int32_t best = -1;
  for (int32_t i = 0; i < q->nrunnable; i++) {
    const actor *a = q->runnable[i];
    if (q->pooled && !outputs_allowed(a)) continue;
    if (best >= 0) {
      const actor *b = q->runnable[best];
      if (a->order_high > b->order_high ||
          (a->order_high == b->order_high && a->order_low >= b->order_low))
        continue;
    }
    best = i;
  }
  return best;
}

/* ---- slots ---------------------------------------------------------------------- */

static inline int32_t take_slot(out_port *p) {
  reg *r = p->reg;
  SLI_CHECK(r->nfree > 0, "actor %s took a slot of a full register", p->actor->plan->name);
  if (r->pool) {
    r->pool->used++;
    if (r->used == 0) r->pool->empty--;
  }
  if (++r->used > r->peak) r->peak = r->used;
  if (r->activation > 0) {
    device *d = r->device;
    d->held += r->activation;
    if (d->held > d->peak) d->peak = d->held;
  }
  return r->free[--r->nfree];
}

/* A consumer is done with a slot. On the producer's worker. */
static inline void slot_free(worker *w, reg *r, int32_t slot) {
  SLI_CHECK(r->pending[slot] > 0, "register %s: slot %d freed once too often",
            w->rt->plan->regs[r->id].name, slot);
  if (--r->pending[slot]) return;
  r->free[r->nfree++] = slot;
  r->used--;
  if (r->pool) {
    r->pool->used--;
    if (r->used == 0) r->pool->empty++;
    list_queue(w, r->queue); /* others of the pool may go now */
  }
  if (r->activation > 0) r->device->held -= r->activation;
  out_port *p = r->producer;
  if (p && p->waiting) {
    p->waiting = false;
    satisfy(w, p->actor, SL_WAIT_CREDIT, r->id);
  }
}

/* A slot is complete. On the worker of the group's queue. */
static inline void slot_ready(worker *w, const group *g, int64_t key, int32_t slot) {
  for (int32_t i = 0; i < g->nports; i++) {
    in_port *p = g->ports[i];
    int32_t *entry = &p->ready[key & p->mask];
    SLI_CHECK(*entry == 0, "actor %s: key %lld of register %s arrived twice",
              p->actor->plan->name, (long long)key, w->rt->plan->regs[p->reg->id].name);
    *entry = slot + 1;
    if (p->waiting && p->at.key == key) {
      p->waiting = false;
      satisfy(w, p->actor, SL_WAIT_INPUT, p->reg->id);
    }
  }
}

/* Orders a store before a later load. The thread sanitizer knows nothing of
 * fences, which gcc warns about; nothing is published through this one, it only
 * keeps a wake from being missed. */
static inline void full_fence(void) {
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
  atomic_thread_fence(memory_order_seq_cst);
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
}

static void send(worker *from, worker *to, const sli_message *message) {
  sli_mailbox_push(&to->mailbox, message);
  from->messages++;
  /* Either this fence comes first and the sleeper sees the message when it
   * looks again, or the sleeper's comes first and we see it asleep. */
  full_fence();
  if (atomic_load_explicit(&to->sleeping, memory_order_relaxed)) {
    from->wakes++;
    sli_worker_wake(to);
  }
}

static inline void tell_free(worker *w, reg *r, int64_t key, int32_t slot) {
  worker *to = r->queue->worker;
  if (to == w) slot_free(w, r, slot);
  else send(w, to, &(sli_message){.key = key, .reg = r->id, .slot = slot, .kind = SLI_FREE});
}

static inline void tell_ready(worker *w, reg *r, group *g, int64_t key, int32_t slot) {
  worker *to = g->queue->worker;
  if (to == w) slot_ready(w, g, key, slot);
  else send(w, to, &(sli_message){.key = key, .reg = r->id, .slot = slot, .kind = SLI_READY,
                                  .group = (uint32_t)(g - r->groups)});
}

static bool drain(worker *w) {
  sli_message m;
  if (!sli_mailbox_pop(&w->mailbox, &m)) return false;
  do {
    reg *r = &w->rt->regs[m.reg];
    if (m.kind == SLI_READY) slot_ready(w, &r->groups[m.group], m.key, m.slot);
    else slot_free(w, r, m.slot);
  } while (sli_mailbox_pop(&w->mailbox, &m));
  return true;
}

/* ---- firing ---------------------------------------------------------------------- */

/* Everything of a run goes through this word once per source and step: bit 0 is
 * the request to stop, the rest the number of steps begun. A step is begun by
 * the first source that asks; after a stop no new one is. */
bool sli_gate_open(sl_runtime *rt, int64_t step) {
  if (step >= rt->goal) return false;
  uint64_t word = atomic_load_explicit(&rt->gate, memory_order_acquire);
  for (;;) {
    if ((uint64_t)step < word >> 1) return true;
    if (word & 1) return false;
    uint64_t next = (uint64_t)(step + 1) << 1;
    if (atomic_compare_exchange_weak_explicit(&rt->gate, &word, next, memory_order_acq_rel,
                                              memory_order_acquire))
      return true;
  }
}

int64_t sli_final_steps(sl_runtime *rt) {
  uint64_t word = atomic_load_explicit(&rt->gate, memory_order_acquire);
  return word & 1 ? (int64_t)(word >> 1) : rt->goal;
}

/* Counts one firing of the step; at the step's end a source asks for the next. */
static inline void count_firing(worker *w, actor *a) {
  a->fired++;
  w->fired++;
  walk_next(&a->tick);
  if (++a->in_step < a->firings_per_step) return;
  a->in_step = 0;
  a->step++;
  if (a->source && !sli_gate_open(w->rt, a->step)) a->gated = true, a->missing++;
}

static inline void look_at_input(in_port *p) {
  if ((p->at.flags & SL_FIRST) && !p->ready[p->at.key & p->mask]) {
    p->waiting = true;
    p->actor->missing++;
  }
}

static inline void look_at_output(out_port *p) {
  if ((p->at.flags & SL_FIRST) && !p->reg->nfree) {
    p->waiting = true;
    p->actor->missing++;
  }
}

void sli_actor_start(worker *w, actor *a) {
  a->missing = 1;
  for (int32_t i = 0; i < a->nin; i++) look_at_input(&a->in[i]);
  for (int32_t i = 0; i < a->nout; i++) look_at_output(&a->out[i]);
  a->cause = SL_WAIT_START;
  if (a->source && !sli_gate_open(w->rt, a->step)) a->gated = true, a->missing++;
  if (--a->missing == 0) make_runnable(w, a);
}

/* Walks every port one step on and sends what that step says: at once if the
 * firing is complete (flight NULL) or the receiver is on the same queue, else
 * it is noted for the firing's completion. */
static inline void advance(worker *w, actor *a, flight *f) {
  a->missing = 1; /* held back until every port has been looked at */
  for (int32_t i = 0; i < a->nin; i++) {
    in_port *p = &a->in[i];
    if (p->at.flags & SL_LAST) {
      int32_t *entry = &p->ready[p->at.key & p->mask], slot = *entry - 1;
      reg *r = p->reg;
      *entry = 0;
      if (!f || r->queue == a->queue) tell_free(w, r, p->at.key, slot);
      else f->notices[f->nnotices++] = (notice){r, NULL, p->at.key, slot};
    }
    walk_next(&p->at);
    look_at_input(p);
  }
  for (int32_t i = 0; i < a->nout; i++) {
    out_port *p = &a->out[i];
    if (p->at.flags & SL_LAST) {
      reg *r = p->reg;
      r->pending[p->slot] = r->nconsumers;
      r->newest = p->slot;
      for (int32_t g = 0; g < r->ngroups; g++) {
        if (!f || r->groups[g].queue == a->queue)
          tell_ready(w, r, &r->groups[g], p->at.key, p->slot);
        else
          f->notices[f->nnotices++] = (notice){r, &r->groups[g], p->at.key, p->slot};
      }
      if (!r->nconsumers) r->pending[p->slot] = 1, slot_free(w, r, p->slot);
    }
    walk_next(&p->at);
    look_at_output(p);
  }
  count_firing(w, a);
  if (--a->missing == 0) {
    a->cause = SL_WAIT_NONE;
    make_runnable(w, a);
  }
}

static inline void record(worker *w, queue *q, const actor *a, int64_t firing, int32_t cause,
                          uint64_t start, uint64_t end) {
  sl_trace_record *t = &w->ring[w->nrecords++ & w->ring_mask];
  uint32_t wait = start <= q->busy_until_ns ? SL_WAIT_NONE : (uint32_t)cause & 7;
  *t = (sl_trace_record){.start_ns = start, .end_ns = end, .firing = firing, .actor = a->id,
                         .wait = wait, .reg = (uint32_t)cause >> 3};
  q->busy_until_ns = end;
}

/* The slots of this firing: outputs take theirs, and the program's bases are
 * set if there is one to run. */
static inline void bind_slots(actor *a) {
  int32_t n = 0;
  if (a->program)
    for (int32_t i = 0; i < a->nin; i++, n++) {
      const in_port *p = &a->in[i];
      if (p->at.flags & SL_SKIP) continue;
      int32_t slot = p->ready[p->at.key & p->mask] - 1;
      a->bases[n] = p->reg->base + (size_t)slot * p->reg->stride;
    }
  for (int32_t i = 0; i < a->nout; i++, n++) {
    out_port *p = &a->out[i];
    if (p->at.flags & SL_FIRST) p->slot = take_slot(p);
    if (!a->program || (p->at.flags & SL_SKIP)) continue;
    a->bases[n] = p->reg->base + (size_t)p->slot * p->reg->stride;
    a->first[n] = (p->at.flags & SL_FIRST) != 0;
  }
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
  if (!w->rt->threads) return delay;
  uint64_t until = sli_clock_now(&w->rt->clock) + delay;
  while (sli_clock_now(&w->rt->clock) < until) sched_yield();
  w->now_ns = until;
  return 0;
}

/* What the queue was waiting for before this firing, if it was idle: nothing if
 * the actor could have gone while the queue was still busy. */
static inline int32_t cause_of_gap(const queue *q, const actor *a) {
  return a->since_ns <= q->busy_until_ns || (a->cause & 7) == SL_WAIT_NONE ? SL_WAIT_DEVICE
                                                                          : a->cause;
}

static void set_timer(worker *w, queue *q, uint64_t fence);

static void fire(worker *w, queue *q, actor *a) {
  sl_runtime *rt = w->rt;
  int64_t firing = a->fired;
  sl_tick tick = {.number = a->tick.key};
  if (a->program) tick = sl_plan_tick(rt->plan, a->id, firing);
  bind_slots(a);
  uint64_t duration = a->duration_ns;
  if (__builtin_expect(rt->options.jitter_seed != 0, 0)) duration += jitter(w);
  uint64_t start = w->now_ns, fence;
  int32_t cause = cause_of_gap(q, a);
  sl_firing bring = {.tick = tick, .bases = a->bases, .first = a->first};
  if (__builtin_expect(w->fired == 0, 0)) {
    uint64_t none = 0;
    atomic_compare_exchange_strong(&rt->first_firing_ns, &none, sli_now_ns());
  }
  if (q->ops->launch(q->impl, a->program, &bring, start, duration, &fence)) {
    if (rt->threads) w->now_ns = sli_clock_now(&rt->clock);
    record(w, q, a, firing, cause, start, w->now_ns);
    advance(w, a, NULL);
    return;
  }
  int32_t at = q->head + q->inflight++;
  flight *f = &q->flights[at < q->run_ahead ? at : at - q->run_ahead];
  f->actor = a;
  f->firing = firing;
  f->start_ns = start;
  f->duration_ns = duration;
  f->fence = fence;
  f->cause = cause;
  f->nnotices = 0;
  advance(w, a, f);
  if (q->inflight == 1) set_timer(w, q, fence);
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
  if (++q->head == q->run_ahead) q->head = 0;
  q->inflight--;
  uint64_t start = q->ops->timed ? end - f->duration_ns : SLI_MAX(f->start_ns, q->busy_until_ns);
  record(w, q, f->actor, f->firing, f->cause, start, end);
  for (int32_t i = 0; i < f->nnotices; i++) {
    const notice *n = &f->notices[i];
    if (n->group) tell_ready(w, n->reg, n->group, n->key, n->slot);
    else tell_free(w, n->reg, n->key, n->slot);
  }
  list_queue(w, q);
}

static bool retire(worker *w) {
  bool any = false;
  while (w->ntimers && w->timers[0].due_ns <= w->now_ns) {
    timer t = w->timers[0];
    w->timers[0] = w->timers[--w->ntimers];
    heap_down(w->timers, w->ntimers);
    retire_head(w, t.queue, t.due_ns);
    if (t.queue->inflight) set_timer(w, t.queue, t.queue->flights[t.queue->head].fence);
    any = true;
  }
  for (int32_t i = 0; i < w->npolled; i++) {
    queue *q = w->polled[i];
    while (q->inflight && q->ops->done(q->impl, q->flights[q->head].fence, w->now_ns))
      retire_head(w, q, w->now_ns), any = true;
    if (!q->inflight) w->polled[i--] = w->polled[--w->npolled];
  }
  return any;
}

/* Starts the best firing of the next queue on the list. */
static bool start_one(worker *w) {
  if (!w->nlisted) return false;
  queue *q = w->listed[w->listed_head];
  if (++w->listed_head == w->nqueues) w->listed_head = 0;
  w->nlisted--;
  q->listed = false;
  if (q->inflight >= q->run_ahead) return true; /* listed again when one retires */
  int32_t best = pick(q);
  if (best < 0) return true;
  actor *a = q->runnable[best];
  q->runnable[best] = q->runnable[--q->nrunnable];
  fire(w, q, a);
  if (q->nrunnable) list_queue(w, q);
  return true;
}

/* ---- nothing to do -------------------------------------------------------------------- */

void sli_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns) {
  struct timespec t = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, timeout_ns == UINT64_MAX ? NULL : &t, NULL, 0);
}

void sli_futex_wake(_Atomic uint32_t *word) {
  int saved = errno;
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
  errno = saved;
}

void sli_worker_wake(worker *w) {
  if (atomic_exchange(&w->sleeping, 0)) sli_futex_wake(&w->sleeping);
}

static bool stop_requested(sl_runtime *rt) {
  return atomic_load_explicit(&rt->gate, memory_order_relaxed) & 1;
}

static bool finished(worker *w) {
  if (w->fired == w->target) return true;
  return stop_requested(w->rt) &&
         w->fired == (uint64_t)sli_final_steps(w->rt) * w->firings_per_step;
}

/* How long until the next known completion; UINT64_MAX: unknown. */
static uint64_t until_timer(worker *w) {
  if (!w->ntimers) return UINT64_MAX;
  uint64_t due = w->timers[0].due_ns;
  return due > w->now_ns ? due - w->now_ns : 0;
}

/* Looks for a message for a while, then sleeps until one or a timer comes. The
 * time spent looking doubles when it paid and halves when it did not; with more
 * workers than cores the look is short and gives the core away. */
static void wait_for_news(worker *w) {
  enum { SPIN_LEAST = 1000, SPIN_MOST = 50000, SLEEP_MOST = 100000000 };
  sl_runtime *rt = w->rt;
  uint64_t start = sli_clock_now(&rt->clock), spin = rt->oversubscribed ? SPIN_LEAST : w->spin_ns;
  w->now_ns = start;
  uint64_t timer_in = until_timer(w);
  spin = SLI_MIN(spin, timer_in);
  do {
    if (sli_mailbox_ready(&w->mailbox) || finished(w)) {
      w->spin_ns = SLI_MIN(2 * w->spin_ns, (uint64_t)SPIN_MOST);
      goto out;
    }
    if (rt->oversubscribed) sched_yield();
    else __builtin_ia32_pause();
  } while (sli_clock_now(&rt->clock) - start < spin);
  if (w->npolled) goto out;
  w->spin_ns = SLI_MAX(w->spin_ns / 2, (uint64_t)SPIN_LEAST);
  if (timer_in > spin) {
    atomic_store_explicit(&w->sleeping, 1, memory_order_relaxed);
    full_fence(); /* pairs with the one in send() */
    if (!sli_mailbox_ready(&w->mailbox) && !finished(w))
      sli_futex_wait(&w->sleeping, 1, SLI_MIN(timer_in - spin, (uint64_t)SLEEP_MOST));
    atomic_store_explicit(&w->sleeping, 0, memory_order_relaxed);
  }
out:
  w->now_ns = sli_clock_now(&rt->clock);
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
    if (!a->gated || !sli_gate_open(w->rt, a->step)) continue;
    a->gated = false;
    satisfy(w, a, SL_WAIT_START, 0);
  }
}

void sli_worker_run(worker *w) {
  sl_runtime *rt = w->rt;
  w->target = (uint64_t)rt->goal * w->firings_per_step;
  if (rt->threads) w->now_ns = sli_clock_now(&rt->clock);
  open_gates(w);
  for (;;) {
    bool any = drain(w);
    if (w->ntimers | w->npolled) any |= retire(w);
    any |= start_one(w);
    if (any) {
      atomic_store_explicit(&w->progress, w->fired, memory_order_relaxed);
      continue;
    }
    if (finished(w) && !w->ntimers && !w->npolled) return;
    if (rt->threads) wait_for_news(w);
    else if (!jump(w)) return; /* stuck: the caller sees fired != target */
  }
}
