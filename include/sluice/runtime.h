/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime: runs any plan.
 *
 * sl_runtime_create allocates every register and opens the queues, but starts nothing.
 * sl_runtime_run runs the plan for a number of steps, on worker threads (real clock) or in the
 * calling thread (virtual clock), and returns when every actor has done all its firings. It may be
 * called again: registers keep their contents between runs, and parameters can be read and written
 * through sl_runtime_slot.
 *
 * Threads: one thread owns a runtime. Other threads may call only functions marked "any thread".
 * Signal handlers may call sl_runtime_stop. */
#ifndef SLUICE_RUNTIME_H
#define SLUICE_RUNTIME_H

#include <sluice/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sl_clock { SL_CLOCK_REAL, SL_CLOCK_VIRTUAL } sl_clock;

/* Transport between the processes of a plan, each of which has a runtime for the same plan. tell()
 * carries small messages between actors. send() carries data to a slot that the other side has
 * granted, together with the message that the slot is ready. One worker, the carrier, makes all
 * calls except wake() and sent(). */
enum { SL_MESSAGE_BYTES = 32 };

typedef struct sl_peers {
  void *ctx;
  /* Sends a message, which the other side passes to sl_runtime_deliver(), or during progress() to
   * sl_runtime_arrived(), without data. The message is copied. Must not block. */
  void (*tell)(void *ctx, int process, const void *message);
  /* Sends data and a message, which the other side passes to sl_runtime_place() and _arrived(). The
   * message is copied; the data must stay valid. Returns true if complete, else sets *fence. */
  bool (*send)(void *ctx, int process, const void *message, const void *data, size_t bytes,
               uint64_t *fence);
  bool (*done)(void *ctx, uint64_t fence); /* returns true once per fence */
  bool (*progress)(void *ctx);             /* calls _place and _arrived; returns false if nothing
                                              happened */
  void (*wait)(void *ctx, uint64_t timeout_ns); /* waits until progress is possible or wake() is
                                                   called */
  void (*wake)(void *ctx);                      /* any thread, async-signal-safe */
  uint64_t (*sent)(void *ctx); /* returns bytes of data sent so far; any thread. NULL: not
                                  counted */
  const unsigned char (*groups)[SL_GROUP_ID_BYTES]; /* ids of the plan's groups, equal in all
                                                       processes; NULL: there are none */
} sl_peers;

typedef struct sl_runtime_options {
  sl_clock clock;
  const sl_peers *peers;   /* NULL: this process drives all devices */
  int process;             /* number of this process in the plan */
  int workers;             /* OS threads, without those of queues with `apart`; 0: one per device.
                              Virtual clock: always 1 */
  bool no_data;            /* allocate no registers (timed and null queues only) */
  size_t trace_records;    /* ring size per worker; 0: the default of 2^16 */
  double watchdog_seconds; /* seconds without a firing after which waiting actors are reported; 0:
                              30, < 0: never */
  uint64_t jitter_seed;    /* != 0: delays every firing at random by 0..jitter_ns */
  uint64_t jitter_ns;
  bool check; /* Debug check: slots record what they contain, and each read compares this with the
                 plan; a mismatch prints both and aborts the process. Free slots in host memory are
                 filled with NaN. Slow. SLUICE_CHECK=slots in the environment also turns it on */
  /* Returns the nanoseconds that a firing on a timed queue takes, instead of the plan's duration.
   * The actor's worker calls it when the firing begins. May be NULL. */
  uint64_t (*duration)(void *ctx, int32_t actor, int64_t tick);
  void *duration_ctx;
  int64_t first_step; /* starts as if the steps before this one had run; the caller fills the
                         initial and held slots */
  /* Binds a thread to its core. Each worker thread and each thread of a queue's team calls it once.
   * May be NULL. */
  void (*bind)(void *arg, int device, int thread);
  void *bind_arg;
} sl_runtime_options;

typedef struct sl_runtime sl_runtime;

sl_status sl_runtime_create(const sl_plan *plan, const sl_runtime_options *options,
                            sl_runtime **out);
void sl_runtime_destroy(sl_runtime *rt);

/* Connects the groups of the plan (sl_queue.group), one after another. Call it again and again
 * until *ready, before the first run, with other processes doing the same; sl_runtime_run does so
 * otherwise. SL_E_PEER or SL_E_DEVICE: the error names the group. */
