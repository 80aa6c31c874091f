/* SPDX-License-Identifier: Apache-2.0 */
/* Wiring: turns plan records into run-time registers, actors, and the ports between them. */
#include "actors/run/state.h"
#include "ops/facets.h"

#include <stdlib.h>

#include <sluice/ops.h>

/* Position of a port in its map before firing n. */
static walk start_walk(const sl_runtime *rt, int32_t map, int64_t n) {
  const sl_map *m = &rt->plan->maps[map];
  uint32_t flags;
  return (walk){rt->maps[map] + n % m->period, sl_map_key(m, n, &flags)};
}

static void join_pool(reg *r, pool *p, int32_t taken, queue *q) {
  r->pool = p;
  r->counted = true;
  sli_level_join(&p->level, taken, r->kept);
  q->selective = true;
  int32_t i = 0;
  while (i < p->nqueues && p->queues[i] != q) i++;
  if (i == p->nqueues) p->queues[p->nqueues++] = q;
}

/* Makes a register take its slots from a slot pool. */
static void join_slot_pool(sl_runtime *rt, reg *r, slot_pool *b) {
  r->shared.slot_pool = b;
  r->shared.next = b->members;
  b->members = r;
  r->free = allot_own(rt, r->worker, 1, sizeof *r->free);
  r->nfree = 1;
  r->counted = true;
}

/* Creates a slot pool from a register's free slots, for all that share them. */
static slot_pool *open_slot_pool(sl_runtime *rt, reg *leader) {
  slot_pool *b = allot_own(rt, leader->worker, 1, sizeof *b);
  *b = (slot_pool){.free = leader->free, .nfree = leader->nfree};
  join_slot_pool(rt, leader, b);
  return b;
}

static void share_slots(sl_runtime *rt, reg *r, reg *leader, queue *q) {
  join_slot_pool(rt, r,
                 leader->shared.slot_pool ? leader->shared.slot_pool : open_slot_pool(rt, leader));
  q->selective = true;
}

/* Number of workers, including stand-ins for other processes. */
static int32_t all_workers(const sl_runtime *rt) {
  return rt->nworkers + (rt->away ? rt->plan->nprocesses : 0);
}

/* Allocates valid lengths for slots with rows. A link's far register is filled in its reader's
 * process. */
static void make_slot_lengths(sl_runtime *rt, reg *to, const sl_register *from) {
  if (!from->rows) return;
  size_t most = (size_t)sli_quota_most(from);
  to->contents.lengths = allot(rt, most, sizeof *to->contents.lengths);
  for (size_t s = 0; s < most; s++) to->contents.lengths[s] = from->rows;
}

/* Makes tags for the slots, with the initial contents. Registers that share slots use the leader's
 * tags. */
static void make_tags(sl_runtime *rt, reg *to, const sl_register *r) {
  if (!rt->options.check) return;
  const size_t most = (size_t)sli_quota_most(r);
  contents *c = &to->contents;
  c->named = rt->plan;
  to->counted = true;
  if (r->shares) {
    c->tags = rt->regs[r->shares - 1].contents.tags;
    return;
  }
  c->tags = allot(rt, most, sizeof *c->tags);
  int64_t first = sli_first_key(rt->plan, to->id, rt->first_step);
  for (int32_t s = 0; s < (int32_t)most; s++)
    c->tags[s] = (slot_tag){.key = first + s,
                            .reg = s < r->initial || (r->held && !s) ? to->id : SL_NONE,
                            .ready = s < r->initial,
                            .rows = -1,
                            .moved = -1,
                            .from = -1,
                            .to = -1};
  c->lags = r->initial > 0 || r->delayed;
  if (!r->aliases) return;
  contents *under = &rt->regs[r->aliases - 1].contents;
  c->owner = under->owner = allot(rt, 1, sizeof *c->owner);
  *c->owner = r->aliases - 1;
}

