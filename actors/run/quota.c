/* Changing quotas while a run goes on: a credit is added or retired, and nothing
 * else changes.
 *
 * The new numbers are proved first, on a copy of the plan. Is that enough, in
 * the middle of a run? Around every cycle of actors the number of tokens, data
 * and free slots together, is what it was at the start, plus the credits added
 * and minus those retired. So once the change is through, every cycle holds as
 * many as it would had the run begun with the new quotas, and of those it is
 * known that they keep every cycle going. */
#include "actors/run/state.h"

#include <stdlib.h>
#include <string.h>

static sl_status check_change(const sl_runtime *rt, int n, const sl_quota_change *changes) {
  for (int i = 0; i < n; i++) {
    const sl_register *r = &rt->plan->regs[changes[i].reg];
    int32_t least = SLI_MAX(r->initial, 1), most = sli_quota_most(r);
    if (changes[i].slots < least || changes[i].slots > most)
      return sl_fail(SL_E_USAGE, "register %s can have %d to %d slots while it runs, not %d",
                     r->name, least, most, changes[i].slots);
    if (r->producer == SL_NONE || r->held)
      return sl_fail(SL_E_USAGE, "register %s has no quota to change", r->name);
  }
  return SL_OK;
}

/* The plan with the quotas last asked for and these changes. */
static sl_status prove_change(const sl_runtime *rt, int n, const sl_quota_change *changes) {
  sl_plan copy = *rt->plan;
  copy.regs = sli_calloc((size_t)copy.nregs, sizeof *copy.regs);
  memcpy(copy.regs, rt->plan->regs, (size_t)copy.nregs * sizeof *copy.regs);
  for (int32_t i = 0; i < copy.nregs; i++) copy.regs[i].quota = rt->quotas[i];
  for (int i = 0; i < n; i++) copy.regs[changes[i].reg].quota = changes[i].slots;
  sl_status status = sl_plan_prove(&copy);
  free(copy.regs);
  return status;
}

sl_status sl_runtime_set_quotas(sl_runtime *rt, int n, const sl_quota_change *changes) {
  if (!rt->threads)
    return sl_fail(SL_E_UNSUPPORTED, "quotas of a run on the virtual clock cannot be changed");
  sl_status status = check_change(rt, n, changes);
  if (!status) status = prove_change(rt, n, changes);
  for (int i = 0; i < n && !status; i++) {
    reg *r = &rt->regs[changes[i].reg];
    rt->quotas[r->id] = changes[i].slots;
    if (r->worker->process >= 0) continue; /* its own process is told too */
    atomic_store(&r->resize.wanted, changes[i].slots);
    if (atomic_exchange(&r->resize.asked, true)) continue; /* the one under way takes it along */
    sli_message m = {.reg = r->id, .kind = SLI_QUOTA};
    sli_post(r->worker, &m);
  }
  return status;
}