sl_status sl_runtime_connect(sl_runtime *rt, bool *ready);

/* Runs `steps` more steps. Returns SL_E_STOPPED after sl_runtime_stop (steps already begun are
 * finished), SL_E_STUCK if the plan cannot continue (virtual clock; the detail text describes the
 * cycle), or the status passed to sl_runtime_fail. */
sl_status sl_runtime_run(sl_runtime *rt, int64_t steps);

/* Ends the run after the step in progress. Any thread; async-signal-safe. */
void sl_runtime_stop(sl_runtime *rt);
/* Lets a runtime run again after it was stopped or failed at the end of a step (sl_runtime_fail):
 * the next run continues after the steps completed, and requests to stop are cleared. Between runs.
 * An aborted run keeps its failure, which is returned. SL_E_USAGE: the run has ended within a
 * step. */
sl_status sl_runtime_resume(sl_runtime *rt);
/* Returns true once no further step will begin, for any reason. For sources that wait. Any
 * thread. */
bool sl_runtime_ends(const sl_runtime *rt);
/* Returns true once the run ends in the middle of a step. For sources that wait for data of their
 * step. Any thread. */
bool sl_runtime_aborted(const sl_runtime *rt);
/* Makes the run fail: steps already begun are finished, then sl_runtime_run returns `status` with
 * `detail`. For callbacks of ops; any thread. */
void sl_runtime_fail(sl_runtime *rt, sl_status status, const char *detail);

/* ---- several processes -------------------------------------------------------
 *
 * Input from the peers. Messages are checked: a message that no runtime of this plan would send
 * gives SL_E_INPUT. */
/* Accepts a message of the peer's tell(). Any thread. Messages received during progress() may go to
 * sl_runtime_arrived instead. */
sl_status sl_runtime_deliver(sl_runtime *rt, const void *message);
/* Receive data of the peer's send(), during progress(). _place returns the address for the data, or
 * NULL; call _arrived when the data is complete. Pass a message of tell() to _arrived with 0
 * bytes. */
void *sl_runtime_place(sl_runtime *rt, const void *message, size_t bytes);
sl_status sl_runtime_arrived(sl_runtime *rt, const void *message, size_t bytes);

/* Contents of a send() message, readable at both ends, for transports that choose among several
 * routes between two processes. Any thread. */
typedef struct sl_wire_message {
  int32_t link;    /* queue that carries it; SL_NONE: a message of tell() */
  uint32_t number; /* sequence number on that queue: 1, 2, 3, ... */
  size_t bytes;    /* size of the data */
} sl_wire_message;
sl_status sl_runtime_wire_message(const sl_runtime *rt, const void *message, sl_wire_message *out);

/* Exports a runtime's own part of a run (records, peaks, counts) for another runtime of the same
 * plan. Between runs. Portions are plain bytes, at most most_bytes each if possible (0: one portion
 * of any length), valid until the next call; the size after the last one is 0. If there are more
 * than most_records records (0: no limit), only the newest whole steps are exported. */
typedef struct sl_export sl_export;
sl_export *sl_export_open(const sl_runtime *rt, size_t most_bytes, uint64_t most_records);
size_t sl_export_next(sl_export *e, const void **portion);
void sl_export_close(sl_export *e);
/* Exports everything in one portion, which the caller frees with free(). */
size_t sl_runtime_export(const sl_runtime *rt, void **out);
/* Imports one portion; portions must come in order. A first portion replaces an earlier export of
 * the same process. `ahead_ns`: how far the other process's clock (CLOCK_MONOTONIC) was ahead of
 * this process's. SL_E_INPUT if the bytes belong to another plan. */
sl_status sl_runtime_import(sl_runtime *rt, const void *bytes, size_t size, int64_t ahead_ns);

/* Stopping a run over several processes, which must all end at the same step. With peers,
 * sl_runtime_stop only records a request. A coordinator sees the request (sl_runtime_wants_stop)
 * and holds every process: sl_runtime_hold prevents new steps and returns the number of steps
 * begun. The coordinator then ends all processes at the largest of these numbers
 * (sl_runtime_end_at). Any thread. */
