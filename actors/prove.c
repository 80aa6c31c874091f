#include "actors/runtime.h"

#include <stdlib.h>

/* The plan with every queue replaced by one that touches no data. */
static sl_queue *timed_queues(const sl_plan *plan) {
  sl_queue *queues = sli_calloc((size_t)plan->nqueues, sizeof *queues);
  for (int32_t i = 0; i < plan->nqueues; i++) {
    queues[i] = plan->queues[i];
    if (!queues[i].ops->timed) queues[i].ops = &sl_queue_null;
  }
  return queues;
}

static int32_t steps_to_repeat(const sl_plan *plan) {
  int32_t most = 0;
  for (int32_t i = 0; i < plan->nregs; i++) most = SLI_MAX(most, plan->regs[i].initial);
  return 2 + (most > 1);
}

sl_status sl_plan_prove(const sl_plan *plan) {
  sl_plan copy = *plan;
  copy.queues = timed_queues(plan);
  sl_runtime *rt = NULL;
  sl_status status = sl_runtime_create(
      &copy, &(sl_runtime_options){.clock = SL_CLOCK_VIRTUAL, .no_data = true, .trace_records = 1},
      &rt);
  if (!status) status = sl_runtime_run(rt, steps_to_repeat(plan));
  sl_runtime_destroy(rt);
  free(copy.queues);
  return status;
}
