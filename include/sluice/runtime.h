/* The runtime: runs any plan.
 *
 * sl_runtime_create allocates every register, opens the queues and starts
 * nothing. sl_runtime_run fires the plan for a number of steps on worker
 * threads (real clock) or in the calling thread (virtual clock) and returns
 * when every actor has fired its share. It may be called again; registers keep
 * their contents in between, so parameters are read and written between runs
 * through sl_runtime_slot.
 *
 * Threads: one thread owns a runtime; only sl_runtime_stop may be called from
 * others (and from signal handlers). */
#ifndef SLUICE_RUNTIME_H
#define SLUICE_RUNTIME_H

#include <sluice/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sl_clock { SL_CLOCK_REAL, SL_CLOCK_VIRTUAL } sl_clock;

/* How a runtime reaches the parts of its plan that run in other processes. Each
 * of those has a runtime for the same plan. Small messages between actors go by
 * tell(); data goes by send(), to a slot that the other side has granted, and
 * takes the message with it that the slot is ready. One worker, the carrier, makes
 * all calls but wake(). */
enum { SL_MESSAGE_BYTES = 32 };

typedef struct sl_peers {
  void *ctx;
  /* A message for sl_runtime_deliver there, or, during progress(), for sl_runtime_arrived without
   * data; copied. Must not block. */
  void (*tell)(void *ctx, int process, const void *message);
  /* Data and message for sl_runtime_place and _arrived there. The message is copied,
   * the data must stay. True: complete on return; else *fence names it. */
  bool (*send)(void *ctx, int process, const void *message, const void *data, size_t bytes,
               uint64_t *fence);
  bool (*done)(void *ctx, uint64_t fence); /* true once for each fence */
  bool (*progress)(void *ctx);  /* calls _place and _arrived; false: nothing happened */
  void (*wait)(void *ctx, uint64_t timeout_ns); /* for progress, or a wake */
  void (*wake)(void *ctx);      /* any thread, async-signal-safe */
  uint64_t (*sent)(void *ctx);  /* bytes of data sent so far; any thread. NULL: not counted */
} sl_peers;

typedef struct sl_runtime_options {
  sl_clock clock;
  const sl_peers *peers;  /* NULL: all devices are this process's */
  int process;            /* this one, among those of the plan's devices */
  int workers;            /* OS threads, without those of queues apart; 0: one per device.
                             Virtual clock: always 1 */
  bool no_data;           /* allocate no registers (timed and null queues only) */
  size_t trace_records;   /* ring size per worker; 0: the default of 2^16 */
  double watchdog_seconds; /* without any firing: report who waits; 0: 30, < 0: never */
  uint64_t jitter_seed;   /* != 0: delay every firing by 0..jitter_ns at random */
  uint64_t jitter_ns;
  bool check;             /* slots say what they hold, and whoever reads one looks whether it is what
                             the plan asks for; if not, the process is aborted, and says what was found. Free
                             slots in the host's memory are filled with NaN. Slower. Or with SLUICE_CHECK=slots
                             in the environment */
  /* NULL, or: nanoseconds that a firing of an actor of a timed queue takes, in place of what the plan
   * says. Asked as it begins, by its worker. */
  uint64_t (*duration)(void *ctx, int32_t actor, int64_t tick);
  void *duration_ctx;
  int64_t first_step;     /* begins as if the steps before had been run: what their initial
                             slots and held slots would hold is the caller's to fill in */
  /* Binds worker w to its cores; called once by each worker thread, and by each
   * thread of a queue's team. May be NULL. */
  void (*bind)(void *arg, int device, int thread);
  void *bind_arg;
} sl_runtime_options;

typedef struct sl_runtime sl_runtime;

sl_status sl_runtime_create(const sl_plan *plan, const sl_runtime_options *options,
                            sl_runtime **out);
void sl_runtime_destroy(sl_runtime *rt);

/* Runs `steps` more steps. SL_E_STOPPED after sl_runtime_stop (the steps begun
 * are finished), SL_E_STUCK if the plan cannot go on (virtual clock; the detail
 * text holds the cycle), or the status given to sl_runtime_fail. */
sl_status sl_runtime_run(sl_runtime *rt, int64_t steps);

/* Ends the run after the step in progress. Any thread; async-signal-safe. */
void sl_runtime_stop(sl_runtime *rt);
/* Does no step begin any more, for whatever reason? For sources that wait. Any thread. */
bool sl_runtime_ends(const sl_runtime *rt);
/* Ends the run as a failure: the steps begun are finished, then sl_runtime_run
 * returns `status` with `detail`. For callbacks of ops; any thread. */
void sl_runtime_fail(sl_runtime *rt, sl_status status, const char *detail);

/* ---- several processes -------------------------------------------------------
 *
 * What arrives from elsewhere. Messages are checked: SL_E_INPUT for one that no
 * runtime of this plan would send. */
/* Of tell(): any thread. What comes during progress() may be given to sl_runtime_arrived. */
sl_status sl_runtime_deliver(sl_runtime *rt, const void *message);
/* Of send(), during progress(): where the data goes, or NULL; and that it is there. Of tell(),
 * likewise: that it is there, with 0 bytes. */
