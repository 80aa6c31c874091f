/* SPDX-License-Identifier: Apache-2.0 */
/* Idle workers: spin for news, then sleep until it arrives.
 *
 * Spinning costs a core, sleeping costs a wake. A worker spins for about as long as a sleep and a
 * wake would take, and adapts to how soon news arrived before. News is a message, a completion, or
 * a change of the gate: the run is over, or a held run resumes. */
#ifndef SLUICE_ACTORS_RUN_SLEEP_H
#define SLUICE_ACTORS_RUN_SLEEP_H

#include "actors/run/timer.h"

static bool has_fired_its_share(const worker *w) {
  uint64_t fired = worker_fired(w);
  gate_view gate = gate_look(&w->rt->gate);
  if (gate.aborted) return true;
  if (gate.held) return false;
  return fired == w->share.target || (gate.closed && fired == worker_share(w, gate.begun));
}

/* True if the worker is done. The carrier waits for the other workers, because they need the data
 * it brings. */
static bool finished(worker *w) {
  return has_fired_its_share(w) &&
         (!w->peers || atomic_load_explicit(&w->rt->crew.active, memory_order_acquire) == 1);
}

static bool gate_has_news(worker *w) {
  return finished(w) || atomic_load(&w->rt->gate.reopened) != w->reopened;
}

/* Time until the next known completion; UINT64_MAX: unknown. */
static uint64_t until_timer(worker *w) {
  uint64_t due = first_due(&w->awaited.timers);
  if (due == UINT64_MAX) return UINT64_MAX;
  return due > w->now_ns ? due - w->now_ns : 0;
}

/* Spins for a message until `spin` ns have passed. It looks several times between two readings of
 * the clock, with pauses, because the core may be shared with the worker that is to send it. With
 * more workers than cores it yields its core instead. */
static bool look_for_news(worker *w, uint64_t start, uint64_t spin) {
  enum { LOOKS = 16 };
  sl_runtime *rt = w->rt;
  int looks = w->peers ? 0 : rt->oversubscribed ? 1 : LOOKS;
  do {
    if (gate_has_news(w)) return true;
    for (int i = 0; i < looks; i++) {
      if (sli_mailbox_ready(&w->mailbox)) return true;
      sli_pause();
    }
    if (w->peers && (w->peers->progress(w->peers->ctx) || sli_mailbox_ready(&w->mailbox)))
      return true;
    pause_worker(rt);
  } while (sli_clock_now(&w->clock) - start < spin);
  return false;
}

/* Sleeps until it is woken or a timer is due. */
static void sleep_for_news(worker *w, uint64_t timeout_ns) {
  atomic_exchange(&w->sleeping, 1);
  if (!sli_mailbox_expects(&w->mailbox) && !gate_has_news(w)) {
    if (w->peers) w->peers->wait(w->peers->ctx, timeout_ns);
    else sli_futex_wait(&w->sleeping, 1, timeout_ns);
  }
  atomic_store_explicit(&w->sleeping, 0, memory_order_relaxed);
}

static void note_news(worker *w) {
  w->now_ns = sli_clock_now(&w->clock);
  atomic_store_explicit(&w->progress.woke_ns, w->now_ns, memory_order_relaxed);
}

/* Lists the held queues again: what they waited for may be complete. */
static void look_at_held(worker *w) {
  w->held = false;
  for (int32_t i = 0; i < w->share.nqueues; i++) {
    queue *q = w->share.queues[i];
    if (q->held && has_runnable(q)) list_queue(w, q);
    q->held = false;
  }
}

/* Waits before polling a queue again. The pause grows while nothing completes. A message ends the
 * pause. */
static void wait_to_ask(worker *w, uint64_t start, uint64_t timer_in) {
  enum { ASK_FIRST = 1000, ASK_MOST = 50000, SPIN_MOST = 10000 };
  uint64_t *ask = &w->awaited.ask_ns;
  *ask = *ask ? SLI_MIN(2 * *ask, (uint64_t)ASK_MOST) : ASK_FIRST;
  uint64_t wait = SLI_MIN(*ask, timer_in);
  if (wait <= SPIN_MOST && !w->rt->oversubscribed) look_for_news(w, start, wait);
  else sleep_for_news(w, wait);
  note_news(w);
  if (w->held) look_at_held(w);
}

/* Takes only the first of the messages that arrive while the worker spins, and then fires. Looking
 * for a second one would wait for a cache line that its sender is writing at that moment. */
static void take_first(worker *w) {
  sli_message m;
  if (sli_mailbox_pop(&w->mailbox, &m)) take(w, &m);
}

/* Spins for a message for a while, then sleeps until a message arrives or a timer is due. The spin
 * time doubles if news came so soon that spinning was, or would have been, cheaper than a sleep and
 * a wake; otherwise it halves. Completions of links count as news; other queues may have to be
 * polled. */
static NOINLINE void wait_for_news(worker *w) {
  enum { SPIN_LEAST = 1000, SPIN_MOST = 50000 };
  uint64_t start = w->now_ns = sli_clock_now(&w->clock);
  atomic_store_explicit(&w->progress.current, SL_NONE, memory_order_relaxed);
  uint64_t timer_in = until_timer(w), spin = w->spin_ns;
  if ((w->awaited.nmute || w->held) && timer_in) {
    wait_to_ask(w, start, timer_in);
    return;
  }
  if (w->rt->oversubscribed) spin = SPIN_LEAST;
  if (!timer_in || look_for_news(w, start, SLI_MIN(spin, timer_in))) {
    note_news(w);
    if (w->plain) take_first(w);
    return;
  }
  if (timer_in == UINT64_MAX) sleep_for_news(w, UINT64_MAX);
  else if (timer_in > spin) sleep_for_news(w, timer_in - spin);
  note_news(w);
  w->spin_ns = w->now_ns - start < SPIN_MOST ? SLI_MIN(2 * w->spin_ns, (uint64_t)SPIN_MOST)
                                             : SLI_MAX(w->spin_ns / 2, (uint64_t)SPIN_LEAST);
}

#endif
