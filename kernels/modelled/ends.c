/* SPDX-License-Identifier: Apache-2.0 */
/* Sources and sinks of a plan whose devices hold no values. Sources are polled for data, sinks are
 * notified, one firing at a time. */
#include <sluice/ops.h>
#include <sluice/program.h>

#include "base/base.h"

#include <stdlib.h>

typedef struct ends_queue {
  const sl_source *asked; /* polled source that has no data yet */
  sl_tick tick;           /* tick of the poll */
  uint64_t again_ns;      /* time of the next poll */
} ends_queue;

static sl_status ends_open(const sl_queue_config *config, void **queue) {
  (void)config;
  *queue = sli_calloc(1, sizeof(ends_queue));
  return SL_OK;
}

/* Polls the source; returns true if it has data. */
static bool ask(ends_queue *q) {
  q->again_ns = q->asked->await(q->asked->ctx, &q->tick);
  return !q->again_ns;
}

static bool ends_launch(void *queue, const sl_program *program, const sl_firing *firing,
                        uint64_t now_ns, uint64_t duration_ns, uint64_t *fence) {
  (void)now_ns, (void)duration_ns;
  ends_queue *q = queue;
  for (int i = 0; program && i < program->ncalls; i++) {
    const sl_program_call *call = &program->calls[i];
    const sl_sink *sink = call->op == &sl_op_report ? call->attrs.user : NULL;
    const sl_source *source = call->op == &sl_op_source ? call->attrs.user : NULL;
    if (sink && sink->passed) sink->passed(sink->ctx, &firing->tick);
    if (!source || !source->await) continue;
    q->asked = source;
    q->tick = firing->tick;
    *fence = 0;
    return ask(q);
  }
  return true;
}

static bool ends_done(void *queue, uint64_t fence, uint64_t now_ns) {
  (void)fence, (void)now_ns;
  return ask(queue);
}

static uint64_t ends_due(void *queue, uint64_t fence) {
  (void)queue, (void)fence;
  return UINT64_MAX;
}

static uint64_t ends_next(void *queue) { return ((const ends_queue *)queue)->again_ns; }

const sl_queue_ops sl_queue_ends = {.name = "ends",
                                    .modelled = true,
                                    .asks = true,
                                    .open = ends_open,
                                    .close = free,
                                    .launch = ends_launch,
                                    .done = ends_done,
                                    .due = ends_due,
                                    .next = ends_next};
