/* SPDX-License-Identifier: Apache-2.0 */
/* Input from other processes.
 *
 * Every process has the whole plan, but only names for the actors and registers of other processes.
 * A register belongs to its producer's process, except registers that links write: their slots are
 * in the reader's process, while their credits are kept in the link's. The data of a slot and the
 * message that it is ready therefore arrive together, and the FREE that goes back grants the next
 * slot.
 *
 * Messages from outside are not trusted: they may refer only to registers and slots that exist
 * here. */
#include "actors/plan/plan.h"
#include "actors/run/run.h"

_Static_assert(sizeof(sli_message) == SL_MESSAGE_BYTES, "what peers pass on");

static sl_status deliver_refuse(const sli_message *m, const char *why) {
  return sl_fail(SL_E_INPUT, "a message of kind %d for register %d, slot %d, key %lld: %s", m->kind,
                 m->reg, m->slot, (long long)m->key, why);
}

static bool is_slot(const sl_register *r, int32_t slot) {
  return slot >= 0 && slot < sli_quota_most(r);
}

static sl_status check_free(const sl_runtime *rt, const sli_message *m) {
  if (!sli_runtime_takes_free(rt, m->reg))
    return deliver_refuse(m, "this process does not run its producer");
  bool there = is_slot(&sli_runtime_plan(rt)->regs[m->reg], m->slot);
  return there ? SL_OK : deliver_refuse(m, "no such slot");
}

/* Handles a message without data. */
static sl_status take_note(sl_runtime *rt, const sli_message *m, bool on_carrier) {
  if (m->reg < 0 || m->reg >= sli_runtime_plan(rt)->nregs)
    return deliver_refuse(m, "no such register");
  if (m->kind == SLI_WANTED) {
    if (!sli_runtime_is_lazy(rt, m->reg)) return deliver_refuse(m, "it has no lazy readers");
    sli_runtime_tell_readers(rt, m, on_carrier);
    return SL_OK;
  }
  if (m->kind != SLI_FREE)
    return deliver_refuse(m, "this kind of message does not travel between processes");
  sl_status status = check_free(rt, m);
  if (!status) sli_runtime_tell_writer(rt, m, on_carrier);
  return status;
}

sl_status sl_runtime_deliver(sl_runtime *rt, const void *message) {
  return take_note(rt, message, false);
}

/* Size of the data that comes with a message. */
static size_t message_bytes(const sl_runtime *rt, const sl_register *r, const sli_message *m) {
  if (!sli_runtime_has_data(rt)) return 0;
  return r->rows ? sl_row_bytes(r) * (size_t)m->valid_rows : r->slot_bytes;
}

sl_status sl_runtime_wire_message(const sl_runtime *rt, const void *message, sl_wire_message *out) {
  const sl_plan *plan = sli_runtime_plan(rt);
  const sli_message *m = message;
  *out = (sl_wire_message){.link = SL_NONE};
  if (m->kind != SLI_READY) return SL_OK;
  if (m->reg < 0 || m->reg >= plan->nregs || !sli_runtime_is_carried(rt, m->reg))
    return deliver_refuse(m, "no link carries it");
  const sl_register *r = &plan->regs[m->reg];
  if (m->valid_rows < 0 || m->valid_rows > r->rows)
    return deliver_refuse(m, "its slots do not have that many rows");
  *out = (sl_wire_message){.link = plan->actors[r->producer].queue,
                           .number = m->fence,
                           .bytes = message_bytes(rt, r, m)};
  return SL_OK;
}

static sl_status check_ready(const sl_runtime *rt, const sli_message *m, size_t bytes) {
  sl_wire_message wire;
  sl_status status = sl_runtime_wire_message(rt, m, &wire);
  if (status) return status;
  if (wire.link == SL_NONE) return deliver_refuse(m, "it carries no data");
  const sl_register *r = &sli_runtime_plan(rt)->regs[m->reg];
  if (!sli_runtime_has_device(rt, r->device))
    return deliver_refuse(m, "the register is not on this process's devices");
  if (!is_slot(r, m->slot)) return deliver_refuse(m, "no such slot");
  return bytes == wire.bytes ? SL_OK : deliver_refuse(m, "its data has a different size");
}

void *sl_runtime_place(sl_runtime *rt, const void *message, size_t bytes) {
  const sli_message *m = message;
  return check_ready(rt, m, bytes) ? NULL : sli_runtime_granted_slot(rt, m->reg, m->slot);
}

sl_status sl_runtime_arrived(sl_runtime *rt, const void *message, size_t bytes) {
  const sli_message *m = message;
  if (!bytes && m->kind != SLI_READY) return take_note(rt, m, true);
  sl_status status = check_ready(rt, m, bytes);
  if (status) return status;
  sli_runtime_fill_slot(rt, m->reg, m->key, m->slot, m->valid_rows);
  sli_runtime_tell_readers(rt, m, true);
  return SL_OK;
}