static void make_reg(sl_runtime *rt, int32_t i) {
  const sl_plan *plan = rt->plan;
  const sl_register *r = &plan->regs[i];
  reg *to = &rt->regs[i];
  int32_t taken = r->held ? 1 : r->initial;
  *to = (reg){.id = i,
              .stride = r->slot_stride,
              .nconsumers = r->nconsumers,
              .quota = r->quota,
              .activation = r->activation,
              .counted = r->activation > 0,
              .kept = sli_register_kept(r),
              .device = &rt->devices[r->device]};
  queue *q = r->producer == SL_NONE ? NULL : &rt->queues[plan->actors[r->producer].queue];
  to->worker = q ? q->worker : NULL;
  size_t most = (size_t)sli_quota_most(r);
  to->resize.made = rt->quotas[i] = r->quota;
  to->resize.retired = allot_own(rt, to->worker, most, sizeof *to->resize.retired);
  to->free = allot_own(rt, to->worker, most, sizeof *to->free);
  to->pending = allot_own(rt, to->worker, most, sizeof *to->pending);
  to->consumers = allot(rt, (size_t)r->nconsumers, sizeof(in_port *));
  to->far = allot(rt, (size_t)SLI_MIN(r->nconsumers, all_workers(rt)), sizeof *to->far);
  /* Slot 0 is on top of the stack: initial slots and the held slot are the first. */
  for (int32_t s = r->quota - 1; s >= taken; s--) to->free[to->nfree++] = s;
  to->least_free = (int32_t)to->nfree;
  to->newest = SLI_MAX(r->initial - 1, 0);
  make_slot_lengths(rt, to, r);
  make_tags(rt, to, r);
  if (q && r->pool != SL_NONE) join_pool(to, &rt->pools[r->pool], taken, q);
  if (q && r->shares) share_slots(rt, to, &rt->regs[r->shares - 1], q);
}

static void make_input(sl_runtime *rt, actor *a, int32_t at, const sl_port *from) {
  const sl_plan *plan = rt->plan;
  uint32_t size = sli_ready_size(plan, from->reg, &plan->maps[from->map]);
  int32_t producer = plan->regs[from->reg].producer;
  bool same = producer != SL_NONE && plan->actors[producer].queue == a->queue->id;
  size_t bytes = size * sizeof(int32_t);
  if (a->queue->ops->wait) bytes += (size + 1) * sizeof(uint64_t);
  a->in[at] = (in_port){.at = start_walk(rt, from->map, a->fired),
                        .actor = a,
                        .reg = &rt->regs[from->reg],
                        .early = same && !a->queue->ops->overlaps,
                        .mask = size - 1,
                        .cause = SL_WAIT_INPUT | from->reg << 3,
                        .ready = allot_own(rt, a->queue->worker, 1, bytes)};
  /* The table holds initial slots only from the port's first key on. */
  int64_t first = sli_first_key(plan, from->reg, rt->first_step);
  for (int64_t key = sli_map_first(&plan->maps[from->map], a->fired);
       key < first + plan->regs[from->reg].initial; key++) {
    int32_t slot = (int32_t)(key - first);
    a->in[at].ready[key & a->in[at].mask] = slot + 1;
    rt->regs[from->reg].pending[slot]++;
  }
}

static void make_output(sl_runtime *rt, actor *a, int32_t at, const sl_port *from) {
  a->out[at] = (out_port){.at = start_walk(rt, from->map, a->fired),
                          .actor = a,
                          .reg = &rt->regs[from->reg],
                          .cause = SL_WAIT_CREDIT | from->reg << 3,
                          .slot = rt->plan->regs[from->reg].held ? 0 : -1};
  rt->regs[from->reg].producer = &a->out[at];
  a->borrows |= rt->regs[from->reg].shared.slot_pool != NULL;
}

static uint64_t order_base(const sl_queue *q, const sl_actor *a) {
  return (uint64_t)(a->urgent ? 0 : q->class_order[a->cls]) << 56 |
         (uint64_t)(a->rank + (INT64_C(1) << 40));
}

