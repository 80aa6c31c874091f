/* Random plans whose every slot can be checked.
 *
 * A plan is a random graph of actors at three levels (one firing per piece, per
 * microbatch, per step), with registers read late, in reverse, more than once,
 * summed over spans, fed back with initial slots, held, or drawn from a pool.
 * Each actor runs one op that writes a hash of its inputs, its tick and its
 * state, and checks that every input slot holds exactly the register, key and
 * value that an evaluation one firing after another, with unlimited memory,
 * gives. */
#ifndef SLUICE_TESTS_ACTORS_PLANS_H
#define SLUICE_TESTS_ACTORS_PLANS_H

#include <sluice/runtime.h>

typedef struct random_plan random_plan;

/* What the queues are. */
typedef enum random_queues {
  QUEUES_CPU,   /* data, complete at once */
  QUEUES_LATER, /* data, complete later at times nobody knows */
  QUEUES_STREAMS, /* the same, and wait for each other by themselves */
  QUEUES_TIMED  /* no data, take a random time, one after another or side by side */
} random_queues;

/* The same seed gives the same actors and registers whatever the queues; only
 * quotas depend on `quotas`. */
random_plan *random_plan_create(uint64_t seed, uint64_t quotas, random_queues queues);
void random_plan_destroy(random_plan *r);
const sl_plan *random_plan_get(const random_plan *r);

/* Evaluates the first `steps` steps in order. */
void random_plan_expect(random_plan *r, int64_t steps);
/* Fills the initial slots of a fresh runtime. */
void random_plan_fill(random_plan *r, sl_runtime *rt);
/* Ends the test unless every actor has fired its ticks of `steps` steps once and
 * in order, and no register or pool went over its quota. */
void random_plan_check(const random_plan *r, const sl_runtime *rt, int64_t steps);

/* A queue that copies its firings and runs them when asked often enough. */
extern const sl_queue_ops later_queue;

/* Numbers from a seed, the same everywhere. */
uint64_t random_next(uint64_t *state);
int random_below(uint64_t *state, int n);

#endif
