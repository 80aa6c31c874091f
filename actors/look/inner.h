/* What the files of look/ share. */
#ifndef SLUICE_ACTORS_LOOK_INNER_H
#define SLUICE_ACTORS_LOOK_INNER_H

#include <sluice/look.h>

#include "actors/plan/plan.h"
#include "actors/run/run.h"

struct sli_look_memory {
  sli_arena arena;
  sli_flow *flow;
  int64_t *begun; /* [nactors] worked out anew by who asks */
};

/* ---- records, read by records.c alone ------------------------------------------------ */

/* Between runs: all records, stretch by stretch as they lie in memory, in no order. */
typedef struct sli_records {
  const sl_runtime *rt;
  const sl_trace_record *now; /* a stretch, ... */
  size_t count;               /* ... and how many they are */
  int32_t worker;
  uint64_t next;
  const sli_remote *remote;
} sli_records;
sli_records sli_records_of(const sl_runtime *rt);
/* Goes on to the next stretch. False: there is none. */
bool sli_records_next(sli_records *r);

/* A worker's newest records, from the newest back. It may go on meanwhile, and then writes
 * half a ring away from what is read here, never nearer. */
typedef struct sli_past {
  sli_ring ring;
  uint64_t next, oldest; /* next: one more than the record's number */
} sli_past;
sli_past sli_look_back(const sl_runtime *rt, int32_t worker);
/* The one before, or NULL. */
const sl_trace_record *sli_earlier(sli_past *past);

#endif
