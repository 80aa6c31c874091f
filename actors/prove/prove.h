/* Rehearsals: a plan as it would run, on the virtual clock and without data. For actortrace's
 * replays too; users have <sluice/runtime.h>. */
#ifndef SLUICE_ACTORS_PROVE_H
#define SLUICE_ACTORS_PROVE_H

#include <sluice/runtime.h>

typedef struct sli_rehearsal {
  sl_plan plan; /* a copy that refers to the original's names, ports and maps; its queues,
                   registers, pools and actors are its own to be changed before the run */
  sl_runtime *rt; /* refers to the plan: a rehearsal stays where it is */
  int64_t first_step;
} sli_rehearsal;

/* Of a finished plan. Firings take their actors' seconds, or if not `timed` no time; on queues
 * that are timed in the plan they take what they take. */
void sli_rehearsal_init(sli_rehearsal *r, const sl_plan *plan, bool timed);
void sli_rehearsal_fini(sli_rehearsal *r);

/* Once. SL_E_STUCK as sl_runtime_run. With `keep_trace` all of its firings are recorded. */
sl_status sli_rehearse(sli_rehearsal *r, int64_t steps, bool keep_trace);

/* From the step in which all actors fire, for as long as it takes to be back in a state that
 * it has been in, and without what timing decides: a rehearsal that proves the plan. */
sl_status sli_rehearse_all(sli_rehearsal *r);

/* A quota with which a plan would finish: of registers of that name, or of a pool. */
typedef struct sli_advice {
  char name[64];
  int32_t stage; /* SL_NONE: of all stages */
  int32_t slots; /* 0: there is none */
} sli_advice;

/* As sl_plan_prove; of a plan that gets stuck, what would mend it, as the error says. */
sl_status sli_plan_prove_or_advise(const sl_plan *plan, sli_advice *advice);

#endif
