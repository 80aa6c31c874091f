/* SPDX-License-Identifier: Apache-2.0 */
/* Prediction: statistics of a simulation (rehearsal) with modelled durations. */
#include "actors/prove/prove.h"

sl_status sl_plan_predict(const sl_plan *plan, const double *seconds, sl_figures *out) {
  sli_rehearsal r;
  sli_rehearsal_init(&r, plan, true);
  for (int32_t i = 0; seconds && i < plan->nactors; i++) {
    r.plan.actors[i].seconds = seconds[i];
    r.plan.actors[i].nseconds = 0;
  }
  sl_status status = sli_rehearse(&r, 3, true);
  if (!status) *out = sl_runtime_figures(r.rt);
  sli_rehearsal_fini(&r);
  return status;
}
