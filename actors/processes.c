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
#include "actors/runtime.h"

#include <stdlib.h>
#include <string.h>

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

static sl_status check_ready(const sl_runtime *rt, const sli_message *m, size_t bytes) {
  if (m->kind != SLI_READY || m->reg < 0 || m->reg >= rt->plan->nregs)
    return refuse(m, "no link carries it");
  const sl_register *r = &rt->plan->regs[m->reg];
  if (!rt->regs[m->reg].carried || is_away(rt, r->device)) return refuse(m, "it does not lie here");
  if (m->slot < 0 || m->slot >= sli_quota_most(r)) return refuse(m, "there is no such slot");
  size_t whole = rt->options.no_data ? 0 : r->slot_bytes;
  return bytes == whole ? SL_OK : refuse(m, "its data has another size");
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

/* ---- links ---------------------------------------------------------------------- */

/* One way to one process. Sends complete in any order, but are asked about in
 * theirs. */
typedef struct link_queue {
  const sl_peers *peers;
  int process;
} link_queue;

static sl_status link_open(const sl_queue_config *config, void **queue) {
  link_queue *q = sli_calloc(1, sizeof *q);
  *q = (link_queue){config->peers, config->process};
  *queue = q;
  return SL_OK;
}

static void link_close(void *queue) { free(queue); }

static bool link_launch(void *queue, const sl_program *program, const sl_firing *firing,
                        uint64_t now_ns, uint64_t duration_ns, uint64_t *fence) {
  (void)program, (void)now_ns, (void)duration_ns;
  const link_queue *q = queue;
  const sl_move *move = firing->move;
  if (!q->peers) { /* all are one process's */
    if (move->bytes) memcpy(firing->bases[1], firing->bases[0], move->bytes);
    return true;
  }
  sli_message m = {.key = move->key, .reg = move->reg, .slot = move->slot, .kind = SLI_READY};
  return q->peers->send(q->peers->ctx, q->process, &m, firing->bases[0], move->bytes, fence);
}

static bool link_done(void *queue, uint64_t fence, uint64_t now_ns) {
  (void)now_ns;
  const link_queue *q = queue;
  return q->peers->done(q->peers->ctx, fence);
}

static uint64_t link_due(void *queue, uint64_t fence) {
  (void)queue, (void)fence;
  return UINT64_MAX;
}

const sl_queue_ops sl_queue_link = {.name = "link", .overlaps = true, .open = link_open,
                                    .close = link_close, .launch = link_launch, .done = link_done,
                                    .due = link_due};
