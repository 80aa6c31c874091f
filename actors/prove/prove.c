/* Proof: the runtime itself on the virtual clock.
 *
 * A rehearsal is a copy of the plan whose queues touch no data. If it fires
 * everything, so does the plan, whatever the timing. If it gets stuck, the error says who waits
 * for whom, and what would mend it. */
#include "actors/prove/prove.h"

#include "actors/plan/plan.h"
#include "actors/prove/advise.h"

#include <stdlib.h>

sl_status sl_plan_prove(const sl_plan *plan) {
  sli_rehearsal r;
  sli_rehearsal_init(&r, plan, false);
  sl_status status = sli_rehearse_all(&r);
  if (status == SL_E_STUCK) {
    char *cycle = sli_strdup(sl_detail()), advice[256];
    sli_advise(plan, &r, advice, sizeof advice);
    sl_fail(SL_E_STUCK, "the plan cannot finish: %s%s", cycle, advice);
    free(cycle);
  }
  sli_rehearsal_fini(&r);
  return status;
}
