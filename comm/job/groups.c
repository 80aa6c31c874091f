/* SPDX-License-Identifier: Apache-2.0 */
/* Groups over several processes: the process of a group's first member makes its id, and all learn
 * it before they open their queues. */
#include <stdlib.h>
#include <string.h>

#include "actors/plan/plan.h"
#include "comm/job/job_inner.h"

typedef unsigned char group_id[SL_GROUP_ID_BYTES];

/* Returns the first queue of a group. */
static const sl_queue *leader_of(const sl_plan *plan, int32_t group) {
  const sl_queue *q = plan->queues;
  while (q->group != group + 1) q++;
  return q;
}

static int process_of(const sl_plan *plan, int32_t group) {
  return plan->devices[leader_of(plan, group)->device].process;
}

sl_status sli_groups_meet(sl_job *job) {
  const sl_plan *plan = job->plan;
  size_t count = (size_t)sli_plan_groups(plan);
  sli_control_blob *blobs = NULL;
  if (!count) return SL_OK;
  job->groups = sli_calloc(count, sizeof *job->groups);
  for (size_t g = 0; g < count; g++) {
    const sl_queue_ops *ops = leader_of(plan, (int32_t)g)->ops;
    if (process_of(plan, (int32_t)g) == job->self && ops->identify)
      SLI_TRY(ops->identify(job->groups[g]));
  }
  sl_status status =
      sli_control_share(job->control, "groups", job->groups, count * sizeof *job->groups, &blobs);
  for (size_t g = 0; g < count && !status; g++) {
    int from = process_of(plan, (int32_t)g);
    if (blobs[from].bytes != count * sizeof *job->groups)
      status = sl_fail(SL_E_PEER, "process %d sent invalid ids of groups", from);
    else memcpy(job->groups[g], (group_id *)blobs[from].data + g, sizeof *job->groups);
  }
  for (int i = 0; blobs && i < job->count; i++) free(blobs[i].data);
  free(blobs);
  job->peers.groups = (const group_id *)job->groups;
  return status;
}