bool sl_runtime_wants_stop(const sl_runtime *rt);
int64_t sl_runtime_hold(sl_runtime *rt);
void sl_runtime_end_at(sl_runtime *rt, int64_t steps);
/* Ends the run immediately, in the middle of a step, because another process is lost. */
void sl_runtime_abort(sl_runtime *rt, sl_status status, const char *detail);

/* Changes quotas of registers, during a run or between runs; real clock, up to quota_most. The plan
 * is first proved with the new quotas: on SL_E_STUCK, as from sl_plan_prove, nothing changes. A
 * raised quota takes effect immediately, a lowered one as slots are freed. Of several changes in
 * quick succession only the last may take effect. Results never depend on quotas. Any thread, one
 * at a time. If several processes run the plan, all must make the same changes in the same
 * order. */
typedef struct sl_quota_change {
  int32_t reg, slots;
} sl_quota_change;
sl_status sl_runtime_set_quotas(sl_runtime *rt, int n, const sl_quota_change *changes);
/* sl_runtime_quota returns the quota last requested. sl_runtime_slots returns the number of
 * existing slots, which exceeds a lowered quota while surplus slots are in use; only for registers
 * written in this process. Any thread. */
int32_t sl_runtime_quota(const sl_runtime *rt, int32_t reg);
int32_t sl_runtime_slots(const sl_runtime *rt, int32_t reg);

/* Returns nanoseconds since the runtime was created, on its clock. For callbacks of ops; on the
 * real clock, any thread. */
uint64_t sl_runtime_now(const sl_runtime *rt);
/* Returns the steps begun in this process, including those before first_step. Any thread. */
int64_t sl_runtime_begun(const sl_runtime *rt);
/* Returns the firings completed in this process by this run. Any thread. */
uint64_t sl_runtime_fired(const sl_runtime *rt);
/* Returns the steps completed, including those before first_step. Between runs. */
int64_t sl_runtime_steps(const sl_runtime *rt);
/* Returns the address of a slot in its register's memory space; the host cannot dereference a GPU
 * address. Between runs. NULL with no_data, or if the slot is in another process. */
void *sl_runtime_slot(sl_runtime *rt, int32_t reg, int32_t slot);
/* Return the address and the number of the slot with the newest complete key of a register (a
 * parameter's current version), or of the held slot. Between runs. */
void *sl_runtime_newest(sl_runtime *rt, int32_t reg);
int32_t sl_runtime_newest_slot(const sl_runtime *rt, int32_t reg);
/* Copies `bytes` from or to a slot, starting at `offset`, in any memory space. Between runs.
 * SL_E_DEVICE if the device fails; SL_E_UNSUPPORTED if sl_runtime_slot returns NULL. */
sl_status sl_runtime_read(const sl_runtime *rt, int32_t reg, int32_t slot, size_t offset,
                          size_t bytes, void *to);
sl_status sl_runtime_write(sl_runtime *rt, int32_t reg, int32_t slot, size_t offset, size_t bytes,
                           const void *from);

/* ---- statistics ------------------------------------------------------------ */

/* Why a queue was idle before a firing: the last condition that the firing waited for. */
/* clang-format off */
#define SL_WAIT_TABLE(X)                                                       \
  X(NONE, "none")     /* the queue was not idle */                             \
  X(INPUT, "input")   /* `reg` was not ready yet */                            \
  X(CREDIT, "credit") /* no free slot of `reg` */                              \
  X(DEVICE, "device") /* ready, but the worker was busy elsewhere */           \
  X(POLICY, "policy") /* held back by lazy W, watermark or look-ahead */       \
  X(START, "start")   /* the run, or a step, had not begun */                  \
  X(SHARE, "share")   /* other lanes of the device had too much of it */
/* clang-format on */

typedef enum sl_wait {
#define X(name, text) SL_WAIT_##name,
  SL_WAIT_TABLE(X)
#undef X
      SL_WAIT_COUNT
} sl_wait;
const char *sl_wait_name(sl_wait wait);

typedef struct sl_trace_record {
  uint64_t start_ns, end_ns; /* since the run's start; virtual time on the virtual clock */
  int64_t firing;
  int32_t actor;
  uint32_t wait : 3;
  uint32_t reg : 29;
} sl_trace_record;

/* Returns the records of all workers, ordered by start, then actor: the newest `trace_records` of
 * each. Between runs. The caller frees the array with free(). */
size_t sl_runtime_trace(const sl_runtime *rt, sl_trace_record **out, uint64_t *dropped);

