/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop.
 *
 * A worker drives one or more queues. It repeats four moves until every actor it owns has fired its
 * share: take in messages, retire completed firings, start firings, sleep. All of Sluice's flow
 * control is one counter per actor, which messages keep up to date. An actor may fire when
 * `missing` is 0: each input port's next key is ready, each output port has a free slot, and the
 * step has begun. A firing takes its slots, runs its program, and then moves every port one step
 * along its key map. An input that is done with its slot sends `free` to the producer; an output
 * that has completed one sends `ready` to the consumers. Ports on the same worker are notified
 * directly, without atomics; others through their worker's mailbox.
 *
 * The loop is one translation unit, composed of headers that each explain their part:
 *
 *   ready.h    which actors can fire, in which order
 *   slots.h    slots, and accounts that change with them
 *   fence.h    queues that wait for each other on the device
 *   tell.h     who is notified of a slot, and when
 *   advance.h  ports advance, steps begin
 *   length.h   valid lengths of slots
 *   fire.h     launches and records
 *   timer.h    firings in flight
 *   retire.h   completions
 *   policy.h   which ready actors may fire
 *   sleep.h    idle workers */
#include "actors/run/policy.h"
#include "actors/run/retire.h"
#include "actors/run/sleep.h"

void sli_worker_take(worker *w, const sli_message *m) { take(w, m); }

void sli_actor_start(worker *w, actor *a) {
  a->missing = 1;
  look_at_tick(w->rt, a);
  for (in_port *p = a->in; p < a->in_end; p++) look_at_input(p);
  for (out_port *p = a->out; p < a->out_end; p++) look_at_output(p);
  a->cause = SL_WAIT_START;
  ask_gate(w, a);
  if (--a->missing == 0) make_runnable(w, a);
}

/* Starts the best firing of the queue whose turn it is. The queue stays listed meanwhile, so a
 * firing that makes actors of this queue runnable need not list it. It leaves the ring when it has
 * no more to start, or is full. */
static ALWAYS_INLINE launched start_one(worker *w, bool plain) {
  queue *q = w->last->next;
  launched how = AT_ONCE;
  if (!plain && UNLIKELY(q->look_ahead_ns) && !q->passed) {
    q->passed = true; /* other queues go first: this one looks ahead at their firings */
    w->last = q;
    return how;
  }
  if (!plain) q->passed = false;
  if (plain || !q->selective || bring_allowed(w, q)) {
    how = fire(w, q, *--q->top, plain);
    if (LIKELY(how != AND_FULL && has_runnable(q))) {
      w->last = q;
      return how;
    }
  }
  q->listed = how == AND_FULL; /* a full queue is listed when a firing retires */
  if (q == w->last) w->last = NULL;
  else w->last->next = q->next;
  return how;
}

/* Starts all firings it can while nothing is unusual. A separate loop lets the compiler keep the
 * worker in a register. */
static NOINLINE void start_plain(worker *w) {
  while (LIKELY(w->last)) {
    if (UNLIKELY(start_one(w, true) != AT_ONCE)) return;
    if (UNLIKELY(sli_mailbox_ready(&w->mailbox))) drain(w);
  }
}

/* Earliest time at which a polled queue asks to be polled. */
static uint64_t first_asked(const awaited *a) {
  uint64_t first = UINT64_MAX;
  for (int32_t i = 0; i < a->npolled; i++) {
    const queue *q = a->polled[i];
    if (q->ops->next) first = SLI_MIN(first, q->ops->next(q->impl));
  }
  return first;
}

/* Advances the virtual clock to the next completion or poll. Returns false if there is none. */
static bool jump(worker *w) {
  uint64_t due = SLI_MIN(first_due(&w->awaited.timers), first_asked(&w->awaited));
  if (due == UINT64_MAX) return false;
  w->now_ns = SLI_MAX(due, w->now_ns);
  return true;
}

static void open_gates(worker *w) {
  for (int32_t i = 0; i < w->share.nactors; i++) {
    actor *a = w->share.actors[i];
    if (!a->gated || !gate_begin(&w->rt->gate, a->step)) continue;
    a->gated = false;
    satisfy(w, a, SL_WAIT_START);
  }
}

/* Asks the gate again after a held run resumes: more steps may begin. */
static bool look_at_gates(worker *w) {
  uint32_t now = atomic_load_explicit(&w->rt->gate.reopened, memory_order_acquire);
  if (LIKELY(now == w->reopened)) return false;
  w->reopened = now;
  open_gates(w);
  return true;
}

void sli_worker_run(worker *w) {
  sl_runtime *rt = w->rt;
  w->share.target = worker_share(w, rt->gate.goal);
  if (w->real) w->now_ns = sli_clock_now(&w->clock);
  open_gates(w);
  for (;;) {
    if (w->plain) start_plain(w);
    if (UNLIKELY(sli_mailbox_ready(&w->mailbox))) drain(w);
    if (w->peers) w->peers->progress(w->peers->ctx);
    retire(w);
    if (w->last) {
      start_one(w, false);
      continue;
    }
    if (UNLIKELY(look_at_gates(w))) continue;
    if (finished(w)) break;
    if (w->real) wait_for_news(w);
    else if (!jump(w)) break; /* stuck: the caller sees which actors have not fired */
  }
  if (w->peers) drain(w); /* sends the last messages to other processes */
  atomic_store_explicit(&w->progress.current, SL_NONE, memory_order_relaxed);
}
