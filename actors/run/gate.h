/* SPDX-License-Identifier: Apache-2.0 */
/* The gate: decides which steps begin, and where a run ends.
 *
 * No worker counts steps for another. An actor that has made its last firing of a step asks the
 * gate for the next step; the first actor that asks begins the step for all. The number of steps
 * begun and the flags share one atomic word, so a stop request and the beginning of a step are
 * always ordered. In every case an actor fires exactly its share of the steps begun, and a worker
 * is done when all of its actors have.
 *
 *                     begin(step): begun = step + 1
 *                       +---+
 *                       |   v
 *                     +-------+   stop    +--------+
 *         aim(goal) ->| OPEN  |---------->| CLOSED |  the run ends with the steps begun
 *                     +-------+           +--------+
 *                         | hold               ^
 *                         v                    | end(n): begun = n, held workers go on
 *                     +---------------+        |
 *                     | CLOSED + HELD |--------+
 *                     +---------------+
 *                     no step begins; the coordinator decides where the run ends
 *
 *         between runs: reopen -> OPEN, to continue after the steps begun
 *         from any state: abort -> ABORTED, permanently: the run ends now, in mid-step
 *
 * While OPEN, the run ends with `goal`. A run over several processes ends with the same step in all
 * of them: all hold, which fixes how many steps each has begun, and all end with the largest
 * number. Steps up to `n` then count as begun everywhere, even in a process that had not begun
 * them: `reopened` tells its workers to ask again. Once CLOSED, workers that have fired their share
 * are done. A coordinator must therefore hold a run only once, while it is OPEN.
 *
 * The word publishes no other data, so workers read it relaxed. */
#ifndef SLUICE_ACTORS_RUN_GATE_H
#define SLUICE_ACTORS_RUN_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct gate {
  _Atomic int64_t goal;      /* steps to have completed at the end of this run */
  _Atomic uint64_t word;     /* steps begun << SLI_GATE_BITS | flags */
  _Atomic uint32_t reopened; /* counter: incremented when held workers may continue */
} gate;

enum { SLI_GATE_CLOSED = 1, SLI_GATE_HELD = 2, SLI_GATE_ABORTED = 4, SLI_GATE_BITS = 3 };

typedef struct gate_view {
  int64_t begun;
  bool closed, held, aborted;
} gate_view;

static inline gate_view gate_view_of(uint64_t word) {
  return (gate_view){(int64_t)(word >> SLI_GATE_BITS), word & SLI_GATE_CLOSED, word & SLI_GATE_HELD,
                     word & SLI_GATE_ABORTED};
}

static inline gate_view gate_look(const gate *g) { return gate_view_of(atomic_load(&g->word)); }

static inline void gate_init(gate *g, int64_t begun) {
  atomic_init(&g->goal, begun);
  atomic_init(&g->word, (uint64_t)begun << SLI_GATE_BITS);
  atomic_init(&g->reopened, 0);
}

/* Sets the goal. Between runs. */
static inline void gate_aim(gate *g, int64_t goal) { atomic_store(&g->goal, goal); }

/* True if the step begins or has begun. Each actor asks once per step, in order. */
static inline bool gate_begin(gate *g, int64_t step) {
  if (step >= g->goal) return false;
  uint64_t word = atomic_load_explicit(&g->word, memory_order_relaxed);
  for (;;) {
    if ((uint64_t)step < word >> SLI_GATE_BITS) return true;
    if (word & SLI_GATE_CLOSED) return false;
    uint64_t next = (uint64_t)(step + 1) << SLI_GATE_BITS;
    if (atomic_compare_exchange_weak_explicit(&g->word, &word, next, memory_order_relaxed,
                                              memory_order_relaxed))
      return true;
  }
}

static inline void gate_stop(gate *g) { atomic_fetch_or(&g->word, SLI_GATE_CLOSED); }
static inline void gate_abort(gate *g) {
  atomic_fetch_or(&g->word, SLI_GATE_CLOSED | SLI_GATE_ABORTED);
}

/* Reopens the gate after `steps`, the steps begun. Between runs. */
static inline void gate_reopen(gate *g, int64_t steps) {
  atomic_store(&g->word, (uint64_t)steps << SLI_GATE_BITS);
}

/* Returns the steps begun. */
static inline int64_t gate_hold(gate *g) {
  return gate_view_of(atomic_fetch_or(&g->word, SLI_GATE_CLOSED | SLI_GATE_HELD)).begun;
}

/* Ends the run with `steps`, or with the steps begun here if they are more. */
static inline void gate_end(gate *g, int64_t steps) {
  uint64_t held = atomic_load(&g->word), next;
  do {
    int64_t begun = (int64_t)(held >> SLI_GATE_BITS);
    if (begun < steps) begun = steps;
    next = (uint64_t)begun << SLI_GATE_BITS | SLI_GATE_CLOSED | (held & SLI_GATE_ABORTED);
  } while (!atomic_compare_exchange_weak(&g->word, &held, next));
  atomic_fetch_add(&g->reopened, 1);
}

/* Number of steps with which the run ends, as far as decided. If another process was stopped in a
 * later run, this run ends with its goal, and the next one with the steps begun there. */
static inline int64_t gate_final(const gate *g) {
  gate_view v = gate_look(g);
  return v.closed && v.begun < g->goal ? v.begun : g->goal;
}

#endif
