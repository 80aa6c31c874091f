/* Why devices were idle.
 *
 * The key maps of the plan say which slots a firing took, completed and gave
 * back. Together with the times of the firings that is the whole history of
 * every slot: taken, ready, free again. From it follows, to the nanosecond, when
 * each firing could have gone and what it waited for last: the input that was
 * ready last, or the credit that came back last. A gap before a firing is split
 * there: up to that moment it waited for that register; from then on nothing
 * kept it but the worker (device), or the plan's wish (policy).
 *
 * The reason of a gap says who is to blame next door. walk_back() asks on: what
 * did the producer do meanwhile? It ran, or it waited too, for another, and so
 * on to a firing that ran. From the last firing of a step that is the critical
 * path: what was on it at some moment is what every idle device was waiting for
 * in the end. A wait for credit is to blame itself while the one who held the
 * slot was waiting in turn; if it was running, it was slow. */
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
