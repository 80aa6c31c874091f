/* What look/ makes of a run, for other folders. Users have <sluice/look.h> and
 * <sluice/runtime.h>. */
#ifndef SLUICE_ACTORS_LOOK_H
#define SLUICE_ACTORS_LOOK_H

#include <sluice/runtime.h>

#include "base/base.h"

/* Is a firing work of its device? Loading, reporting and links have queues of
 * their own; a device's figures are those of its passes. */
static inline bool sli_is_work(const sl_actor *a) {
  return a->cls == SL_CLASS_F || a->cls == SL_CLASS_B || a->cls == SL_CLASS_W;
}

/* The first step of which all records are there. */
int64_t sli_first_whole_step(const sl_runtime *rt);

/* The records of all workers, in no order; the caller's to free(). */
size_t sli_runtime_records(const sl_runtime *rt, sl_trace_record **out, uint64_t *dropped);

/* When each step of the run from its first to `count` in all had its last firing that is known of,
 * 0 where none is; with `end_ns[count]`. */
void sli_step_ends(const sl_runtime *rt, int64_t count, uint64_t *end_ns);

#endif
