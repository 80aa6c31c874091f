/* SPDX-License-Identifier: Apache-2.0 */
/* Changing quotas during a run: a credit is added or retired, and nothing else changes.
 * actors/prove/quota.c proves the plan with the new quotas first. */
#include "actors/run/state.h"

sl_status sli_runtime_check_quotas(const sl_runtime *rt, int n, const sl_quota_change *changes) {
  if (!rt->threads)
    return sl_fail(SL_E_UNSUPPORTED, "quotas cannot be changed in a run on the virtual clock");
  for (int i = 0; i < n; i++) {
    const sl_register *r = &rt->plan->regs[changes[i].reg];
    int32_t least = SLI_MAX(r->initial, 1), most = sli_quota_most(r);
    if (changes[i].slots < least || changes[i].slots > most)
      return sl_fail(SL_E_USAGE, "register %s can have %d to %d slots during the run, not %d",
                     r->name, least, most, changes[i].slots);
    if (r->producer == SL_NONE || r->held)
      return sl_fail(SL_E_USAGE, "register %s has no quota to change", r->name);
  }
  return SL_OK;
}

void sli_runtime_post_quotas(sl_runtime *rt, int n, const sl_quota_change *changes) {
  for (int i = 0; i < n; i++) {
    reg *r = &rt->regs[changes[i].reg];
    rt->quotas[r->id] = changes[i].slots;
    if (r->worker->process >= 0) continue; /* the register's own process gets a message too */
    atomic_store(&r->resize.wanted, changes[i].slots);
    if (atomic_exchange(&r->resize.asked, true)) continue; /* the message in flight covers it */
    sli_message m = {.reg = r->id, .kind = SLI_QUOTA};
    sli_post(r->worker, &m);
  }
}
