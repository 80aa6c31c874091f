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

sl_status sl_plan_prove(const sl_plan *plan) {
  sli_advice advice;
  return sli_plan_prove_or_advise(plan, &advice);
}

sl_status sli_plan_prove_or_advise(const sl_plan *plan, sli_advice *advice) {
  *advice = (sli_advice){.stage = SL_NONE};
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
