/* What comes from other processes.
 *
 * Every process has the whole plan, and of the actors and registers that are not
 * its own as much as it takes to name them. A register belongs to its producer's
 * process, but for those that links write: their slots lie where they are read,
 * while their credits are kept where the link runs. So the data of a slot and the
 * news that it is ready arrive together, and a FREE that goes back is the grant of
 * the next.
 *
 * A message from outside is not trusted: it may name nothing that is not here. */
#include "actors/run/state.h"


_Static_assert(sizeof(sli_message) == SL_MESSAGE_BYTES, "what peers pass on");

static sl_status refuse(const sli_message *m, const char *why) {
  return sl_fail(SL_E_INPUT, "a message of kind %d for register %d, slot %d, key %lld: %s",
                 m->kind, m->reg, m->slot, (long long)m->key, why);
}

/* To all consumers here, or to those of one worker at a time. */
static void tell_consumers(sl_runtime *rt, const reg *r, const sli_message *m) {
  for (int32_t g = 0; g < r->nfar; g++) {
    worker *to = r->far[g].worker;
    if (to->process >= 0) continue;
    sli_message one = *m;
    one.group = (uint32_t)g;
    if (to == rt->carrier && m->kind == SLI_READY) sli_worker_take(to, &one);
    else if (sli_mailbox_push(&to->mailbox, &one, &to->sleeping)) sli_worker_wake(to);
  }
}

static sl_status check_free(const sl_runtime *rt, const reg *r, const sli_message *m) {
  if (!r->worker || r->worker->process >= 0 || !r->nfar)
    return refuse(m, "its producer is not here");
  bool there = m->slot >= 0 && m->slot < sli_quota_most(&rt->plan->regs[m->reg]);
  return there ? SL_OK : refuse(m, "there is no such slot");
}

sl_status sl_runtime_deliver(sl_runtime *rt, const void *message) {
  const sli_message *m = message;
  if (m->reg < 0 || m->reg >= rt->plan->nregs) return refuse(m, "there is no such register");
  reg *r = &rt->regs[m->reg];
  if (m->kind == SLI_WANTED) {
    if (!r->lazy) return refuse(m, "nobody is lazy about it");
    tell_consumers(rt, r, m);
    return SL_OK;
  }
  if (m->kind != SLI_FREE) return refuse(m, "no such message goes between processes");
  sl_status status = check_free(rt, r, m);
  if (status) return status;
  if (sli_mailbox_push(&r->worker->mailbox, m, &r->worker->sleeping)) sli_worker_wake(r->worker);
  return SL_OK;
}

sl_status sl_runtime_parcel(const sl_runtime *rt, const void *message, sl_parcel *out) {
  const sli_message *m = message;
  if (m->kind != SLI_READY || m->reg < 0 || m->reg >= rt->plan->nregs ||
      !rt->regs[m->reg].carried)
    return refuse(m, "no link carries it");
  const sl_register *r = &rt->plan->regs[m->reg];
  *out = (sl_parcel){.link = rt->plan->actors[r->producer].queue, .number = m->fence,
                     .bytes = rt->options.no_data ? 0 : r->slot_bytes};
  return SL_OK;
}

static sl_status check_ready(const sl_runtime *rt, const sli_message *m, size_t bytes) {
  sl_parcel parcel;
  sl_status status = sl_runtime_parcel(rt, m, &parcel);
  if (status) return status;
  const sl_register *r = &rt->plan->regs[m->reg];
  if (is_away(rt, r->device)) return refuse(m, "it does not lie here");
  if (m->slot < 0 || m->slot >= sli_quota_most(r)) return refuse(m, "there is no such slot");
  return bytes == parcel.bytes ? SL_OK : refuse(m, "its data has another size");
}

void *sl_runtime_place(sl_runtime *rt, const void *message, size_t bytes) {
  const sli_message *m = message;
  if (check_ready(rt, m, bytes)) return NULL;
  return slot_address(&rt->regs[m->reg], m->slot);
}

sl_status sl_runtime_arrived(sl_runtime *rt, const void *message, size_t bytes) {
  const sli_message *m = message;
  sl_status status = check_ready(rt, m, bytes);
  if (!status) tell_consumers(rt, &rt->regs[m->reg], m);
  return status;
}
