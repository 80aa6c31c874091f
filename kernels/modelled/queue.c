/* SPDX-License-Identifier: Apache-2.0 */
/* Queues of modelled devices and links, which touch no data.
 *
 * A fence is the completion time of the firing, except in a group, where that time is known when
 * all members have launched it: there it is the firing's number. The timed queue runs one firing
 * after another. The delay queue lets firings overlap, as messages do on a link that has only
 * latency. The null queue completes immediately. */
#include <sluice/program.h>

#include "base/base.h"

#include <stdlib.h>

typedef struct timed_queue {
  uint64_t free_at_ns; /* end of the last firing launched */
} timed_queue;

static sl_status timed_open(const sl_queue_config *config, void **queue) {
  (void)config;
  *queue = sli_calloc(1, sizeof(timed_queue));
  return SL_OK;
}

static bool timed_launch(void *queue, const sl_program *program, const sl_firing *firing,
                         uint64_t now_ns, uint64_t duration_ns, uint64_t *fence) {
  (void)program, (void)firing;
  timed_queue *q = queue;
  if (!duration_ns && q->free_at_ns <= now_ns) return true;
  q->free_at_ns = SLI_MAX(q->free_at_ns, now_ns) + duration_ns;
  *fence = q->free_at_ns;
  return false;
}

static bool delay_launch(void *queue, const sl_program *program, const sl_firing *firing,
                         uint64_t now_ns, uint64_t duration_ns, uint64_t *fence) {
  (void)program, (void)firing;
  timed_queue *q = queue;
  if (!duration_ns && q->free_at_ns <= now_ns) return true;
  /* later launches never complete earlier, which keeps the order on a link */
  q->free_at_ns = SLI_MAX(q->free_at_ns, now_ns + duration_ns);
  *fence = q->free_at_ns;
  return false;
}

static bool null_launch(void *queue, const sl_program *program, const sl_firing *firing,
                        uint64_t now_ns, uint64_t duration_ns, uint64_t *fence) {
  (void)queue, (void)program, (void)firing, (void)now_ns, (void)duration_ns, (void)fence;
  return true;
}

static bool timed_done(void *queue, uint64_t fence, uint64_t now_ns) {
  (void)queue;
  return fence <= now_ns;
}

static uint64_t timed_due(void *queue, uint64_t fence) {
  (void)queue;
  return fence;
}

#define TIMED_QUEUE(name_, timed_, overlaps_, launch_)                                           \
  {                                                                                              \
    .name = name_, .modelled = true, .timed = timed_, .overlaps = overlaps_, .open = timed_open, \
    .close = free, .launch = launch_, .done = timed_done, .due = timed_due                       \
  }

/* ---- groups --------------------------------------------------------------------------- */

/* A member has one firing in flight at most. It launches firing n when n - 1 is complete, which all
 * have launched, so all are done with n - 2: two turns are enough. */
typedef struct group_queue {
  sl_group *group;
  uint64_t launched;
} group_queue;

static sl_status group_open(const sl_queue_config *config, void **queue) {
  group_queue *q = sli_calloc(1, sizeof *q);
  q->group = config->group;
  *queue = q;
  return SL_OK;
}

static bool group_launch(void *queue, const sl_program *program, const sl_firing *firing,
                         uint64_t now_ns, uint64_t duration_ns, uint64_t *fence) {
  (void)program, (void)firing;
  group_queue *q = queue;
  *fence = ++q->launched;
  __auto_type turn = &q->group->turns[q->launched % 2];
  if (turn->arrived == q->group->members) turn->arrived = 0, turn->end_ns = 0;
  turn->arrived++;
  turn->end_ns = SLI_MAX(turn->end_ns, now_ns + duration_ns);
  return false;
}

/* Returns the time at which a member's firing completes, or UINT64_MAX while others have not
 * launched it. */
static uint64_t group_end(const group_queue *q, uint64_t fence) {
  __auto_type turn = &q->group->turns[fence % 2];
  return turn->arrived == q->group->members ? turn->end_ns : UINT64_MAX;
}

static bool group_done(void *queue, uint64_t fence, uint64_t now_ns) {
  return group_end(queue, fence) <= now_ns;
}

static uint64_t group_due(void *queue, uint64_t fence) {
  (void)queue, (void)fence;
  return UINT64_MAX;
}

static uint64_t group_next(void *queue) {
  const group_queue *q = queue;
  return group_end(q, q->launched);
}

const sl_queue_ops sl_queue_group = {.name = "group",
                                     .modelled = true,
                                     .timed = true,
                                     .open = group_open,
                                     .close = free,
                                     .launch = group_launch,
                                     .done = group_done,
                                     .due = group_due,
                                     .next = group_next};

/* ---- the table ------------------------------------------------------------------------ */

const sl_queue_ops sl_queue_timed = TIMED_QUEUE("timed", true, false, timed_launch);
const sl_queue_ops sl_queue_delay = TIMED_QUEUE("delay", true, true, delay_launch);
const sl_queue_ops sl_queue_null = TIMED_QUEUE("null", false, false, null_launch);
