/* SPDX-License-Identifier: Apache-2.0 */
/* Status of a run in progress: how far every actor has got, what every queue is doing, and which
 * actors wait for which.
 *
 * Any thread may read it, without disturbing workers. Each process knows only its own part. Parts
 * are merged into the status of the whole run; parts not yet merged are unknown. Since parts are
 * read at slightly different moments, the status of a progressing run may show a state that never
 * existed. The status of a stalled run is exact. */
#ifndef SLUICE_RUN_STATUS_H
#define SLUICE_RUN_STATUS_H

#include <sluice/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SL_UNKNOWN = -2 };

typedef struct sl_queue_status {
  int32_t running; /* actor, SL_NONE (idle) or SL_UNKNOWN */
  double seconds;  /* time for which it has run that actor, or been idle */
} sl_queue_status;

typedef struct sl_run_status {
  const sl_plan *plan;
  int64_t *fired; /* [nactors] firings completed, including those of steps before first_step;
                     SL_UNKNOWN */
  int32_t *slots; /* [nregs] slots that exist now; SL_UNKNOWN */
  sl_queue_status *queues; /* [nqueues] */
  double *idle; /* [ndevices] idle fraction over the last two steps or two seconds, whichever is
                   longer, as far as the records reach back; SL_UNKNOWN */
  struct sli_run_status_memory *memory; /* owns everything above except the plan */
} sl_run_status;

/* Creates a status in which everything is unknown. */
sl_run_status *sl_run_status_create(const sl_plan *plan);
void sl_run_status_destroy(sl_run_status *rs);

/* Adds this process's part. Any thread, during a run or between runs; real clock. */
void sl_runtime_run_status(const sl_runtime *rt, sl_run_status *rs);

/* Exports this process's part as plain bytes for another process of the job. The caller frees them
 * with free(). */
size_t sl_runtime_run_status_export(const sl_runtime *rt, void **out);
/* Adds an exported part. SL_E_INPUT, with nothing added, if it belongs to another plan. */
sl_status sl_run_status_import(sl_run_status *rs, const void *bytes, size_t size);

/* Reason why an actor does not fire, or why a queue is idle. */
typedef struct sl_actor_wait {
  int32_t actor;   /* for a wait of a queue, the actor that it concerns; SL_NONE */
  sl_tick tick;    /* tick of that actor's next firing */
  sl_wait why;     /* INPUT, CREDIT: waits for `reg`; POLICY: ready but postponed; NONE: no visible
                      reason */
  int32_t reg, on; /* `on`: the actor it waits for; SL_NONE */
} sl_actor_wait;
sl_actor_wait sl_run_status_actor_wait(const sl_run_status *rs, int32_t actor);
sl_actor_wait sl_run_status_queue_wait(const sl_run_status *rs, int32_t queue);

#ifdef __cplusplus
}
#endif
#endif
