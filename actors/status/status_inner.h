/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared within status/. */
#ifndef SLUICE_ACTORS_STATUS_STATUS_INNER_H
#define SLUICE_ACTORS_STATUS_STATUS_INNER_H

#include <sluice/run_status.h>

#include "actors/plan/plan.h"
#include "actors/run/run.h"

struct sli_run_status_memory {
  sli_arena arena;
  sli_flow *flow;
  int64_t *begun; /* [nactors] scratch, recomputed by each query */
};

/* ---- records, read only by records.c ------------------------------------------------- */

/* Iterator over all records, between runs, in contiguous ranges and no particular order. */
typedef struct sli_records {
  const sl_runtime *rt;
  const sl_trace_record *now; /* a range, ... */
  size_t count;               /* ... and its length */
  int32_t worker;
  uint64_t next;
  const sli_remote *remote;
} sli_records;
sli_records sli_records_of(const sl_runtime *rt);
/* Advances to the next range. Returns false if there is none. */
bool sli_records_next(sli_records *r);

/* Iterator over a worker's newest records, from the newest back. The worker may keep running: it
 * writes at least half a ring away from the records read here. */
typedef struct sli_past {
  sli_ring ring;
  uint64_t next, oldest; /* next: 1 + number of the record to read next */
} sli_past;
sli_past sli_recent_records(const sl_runtime *rt, int32_t worker);
/* Returns the previous record, or NULL. */
const sl_trace_record *sli_earlier(sli_past *past);

#endif
