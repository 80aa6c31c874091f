/* What other folders may ask of a runtime, and tell it. Users have <sluice/runtime.h>; how it
 * works is for run/ alone (state.h).
 *
 * Where nothing else is said any thread may ask at any time. Answers while a run goes on
 * are of slightly different moments. */
#ifndef SLUICE_ACTORS_RUN_H
#define SLUICE_ACTORS_RUN_H

#include <sluice/runtime.h>

#include "actors/run/message.h"
#include "base/base.h"

/* ---- running ------------------------------------------------------------------------ */

/* Called when no actor has fired for so many seconds, the watchdog's period or more. */
typedef void sli_idle(const sl_runtime *rt, double seconds);
/* As sl_runtime_run, but SL_E_STUCK comes without a text. */
sl_status sli_runtime_run(sl_runtime *rt, int64_t steps, sli_idle *idle);

/* Checks that registers can have these quotas while the run goes on; asks their workers
 * to apply them. Between the two the plan is proved with them. */
sl_status sli_runtime_check_quotas(const sl_runtime *rt, int n, const sl_quota_change *changes);
void sli_runtime_post_quotas(sl_runtime *rt, int n, const sl_quota_change *changes);

/* ---- what it runs ---------------------------------------------------------------- */

const sl_plan *sli_runtime_plan(const sl_runtime *rt);
int sli_runtime_process(const sl_runtime *rt);
bool sli_runtime_has_data(const sl_runtime *rt);
/* With several processes, what is this one's. A register belongs to its producer's; one that
 * nobody writes to none. */
bool sli_runtime_has_device(const sl_runtime *rt, int32_t device);
bool sli_runtime_has_queue(const sl_runtime *rt, int32_t queue);
bool sli_runtime_has_actor(const sl_runtime *rt, int32_t actor);
bool sli_runtime_has_register(const sl_runtime *rt, int32_t reg);

/* ---- how far it is --------------------------------------------------------------- */

int64_t sli_runtime_first_step(const sl_runtime *rt);
/* Firings an actor has completed, those of steps before the first included. */
int64_t sli_runtime_done(const sl_runtime *rt, int32_t actor);
/* Times in nanoseconds since the runtime was made, but `base`: of CLOCK_MONOTONIC, when that
 * was. Began: the first firing did. */
uint64_t sli_runtime_now_ns(const sl_runtime *rt);
uint64_t sli_runtime_base_ns(const sl_runtime *rt);
uint64_t sli_runtime_began_ns(const sl_runtime *rt);

typedef struct sli_queue_state {
  int32_t worker;     /* the one that launches what fires there */
  int32_t flying;     /* actor of the oldest firing under way, or SL_NONE ... */
  uint64_t flying_ns; /* ... and since when it is the oldest */
  int32_t current;    /* actor whose program the worker runs, of any of its queues; SL_NONE:
                         it looks for news ... */
  uint64_t woke_ns;   /* ... and when it last had some */
} sli_queue_state;
/* Of a queue of this process. */
sli_queue_state sli_runtime_queue(const sl_runtime *rt, int32_t queue);

/* ---- what its workers recorded ---------------------------------------------------- */

/* A worker's ring: record n is records[n & mask], of the newest mask + 1. While a run goes on the
 * worker may be writing up to a ring's length ahead: read the newer half only. */
typedef struct sli_ring {
  const sl_trace_record *records;
  uint64_t mask, written;
} sli_ring;
int32_t sli_runtime_workers(const sl_runtime *rt);
sli_ring sli_runtime_ring(const sl_runtime *rt, int32_t worker);
/* The worker of a device's passes, or SL_NONE. */
int32_t sli_runtime_device_worker(const sl_runtime *rt, int32_t device);

/* ---- what comes from other processes ------------------------------------------------ */

/* Does a link bring what is in its slots from another process? */
bool sli_runtime_is_carried(const sl_runtime *rt, int32_t reg);
/* Do lazy W read it? */
bool sli_runtime_is_lazy(const sl_runtime *rt, int32_t reg);
/* May FREE come in for it: written here and read by other workers? */
bool sli_runtime_takes_free(const sl_runtime *rt, int32_t reg);
void *sli_runtime_granted_slot(const sl_runtime *rt, int32_t reg, int32_t slot);
/* A key has come, and so many rows of it, where it has rows. On the carrier. */
void sli_runtime_fill_slot(sl_runtime *rt, int32_t reg, int64_t key, int32_t slot, int32_t extent);
/* Pass a message on that has been checked: READY or WANTED to those here who read its register,
 * FREE to who writes it. On the carrier, or on another thread? */
void sli_runtime_tell_readers(sl_runtime *rt, const sli_message *m, bool on_carrier);
void sli_runtime_tell_writer(sl_runtime *rt, const sli_message *m, bool on_carrier);

/* Rows that a firing has filled, or read where it fills none, as far as that is remembered, which is for SLI_NOTES
 * firings of its actor; SL_NONE: it is not, or none of its slots has rows. Between runs; while a run goes on, of the newer
 * half. And what another process knows of it. */
enum { SLI_NOTES = 4096 };
int32_t sli_runtime_rows(const sl_runtime *rt, int32_t actor, int64_t firing);
void sli_runtime_note_rows(sl_runtime *rt, int32_t actor, int64_t firing, int32_t rows);

/* What another process did, as if it were a worker here. */
typedef struct sli_remote {
  struct sli_remote *next;
  int32_t process, nportions; /* nportions: of its export, so far */
  int64_t first_whole;   /* step from which its records are whole */
  uint64_t dropped;
  sl_runtime_counts counts;
  size_t nrecords;
  sl_trace_record *records;
} sli_remote;
/* Between runs. Those of whom something is known; one of them, made if there is none. The
 * runtime owns them, records and all. */
const sli_remote *sli_runtime_remotes(const sl_runtime *rt);
sli_remote *sli_runtime_remote(sl_runtime *rt, int32_t process);
/* The peaks of its devices [ndevices] and registers [nregs]; of others they are left out. */
void sli_runtime_set_peaks(sl_runtime *rt, int process, const double *activations,
                           const int32_t *slots);

#endif
