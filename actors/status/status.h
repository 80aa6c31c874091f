/* SPDX-License-Identifier: Apache-2.0 */
/* Interface of status/ for other folders. Users have <sluice/run_status.h> and <sluice/runtime.h>.
 */
#ifndef SLUICE_ACTORS_STATUS_STATUS_H
#define SLUICE_ACTORS_STATUS_STATUS_H

#include <sluice/runtime.h>

#include "base/base.h"

/* True if a firing counts as work of its device. Loading, reporting and links have their own
 * queues; a device's statistics cover its passes only. */
static inline bool sli_is_work(const sl_actor *a) {
  return a->cls == SL_CLASS_F || a->cls == SL_CLASS_B || a->cls == SL_CLASS_W;
}

/* First step whose records are complete. */
int64_t sli_first_whole_step(const sl_runtime *rt);

/* Returns the records of all workers, in no order; the caller frees them with free(). */
size_t sli_runtime_records(const sl_runtime *rt, sl_trace_record **out, uint64_t *dropped);

/* Sets end_ns[count] to the time of the last known firing of each step, from the run's first step
 * to step `count`; 0 if none is known. */
void sli_step_ends(const sl_runtime *rt, int64_t count, uint64_t *end_ns);

#endif
