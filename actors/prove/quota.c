/* Changing quotas while a run goes on: proved here, then applied by the runtime.
 *
 * The new numbers are proved first, on a copy of the plan. Is that enough, in
 * the middle of a run? Around every cycle of actors the number of tokens, data
 * and free slots together, is what it was at the start, plus the credits added
 * and minus those retired. So once the change is through, every cycle holds as
 * many as it would had the run begun with the new quotas, and of those it is
 * known that they keep every cycle going. */
#include "actors/run/run.h"

#include <stdlib.h>
#include <string.h>

/* The plan with the quotas last asked for and these changes. */
static sl_status prove_change(const sl_runtime *rt, int n, const sl_quota_change *changes) {
  sl_plan copy = *sli_runtime_plan(rt);
  const sl_register *regs = copy.regs;
  copy.regs = sli_calloc((size_t)copy.nregs, sizeof *copy.regs);
  memcpy(copy.regs, regs, (size_t)copy.nregs * sizeof *copy.regs);
  for (int32_t i = 0; i < copy.nregs; i++) copy.regs[i].quota = sl_runtime_quota(rt, i);
  for (int i = 0; i < n; i++) copy.regs[changes[i].reg].quota = changes[i].slots;
  sl_status status = sl_plan_prove(&copy);
  free(copy.regs);
  return status;
}

sl_status sl_runtime_set_quotas(sl_runtime *rt, int n, const sl_quota_change *changes) {
  sl_status status = sli_runtime_check_quotas(rt, n, changes);
  if (!status) status = prove_change(rt, n, changes);
  if (!status) sli_runtime_post_quotas(rt, n, changes);
  return status;
}
