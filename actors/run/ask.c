/* SPDX-License-Identifier: Apache-2.0 */
/* Queries of a runtime: reading its state from outside its workers. */
#include "actors/run/run.h"
#include "actors/run/poison.h"

#include <stdlib.h>
#include <string.h>

/* ---- the plan and its progress ----------------------------------------------------- */

const sl_plan *sli_runtime_plan(const sl_runtime *rt) { return rt->plan; }
int sli_runtime_process(const sl_runtime *rt) { return rt->options.process; }
bool sli_runtime_has_data(const sl_runtime *rt) { return !rt->options.no_data; }

bool sli_runtime_has_device(const sl_runtime *rt, int32_t device) { return !is_away(rt, device); }

bool sli_runtime_has_queue(const sl_runtime *rt, int32_t queue) {
  return rt->queues[queue].worker->process < 0;
}

bool sli_runtime_has_actor(const sl_runtime *rt, int32_t actor) {
  return sli_runtime_has_queue(rt, rt->actors[actor].queue->id);
}

bool sli_runtime_has_register(const sl_runtime *rt, int32_t reg) {
  const worker *w = rt->regs[reg].worker;
  return w && w->process < 0;
}

int64_t sli_runtime_first_step(const sl_runtime *rt) { return rt->first_step; }
int64_t sl_runtime_steps(const sl_runtime *rt) { return rt->steps; }

int64_t sli_runtime_done(const sl_runtime *rt, int32_t actor) {
  return atomic_load_explicit(&rt->actors[actor].done, memory_order_relaxed);
}

uint64_t sl_runtime_fired(const sl_runtime *rt) {
  uint64_t sum = 0;
  for (int32_t i = 0; i < rt->nworkers; i++) sum += worker_fired(&rt->workers[i]);
  return sum;
}

uint64_t sli_runtime_now_ns(const sl_runtime *rt) { return sli_clock_now(&rt->clock); }
uint64_t sli_runtime_base_ns(const sl_runtime *rt) { return rt->clock.base_ns; }

uint64_t sli_runtime_began_ns(const sl_runtime *rt) {
  uint64_t first = atomic_load(&rt->first_firing_ns);
  return first > rt->clock.base_ns ? first - rt->clock.base_ns : 0;
}

sli_queue_state sli_runtime_queue(const sl_runtime *rt, int32_t id) {
  const queue *q = &rt->queues[id];
  const worker *w = q->worker;
  return (sli_queue_state){
      .worker = w->id,
      .flying = atomic_load_explicit(&q->flying, memory_order_relaxed),
      .flying_ns = atomic_load_explicit(&q->flying_ns, memory_order_relaxed),
      .current = atomic_load_explicit(&w->progress.current, memory_order_relaxed),
      .woke_ns = atomic_load_explicit(&w->progress.woke_ns, memory_order_relaxed)};
}

/* ---- trace records -------------------------------------------------------------------- */

int32_t sli_runtime_workers(const sl_runtime *rt) { return rt->nworkers; }

sli_ring sli_runtime_ring(const sl_runtime *rt, int32_t i) {
  const worker *w = &rt->workers[i];
  return (sli_ring){w->ring.records, w->ring.mask,
                    atomic_load_explicit(&w->progress.fired, memory_order_acquire)};
}

int32_t sli_runtime_device_worker(const sl_runtime *rt, int32_t device) {
  const worker *w = rt->devices[device].worker;
  return w ? w->id : SL_NONE;
}

double sl_runtime_peak_activations(const sl_runtime *rt, int32_t device) {
  return rt->devices[device].peak;
}

int32_t sl_runtime_peak_slots(const sl_runtime *rt, int32_t r) {
  return rt->regs[r].quota - rt->regs[r].least_free;
}

static void count_workers(const sl_runtime *rt, sl_runtime_counts *c) {
  for (int32_t i = 0; i < rt->nworkers; i++) {
    c->firings += worker_fired(&rt->workers[i]);
    c->messages += rt->workers[i].messages;
    c->wakes += rt->workers[i].wakes;
    c->ran_ns += rt->workers[i].ran_ns;
    c->coreless_ns += rt->workers[i].coreless_ns;
  }
}

static void count_moved(const sl_runtime *rt, sl_runtime_counts *c) {
  sli_flow *flow = sli_flow_create(rt->plan);
  for (int32_t i = 0; i < rt->plan->nactors; i++) {
    const sl_actor *a = &rt->plan->actors[i];
    const lengths *read = rt->actors[i].bound.lengths;
    int64_t fired = sli_runtime_done(rt, i) - sli_firings(a, rt->first_step);
    sli_plan_add_moved(flow, rt->plan, i, (uint64_t)(fired / a->firings_per_step),
                       read ? (const _Atomic uint64_t *)read->read : NULL, c->moved_bytes);
  }
  sli_flow_destroy(flow);
}