/* Marks a link's output, whose slots are in another process. */
static void make_link(sl_runtime *rt, actor *a) {
  if (!a->queue->ops->link) return;
  reg *far = a->out->reg;
  far->carried = rt->options.peers != NULL;
  a->binds = true;
  a->bound.move = allot_own(rt, a->queue->worker, 1, sizeof *a->bound.move);
  a->bound.move->reg = far->id;
  a->bound.move->to = a->plan->nin;
  a->bound.move->bytes = rt->options.no_data ? 0 : rt->plan->regs[far->id].slot_bytes;
}

/* Number of steps that the trace holds records of, if one worker fires everything. */
static size_t steps_recorded(const sl_runtime *rt) {
  size_t firings = 1;
  if (rt->threads || !rt->options.trace_records) return SLI_NOTES;
  for (int32_t i = 0; i < rt->plan->nactors; i++) {
    const sl_actor *a = &rt->plan->actors[i];
    firings += sli_every(a) == 1 ? (size_t)a->firings_per_step : 0;
  }
  return rt->options.trace_records / firings + 2;
}

/* Allocates pointers to valid lengths, and notes for as many firings as there are records. */
static void make_lengths(sl_runtime *rt, actor *a, size_t steps) {
  size_t notes = 1;
  const sl_actor *from = a->plan;
  worker *w = a->queue->worker;
  bool any = false;
  for (int32_t p = 0; p < from->nin; p++) any |= a->in[p].reg->contents.lengths != NULL;
  for (int32_t p = 0; p < from->nout; p++) any |= a->out[p].reg->contents.lengths != NULL;
  if (!any) return;
  while (notes < SLI_MIN((size_t)from->firings_per_step * steps, SLI_NOTES)) notes *= 2;
  lengths *x = a->bound.lengths = allot_own(rt, w, 1, sizeof *x);
  *x = (lengths){.now = allot_own(rt, w, (size_t)(from->nin + from->nout + 1), sizeof *x->now),
                 .notes = allot_own(rt, w, notes, sizeof *x->notes),
                 .mask = notes - 1,
                 .read = allot_own(rt, w, (size_t)from->nin, sizeof *x->read)};
  for (size_t i = 0; i < notes; i++) x->notes[i].firing = -1;
  a->binds = true;
}

/* Number of ticks after which durations repeat: each table has its own length. */
static uint32_t durations_period(const sl_actor *a) {
  int64_t seconds = SLI_MAX(a->nseconds, 1), shares = SLI_MAX(a->nshares, 1);
  return (uint32_t)(seconds / sli_common_divisor(seconds, shares) * shares);
}

/* Allocates durations that depend on the tick: those of the table, divided by the rates of
 * shares. */
static void make_durations(sl_runtime *rt, actor *a) {
  const sl_actor *from = a->plan;
  if (!from->nseconds && !from->nshares) return;
  uint32_t n = durations_period(from);
  uint64_t *durations = allot_own(rt, a->queue->worker, n, sizeof *durations);
  for (uint32_t i = 0; i < n; i++) {
    double seconds =
               from->nseconds ? from->seconds_table[i % (uint32_t)from->nseconds] : from->seconds,
           rate = from->nshares ? from->shares[i % (uint32_t)from->nshares].rate : 1;
    durations[i] = (uint64_t)(seconds / rate * 1e9 + 0.5);
  }
  a->bound.durations = durations;
  a->bound.ndurations = n;
}

/* Allocates the shares that firings on a lane ask for. */
static void make_asks(sl_runtime *rt, actor *a) {
  const sl_actor *from = a->plan;
  if (!from->nshares || !a->queue->lanes) return;
  int32_t *asks = allot_own(rt, a->queue->worker, (size_t)from->nshares, sizeof *asks);
  for (int32_t i = 0; i < from->nshares; i++)
    asks[i] = (int32_t)(from->shares[i].part * WHOLE_DEVICE + 0.01); /* down: parts add up to 1 */
  a->bound.asks = asks;
}

