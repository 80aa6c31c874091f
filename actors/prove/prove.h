/* SPDX-License-Identifier: Apache-2.0 */
/* Simulations: runs of a plan on the virtual clock, without data. actortrace's replays use them
 * too; the public interface is <sluice/runtime.h>. */
#ifndef SLUICE_ACTORS_PROVE_PROVE_H
#define SLUICE_ACTORS_PROVE_PROVE_H

#include <sluice/runtime.h>

typedef struct sli_simulation {
  sl_plan plan;   /* a copy that shares the original's names, ports and maps, and owns its queues,
                     registers, pools and actors, which may be changed before the run */
  sl_runtime *rt; /* points to the plan, so a simulation must not be moved */
  int64_t first_step;
} sli_simulation;

/* Prepares a simulation of a finished plan. Firings take their actors' seconds, or no time if not
 * `timed`; queues that are timed in the plan keep their durations. Devices of a group wait for each
 * other once their orders are fixed. */
void sli_simulation_init(sli_simulation *simulation, const sl_plan *plan, bool timed);
void sli_simulation_fini(sli_simulation *simulation);

/* Runs the simulation, once. Returns SL_E_STUCK like sl_runtime_run. With `keep_trace` all firings
 * are recorded. */
sl_status sli_simulate(sli_simulation *simulation, int64_t steps, bool keep_trace);

/* Makes pools grant only reserved slots, as a proof does. */
void sli_simulation_lend_nothing(sli_simulation *simulation);

/* Runs the simulation that proves the plan: from the step in which all actors fire until a state
 * repeats, without anything that timing decides. */
sl_status sli_simulate_all(sli_simulation *simulation);

/* A quota with which a plan would finish: of registers with that name, or of a pool. */
typedef struct sli_advice {
  char name[64];
  int32_t stage; /* SL_NONE: all stages */
  int32_t slots; /* 0: no advice */
  bool partial;  /* the plan gets further, but needs other quotas too */
} sli_advice;

/* Returns a warning for a quota that changes the training, else "". */
const char *sli_quota_warning(const char *quota);

/* Proves a plan as sl_plan_prove does; for one that gets stuck, returns the advice of the error. */
sl_status sli_plan_prove_or_advise(const sl_plan *plan, sli_advice *advice);

#endif
