/* SPDX-License-Identifier: Apache-2.0 */
/* Random plans whose every slot can be checked.
 *
 * A plan is a random graph of actors at three levels: one firing per piece, per microbatch, or
 * per step. Registers are read late, in reverse or more than once, summed over spans, fed back
 * with initial slots, held, or drawn from a pool. Each actor runs one op that writes a hash of
 * its inputs, its tick and its state. It also checks every input slot against a sequential
 * evaluation with unlimited memory: register, key and value must be equal. */
#ifndef SLUICE_TESTS_SUPPORT_ACTORS_PLANS_H
#define SLUICE_TESTS_SUPPORT_ACTORS_PLANS_H

#include <sluice/runtime.h>

typedef struct random_plan random_plan;

/* Kind of the plan's queues. */
typedef enum random_queues {
  QUEUES_CPU,     /* with data, complete immediately */
  QUEUES_LATER,   /* with data, complete later at unpredictable times */
  QUEUES_STREAMS, /* like QUEUES_LATER, and wait for each other without the host */
  QUEUES_TIMED    /* without data, take a random time, one after another or in parallel */
} random_queues;

/* Makes a plan. The same seed gives the same actors and registers with any queues; only quotas
 * depend on `quotas`. */
random_plan *random_plan_create(uint64_t seed, uint64_t quotas, random_queues queues);
void random_plan_destroy(random_plan *r);
const sl_plan *random_plan_get(const random_plan *r);

/* Evaluates the first `steps` steps in order. */
void random_plan_expect(random_plan *r, int64_t steps);
/* Fills the initial slots of a fresh runtime. */
void random_plan_fill(random_plan *r, sl_runtime *rt);
/* Ends the test unless every actor has fired its ticks of `steps` steps once and in order, and
 * no register or pool exceeded its quota. */
void random_plan_check(const random_plan *r, const sl_runtime *rt, int64_t steps);

/* A queue that copies its firings and runs them after enough polls. */
extern const sl_queue_ops later_queue;

/* Returns the next number from a seed, the same on every machine. */
uint64_t random_next(uint64_t *state);
int random_below(uint64_t *state, int n);

#endif
