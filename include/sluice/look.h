/* A look at a run while it goes on: how far every actor is, what every queue does,
 * and who waits for whom.
 *
 * A look is taken by any thread and disturbs no worker. Each process can tell of its
 * own part only; looks at the parts add up to one at the whole, and what nobody has
 * told of stays unknown. The parts are of slightly different moments: what a look
 * says of a run that moves may never have been so all at once, while of one that
 * stands still it is exact. */
#ifndef SLUICE_LOOK_H
#define SLUICE_LOOK_H

#include <sluice/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SL_UNKNOWN = -2 };

typedef struct sl_queue_look {
  int32_t running;  /* actor, SL_NONE (idle) or SL_UNKNOWN */
  double seconds;   /* has run it, or been idle, for so long */
} sl_queue_look;

typedef struct sl_look {
  const sl_plan *plan;
  int64_t *fired;   /* [nactors] firings completed, those of steps before first_step
                       included; SL_UNKNOWN */
  int32_t *slots;   /* [nregs] that there are now; SL_UNKNOWN */
  sl_queue_look *queues; /* [nqueues] */
  double *idle;     /* [ndevices] share of the last two steps or two seconds, whichever is
                       longer, as far as the records go back; SL_UNKNOWN */
  struct sli_look_memory *memory; /* owns everything above but the plan */
} sl_look;

/* Nothing is known yet. */
sl_look *sl_look_create(const sl_plan *plan);
void sl_look_destroy(sl_look *look);

/* Adds what this process knows. Any thread, while a run goes on or between runs; on
 * the real clock. */
void sl_runtime_look(const sl_runtime *rt, sl_look *look);

/* The same as plain bytes for another process of the job, the caller's to free(). */
size_t sl_runtime_look_export(const sl_runtime *rt, void **out);
/* Adds them there. SL_E_INPUT if they are not of this plan; then nothing is added. */
sl_status sl_look_import(sl_look *look, const void *bytes, size_t size);

/* Why an actor does not fire, and why a queue that is idle does not go on. */
typedef struct sl_actor_wait {
  int32_t actor;    /* of a queue: the one of its actors that it is about; SL_NONE */
  sl_tick tick;     /* of that actor's next firing */
  sl_wait why;      /* INPUT, CREDIT: of `reg`; POLICY: it could and is put off; NONE:
                       nothing is missing, as far as can be seen */
  int32_t reg, on;  /* `on`: the actor that could help; SL_NONE */
} sl_actor_wait;
sl_actor_wait sl_look_actor_wait(const sl_look *look, int32_t actor);
sl_actor_wait sl_look_queue_wait(const sl_look *look, int32_t queue);

#ifdef __cplusplus
}
#endif
#endif