static void make_actor(sl_runtime *rt, int32_t i) {
  const sl_actor *from = &rt->plan->actors[i];
  actor *a = &rt->actors[i];
  worker *w = rt->queues[from->queue].worker;
  size_t nbases = (size_t)(from->nin + from->nout + 1);
  bool looks = !rt->options.no_data || rt->queues[from->queue].ops->asks;
  bool runs = looks && from->program && from->program->ncalls;
  int64_t fired = sli_firings(from, rt->first_step);
  *a = (actor){.id = i,
               .queue = &rt->queues[from->queue],
               .plan = from,
               .program = runs ? from->program : NULL,
               .binds = runs,
               .duration_ns = (uint64_t)(from->seconds * 1e9 + 0.5),
               .order_base = order_base(&rt->plan->queues[from->queue], from),
               .fired = fired,
               .done = fired,
               .every = sli_every(from),
               .step = firing_step(from, fired),
               .tick = sli_tick_ring(rt, from, fired),
               .tick_number = sl_plan_tick(rt->plan, i, fired).number,
               .in = allot_own(rt, w, (size_t)from->nin, sizeof *a->in),
               .out = allot_own(rt, w, (size_t)from->nout, sizeof *a->out),
               .bound.bases = allot_own(rt, w, nbases, sizeof *a->bound.bases),
               .bound.first = allot_own(rt, w, nbases, sizeof *a->bound.first)};
  a->in_end = a->in + from->nin;
  a->out_end = a->out + from->nout;
  for (int32_t p = 0; p < from->nin; p++) make_input(rt, a, p, &from->in[p]);
  for (int32_t p = 0; p < from->nout; p++) make_output(rt, a, p, &from->out[p]);
  make_link(rt, a);
  make_durations(rt, a);
  make_asks(rt, a);
}

/* True if an output of a W is needed before the step is over. */
static bool is_awaited(const sl_runtime *rt, const actor *w) {
  bool awaited = false;
  for (int32_t p = 0; p < w->plan->nout; p++) {
    const sl_map *map = &rt->plan->maps[w->plan->out[p].map];
    for (uint32_t i = 0, n = 0; i < map->period; i++) {
      n += map->entries[i].flags & SL_LAST ? 1 : 0;
      awaited |= n * (uint32_t)w->plan->firings_per_step > map->period;
    }
  }
  return awaited;
}

static void let_notify(actor *maker) { maker->notifies = maker->queue->selective = true; }

/* Makes every producer that may wait for a slot of the register notify its lazy readers. */
static void read_lazily(reg *r) {
  r->lazy = true;
  let_notify(r->producer->actor);
  for (reg *m = r->shared.slot_pool ? r->shared.slot_pool->members : NULL; m; m = m->shared.next)
    let_notify(m->producer->actor);
}

/* Makes a W lazy, with the B of its stage on its own queue. Such a W sums over the step; a W whose
 * output is needed in every tick is not postponed. */
static void make_lazy(sl_runtime *rt, actor *w) {
  if (w->plan->cls != SL_CLASS_W || !w->queue->plan->lazy_w || is_awaited(rt, w)) return;
  w->queue->selective = true;
  for (int32_t i = 0; i < rt->plan->nactors; i++) {
    const actor *b = &rt->actors[i];
    if (b->plan->cls == SL_CLASS_B && b->plan->stage == w->plan->stage && b->queue == w->queue)
      w->lazy.backward = b;
  }
  if (!w->lazy.backward) return;
  w->lazy.wanted = allot_own(rt, w->queue->worker, (size_t)w->plan->nin, sizeof *w->lazy.wanted);
  for (in_port *p = w->in; p < w->in_end; p++) {
    w->lazy.wanted[p - w->in] = INT64_MIN;
    if (p->reg->producer) read_lazily(p->reg);
  }
}

