/* SPDX-License-Identifier: Apache-2.0 */
/* Changing quotas during a run: proved here, then applied by the runtime.
 *
 * The new quotas are proved on a copy of the plan from its start. This is enough in the middle of a
 * run as well. The number of tokens around every cycle of actors, data and free slots together, is
 * constant, apart from credits added and retired. After the change every cycle therefore holds as
 * many tokens as if the run had begun with the new quotas, and the proof shows that these
 * suffice. */
#include "actors/run/run.h"

#include <stdlib.h>
#include <string.h>

/* Proves the plan with the quotas last requested and these changes. */
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
