/* SPDX-License-Identifier: Apache-2.0 */
/* Fixed order: the order in which passes start on the virtual clock if transfers between devices
 * take no time. */
#include "actors/plan/plan.h"
#include "actors/prove/prove.h"

#include <stdlib.h>

static bool has_passes(const sl_plan *plan, int32_t queue) {
  for (int32_t i = 0; i < plan->nactors; i++)
    if (plan->actors[i].queue == queue && plan->actors[i].cls == SL_CLASS_F) return true;
  return false;
}

static int32_t queue_firings(const sl_plan *plan, int32_t queue) {
  int32_t sum = 0;
  for (int32_t i = 0; i < plan->nactors; i++)
    if (plan->actors[i].queue == queue) sum += plan->actors[i].firings_per_step;
  return sum;
}

/* Keeps the queue's firings of step 1, in order of start. */
static void keep_order(sl_plan *plan, int32_t queue, const sl_trace_record *records, size_t n) {
  sl_queue *q = &plan->queues[queue];
  int32_t *order = sl_plan_alloc(plan, (size_t)queue_firings(plan, queue) * sizeof *order);
  q->norder = 0;
  for (size_t i = 0; i < n; i++) {
    const sl_actor *a = &plan->actors[records[i].actor];
    if (a->queue == queue && sli_every(a) == 1 && records[i].firing / a->firings_per_step == 1)
      order[q->norder++] = records[i].actor;
  }
  q->order = order;
}

/* Sets durations. Exchanges that overlap passes take no time; exchanges on a queue of passes take a
 * minimum, so that no two start at the same time. */
static void set_seconds(const sl_plan *plan, int32_t actor, const double *given, sl_actor *to) {
  const double least = 2e-9;
  bool in_line = has_passes(plan, plan->actors[actor].queue);
  bool exchange = plan->actors[actor].cls == SL_CLASS_C;
  if (given) to->seconds = given[actor];
  if (exchange) to->seconds = in_line ? SLI_MAX(to->seconds, least) : 0;
  if (given || exchange) to->nseconds = 0;
}

sl_status sl_plan_fix_order(sl_plan *plan, const double *seconds) {
  sli_simulation r;
  sli_simulation_init(&r, plan, true);
  for (int32_t i = 0; i < plan->nactors; i++) set_seconds(plan, i, seconds, &r.plan.actors[i]);
  for (int32_t i = 0; i < plan->nqueues; i++) {
    r.plan.queues[i].order = NULL;
    r.plan.queues[i].norder = 0;
    /* makes passes start after links have delivered their data */
    if (has_passes(plan, i)) r.plan.queues[i].look_ahead = 1e-9;
  }
  sl_status status = sli_simulate(&r, 3, true);
  sl_trace_record *records = NULL;
  size_t n = status ? 0 : sl_runtime_trace(r.rt, &records, NULL);
  for (int32_t q = 0; q < plan->nqueues && !status; q++)
    if (has_passes(plan, q)) keep_order(plan, q, records, n);
  free(records);
  sli_simulation_fini(&r);
  return status;
}
