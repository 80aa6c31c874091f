/* SPDX-License-Identifier: Apache-2.0 */
/* Proof: the runtime itself on the virtual clock.
 *
 * A simulation is a copy of the plan whose queues touch no data. If it fires everything, so does
 * the plan, whatever the timing. If it gets stuck, the error names the waiting actors and the quota
 * change that would help. */
#include "actors/prove/prove.h"

#include "actors/plan/plan.h"
#include "actors/prove/advise.h"

#include <stdio.h>
#include <stdlib.h>

static void say(const char *cycle, const sli_advice *a) {
  char at[16] = "";
  if (a->slots && a->stage != SL_NONE) snprintf(at, sizeof at, "@%d", a->stage);
  if (a->slots)
    sl_fail(SL_E_STUCK, "the plan cannot finish: %s\n%s: --quota %s%s=%d%s", cycle,
            a->partial ? "the first of several changes that break it"
                       : "the smallest change that breaks it",
            a->name, at, a->slots, sli_quota_warning(a->name));
  else sl_fail(SL_E_STUCK, "the plan cannot finish: %s", cycle);
}

/* Checks that a device has every share that a firing asks for: no other firing can be waited for.
 */
static sl_status check_shares(const sl_plan *plan) {
  for (int32_t i = 0; i < plan->nactors; i++) {
    const sl_actor *a = &plan->actors[i];
    const sl_queue *q = &plan->queues[a->queue];
    for (int32_t t = 0; t < a->nshares; t++)
      if (a->shares[t].part > 1 + 1e-9)
        return sl_fail(SL_E_STUCK,
                       "the plan cannot finish: %s asks for %g of %s (%s), more than a device has",
                       a->name, a->shares[t].part, plan->devices[q->device].name, q->lane);
  }
  return SL_OK;
}

sl_status sl_plan_prove(const sl_plan *plan) {
  sli_advice advice;
  return sli_plan_prove_or_advise(plan, &advice);
}

sl_status sli_plan_prove_or_advise(const sl_plan *plan, sli_advice *advice) {
  *advice = (sli_advice){.stage = SL_NONE};
  if (check_shares(plan)) return SL_E_STUCK;
  sli_simulation r;
  sli_simulation_init(&r, plan, false);
  sl_status status = sli_simulate_all(&r);
  if (status == SL_E_STUCK) {
    char *cycle = sli_strdup(sl_detail());
    *advice = sli_advise(plan, &r);
    say(cycle, advice);
    free(cycle);
  }
  sli_simulation_fini(&r);
  return status;
}
