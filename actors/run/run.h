/* SPDX-License-Identifier: Apache-2.0 */
/* Interface of a runtime for other folders. Users have <sluice/runtime.h>; the implementation is
 * private to run/ (state.h).
 *
 * Any thread may call these functions at any time, unless stated otherwise. During a run, values
 * from separate calls may be from slightly different moments. */
#ifndef SLUICE_ACTORS_RUN_RUN_H
#define SLUICE_ACTORS_RUN_RUN_H

#include <sluice/runtime.h>

#include "actors/run/message.h"
#include "base/base.h"

/* ---- running ------------------------------------------------------------------------ */

/* Called when no actor has fired for `seconds`, the watchdog's period or more. */
typedef void sli_idle(const sl_runtime *rt, double seconds);
/* Runs like sl_runtime_run, but SL_E_STUCK has no error text. */
sl_status sli_runtime_run(sl_runtime *rt, int64_t steps, sli_idle *idle);

/* Check that registers can take these quotas during the run, and ask their workers to apply them.
 * Between the two calls the plan is proved with the new quotas. */
sl_status sli_runtime_check_quotas(const sl_runtime *rt, int n, const sl_quota_change *changes);
void sli_runtime_post_quotas(sl_runtime *rt, int n, const sl_quota_change *changes);

/* ---- the plan and this process --------------------------------------------------- */

const sl_plan *sli_runtime_plan(const sl_runtime *rt);
int sli_runtime_process(const sl_runtime *rt);
bool sli_runtime_has_data(const sl_runtime *rt);
/* Tell which parts of the plan are in this process. A register is in its producer's process; one
 * without a producer is in none. */
bool sli_runtime_has_device(const sl_runtime *rt, int32_t device);
bool sli_runtime_has_queue(const sl_runtime *rt, int32_t queue);
bool sli_runtime_has_actor(const sl_runtime *rt, int32_t actor);
bool sli_runtime_has_register(const sl_runtime *rt, int32_t reg);

/* ---- progress -------------------------------------------------------------------- */

int64_t sli_runtime_first_step(const sl_runtime *rt);
/* Firings an actor has completed, including those of steps before the first. */
int64_t sli_runtime_done(const sl_runtime *rt, int32_t actor);
/* Times in nanoseconds since the runtime was made: now, and the first firing (began). `base` is the
 * CLOCK_MONOTONIC time when it was made. */
uint64_t sli_runtime_now_ns(const sl_runtime *rt);
uint64_t sli_runtime_base_ns(const sl_runtime *rt);
uint64_t sli_runtime_began_ns(const sl_runtime *rt);

typedef struct sli_queue_state {
  int32_t worker;     /* the worker that launches its firings */
  int32_t flying;     /* actor of the oldest firing in flight, or SL_NONE ... */
  uint64_t flying_ns; /* ... and since when it is the oldest */
  int32_t current;    /* actor whose program the worker runs, on any of its queues; SL_NONE: it
                         looks for news ... */
  uint64_t woke_ns;   /* ... time of its last news */
} sli_queue_state;
/* State of a queue in this process. */
sli_queue_state sli_runtime_queue(const sl_runtime *rt, int32_t queue);

/* ---- trace records ---------------------------------------------------------------- */

/* A worker's trace ring: record n is records[n & mask], for the newest mask + 1. During a run the
 * worker may write up to a ring's length ahead, so only the newer half may be read. */
typedef struct sli_ring {
  const sl_trace_record *records;
  uint64_t mask, written;
} sli_ring;
int32_t sli_runtime_workers(const sl_runtime *rt);
sli_ring sli_runtime_ring(const sl_runtime *rt, int32_t worker);
/* Worker of a device's passes, or SL_NONE. */
int32_t sli_runtime_device_worker(const sl_runtime *rt, int32_t device);

/* ---- input from other processes ----------------------------------------------------- */

/* True if a link brings its slots' contents from another process. */
bool sli_runtime_is_carried(const sl_runtime *rt, int32_t reg);
/* True if lazy W read it. */
bool sli_runtime_is_lazy(const sl_runtime *rt, int32_t reg);
/* True if FREE messages may arrive for it: it is written here and read by other workers. */
bool sli_runtime_takes_free(const sl_runtime *rt, int32_t reg);
void *sli_runtime_granted_slot(const sl_runtime *rt, int32_t reg, int32_t slot);
/* Reports that a key has arrived, with `valid_rows` valid rows if its slots have rows. On the
 * carrier. */
void sli_runtime_fill_slot(sl_runtime *rt, int32_t reg, int64_t key, int32_t slot,
                           int32_t valid_rows);
/* Pass on a checked message: READY or WANTED to the register's consumers here, FREE to its
 * producer. on_carrier: the caller runs on the carrier. */
void sli_runtime_tell_readers(sl_runtime *rt, const sli_message *m, bool on_carrier);
void sli_runtime_tell_writer(sl_runtime *rt, const sli_message *m, bool on_carrier);

/* Returns the rows that a firing filled, or read if it fills none; SL_NONE if they are no longer
 * remembered, or no slot has rows. The last SLI_NOTES firings of each actor are remembered; during
 * a run only the newer half of them may be read. sli_runtime_note_rows records a number reported by
 * another process. */
enum { SLI_NOTES = 4096 };
int32_t sli_runtime_rows(const sl_runtime *rt, int32_t actor, int64_t firing);
void sli_runtime_note_rows(sl_runtime *rt, int32_t actor, int64_t firing, int32_t rows);

/* Another process's export, as if it were a worker here. */
typedef struct sli_remote {
  struct sli_remote *next;
  int32_t process, nportions; /* nportions: portions of its export so far */
  int64_t first_whole;        /* step from which its records are complete */
  uint64_t dropped;
  sl_runtime_counts counts;
  size_t nrecords;
  sl_trace_record *records;
} sli_remote;
/* Between runs. Return the list of known exports, and one process's export, created on first use.
 * The runtime owns the exports and their records. */
const sli_remote *sli_runtime_remotes(const sl_runtime *rt);
sli_remote *sli_runtime_remote(sl_runtime *rt, int32_t process);
/* Sets the peaks of a process's devices [ndevices] and registers [nregs]; ignores entries of other
 * processes. */
void sli_runtime_set_peaks(sl_runtime *rt, int process, const double *activations,
                           const int32_t *slots);

#endif
