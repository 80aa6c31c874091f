/* SPDX-License-Identifier: Apache-2.0 */
/* Changes quotas during a run. */
#include <stdlib.h>

#include "base/base.h"
#include "graph/lower/lower.h"

/* Returns the largest growth of a stage's activation registers among the changes. */
static int stage_growth(const sl_plan *plan, const sl_runtime *rt, const sl_quota_change *changes,
                        int n, int stage) {
  int growth = 0;
  for (int i = 0; i < n; i++) {
    const sl_register *r = &plan->regs[changes[i].reg];
    if (sli_quota_counts_activations(r->quota_name) && plan->actors[r->producer].stage == stage)
      growth = SLI_MAX(growth, changes[i].slots - sl_runtime_quota(rt, changes[i].reg));
  }
  return growth;
}

/* Adds changes so that registers into and out of a stage grow with the stage's activation
 * registers. */
static int follow(const sl_plan *plan, const sl_runtime *rt, sl_quota_change *changes, int n) {
  int given = n;
  for (int32_t i = 0; i < plan->nregs; i++) {
    const sl_register *r = &plan->regs[i];
    const sli_role_row *row = sli_role_find(r->quota_name);
    if (!row || !row->follows || r->producer == SL_NONE) continue;
    int stage = plan->actors[r->producer].stage, growth = 0;
    for (int s = stage - 1; s <= stage + 1; s++)
      growth = SLI_MAX(growth, stage_growth(plan, rt, changes, given, s));
    if (row->per_microbatch) growth = (growth + plan->pieces - 1) / plan->pieces;
    int slots = SLI_MIN(sl_runtime_quota(rt, i) + growth, SLI_MAX(r->quota, r->quota_most));
    if (growth) changes[n++] = (sl_quota_change){i, slots};
  }
  return n;
}

sl_status sl_lowered_set_quota(const sl_lowered *l, sl_runtime *rt, const sl_quota *quota) {
  const sl_plan *plan = sl_lowered_plan(l);
  sl_quota_change *changes = sli_calloc((size_t)plan->nregs, sizeof *changes);
  int n = 0;
  for (int32_t i = 0; i < plan->nregs; i++) {
    const sl_register *r = &plan->regs[i];
    if (r->producer == SL_NONE || r->held || !r->quota_most) continue;
    if (sli_quota_names(quota, r->quota_name, plan->actors[r->producer].stage))
      changes[n++] = (sl_quota_change){i, quota->slots};
  }
  sl_status status =
      n ? SL_OK
        : sl_fail(SL_E_USAGE, "no quota %s that can change while the plan runs", quota->name);
  if (!status) status = sl_runtime_set_quotas(rt, follow(plan, rt, changes, n), changes);
  free(changes);
  return status;
}
