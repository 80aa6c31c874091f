/* SPDX-License-Identifier: Apache-2.0 */
/* Firing: takes slots, passes their addresses to the program, launches it, and records the result.
 *
 * A launch that is complete on return advances its ports immediately. Any other launch becomes a
 * flight. It also advances its ports, because a queue executes in launch order, but notifications
 * that hold only on completion are noted and sent later (retire.h). */
#ifndef SLUICE_ACTORS_RUN_FIRE_H
#define SLUICE_ACTORS_RUN_FIRE_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/run/advance.h"
#include "actors/run/length.h"
#include "actors/run/timer.h"

/* Cause of the queue's idle time before a firing whose actor became ready at `since`. DEVICE: the
 * queue was still busy then, so the worker was slow. Otherwise: the last thing that the actor
 * waited for. */
static inline uint32_t cause_of_gap(const queue *q, uint64_t since, int32_t cause) {
  return since <= q->busy_until_ns || cause == SL_WAIT_NONE ? SL_WAIT_DEVICE : (uint32_t)cause;
}

_Static_assert(sizeof(sl_trace_record) == 32, "a record ends with the word of its cause");

static inline void record(worker *w, queue *q, actor *a, int64_t firing, uint32_t cause,
                          uint64_t start, uint64_t end) {
  uint64_t fired = worker_fired(w);
  sl_trace_record *t = &w->ring.records[fired & w->ring.mask];
  t->start_ns = start;
  t->end_ns = end;
  t->firing = firing;
  t->actor = a->id;
  memcpy(&t->actor + 1, &cause, sizeof cause); /* wait and reg */
  q->busy_until_ns = end;
  atomic_store_explicit(&a->done, firing + 1, memory_order_relaxed);
  /* release: pairs with the acquire of readers of the records during the run */
  atomic_store_explicit(&w->progress.fired, fired + 1, memory_order_release);
}

/* Sets each shared base to the slot of the port that does not skip the firing. */
static NOINLINE void join_bases(const actor *a) {
  int32_t nports = a->plan->nin + a->plan->nout;
  for (int32_t p = 0; p < nports; p++) {
    if (!a->bound.bases[p]) continue;
    a->bound.bases[a->plan->bases[p]] = a->bound.bases[p];
    a->bound.first[a->plan->bases[p]] = a->bound.first[p];
  }
}

/* Sets the firing's tick and the addresses of its slots: NULL at a port that skips the firing. */
static NOINLINE void bind(actor *a) {
  const tick_step *t = a->tick;
  void **base = a->bound.bases;
  uint8_t *first = a->bound.first;
  for (const in_port *p = a->in; p < a->in_end; p++, base++, first++)
    *base = p->at.now->flags & SL_SKIP ? NULL : slot_address(p->reg, *p->entry - 1);
  for (const out_port *p = a->out; p < a->out_end; p++, base++, first++) {
    *base = p->at.now->flags & SL_SKIP ? NULL : slot_address(p->reg, p->slot);
    *first = (p->at.now->flags & SL_FIRST) != 0;
  }
  a->bound.firing = (sl_firing){.tick = {.number = a->tick_number,
                                         .step = a->step + t->ahead,
                                         .microbatch = t->microbatch,
                                         .piece = t->piece},
                                .name = a->plan->name,
                                .bases = a->bound.bases,
                                .first = a->bound.first,
                                .move = a->bound.move,
                                .lengths = a->bound.lengths ? a->bound.lengths->now : NULL};
  if (a->bound.move) a->bound.move->key = a->out->at.key, a->bound.move->slot = a->out->slot;
  if (UNLIKELY(a->bound.lengths)) bind_lengths(a);
  if (UNLIKELY(a->plan->bases)) join_bases(a);
}

static uint64_t next_random(worker *w) { /* xorshift64* */
  w->random ^= w->random >> 12;
  w->random ^= w->random << 25;
  w->random ^= w->random >> 27;
  return w->random * UINT64_C(2685821657736338717);
}

enum { OVERSLEPT_NS = 100000 }; /* a sleep may end this much late */

/* Random delay. On the virtual clock the firing takes longer; on the real one the worker waits, and
 * yields its core meanwhile. */
static uint64_t jitter(worker *w) {
  uint64_t delay = next_random(w) % (w->rt->options.jitter_ns + 1);
  if (!w->real) return delay;
  uint64_t until = sli_clock_now(&w->clock) + delay;
  if (delay > OVERSLEPT_NS) usleep((useconds_t)((delay - OVERSLEPT_NS) / 1000));
  while (sli_clock_now(&w->clock) < until) pause_worker(w->rt);
  w->now_ns = until;
  return 0;
}

/* Slow path of a firing: the very first one, and all firings with jitter or a duration callback.
 * Returns the duration. */
