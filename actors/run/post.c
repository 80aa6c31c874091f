/* SPDX-License-Identifier: Apache-2.0 */
/* Messages to workers from other threads. */
#include "actors/run/run.h"
#include "actors/run/state.h"

void sli_post(worker *to, const sli_message *m) {
  if (sli_mailbox_push(&to->mailbox, m, &to->sleeping)) sli_worker_wake(to);
}

/* Passes a message to a worker; the carrier handles its own directly. */
static void pass_on(const sl_runtime *rt, worker *to, const sli_message *m, bool on_carrier) {
  if (on_carrier && to == rt->carrier) sli_worker_take(to, m);
  else sli_post(to, m);
}

void sli_runtime_tell_readers(sl_runtime *rt, const sli_message *m, bool on_carrier) {
  const reg *r = &rt->regs[m->reg];
  for (int32_t g = 0; g < r->nfar; g++) {
    if (r->far[g].worker->process >= 0) continue;
    sli_message one = *m;
    one.group = (uint32_t)g;
    pass_on(rt, r->far[g].worker, &one, on_carrier);
  }
}

void sli_runtime_tell_writer(sl_runtime *rt, const sli_message *m, bool on_carrier) {
  pass_on(rt, rt->regs[m->reg].worker, m, on_carrier);
}
