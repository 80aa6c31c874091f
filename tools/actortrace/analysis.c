/* SPDX-License-Identifier: Apache-2.0 */
/* Analysis of idle devices.
 *
 * The plan's key maps say which slots a firing took, completed and released. Together with the
 * times of the firings this is the complete history of every slot: taken, ready, free again. It
 * shows to the nanosecond when each firing could have started, and what it waited for last: an
 * input, or a credit. A gap before a firing is split at that time. Before it the firing waited for
 * that register; after it only the worker (device) or the plan's order (policy) held it back.
 *
 * The reason of a gap names the neighbour to blame. walk_back() continues from there. Either the
 * producer ran meanwhile, or it waited for another firing, and so on back to one that ran. Starting
 * from the last firing of a step this gives the critical path: what every idle device was
 * ultimately waiting for at each time. A wait for a credit is blamed on the credit while the slot's
 * holder was also waiting. If the holder was running, it was slow. */
#include "tools/actortrace/actortrace.h"

#include <stdlib.h>

#include "actors/plan/plan.h"

analysis *analysis_create(const sl_trace *trace) {
  analysis *a = sli_calloc(1, sizeof *a);
  a->trace = trace;
  a->plan = trace->plan;
  a->firings = trace->firings;
  a->nfirings = trace->nfirings;
  a->flow = sli_flow_create(a->plan);
  make_holds(a);
  find_causes(a);
  find_queues(a);
  find_before(a);
  find_shelves(a);
  draw_lines(a);
  return a;
}

void analysis_destroy(analysis *a) {
  if (!a) return;
  for (int32_t d = 0; d < a->plan->ndevices; d++) free(a->lines[d].pieces);
  free(a->lines);
  free(a->causes);
  free(a->before);
  free(a->shelf);
  free(a->shelves);
  free(a->holds);
  free(a->first_hold);
  free(a->work_queue);
  sli_flow_destroy(a->flow);
  free(a);
}
