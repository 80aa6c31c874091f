/* SPDX-License-Identifier: Apache-2.0 */
/* Prediction: statistics of a simulation with modelled durations. */
#include "actors/prove/prove.h"

sl_status sl_plan_predict(const sl_plan *plan, const double *seconds, sl_statistics *out) {
  sli_simulation r;
  sli_simulation_init(&r, plan, true);
  for (int32_t i = 0; seconds && i < plan->nactors; i++) {
    r.plan.actors[i].seconds = seconds[i];
    r.plan.actors[i].nseconds = 0;
  }
  sl_status status = sli_simulate(&r, 3, true);
  if (!status) *out = sl_runtime_statistics(r.rt);
  sli_simulation_fini(&r);
  return status;
}
