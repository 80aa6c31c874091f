/* Messages to workers from who is none of them. */
#include "actors/run/run.h"
#include "actors/run/state.h"

void sli_post(worker *to, const sli_message *m) {
  if (sli_mailbox_push(&to->mailbox, m, &to->sleeping)) sli_worker_wake(to);
}

/* READY comes in while the carrier moves things on: its own readers are told right there. */
void sli_runtime_tell_readers(sl_runtime *rt, const sli_message *m) {
  const reg *r = &rt->regs[m->reg];
  for (int32_t g = 0; g < r->nfar; g++) {
    worker *to = r->far[g].worker;
    if (to->process >= 0) continue;
    sli_message one = *m;
    one.group = (uint32_t)g;
    if (to == rt->carrier && m->kind == SLI_READY) sli_worker_take(to, &one);
    else sli_post(to, &one);
  }
}

void sli_runtime_tell_writer(sl_runtime *rt, const sli_message *m) {
  sli_post(rt->regs[m->reg].worker, m);
}