/* True if a slot's valid length is known only when the firing that fills it is complete. */
static bool rows_come_late(const reg *r) {
  const actor *from = r->producer ? r->producer->actor : NULL;
  return r->contents.lengths && from && from->queue->ops->wait;
}

/* True if both ends may notify each other at launch. Slots with several writers are excluded: a
 * writer does not know the others' readers. */
static bool can_fence(const in_port *p) {
  const actor *from = p->reg->producer ? p->reg->producer->actor : NULL, *to = p->actor;
  return from && !p->reg->shared.slot_pool && !rows_come_late(p->reg) && from->queue != to->queue &&
         from->binds && to->binds && from->queue->ops == to->queue->ops && to->queue->ops->wait &&
         from->queue->worker->process < 0 && to->queue->worker->process < 0;
}

static void mark_fenced(sl_runtime *rt, actor *a) {
  for (in_port *p = a->in; p < a->in_end; p++) {
    if (!(p->fenced = can_fence(p))) continue;
    reg *r = p->reg;
    size_t rows = (size_t)sli_quota_most(&rt->plan->regs[r->id]) + 1;
    if (!r->fences)
      r->fences = allot_own(rt, r->worker, rows * (size_t)r->nconsumers, sizeof *r->fences);
    a->fenced = a->queue->selective = true;
    r->producer->actor->fenced = r->producer->actor->queue->selective = true;
  }
}

/* Distance of a consumer from the producer: 0 the same queue, in order behind it; 1 another queue
 * of the same worker; 2 another worker. */
static int distance(const reg *r, const in_port *p) {
  if (p->early && !rows_come_late(r)) return 0;
  return p->actor->queue->worker == r->worker ? 1 : 2;
}

static void add_far(reg *r, in_port **at) {
  worker *to = (*at)->actor->queue->worker;
  group *last = r->nfar ? &r->far[r->nfar - 1] : NULL;
  if (!last || last->worker != to) {
    last = &r->far[r->nfar++];
    *last = (group){to, at, 0, true};
  }
  last->nports++;
  last->fenced &= (*at)->fenced;
}

/* Sorts the consumers of every register by distance, far ones by worker. */
static void link_consumers(sl_runtime *rt) {
  const sl_plan *plan = rt->plan;
  int32_t *count = sli_calloc((size_t)plan->nregs, sizeof *count);
  for (int far = 0; far < 2 + all_workers(rt); far++)
    for (int32_t i = 0; i < plan->nactors; i++)
      for (int32_t p = 0; p < plan->actors[i].nin; p++) {
        in_port *in = &rt->actors[i].in[p];
        reg *r = in->reg;
        int how = distance(r, in);
        if (how == 2) how += in->actor->queue->worker->id;
        if (how != far) continue;
        in->number = count[r->id]++;
        in_port **at = &r->consumers[in->number];
        *at = in;
        if (far >= 2) add_far(r, at);
        else r->nsame += far == 0, r->nlocal++;
      }
  free(count);
}

/* Frees initial slots that no reader takes, and finds a sole consumer. */
static void settle_reg(sl_runtime *rt, reg *r) {
  int32_t initial = r->producer && r->nconsumers && !r->pool ? rt->plan->regs[r->id].initial : 0;
  for (int32_t s = 0; s < initial; s++)
    if (!r->pending[s]) {
      r->free[r->nfree++] = s;
      if (r->contents.tags) r->contents.tags[s].reg = SL_NONE;
    }
  r->watch = r->counted ? INT32_MAX : (uint32_t)r->least_free;
  if (r->nconsumers == 1 && r->nlocal == 1 && !r->counted) r->only = r->consumers[0];
}

/* Worker that takes a message: the carrier for another process. */
static int32_t taker(const sl_runtime *rt, const worker *w) {
  return w->process < 0 ? w->id : rt->carrier->id;
}

/* Counts the most messages in each worker's mailbox. Each slot has at most one READY in flight per
 * group and one FREE per port. Messages for other processes pass through the carrier's mailbox. On
 * the virtual clock no quota changes. */
