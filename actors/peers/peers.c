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

/* ---- what others did -------------------------------------------------------------- */

/* The bytes of an export: this, then peaks by device, peaks by register, records. */
typedef struct tale {
  uint64_t plan_hash, base_ns; /* base: when its clock was 0, of CLOCK_MONOTONIC */
  int64_t first_whole;
  uint64_t dropped, nrecords;
  int32_t process, ndevices, nregs;
  sl_runtime_counts counts;
} tale;

static size_t tale_bytes(const tale *t) {
  return sizeof *t + (size_t)t->ndevices * sizeof(double) +
         (sli_align((size_t)t->nregs * sizeof(int32_t))) + t->nrecords * sizeof(sl_trace_record);
}

size_t sl_runtime_export(const sl_runtime *rt, void **out) {
  const sl_plan *plan = rt->plan;
  sl_trace_record *records;
  tale t = {.plan_hash = plan->hash, .base_ns = rt->clock.base_ns,
            .first_whole = sli_first_whole_step(rt), .process = rt->options.process,
            .ndevices = plan->ndevices, .nregs = plan->nregs, .counts = sl_runtime_count(rt)};
  t.nrecords = sli_runtime_records(rt, &records, &t.dropped);
  size_t size = tale_bytes(&t);
  char *bytes = sli_calloc(1, size);
  double *peaks = (double *)(bytes + sizeof t);
  int32_t *slots = (int32_t *)(peaks + t.ndevices);
  memcpy(bytes, &t, sizeof t);
  for (int32_t d = 0; d < t.ndevices; d++) peaks[d] = rt->devices[d].peak;
  for (int32_t r = 0; r < t.nregs; r++) slots[r] = sl_runtime_peak_slots(rt, r);
  memcpy(bytes + size - t.nrecords * sizeof *records, records, t.nrecords * sizeof *records);
  free(records);
  *out = bytes;
  return size;
}

/* Records are in this process's time from here on; what was before its start is at it. */
static void keep_records(sl_runtime *rt, const tale *t, const char *records, int64_t ahead_ns) {
  visitor *v = sli_calloc(1, sizeof *v);
  *v = (visitor){.next = rt->visitors, .first_whole = t->first_whole, .dropped = t->dropped,
                 .counts = t->counts, .nrecords = t->nrecords,
                 .records = sli_calloc(t->nrecords, sizeof *v->records)};
  memcpy(v->records, records, t->nrecords * sizeof *v->records);
  int64_t shift = (int64_t)(t->base_ns - rt->clock.base_ns) - ahead_ns;
  for (size_t i = 0; i < v->nrecords; i++) {
    sl_trace_record *r = &v->records[i];
    r->start_ns = (uint64_t)SLI_MAX((int64_t)r->start_ns + shift, 0);
    r->end_ns = (uint64_t)SLI_MAX((int64_t)r->end_ns + shift, 0);
  }
  rt->visitors = v;
}

static bool is_record(const sl_plan *plan, const char *bytes) {
  sl_trace_record r;
  memcpy(&r, bytes, sizeof r);
  return r.actor >= 0 && r.actor < plan->nactors && r.reg < (uint32_t)plan->nregs &&
         r.end_ns >= r.start_ns;
}

sl_status sl_runtime_import(sl_runtime *rt, const void *bytes, size_t size, int64_t ahead_ns) {
  const sl_plan *plan = rt->plan;
  tale t;
  if (size < sizeof t) return sl_fail(SL_E_INPUT, "a process's figures are cut off");
  memcpy(&t, bytes, sizeof t);
  if (t.plan_hash != plan->hash || t.ndevices != plan->ndevices || t.nregs != plan->nregs ||
      t.nrecords > size / sizeof(sl_trace_record) || tale_bytes(&t) != size)
    return sl_fail(SL_E_INPUT, "figures of process %d are not of this plan", t.process);
  const char *records = (const char *)bytes + size - t.nrecords * sizeof(sl_trace_record);
  for (size_t i = 0; i < t.nrecords; i++)
    if (!is_record(plan, records + i * sizeof(sl_trace_record)))
      return sl_fail(SL_E_INPUT, "record %zu of process %d is of no actor", i, t.process);
  const double *peaks = (const double *)((const char *)bytes + sizeof t);
  const int32_t *slots = (const int32_t *)(peaks + t.ndevices);
  for (int32_t d = 0; d < t.ndevices; d++)
    if (plan->devices[d].process == t.process) rt->devices[d].peak = peaks[d];
  for (int32_t r = 0; r < t.nregs; r++) {
    const worker *w = rt->regs[r].worker;
    if (w && w->process == t.process) rt->regs[r].least_free = rt->regs[r].quota - slots[r];
  }
  keep_records(rt, &t, records, ahead_ns);
  return SL_OK;
}

void sli_visitors_free(sl_runtime *rt) {
  while (rt->visitors) {
    visitor *v = rt->visitors;
    rt->visitors = v->next;
    free(v->records);
    free(v);
  }
}

/* ---- links ---------------------------------------------------------------------- */

/* One way to one process. Sends complete in any order, but are asked about in
 * theirs. */
typedef struct link_queue {
  const sl_peers *peers;
  sl_status (*copy)(void *to, const void *from, size_t bytes);
  int process;
  uint32_t carried; /* messages so far */
} link_queue;

static sl_status link_open(const sl_queue_config *config, void **queue) {
  link_queue *q = sli_calloc(1, sizeof *q);
  *q = (link_queue){config->peers, config->copy, config->process, 0};
  *queue = q;
  return SL_OK;
}

static void link_close(void *queue) { free(queue); }

static bool link_launch(void *queue, const sl_program *program, const sl_firing *firing,
                        uint64_t now_ns, uint64_t duration_ns, uint64_t *fence) {
  (void)program, (void)now_ns, (void)duration_ns;
  link_queue *q = queue;
  const sl_move *move = firing->move;
  if (!q->peers) { /* all are one process's */
    void *const *ends = firing->bases;
    SLI_CHECK(!move->bytes || !q->copy(ends[move->to], ends[0], move->bytes), "a link broke: %s",
              sl_detail());
    return true;
  }
  sli_message m = {.key = move->key, .reg = move->reg, .slot = move->slot, .kind = SLI_READY,
                   .fence = ++q->carried};
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
