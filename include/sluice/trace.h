/* Trace files: what a run did, firing by firing, with enough of the plan to
 * read it without the program that made it. */
#ifndef SLUICE_TRACE_H
#define SLUICE_TRACE_H

#include <sluice/plan.h>
#include <sluice/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version 1; a reader takes every file of its version or older. */
enum { SL_TRACE_VERSION = 1 };

typedef struct sl_trace_device {
  const char *name, *kind;
  int32_t threads;
} sl_trace_device;

typedef struct sl_trace_queue {
  const char *name;
  int32_t device;
} sl_trace_queue;

typedef struct sl_trace_register {
  const char *name, *quota_name;
  int32_t quota, device;
  int32_t producer;  /* actor, or SL_NONE */
  sl_memory memory;
  size_t slot_bytes;
} sl_trace_register;

typedef struct sl_trace_actor {
  const char *name;
  sl_class cls;
  int32_t queue, device;
  int32_t stage; /* along the model, or SL_NONE */
  int32_t chunk; /* within its device, or SL_NONE */
} sl_trace_actor;

/* One firing: the runtime's record and where in the stream of work it stood. */
typedef struct sl_trace_firing {
  sl_trace_record record;
  sl_tick tick;
} sl_trace_firing;

typedef struct sl_trace {
  int version;
  uint64_t plan_hash;
  sl_clock clock;
  int32_t microbatches, pieces;
  int64_t steps;        /* completed when the trace was written */
  uint64_t dropped;     /* older firings that the ring had no room for */
  bool truncated;       /* the file ends early: what it holds is here */
  int32_t ndevices, nqueues, nregs, nactors;
  const sl_trace_device *devices;
  const sl_trace_queue *queues;
  const sl_trace_register *regs;
  const sl_trace_actor *actors;
  size_t nfirings;
  const sl_trace_firing *firings; /* in order of start, then actor */
  struct sli_trace_memory *memory; /* owns everything above */
} sl_trace;

/* Writes what sl_runtime_trace() has. Between runs. The file appears whole or
 * not at all; SL_E_IO names it. */
sl_status sl_trace_write(const char *path, const sl_plan *plan, const sl_runtime *rt,
                         sl_clock clock);

/* Reads a file, checking all of it. A file whose end is missing is read as far
 * as it goes, with `truncated` set; one that is no trace, newer or damaged is
 * SL_E_INPUT with its name. */
sl_status sl_trace_read(const char *path, sl_trace **out);
void sl_trace_destroy(sl_trace *trace);

#ifdef __cplusplus
}
#endif
#endif