void *sl_runtime_place(sl_runtime *rt, const void *message, size_t bytes);
sl_status sl_runtime_arrived(sl_runtime *rt, const void *message, size_t bytes);

/* What a message of send() is about, at either end, for those who know several ways from
 * one process to another. Any thread. */
typedef struct sl_parcel {
  int32_t link;    /* the queue that carries it; SL_NONE: it is of tell() */
  uint32_t number; /* of the messages that it has carried: 1, 2, 3, ... */
  size_t bytes;    /* of data */
} sl_parcel;
sl_status sl_runtime_parcel(const sl_runtime *rt, const void *message, sl_parcel *out);

/* What a runtime knows of its own part of a run, and another one of the same plan
 * is to know: records, peaks, counts. Between runs. In portions of plain bytes, no longer than
 * most_bytes where that is possible (0: one portion, of any length), which are the export's
 * until the next; 0 after the last one. Of more than most_records records (0: all are
 * wanted) those of the newest whole steps are told. */
typedef struct sl_export sl_export;
sl_export *sl_export_open(const sl_runtime *rt, size_t most_bytes, uint64_t most_records);
size_t sl_export_next(sl_export *e, const void **portion);
void sl_export_close(sl_export *e);
/* All of it in one portion, the caller's to free(). */
size_t sl_runtime_export(const sl_runtime *rt, void **out);
/* One portion, each in its turn; a first one takes the place of all of an earlier export by
 * that process. `ahead_ns` is how much the other process's clock
 * (CLOCK_MONOTONIC) was ahead of this one's. SL_E_INPUT if the bytes are not of this plan. */
sl_status sl_runtime_import(sl_runtime *rt, const void *bytes, size_t size, int64_t ahead_ns);

/* A run over several processes ends at the same step everywhere, so with peers
 * sl_runtime_stop only asks: somebody has to see it (sl_runtime_wants_stop), have
 * every process hold (which returns the steps begun there; none begins any more),
 * and let all end with the latest of them. Any thread. */
bool sl_runtime_wants_stop(const sl_runtime *rt);
int64_t sl_runtime_hold(sl_runtime *rt);
void sl_runtime_end_at(sl_runtime *rt, int64_t steps);
/* Ends the run at once, in the middle of a step: another process is gone. */
void sl_runtime_abort(sl_runtime *rt, sl_status status, const char *detail);

/* Gives registers new quotas while a run goes on or between runs; on the real
 * clock, and within quota_most. The plan with them is proved first: SL_E_STUCK as
 * sl_plan_prove, and nothing is changed. A raised quota counts at once, a lowered
 * one as slots come back; of several changes soon after another the last one may be
 * the only one that is seen. Results never depend on quotas. One thread at a time,
 * any thread. Where several processes run the plan, all make the same changes in the
 * same order. */
typedef struct sl_quota_change {
  int32_t reg, slots;
} sl_quota_change;
sl_status sl_runtime_set_quotas(sl_runtime *rt, int n, const sl_quota_change *changes);
/* As last asked for, and the slots there are: more while slots to be retired are in
 * use. The latter of registers written in this process. Any thread. */
int32_t sl_runtime_quota(const sl_runtime *rt, int32_t reg);
int32_t sl_runtime_slots(const sl_runtime *rt, int32_t reg);

/* Nanoseconds since the runtime was made, by the clock that it runs on. For callbacks of ops, and of
 * the real clock any thread. */
uint64_t sl_runtime_now(const sl_runtime *rt);
/* Steps begun in this process, those before first_step included. Any thread. */
int64_t sl_runtime_begun(const sl_runtime *rt);
/* Firings completed in this process by this run. Any thread. */
uint64_t sl_runtime_fired(const sl_runtime *rt);
/* Steps completed, those before first_step included. Between runs. */
int64_t sl_runtime_steps(const sl_runtime *rt);
/* The address of a slot, in the memory of its register's space: a GPU's is not the host's
 * to follow. Between runs. NULL with no_data, or in another process. */
void *sl_runtime_slot(sl_runtime *rt, int32_t reg, int32_t slot);
/* The slot that holds the newest complete key of a register (a parameter's
 * current version), or the held slot: its address, and its number. Between runs. */
void *sl_runtime_newest(sl_runtime *rt, int32_t reg);
int32_t sl_runtime_newest_slot(const sl_runtime *rt, int32_t reg);
/* Copies `bytes` of a slot from `offset` on, out of it or into it, wherever it lies.
 * Between runs. SL_E_DEVICE if the device fails; SL_E_UNSUPPORTED where sl_runtime_slot
 * is NULL. */
sl_status sl_runtime_read(const sl_runtime *rt, int32_t reg, int32_t slot, size_t offset,
                          size_t bytes, void *to);
sl_status sl_runtime_write(sl_runtime *rt, int32_t reg, int32_t slot, size_t offset, size_t bytes,
                           const void *from);