static void count_messages(const sl_runtime *rt, int32_t reg_id, uint64_t *most) {
  const reg *r = &rt->regs[reg_id];
  uint64_t slots = (uint64_t)sli_quota_most(&rt->plan->regs[reg_id]);
  bool here = r->worker->process < 0;
  for (int32_t g = 0; g < r->nfar; g++) {
    const group *far = &r->far[g];
    if (!here && far->worker->process >= 0) continue;
    most[taker(rt, far->worker)] += r->lazy ? 3 * slots : slots; /* READY, WANTED */
    most[taker(rt, r->worker)] += slots * (uint64_t)far->nports;
  }
  if (here && rt->threads) most[r->worker->id]++; /* QUOTA */
}

static void make_mailboxes(sl_runtime *rt) {
  uint64_t *most = sli_calloc((size_t)rt->nworkers, sizeof *most);
  for (int32_t i = 0; i < rt->plan->nregs; i++)
    if (rt->regs[i].worker) count_messages(rt, i, most);
  for (int32_t w = 0; w < rt->nworkers; w++) sli_mailbox_init(&rt->workers[w].mailbox, most[w]);
  free(most);
}

/* ---- data for checks ----------------------------------------------------------------------- */

/* True if an actor only passes its input on. */
static bool only_copies(const actor *a) {
  const sl_program *program = a->plan->program;
  bool all = program && program->ncalls;
  for (int k = 0; all && k < program->ncalls; k++)
    all = sli_op_is(program->calls[k].op, SL_OP_COPY);
  return all || a->bound.move;
}

/* True if several firings share a tick. */
static bool ticks_repeat(const sl_map *ticks) {
  bool twice = false;
  for (uint32_t i = 0; i < ticks->period; i++)
    for (uint32_t k = 0; k < i && !twice; k++)
      twice = ticks->entries[i].offset == ticks->entries[k].offset;
  return twice;
}

/* Marks the outputs of copies as lagging if their input lags. Returns true if any are new. */
static bool copies_lag(sl_runtime *rt) {
  bool more = false;
  for (int32_t i = 0; i < rt->plan->nactors; i++) {
    const actor *a = &rt->actors[i];
    bool lags = false;
    for (const in_port *p = a->in; p < a->in_end && a->bound.checks.copies; p++)
      lags |= p->reg->contents.lags;
    for (const out_port *p = a->out; p < a->out_end && lags; p++) {
      more |= !p->reg->contents.lags;
      p->reg->contents.lags = true;
    }
  }
  return more;
}

static void make_checks(sl_runtime *rt) {
  for (int32_t i = 0; i < rt->plan->nactors && rt->options.check; i++) {
    actor *a = &rt->actors[i];
    a->bound.checks.copies = only_copies(a);
    a->bound.checks.repeats =
        a->plan->firings_per_step == 1 || ticks_repeat(&rt->plan->maps[a->plan->ticks]);
  }
  while (rt->options.check && copies_lag(rt)) continue;
}

void sli_wire(sl_runtime *rt) {
  const sl_plan *plan = rt->plan;
  for (int32_t i = 0; i < plan->nmaps; i++) rt->maps[i] = sli_map_ring(rt, &plan->maps[i]);
  for (int32_t i = 0; i < plan->nregs; i++) make_reg(rt, i);
  for (int32_t i = 0; i < plan->nactors; i++) make_actor(rt, i);
  const size_t steps = steps_recorded(rt);
  for (int32_t i = 0; i < plan->nactors; i++) make_lengths(rt, &rt->actors[i], steps);
  for (int32_t i = 0; i < plan->nactors; i++) make_lazy(rt, &rt->actors[i]);
  for (int32_t i = 0; i < plan->nactors; i++) mark_fenced(rt, &rt->actors[i]);
  link_consumers(rt);
  make_checks(rt);
  for (int32_t i = 0; i < plan->nregs; i++) settle_reg(rt, &rt->regs[i]);
  make_mailboxes(rt);
}
