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

/* Minimum, so that no two firings of a queue start at the same time. */
static const double least_seconds = 2e-9;

/* Sets durations. Exchanges that overlap passes take no time; exchanges on a queue of passes take a
 * minimum. */
static void set_seconds(const sl_plan *plan, int32_t actor, const double *given, sl_actor *to) {
  bool in_line = has_passes(plan, plan->actors[actor].queue);
  bool exchange = plan->actors[actor].cls == SL_CLASS_C;
  if (given) to->seconds = given[actor];
  if (exchange) to->seconds = in_line ? SLI_MAX(to->seconds, least_seconds) : 0;
  if (given || exchange) to->nseconds = 0;
}

/* Lets a simulated queue fire in any order; devices of a group then do not wait for each other. */
static void free_order(sl_queue *q) {
  q->order = NULL;
  q->norder = 0;
  if (q->group) q->ops = &sl_queue_timed;
}

/* ---- groups -------------------------------------------------------------------------- */

/* Returns the place of an actor among those of its queue. */
static int32_t place_on_queue(const sl_plan *plan, int32_t actor) {
  int32_t place = 0;
  for (int32_t i = 0; i < actor; i++) place += plan->actors[i].queue == plan->actors[actor].queue;
  return place;
}

/* Returns a queue's actor that does the same as one of another device, or SL_NONE. Without programs
 * it is the one at the same place. */
static int32_t twin_of(const sl_plan *plan, int32_t actor, int32_t queue) {
  const sl_actor *of = &plan->actors[actor];
  for (int32_t i = 0; i < plan->nactors; i++)
    if (plan->actors[i].queue == queue && sli_actors_alike(of, &plan->actors[i]) &&
        (of->program || place_on_queue(plan, i) == place_on_queue(plan, actor)))
      return i;
  return SL_NONE;
}

/* Gives a queue the order of another. */
static sl_status follow(sl_plan *plan, int32_t queue, int32_t first) {
  sl_queue *q = &plan->queues[queue];
  const sl_queue *leader = &plan->queues[first];
  int32_t *order = sl_plan_alloc(plan, (size_t)leader->norder * sizeof *order);
  for (int32_t i = 0; i < leader->norder; i++) {
    order[i] = twin_of(plan, leader->order[i], queue);
    if (order[i] == SL_NONE)
      return sl_fail(SL_E_INPUT, "queues %s and %s are of one group, but have different actors",
                     leader->name, q->name);
  }
  q->order = order;
  q->norder = leader->norder;
  return SL_OK;
}

/* Returns the first queue of a queue's group. */
static int32_t leader_of(const sl_plan *plan, int32_t queue) {
  int32_t first = 0;
  while (plan->queues[first].group != plan->queues[queue].group) first++;
  return first;
}

sl_status sl_plan_fix_groups(sl_plan *plan) {
  sli_simulation r;
  if (!sli_plan_groups(plan)) return SL_OK;
  sli_simulation_init(&r, plan, true);
  for (int32_t q = 0; q < plan->nqueues; q++)
    if (plan->queues[q].group) free_order(&r.plan.queues[q]);
  for (int32_t a = 0; a < plan->nactors; a++)
    if (plan->queues[plan->actors[a].queue].group)
      r.plan.actors[a].seconds = SLI_MAX(r.plan.actors[a].seconds, least_seconds);
  sli_simulation_lend_nothing(&r); /* the plan has to finish in this order whatever pools grant */
  sl_status status = sli_simulate(&r, 3, true);
  sl_trace_record *records = NULL;
  size_t n = status ? 0 : sl_runtime_trace(r.rt, &records, NULL);
  for (int32_t q = 0; q < plan->nqueues && !status; q++) {
    int32_t leader = plan->queues[q].group ? leader_of(plan, q) : SL_NONE;
    if (leader == q) keep_order(plan, q, records, n);
    else if (leader != SL_NONE) status = follow(plan, q, leader);
  }
  free(records);
  sli_simulation_fini(&r);
  return status;
}

sl_status sl_plan_fix_order(sl_plan *plan, const double *seconds) {
  sli_simulation r;
  sli_simulation_init(&r, plan, true);
  for (int32_t i = 0; i < plan->nactors; i++) set_seconds(plan, i, seconds, &r.plan.actors[i]);
  for (int32_t i = 0; i < plan->nqueues; i++) {
    free_order(&r.plan.queues[i]);
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