typedef struct sl_runtime_counts {
  uint64_t firings, messages;             /* messages between workers */
  uint64_t replayed;                      /* firings launched by replaying a recorded graph */
  uint64_t wakes;                         /* futex wakes */
  uint64_t first_firing_ns;               /* CLOCK_MONOTONIC time of the first firing */
  uint64_t moved_bytes[SL_TRAFFIC_COUNT]; /* bytes moved between devices, by the firings done */
  uint64_t sent_bytes;  /* bytes sent to other processes, as counted by the peers */
  uint64_t ran_ns;      /* time that workers had a core */
  uint64_t coreless_ns; /* time that workers were runnable without a core. Both are sums
                           over the workers; 0 if the system does not report them */
} sl_runtime_counts;
sl_runtime_counts sl_runtime_count(const sl_runtime *rt);
/* Returns the firings of this process that were launched by replaying a recorded graph. During a
 * run the number may lag behind. */
uint64_t sl_runtime_replayed(const sl_runtime *rt);

/* Returns the peak of activations held by a device, in microbatches (the sum of
 * sl_register.activation over the slots in use). */
double sl_runtime_peak_activations(const sl_runtime *rt, int32_t device);
/* Returns the peak number of a register's slots in use. */
int32_t sl_runtime_peak_slots(const sl_runtime *rt, int32_t reg);

/* Statistics of a device per step: medians over the steps after the first. */
typedef struct sl_device_statistics {
  double busy_seconds, span_seconds, bubble_fraction;
  double peak_activations; /* peak of activations held, in microbatches */
  double update_seconds;   /* time of its parameter updates, not included in the span */
} sl_device_statistics;
typedef struct sl_statistics {
  double step_seconds;           /* time from the end of one step to the end of the next */
  double bubble_fraction;        /* 1 - mean of the devices' busy / longest span */
  sl_device_statistics *devices; /* [plan->ndevices], freed by the caller with free() */
  /* Parts of a step, which sum to step_seconds: the longest span of passes, the longest update, and
   * the rest, in which devices wait, communicate, load or are between steps. */
  double passes_seconds, update_seconds, other_seconds;
} sl_statistics;
sl_statistics sl_runtime_statistics(const sl_runtime *rt);

/* Returns the median bubble, 0..1, of the steps since a time of CLOCK_MONOTONIC, measured as by
 * sl_runtime_statistics(). It covers this process's devices, as far as the newest half of the trace
 * rings reaches back; -1 if that has no whole step. Any thread, during a run. */
double sl_runtime_live_bubble(const sl_runtime *rt, uint64_t since_ns);

/* Sets seconds[plan->nactors] to the median duration of each actor's firings in the trace; 0 if the
 * trace has none. */
void sl_runtime_durations(const sl_runtime *rt, double *seconds);

/* ---- proof and prediction --------------------------------------------------- */

/* Proves that the plan finishes: runs it on the virtual clock without data until its state repeats
 * (two steps, or three with delay edges). Returns SL_OK, or SL_E_STUCK with the waiting cycle and
 * the smallest change of one quota that breaks it. A plan with private quotas is a Kahn network
 * over bounded channels, so one successful execution proves that every timing succeeds (Parks,
 * "Bounded Scheduling of Process Networks", 1995). */
sl_status sl_plan_prove(const sl_plan *plan);

/* Predicts the statistics of a plan, on real or hypothetical devices: runs three steps on the
 * virtual clock, in which a firing of actor a takes seconds[a] (NULL: the plan's durations). Also
 * proves the plan: SL_E_STUCK as above. The caller frees out->devices. */
sl_status sl_plan_predict(const sl_plan *plan, const double *seconds, sl_statistics *out);

/* Fixes the order of every queue that runs passes to the order in which the plan's second step
 * starts them on the virtual clock. Durations are as above, but communication takes no time. For
 * schedules whose order would otherwise depend on latency. Call sl_plan_finish before and again
 * after. */
sl_status sl_plan_fix_order(sl_plan *plan, const double *seconds);

/* Fixes the orders of the queues of groups, whose members must fire in one order: that in which the
 * first member's firings of the second step start on the virtual clock. Call sl_plan_finish before
 * and again after. SL_E_STUCK if the plan cannot finish in any order. */
sl_status sl_plan_fix_groups(sl_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