/* ---- what happened -------------------------------------------------------- */

/* Why a queue was idle before a firing: what that firing waited for last. */
#define SL_WAIT_TABLE(X)                                                       \
  X(NONE, "none")     /* the queue was not idle */                             \
  X(INPUT, "input")   /* `reg` was not ready yet */                            \
  X(CREDIT, "credit") /* no free slot of `reg` */                              \
  X(DEVICE, "device") /* could have gone: the worker was busy elsewhere */     \
  X(POLICY, "policy") /* held back by lazy W, watermark or look-ahead */       \
  X(START, "start")   /* the run, or a step, had not begun */

typedef enum sl_wait {
#define X(name, text) SL_WAIT_##name,
  SL_WAIT_TABLE(X)
#undef X
  SL_WAIT_COUNT
} sl_wait;
const char *sl_wait_name(sl_wait wait);

typedef struct sl_trace_record {
  uint64_t start_ns, end_ns; /* since the run's start; on the virtual clock its own */
  int64_t firing;
  int32_t actor;
  uint32_t wait : 3;
  uint32_t reg : 29;
} sl_trace_record;

/* The records of all workers in order of start (then actor), newest
 * `trace_records` of each. Between runs. The array is the caller's to free(). */
size_t sl_runtime_trace(const sl_runtime *rt, sl_trace_record **out, uint64_t *dropped);

typedef struct sl_runtime_counts {
  uint64_t firings, messages; /* messages between workers */
  uint64_t replayed;          /* firings launched as one thing that was made before */
  uint64_t wakes;             /* futex wakes */
  uint64_t first_firing_ns;   /* CLOCK_MONOTONIC time of the first firing */
  uint64_t moved_bytes[SL_TRAFFIC_COUNT]; /* between devices, by what has fired */
  uint64_t sent_bytes;        /* to other processes, by the peers' own count */
  uint64_t ran_ns;            /* workers had a core ... */
  uint64_t coreless_ns;       /* ... or wanted to run and had none, for so long: sums over the
                                 workers. 0 where the system does not say */
} sl_runtime_counts;
sl_runtime_counts sl_runtime_count(const sl_runtime *rt);

/* Largest number of activations a device held at once, in microbatches' worth
 * (the sum of sl_register.activation over the slots in use). */
double sl_runtime_peak_activations(const sl_runtime *rt, int32_t device);
/* Most slots of a register in use at once. */
int32_t sl_runtime_peak_slots(const sl_runtime *rt, int32_t reg);

/* Per device over whole steps, medians over the steps after the first. */
typedef struct sl_device_figures {
  double busy_seconds, span_seconds, bubble_fraction;
  double peak_activations; /* largest number held at once, in microbatches' worth */
  double update_seconds;   /* of the parameters it has, beside the span */
} sl_device_figures;
typedef struct sl_figures {
  double step_seconds;    /* from one step's last end to the next one's */
  double bubble_fraction; /* 1 - mean of the devices' busy / longest span */
  sl_device_figures *devices; /* [plan->ndevices], the caller's to free() */
  /* What a step is made of: the longest span of passes, the longest update, and the rest, in which
   * devices wait for each other, exchange, load, or are between steps. Together step_seconds. */
  double passes_seconds, update_seconds, other_seconds;
} sl_figures;
sl_figures sl_runtime_figures(const sl_runtime *rt);

/* How idle all devices of this process together were since a moment of CLOCK_MONOTONIC, 0..1, as
 * far as the newest half of the trace rings reaches back. Any thread, while a
 * run goes on. */
double sl_runtime_live_bubble(const sl_runtime *rt, uint64_t since_ns);

/* Median duration of each actor's firings in the trace, in seconds, 0 where it
 * holds none. seconds[plan->nactors]. */
void sl_runtime_durations(const sl_runtime *rt, double *seconds);

/* ---- proof and prediction --------------------------------------------------- */

/* Shows that the plan finishes: runs it on the virtual clock without data, for
 * as many steps as it takes to return to the same state (two, or three with
 * delay edges). SL_OK, or SL_E_STUCK with the waiting cycle written out and the
 * smallest change of one quota that breaks it. A plan with private quotas is a
 * Kahn network over bounded channels, so one successful execution proves that
 * every timing succeeds (Parks, "Bounded Scheduling of Process Networks", 1995). */
sl_status sl_plan_prove(const sl_plan *plan);

/* The figures of a plan on devices one may not have: a run of three steps on the
 * virtual clock where firing any of actor a takes seconds[a] (NULL: the plan's
 * own). A proof as well: SL_E_STUCK as above. out->devices is the caller's. */
sl_status sl_plan_predict(const sl_plan *plan, const double *seconds, sl_figures *out);

/* Fixes the order of every queue that runs passes to the one in which the plan's
 * second step starts them on the virtual clock, with seconds as above but no
 * time spent on communication: for schedules whose order latency would change.
 * The plan must be finished, and finished again afterwards. */
sl_status sl_plan_fix_order(sl_plan *plan, const double *seconds);

#ifdef __cplusplus
}
#endif
#endif
