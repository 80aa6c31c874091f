/* Trace files: what a run did, firing by firing, and the plan it ran, so that a
 * reader needs neither the model nor the program that made it. The plan lacks
 * its programs: it can be run on the virtual clock, not with data. */
#ifndef SLUICE_TRACE_H
#define SLUICE_TRACE_H

#include <sluice/plan.h>
#include <sluice/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of files that are written. A reader takes every file of its version, and older ones from 3 on. */
enum { SL_TRACE_VERSION = 4 };

/* One firing: the runtime's record and where in the stream of work it stood. */
typedef struct sl_trace_firing {
  sl_trace_record record;
  sl_tick tick;
  int32_t rows; /* valid ones that it has filled of its last output that has rows, or read where
                   none has; SL_NONE: no slot of it has rows, or it is not known */
} sl_trace_firing;

/* One step: from its first firing's start to its last one's end, over all
 * queues. `firings` counts those in the trace. */
typedef struct sl_trace_step {
  int64_t step;
  uint64_t start_ns, end_ns;
  uint64_t firings;
} sl_trace_step;

/* What the steps have counted (sl_tally): all of them together, and the last. */
typedef struct sl_trace_tally {
  const char *name;
  int64_t n;
  const double *sum, *last; /* [n] */
} sl_trace_tally;

typedef struct sl_trace {
  int version;
  sl_clock clock;
  int64_t steps;    /* completed when the trace was written */
  uint64_t dropped; /* older firings that the ring had no room for */
  uint64_t ran_ns, coreless_ns; /* as sl_runtime_counts; 0 and 0: not known */
  bool truncated;   /* the file ends early: what it holds is here */
  bool damaged;     /* the firings are not those that were written: what is possible is here */
  uint64_t impossible;   /* firings left out because they cannot be */
  uint64_t plan_hash;    /* of the plan that ran, programs included */
  const sl_plan *plan;   /* without programs */
  size_t nfirings;
  const sl_trace_firing *firings; /* in order of start */
  size_t nsteps;
  const sl_trace_step *step; /* [nsteps] in order; those that have firings */
  struct sli_trace_memory *memory; /* owns everything above and below */
  int ntallies;
  const sl_trace_tally *tallies;
} sl_trace;

/* Writes what sl_runtime_trace() has. Between runs. The file appears whole or
 * not at all; SL_E_IO names it. */
sl_status sl_trace_write(const char *path, const sl_plan *plan, const sl_runtime *rt,
                         sl_clock clock);
/* The same, with what was counted. */
sl_status sl_trace_write_tallies(const char *path, const sl_plan *plan, const sl_runtime *rt,
                                 sl_clock clock, int ntallies, const sl_trace_tally *tallies);

/* What the workers of a process did lately, while its run goes on. */
typedef struct sl_excerpt {
  uint64_t base_ns; /* when the time of its firings was 0, of CLOCK_MONOTONIC */
  uint64_t dropped; /* older firings that were asked for, and are no more */
  size_t nfirings;
  sl_trace_firing *firings; /* [nfirings] by worker; the caller's to free() */
} sl_excerpt;
/* All firings that have ended since a moment of CLOCK_MONOTONIC when `fired` had (sl_runtime_fired), as far as the
 * newest half of the trace rings reaches back. Any thread. */
sl_excerpt sl_runtime_excerpt(const sl_runtime *rt, uint64_t since_ns, uint64_t fired);
/* Writes an excerpt while the run goes on; also of several processes, in the time of one of them. SL_E_INPUT: a firing
 * is of no actor. */
sl_status sl_excerpt_write(const char *path, const sl_plan *plan, const sl_runtime *rt, const sl_excerpt *excerpt);

/* Reads a file, checking all of it. A file whose end is missing is read as far
 * as it goes, with `truncated` set; firings that cannot be are left out, with
 * `damaged` set; one that is no trace, of another version or damaged before its
 * firings is SL_E_INPUT with its name. */
sl_status sl_trace_read(const char *path, sl_trace **out);
void sl_trace_destroy(sl_trace *trace);

#ifdef __cplusplus
}
#endif
#endif
