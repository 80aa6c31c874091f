/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of queues that fire together. */
#include "actors/plan/plan.h"

int32_t sli_plan_groups(const sl_plan *plan) {
  int32_t count = 0;
  for (int32_t i = 0; i < plan->nqueues; i++) count = SLI_MAX(count, plan->queues[i].group);
  return count;
}

int32_t sli_queue_rank(const sl_plan *plan, int32_t queue) {
  int32_t rank = 0;
  for (int32_t i = 0; i < queue; i++) rank += plan->queues[i].group == plan->queues[queue].group;
  return rank;
}
