/* SPDX-License-Identifier: Apache-2.0 */
/* Trace files: every firing of a run, and the plan that it ran, so that a reader needs neither the
 * model nor the program that wrote the trace. The plan has no programs: it can run on the virtual
 * clock, but not on data. */
#ifndef SLUICE_TRACE_H
#define SLUICE_TRACE_H

#include <sluice/plan.h>
#include <sluice/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of written files. Readers accept versions from 3 up to their own. */
enum { SL_TRACE_VERSION = 4 };

/* One firing: the runtime's record and its position in the stream of work. */
typedef struct sl_trace_firing {
  sl_trace_record record;
  sl_tick tick;
  int32_t rows; /* valid rows that it filled in its last output with rows, or that it read from
                   its first input with rows if no output has any; SL_NONE: no slot has rows, or
                   unknown */
} sl_trace_firing;

/* One step: from its first firing's start to its last one's end, over all queues. `firings`: number
 * of its firings in the trace. */
typedef struct sl_trace_step {
  int64_t step;
  uint64_t start_ns, end_ns;
  uint64_t firings;
} sl_trace_step;

/* A counter (sl_counter): its sum over all steps, and its value in the last step. */
typedef struct sl_trace_counter {
  const char *name;
  int64_t n;
  const double *sum, *last; /* [n] */
} sl_trace_counter;

typedef struct sl_trace {
  int version;
  sl_clock clock;
  int64_t steps;                /* steps completed when the trace was written */
  uint64_t dropped;             /* older firings lost because the trace ring was full */
  uint64_t ran_ns, coreless_ns; /* see sl_runtime_counts; 0 and 0: unknown */
  bool truncated;               /* the file ends early; the trace holds its beginning */
  bool damaged; /* firings were corrupted after writing; the trace holds the plausible ones */
  uint64_t impossible; /* number of implausible firings left out */
  uint64_t plan_hash;  /* hash of the plan that ran, including programs */
  const sl_plan *plan; /* without programs */
  size_t nfirings;
  const sl_trace_firing *firings; /* firings in order of start */
  size_t nsteps;
  const sl_trace_step *step;       /* [nsteps] sorted; steps with firings only */
  struct sli_trace_memory *memory; /* owns everything above and below */
  int ncounters;
  const sl_trace_counter *counters; /* [ncounters] */
} sl_trace;

/* Writes the records of sl_runtime_trace(). Between runs. The file appears complete or not at all;
 * SL_E_IO names the file. */
sl_status sl_trace_write(const char *path, const sl_plan *plan, const sl_runtime *rt,
                         sl_clock clock);
/* Writes a trace with counters. */
sl_status sl_trace_write_counters(const char *path, const sl_plan *plan, const sl_runtime *rt,
                                  sl_clock clock, int ncounters, const sl_trace_counter *counters);

/* Trace snapshot: recent firings of a process, taken during its run. */
typedef struct sl_trace_snapshot {
  uint64_t base_ns; /* CLOCK_MONOTONIC time at which the firings' time is 0 */
  uint64_t dropped; /* older firings that were requested but already overwritten */
  size_t nfirings;
  sl_trace_firing *firings; /* [nfirings] sorted by worker; freed by the caller with free() */
} sl_trace_snapshot;
/* Takes a snapshot of the firings that have ended since a time of CLOCK_MONOTONIC, as far as the
 * newest half of the trace rings reaches back. `fired`: number of firings that had ended by that
 * time (sl_runtime_fired). Any thread. */
sl_trace_snapshot sl_runtime_trace_snapshot(const sl_runtime *rt, uint64_t since_ns,
                                            uint64_t fired);
/* Writes a snapshot during the run, of one process, or of several merged on the clock of one.
 * SL_E_INPUT: a firing's actor is not in the plan. */
sl_status sl_trace_snapshot_write(const char *path, const sl_plan *plan, const sl_runtime *rt,
                                  const sl_trace_snapshot *snapshot);

/* Reads and checks a file. If its end is missing, reads the beginning and sets `truncated`; if
 * firings are implausible, omits them and sets `damaged`. SL_E_INPUT names a file that is not a
 * trace, has an unsupported version or is damaged before its firings. */
sl_status sl_trace_read(const char *path, sl_trace **out);
void sl_trace_destroy(sl_trace *trace);

#ifdef __cplusplus
}
#endif
#endif