static uint64_t unusual_firing(worker *w, const queue *q, const actor *a) {
  const sl_runtime_options *o = &w->rt->options;
  uint64_t none = 0;
  atomic_compare_exchange_strong(&w->rt->first_firing_ns, &none, sli_now_ns());
  w->unusual = o->jitter_seed || o->duration || o->check;
  w->plain = !w->unusual && w->real && sli_clock_is_fast(&w->clock) && !w->peers;
  for (int32_t i = 0; i < w->share.nqueues; i++) w->plain &= !w->share.queues[i]->selective;
  bool asked = o->duration && q->ops->timed;
  uint64_t duration = asked ? o->duration(o->duration_ctx, a->id, a->tick_number) : a->duration_ns;
  return o->jitter_seed ? duration + jitter(w) : duration;
}

/* Aborts the run if the device has failed. `a` is the actor at which the failure was seen. */
static void look_for_failure(worker *w, const queue *q, const actor *a) {
  const char *why = q->ops->failure ? q->ops->failure(q->impl) : NULL;
  if (LIKELY(!why)) return;
  char *text = sli_format("actor %s on %s: %s", a->plan->name,
                          w->rt->plan->devices[q->plan->device].name, why);
  sl_runtime_abort(w->rt, SL_E_DEVICE, text);
  free(text);
}

/* Publishes the oldest firing in flight, and since when it is the oldest. */
static void show_flying(queue *q, uint64_t since) {
  int32_t id = q->inflight ? q->flights[q->head].actor->id : SL_NONE;
  atomic_store_explicit(&q->flying_ns, since, memory_order_relaxed);
  atomic_store_explicit(&q->flying, id, memory_order_relaxed);
}

/* Result of a launch: the firing is complete on return; or in flight, and the queue takes another;
 * or in flight, and the queue is full. */
typedef enum launched { AT_ONCE, UNDER_WAY, AND_FULL } launched;

static ALWAYS_INLINE launched take_off(worker *w, queue *q, actor *a, uint64_t start,
                                       uint64_t duration, uint64_t fence) {
  look_for_failure(w, q, a);
  int32_t at = q->head + q->inflight++;
  flight *f = &q->flights[at < q->nflights ? at : at - q->nflights];
  f->actor = a;
  f->firing = a->fired;
  f->start_ns = start;
  f->since_ns = a->since_ns;
  f->duration_ns = duration;
  f->fence = fence;
  f->cause = a->cause;
  f->share = UNLIKELY(q->lanes) ? share_asked(a) : 0;
  f->end = f->notices;
  w->plain = false;
  if (w->real) {
    if (q->inflight == 1) show_flying(q, start);
    w->now_ns = sli_clock_now(&w->clock);
  }
  advance(w, a, f, false);
  if (q->inflight == 1) set_timer(w, q, fence);
  return q->inflight < q->run_ahead ? UNDER_WAY : AND_FULL;
}

/* Out-of-line version for queues on which it is rare. */
static NOINLINE launched take_off_apart(worker *w, queue *q, actor *a, uint64_t start,
                                        uint64_t duration, uint64_t fence) {
  return take_off(w, q, a, start, duration, fence);
}

static ALWAYS_INLINE launched fire(worker *w, queue *q, actor *a, bool plain) {
  uint64_t duration = a->duration_ns, fence;
  bool checked = !plain && w->unusual && w->rt->options.check;
  if (UNLIKELY(checked)) check_inputs(a);
  for (out_port *p = a->out; p < a->out_end; p++)
    if (p->at.now->flags & SL_FIRST) take_slot(p);
  if (UNLIKELY(checked)) tag_outputs(a);
  if (a->binds) bind(a);
  if (!plain && UNLIKELY(a->fenced)) wait_on_device(a);
  if (!plain && w->unusual) duration = unusual_firing(w, q, a);
  uint64_t start = w->now_ns;
  atomic_store_explicit(&w->progress.current, a->id, memory_order_relaxed);
  if (UNLIKELY(!q->launch(q->impl, a->program, &a->bound.firing, start, duration, &fence)))
    return plain ? take_off_apart(w, q, a, start, duration, fence)
                 : take_off(w, q, a, start, duration, fence);
  if (plain) w->now_ns = sli_clock_now_fast(&w->clock);
  else if (w->real) w->now_ns = sli_clock_now(&w->clock);
  uint64_t end = w->now_ns;
  uint32_t cause = SL_WAIT_NONE;
  if (start > q->busy_until_ns) cause = cause_of_gap(q, a->since_ns, a->cause);
  record(w, q, a, a->fired, cause, start, end);
  int32_t share = !plain && UNLIKELY(q->lanes) ? share_asked(a) : 0;
  advance(w, a, NULL, plain);
  if (!plain && UNLIKELY(share)) return_share(w, q, share);
  return AT_ONCE;
}

#endif