static void count_remote(const sli_remote *r, sl_runtime_counts *c) {
  c->replayed += r->counts.replayed;
  c->firings += r->counts.firings;
  c->messages += r->counts.messages;
  c->wakes += r->counts.wakes;
  for (int t = 0; t < SL_TRAFFIC_COUNT; t++) c->moved_bytes[t] += r->counts.moved_bytes[t];
  c->sent_bytes += r->counts.sent_bytes;
  c->ran_ns += r->counts.ran_ns;
  c->coreless_ns += r->counts.coreless_ns;
}

uint64_t sl_runtime_replayed(const sl_runtime *rt) {
  uint64_t count = 0;
  for (int32_t i = 0; i < rt->plan->nqueues; i++) {
    const queue *q = &rt->queues[i];
    if (q->impl && q->ops->replayed) count += q->ops->replayed(q->impl);
  }
  return count;
}

sl_runtime_counts sl_runtime_count(const sl_runtime *rt) {
  sl_runtime_counts c = {.first_firing_ns = atomic_load(&rt->first_firing_ns)};
  const sl_peers *peers = rt->options.peers;
  if (peers && peers->sent) c.sent_bytes = peers->sent(peers->ctx);
  count_moved(rt, &c);
  count_workers(rt, &c);
  c.replayed = sl_runtime_replayed(rt);
  for (const sli_remote *r = rt->remotes; r; r = r->next) count_remote(r, &c);
  return c;
}

uint64_t sl_runtime_now(const sl_runtime *rt) {
  return rt->threads ? sli_clock_now(&rt->clock) : rt->workers[0].now_ns;
}

int32_t sl_runtime_quota(const sl_runtime *rt, int32_t reg_id) { return rt->quotas[reg_id]; }

int32_t sl_runtime_slots(const sl_runtime *rt, int32_t reg_id) {
  return atomic_load_explicit(&rt->regs[reg_id].quota, memory_order_relaxed);
}

/* ---- other processes --------------------------------------------------------------------- */

bool sli_runtime_is_carried(const sl_runtime *rt, int32_t reg) { return rt->regs[reg].carried; }
bool sli_runtime_is_lazy(const sl_runtime *rt, int32_t reg) { return rt->regs[reg].lazy; }

bool sli_runtime_takes_free(const sl_runtime *rt, int32_t reg) {
  return sli_runtime_has_register(rt, reg) && rt->regs[reg].nfar;
}

/* The slot may be written: its last readers have told another process, through the carrier, that it
 * is free, and the arrival of data shows that the message was received. Their use of the slot is
 * over. */
void *sli_runtime_granted_slot(const sl_runtime *rt, int32_t reg, int32_t slot) {
  return slot_address(&rt->regs[reg], slot);
}

void sli_runtime_fill_slot(sl_runtime *rt, int32_t r, int64_t key, int32_t slot,
                           int32_t valid_rows) {
  const reg *to = &rt->regs[r];
  const contents *c = &to->contents;
  if (c->tags)
    c->tags[slot] = (slot_tag){.key = key,
                               .reg = r,
                               .ready = true,
                               .rows = c->lengths ? valid_rows : -1,
                               .moved = -1,
                               .from = -1,
                               .to = -1};
  if (!c->lengths) return;
  c->lengths[slot] = valid_rows;
  size_t valid = (size_t)valid_rows * sl_row_bytes(&rt->plan->regs[r]);
  if (c->blank) poison((char *)slot_address(to, slot) + valid, c->blank - valid);
}

static row_note *note_of(const sl_runtime *rt, int32_t actor, int64_t firing) {
  const lengths *x = rt->actors[actor].bound.lengths;
  return x ? &x->notes[(uint64_t)firing & x->mask] : NULL;
}

int32_t sli_runtime_rows(const sl_runtime *rt, int32_t actor, int64_t firing) {
  const row_note *note = note_of(rt, actor, firing);
  return note && note->firing == firing ? note->rows : SL_NONE;
}

void sli_runtime_note_rows(sl_runtime *rt, int32_t actor, int64_t firing, int32_t rows) {
  row_note *note = note_of(rt, actor, firing);
  if (note && rows >= 0 && firing > note->firing) *note = (row_note){firing, rows};
}

const sli_remote *sli_runtime_remotes(const sl_runtime *rt) { return rt->remotes; }

sli_remote *sli_runtime_remote(sl_runtime *rt, int32_t process) {
  sli_remote *r = rt->remotes;
  while (r && r->process != process) r = r->next;
  if (r) return r;
  r = sli_calloc(1, sizeof *r);
  *r = (sli_remote){.next = rt->remotes, .process = process};
  return rt->remotes = r;
}

void sli_remotes_free(sl_runtime *rt) {
  while (rt->remotes) {
    sli_remote *r = rt->remotes;
    rt->remotes = r->next;
    free(r->records);
    free(r);
  }
}

void sli_runtime_set_peaks(sl_runtime *rt, int process, const double *activations,
                           const int32_t *slots) {
  for (int32_t d = 0; d < rt->plan->ndevices; d++)
    if (rt->plan->devices[d].process == process) rt->devices[d].peak = activations[d];
  for (int32_t r = 0; r < rt->plan->nregs; r++) {
    const worker *w = rt->regs[r].worker;
    if (w && w->process == process) rt->regs[r].least_free = rt->regs[r].quota - slots[r];
  }
}
