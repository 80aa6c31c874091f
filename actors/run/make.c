/* Making a runtime out of a plan, and running it. */
#include "actors/look/look.h"
#include "actors/run/state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Memory that any worker may read. Arrays of things that belong to different
 * workers: each starts on a cache line. */
static void *allot(sl_runtime *rt, size_t count, size_t size) {
  return sli_arena_alloc(&rt->memory, SLI_MAX(count, (size_t)1) * size);
}

static void *allot_lines(sl_runtime *rt, size_t count, size_t size) {
  return (void *)sli_align((size_t)allot(rt, 1, count * size + SLI_CACHE_LINE));
}

/* Memory of one worker. NULL: of nobody, as nothing is ever written there. */
static void *allot_own(sl_runtime *rt, worker *w, size_t count, size_t size) {
  return w ? sli_arena_alloc(&w->memory, SLI_MAX(count, (size_t)1) * size) : allot(rt, count, size);
}

/* ---- from plan records to run-time state ------------------------------------- */

/* A map as a ring of steps. */
static step *make_map(sl_runtime *rt, const sl_map *map) {
  step *ring = allot(rt, map->period, sizeof *ring);
  for (uint32_t i = 0; i < map->period; i++) {
    bool wraps = i + 1 == map->period;
    const sl_map_entry *from = &map->entries[i], *to = &map->entries[wraps ? 0 : i + 1];
    ring[i] = (step){.delta = to->offset - from->offset + (wraps ? map->stride : 0),
                     .next = &ring[wraps ? 0 : i + 1], .flags = from->flags};
  }
  return ring;
}

typedef struct tick_ring {
  struct tick_ring *next;
  const sl_actor *of; /* the first that has it */
  int64_t count;
  tick_step ring[];
} tick_ring;

/* The step of an actor's firing. */
static int64_t firing_step(const sl_actor *a, int64_t n) {
  return (n / a->firings_per_step + 1) * sli_every(a) - 1;
}

/* Groups of ticks change an actor's rank from tick to tick. */
static bool is_grouped(const sl_actor *a) { return a->rank_group != 0; }

static bool have_the_same_ticks(const sl_actor *a, const sl_actor *b) {
  return a->ticks == b->ticks && a->firings_per_step == b->firings_per_step &&
         sli_every(a) == sli_every(b) && is_grouped(a) == is_grouped(b);
}

/* The ticks of an actor's map, as a ring that is whole both in periods of the
 * map and in steps. */
static const tick_ring *make_ticks(sl_runtime *rt, const sl_actor *a) {
  for (const tick_ring *t = rt->ticks; t; t = t->next)
    if (have_the_same_ticks(t->of, a)) return t;
  const sl_plan *plan = rt->plan;
  const sl_map *m = &plan->maps[a->ticks];
  int64_t firings = a->firings_per_step, count = firings;
  int64_t per_step = (int64_t)plan->microbatches * plan->pieces;
  while (count % m->period || count / m->period * m->stride % per_step) count += firings;
  tick_ring *t = allot(rt, 1, sizeof *t + (size_t)count * sizeof *t->ring);
  *t = (tick_ring){.next = rt->ticks, .of = a, .count = count};
  for (int64_t i = 0; i < count; i++) {
    uint32_t flags;
    sl_tick tick = sli_tick(plan, sl_map_key(m, i, &flags));
    t->ring[i] = (tick_step){.delta = sl_map_key(m, i + 1, &flags) - tick.number,
                             .microbatch = tick.microbatch, .piece = tick.piece,
                             .ahead = (int32_t)(tick.step - firing_step(a, i)),
                             .next = &t->ring[i + 1 < count ? i + 1 : 0],
                             .last = (i + 1) % firings == 0,
                             .turns = is_grouped(a) || (i + 1) % firings == 0};
  }
  rt->ticks = t;
  return t;
}

/* Where a port stands in its map before firing n. */
static walk start_walk(const sl_runtime *rt, int32_t map, int64_t n) {
  const sl_map *m = &rt->plan->maps[map];
  uint32_t flags;
  return (walk){rt->maps[map] + n % m->period, sl_map_key(m, n, &flags)};
}

static void join_pool(reg *r, pool *p, int32_t taken, queue *q) {
  r->pool = p;
  r->counted = true;
  p->used += taken;
  p->kept += r->kept - taken;
  q->selective = true;
  int32_t i = 0;
  while (i < p->nqueues && p->queues[i] != q) i++;
  if (i == p->nqueues) p->queues[p->nqueues++] = q;
}

/* Into the ring of those that have the same slots. */
static void join_ring(sl_runtime *rt, reg *r, int32_t leader) {
  reg *first = &rt->regs[leader];
  if (!first->ring) first->ring = first;
  r->ring = first->ring;
  first->ring = r;
  r->counted = first->counted = true;
}

static void make_reg(sl_runtime *rt, int32_t i) {
  const sl_plan *plan = rt->plan;
  const sl_register *r = &plan->regs[i];
  reg *to = &rt->regs[i];
  int32_t taken = r->held ? 1 : r->initial;
  *to = (reg){.id = i, .stride = r->slot_stride, .nconsumers = r->nconsumers, .quota = r->quota,
              .activation = r->activation, .counted = r->activation > 0,
              .kept = sli_register_kept(r), .device = &rt->devices[r->device]};
  queue *q = r->producer == SL_NONE ? NULL : &rt->queues[plan->actors[r->producer].queue];
  to->worker = q ? q->worker : NULL;
  size_t most = (size_t)sli_quota_most(r);
  to->made = rt->quotas[i] = r->quota;
  to->retired = allot_own(rt, to->worker, most, sizeof *to->retired);
  to->free = allot_own(rt, to->worker, most, sizeof *to->free);
  to->pending = allot_own(rt, to->worker, most, sizeof *to->pending);
  to->consumers = allot(rt, (size_t)r->nconsumers, sizeof(in_port *));
  to->far = allot(rt, (size_t)SLI_MIN(r->nconsumers, rt->nworkers), sizeof *to->far);
  /* Slot 0 is on top of the stack: initial slots and the held slot are the first. */
  for (int32_t s = r->quota - 1; s >= taken; s--) to->free[to->nfree++] = s;
  to->least_free = (int32_t)to->nfree;
  to->newest = SLI_MAX(r->initial - 1, 0);
  if (q && r->pool != SL_NONE) join_pool(to, &rt->pools[r->pool], taken, q);
  if (q && r->shares) join_ring(rt, to, r->shares - 1);
}

static void make_input(sl_runtime *rt, actor *a, int32_t at, const sl_port *from) {
  const sl_plan *plan = rt->plan;
  uint32_t size = sli_ready_size(plan, from->reg, &plan->maps[from->map]);
  int32_t producer = plan->regs[from->reg].producer;
  bool same = producer != SL_NONE && plan->actors[producer].queue == a->queue->id;
  size_t bytes = size * sizeof(int32_t);
  if (a->queue->ops->wait) bytes += (size + 1) * sizeof(uint64_t);
  a->in[at] = (in_port){.at = start_walk(rt, from->map, a->fired), .actor = a,
                        .reg = &rt->regs[from->reg],
                        .early = same && !a->queue->ops->overlaps, .mask = size - 1,
                        .cause = SL_WAIT_INPUT | from->reg << 3,
                        .ready = allot_own(rt, a->queue->worker, 1, bytes)};
  /* It is not asked about initial slots before its first key. */
  int64_t first = sli_first_key(plan, from->reg, rt->first_step);
  for (int64_t key = sli_map_first(&plan->maps[from->map], a->fired);
       key < first + plan->regs[from->reg].initial; key++) {
    int32_t slot = (int32_t)(key - first);
    a->in[at].ready[key & a->in[at].mask] = slot + 1;
    rt->regs[from->reg].pending[slot]++;
  }
}

static void make_output(sl_runtime *rt, actor *a, int32_t at, const sl_port *from) {
  a->out[at] = (out_port){.at = start_walk(rt, from->map, a->fired), .actor = a,
                          .reg = &rt->regs[from->reg],
                          .cause = SL_WAIT_CREDIT | from->reg << 3,
                          .slot = rt->plan->regs[from->reg].held ? 0 : -1};
  rt->regs[from->reg].producer = &a->out[at];
}

static uint64_t order_base(const sl_queue *q, const sl_actor *a) {
  return (uint64_t)q->class_order[a->cls] << 56 | (uint64_t)(a->rank + (INT64_C(1) << 40));
}

/* What a link carries goes to slots that lie in another process. */
static void make_link(sl_runtime *rt, actor *a) {
  if (a->queue->ops != &sl_queue_link) return;
  reg *far = a->out->reg;
  far->carried = rt->options.peers != NULL;
  a->binds = true;
  a->move = allot_own(rt, a->queue->worker, 1, sizeof *a->move);
  a->move->reg = far->id;
  a->move->to = a->plan->nin;
  a->move->bytes = rt->options.no_data ? 0 : rt->plan->regs[far->id].slot_bytes;
}

static void make_actor(sl_runtime *rt, int32_t i) {
  const sl_actor *from = &rt->plan->actors[i];
  actor *a = &rt->actors[i];
  worker *w = rt->queues[from->queue].worker;
  size_t nbases = (size_t)(from->nin + from->nout + 1);
  bool runs = !rt->options.no_data && from->program && from->program->ncalls;
  const tick_ring *ticks = make_ticks(rt, from);
  int64_t fired = sli_firings(from, rt->first_step);
  *a = (actor){.id = i, .queue = &rt->queues[from->queue], .plan = from,
               .program = runs ? from->program : NULL, .binds = runs,
               .duration_ns = (uint64_t)(from->seconds * 1e9 + 0.5),
               .order_base = order_base(&rt->plan->queues[from->queue], from),
               .fired = fired, .done = fired, .every = sli_every(from), .step = firing_step(from, fired),
               .tick = &ticks->ring[fired % ticks->count],
               .tick_number = sl_plan_tick(rt->plan, i, fired).number,
               .in = allot_own(rt, w, (size_t)from->nin, sizeof *a->in),
               .out = allot_own(rt, w, (size_t)from->nout, sizeof *a->out),
               .bases = allot_own(rt, w, nbases, sizeof *a->bases),
               .first = allot_own(rt, w, nbases, sizeof *a->first)};
  a->in_end = a->in + from->nin;
  a->out_end = a->out + from->nout;
  for (int32_t p = 0; p < from->nin; p++) make_input(rt, a, p, &from->in[p]);
  for (int32_t p = 0; p < from->nout; p++) make_output(rt, a, p, &from->out[p]);
  make_link(rt, a);
}

/* Does somebody wait for what it makes before the step is over? */
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

/* A lazy W looks at the B of its stage, on its own queue. It sums over the step: what others
 * wait for in every tick is not put off. */
static void make_lazy(sl_runtime *rt, actor *w) {
  if (w->plan->cls != SL_CLASS_W || !w->queue->plan->lazy_w || is_awaited(rt, w)) return;
  w->queue->selective = true;
  for (int32_t i = 0; i < rt->plan->nactors; i++) {
    const actor *b = &rt->actors[i];
    if (b->plan->cls == SL_CLASS_B && b->plan->stage == w->plan->stage && b->queue == w->queue)
      w->backward = b;
  }
  if (!w->backward) return;
  w->wanted = allot_own(rt, w->queue->worker, (size_t)w->plan->nin, sizeof *w->wanted);
  for (in_port *p = w->in; p < w->in_end; p++) {
    w->wanted[p - w->in] = INT64_MIN;
    if (!p->reg->producer) continue;
    actor *maker = p->reg->producer->actor;
    p->reg->lazy = maker->hurries = maker->queue->selective = true;
  }
}

/* May the two ends tell each other at launch? Not where others write the slots too: they do
 * not know who read them. */
static bool can_wait(const in_port *p) {
  const actor *from = p->reg->producer ? p->reg->producer->actor : NULL, *to = p->actor;
  return from && !p->reg->ring && from->queue != to->queue && from->binds && to->binds &&
         from->queue->ops == to->queue->ops && to->queue->ops->wait &&
         from->queue->worker->process < 0 && to->queue->worker->process < 0;
}

static void mark_waiting(sl_runtime *rt, actor *a) {
  for (in_port *p = a->in; p < a->in_end; p++) {
    if (!(p->waits = can_wait(p))) continue;
    reg *r = p->reg;
    size_t rows = (size_t)sli_quota_most(&rt->plan->regs[r->id]) + 1;
    if (!r->fences)
      r->fences = allot_own(rt, r->worker, rows * (size_t)r->nconsumers, sizeof *r->fences);
    a->waits = a->queue->selective = true;
    r->producer->actor->waits = r->producer->actor->queue->selective = true;
  }
}

/* How far a consumer is from the producer: 0 the same queue, in order behind
 * it; 1 another one of the same worker; 2 another worker. */
static int distance(const reg *r, const in_port *p) {
  if (p->early) return 0;
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
  last->waits &= (*at)->waits;
}

/* Sorts the consumers of every register by distance, far ones by worker. */
static void link_consumers(sl_runtime *rt) {
  const sl_plan *plan = rt->plan;
  int32_t *count = sli_calloc((size_t)plan->nregs, sizeof *count);
  int most = 2 + rt->nworkers + (rt->away ? plan->nprocesses : 0);
  for (int far = 0; far < most; far++)
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

/* Initial slots that every reader leaves out are free; and is one consumer alone? */
static void settle_reg(sl_runtime *rt, reg *r) {
  int32_t initial = r->producer && r->nconsumers && !r->pool ? rt->plan->regs[r->id].initial : 0;
  for (int32_t s = 0; s < initial; s++)
    if (!r->pending[s]) r->free[r->nfree++] = s;
  r->watch = r->counted ? INT32_MAX : (uint32_t)r->least_free;
  if (r->nconsumers == 1 && r->nlocal == 1 && !r->counted) r->only = r->consumers[0];
}

/* Messages a firing on this queue may leave to its completion. */
static int32_t most_notices(const sl_runtime *rt, int32_t q) {
  int32_t most = 1;
  for (int32_t i = 0; i < rt->plan->nactors; i++) {
    const sl_actor *a = &rt->plan->actors[i];
    if (a->queue != q) continue;
    most = SLI_MAX(most, a->nin + a->nout);
  }
  return most;
}

/* The worker of a queue: its device's, one of its own, the carrier for what links
 * carry, or what stands for the process that it belongs to. */
static worker *place_queue(sl_runtime *rt, const sl_queue *q, const int32_t *home) {
  device *d = &rt->devices[q->device];
  if (is_away(rt, q->device)) return &rt->away[rt->plan->devices[q->device].process];
  if (rt->carrier && q->ops == &sl_queue_link) return rt->carrier;
  if (q->apart && rt->threads) return &rt->workers[rt->nworkers++];
  return d->worker = &rt->workers[home[q->device]];
}

static void make_queue(sl_runtime *rt, int32_t i, const int32_t *home) {
  const sl_queue *from = &rt->plan->queues[i];
  queue *q = &rt->queues[i];
  q->id = i;
  q->flying = SL_NONE;
  q->ops = from->ops;
  q->launch = from->ops->launch;
  q->plan = from;
  q->look_ahead_ns = (uint64_t)(from->look_ahead * 1e9 + 0.5);
  q->selective = from->order || q->look_ahead_ns;
  q->device = &rt->devices[from->device];
  q->run_ahead = SLI_MAX(from->run_ahead, 1);
  q->worker = place_queue(rt, from, home);
  q->worker->nqueues++;
  q->flights = allot_own(rt, q->worker, (size_t)q->run_ahead, sizeof *q->flights);
}

static void make_flights(sl_runtime *rt, int32_t i, int32_t notices) {
  queue *q = &rt->queues[i];
  for (int32_t f = 0; f < q->run_ahead; f++)
    q->flights[f].notices = allot_own(rt, q->worker, (size_t)notices, sizeof(notice));
}

/* Each slot has at most one READY under way per group and one FREE per port. The
 * mailboxes of other processes are theirs. */
static void make_mailboxes(sl_runtime *rt) {
  uint64_t *most = sli_calloc((size_t)rt->nworkers, sizeof *most);
  for (int32_t i = 0; i < rt->plan->nregs; i++) {
    const reg *r = &rt->regs[i];
    if (!r->worker) continue;
    bool here = r->worker->process < 0;
    for (int32_t g = 0; g < r->nfar; g++) {
      const group *far = &r->far[g];
      uint64_t slots = (uint64_t)sli_quota_most(&rt->plan->regs[i]);
      if (far->worker->process < 0)
        most[far->worker->id] += r->lazy ? 3 * slots : slots; /* READY, WANTED */
      if (here) most[r->worker->id] += slots * (uint64_t)far->nports;
    }
    if (here) most[r->worker->id]++; /* QUOTA */
  }
  for (int32_t w = 0; w < rt->nworkers; w++) sli_mailbox_init(&rt->workers[w].mailbox, most[w]);
  free(most);
}

static void make_worker_lists(sl_runtime *rt) {
  int32_t *nactors = sli_calloc((size_t)rt->plan->nqueues, sizeof *nactors);
  for (int32_t i = 0; i < rt->plan->nactors; i++) {
    nactors[rt->plan->actors[i].queue]++;
    rt->actors[i].queue->worker->nactors++;
  }
  for (int32_t i = 0; i < rt->nworkers; i++) {
    worker *w = &rt->workers[i];
    size_t nqueues = (size_t)w->nqueues;
    w->queues = allot_own(rt, w, nqueues, sizeof *w->queues);
    w->timers = allot_own(rt, w, nqueues, sizeof *w->timers);
    w->polled = allot_own(rt, w, nqueues, sizeof *w->polled);
    w->actors = allot_own(rt, w, (size_t)w->nactors, sizeof *w->actors);
    w->sparse = allot_own(rt, w, (size_t)w->nactors, sizeof *w->sparse);
    w->nqueues = w->nactors = 0;
  }
  for (int32_t i = 0; i < rt->plan->nqueues; i++) {
    queue *q = &rt->queues[i];
    if (q->worker->process >= 0) continue;
    q->runnable = allot_own(rt, q->worker, (size_t)nactors[i], sizeof *q->runnable);
    q->actors = allot_own(rt, q->worker, (size_t)nactors[i], sizeof *q->actors);
    q->worker->queues[q->worker->nqueues++] = q;
  }
  for (int32_t i = 0; i < rt->plan->nactors; i++) {
    queue *q = rt->actors[i].queue;
    worker *w = q->worker;
    if (w->process >= 0) continue;
    q->actors[q->nactors++] = &rt->actors[i];
    w->actors[w->nactors++] = &rt->actors[i];
    if (rt->actors[i].every > 1) w->sparse[w->nsparse++] = &rt->actors[i];
    else w->firings_per_step += (uint64_t)rt->plan->actors[i].firings_per_step;
  }
  free(nactors);
}

/* The worker of each device of this process, among those of devices. */
static int32_t *share_workers(const sl_runtime *rt) {
  int32_t *home = sli_calloc((size_t)rt->plan->ndevices, sizeof *home), count = 0;
  for (int32_t d = 0; d < rt->plan->ndevices; d++)
    if (!is_away(rt, d)) home[d] = count++ % rt->nworkers;
  return home;
}

static worker *allot_workers(int32_t most) {
  worker *workers = aligned_alloc(SLI_LINE_PAIR, (size_t)most * sizeof *workers);
  SLI_CHECK(workers, "no memory for %d workers", most);
  memset(workers, 0, (size_t)most * sizeof *workers);
  return workers;
}

/* One worker moves what goes between processes: one of its own, if there may be more
 * than one. */
static void make_processes(sl_runtime *rt) {
  if (!rt->options.peers) return;
  rt->away = allot_workers(rt->plan->nprocesses);
  rt->carrier = &rt->workers[rt->options.workers == 1 ? 0 : rt->nworkers++];
  rt->carrier->peers = rt->options.peers;
}

static void make_workers(sl_runtime *rt) {
  for (int32_t i = 0; i < rt->nworkers; i++) {
    worker *w = &rt->workers[i];
    w->rt = rt;
    w->id = i;
    w->process = SL_NONE;
    w->current = SL_NONE;
    w->real = rt->threads;
    w->clock = rt->clock;
    w->unusual = true;
    w->spin_ns = 20000;
    w->random = (rt->options.jitter_seed + (uint64_t)i + 1) * UINT64_C(0x9E3779B97F4A7C15) | 1;
  }
  for (int32_t i = 0; rt->away && i < rt->plan->nprocesses; i++)
    rt->away[i].rt = rt, rt->away[i].id = rt->nworkers + i, rt->away[i].process = i;
}

static void make_state(sl_runtime *rt) {
  const sl_plan *plan = rt->plan;
  rt->quotas = allot(rt, (size_t)plan->nregs, sizeof *rt->quotas);
  rt->actors = allot_lines(rt, (size_t)plan->nactors, sizeof *rt->actors);
  rt->regs = allot_lines(rt, (size_t)plan->nregs, sizeof *rt->regs);
  rt->queues = allot_lines(rt, (size_t)plan->nqueues, sizeof *rt->queues);
  rt->devices = allot_lines(rt, (size_t)plan->ndevices, sizeof *rt->devices);
  rt->pools = allot_lines(rt, (size_t)plan->npools, sizeof *rt->pools);
  rt->maps = allot(rt, (size_t)plan->nmaps, sizeof *rt->maps);
  int32_t *home = share_workers(rt);
  rt->workers = allot_workers(rt->nworkers + 1 + (rt->threads ? plan->nqueues : 0));
  make_processes(rt);
  for (int32_t i = 0; i < plan->nmaps; i++) rt->maps[i] = make_map(rt, &plan->maps[i]);
  for (int32_t i = 0; i < plan->npools; i++)
    rt->pools[i] = (pool){.quota = plan->pools[i].quota,
                          .queues = allot(rt, (size_t)plan->nqueues, sizeof(queue *))};
  for (int32_t i = 0; i < plan->nqueues; i++) make_queue(rt, i, home);
  free(home);
  make_workers(rt);
  for (int32_t i = 0; i < plan->nregs; i++) make_reg(rt, i);
  for (int32_t i = 0; i < plan->nactors; i++) make_actor(rt, i);
  for (int32_t i = 0; i < plan->nactors; i++) make_lazy(rt, &rt->actors[i]);
  for (int32_t i = 0; i < plan->nactors; i++) mark_waiting(rt, &rt->actors[i]);
  for (int32_t i = 0; i < plan->nqueues; i++) make_flights(rt, i, most_notices(rt, i));
  make_worker_lists(rt);
  link_consumers(rt);
  for (int32_t i = 0; i < plan->nregs; i++) settle_reg(rt, &rt->regs[i]);
  make_mailboxes(rt);
}

/* ---- workers --------------------------------------------------------------------- */

typedef struct binding {
  sl_runtime *rt;
  int32_t device;
} binding;

static void bind_thread(void *arg, int thread) {
  const binding *b = arg;
  if (b->rt->options.bind) b->rt->options.bind(b->rt->options.bind_arg, b->device, thread);
}

static int team_size(const sl_runtime *rt, const queue *q) {
  int threads = q->plan->threads ? q->plan->threads : rt->plan->devices[q->plan->device].threads;
  return SLI_MAX(threads, 1);
}

/* The largest scratch of what runs on a queue. */
static size_t scratch_of(const sl_runtime *rt, const queue *q) {
  size_t (*scratch)(const sl_program *, int) =
      q->ops->scratch ? q->ops->scratch : sl_program_scratch;
  size_t most = 0;
  for (int32_t i = 0; i < rt->plan->nactors; i++) {
    const actor *a = &rt->actors[i];
    if (a->queue == q && a->program)
      most = SLI_MAX(most, scratch(a->program, team_size(rt, q)));
  }
  return most;
}

/* Where a link's actors write to. */
static void set_end(const sl_runtime *rt, const queue *q, sl_queue_config *config) {
  if (q->ops != &sl_queue_link || !q->nactors) return;
  const sl_register *r = &rt->plan->regs[q->actors[0]->plan->out[0].reg];
  const sl_device *d = &rt->plan->devices[r->device];
  config->process = d->process;
  config->copy = sli_room_memory(d, r->space)->copy;
}

static sl_status open_queue(worker *w, queue *q) {
  sl_runtime *rt = w->rt;
  binding *b = allot(rt, 1, sizeof *b);
  *b = (binding){rt, q->plan->device};
  sl_queue_config config = {.threads = team_size(rt, q), .scratch_bytes = scratch_of(rt, q),
                            .device = rt->plan->devices[q->plan->device].number,
                            .bind = q->plan->apart ? NULL : bind_thread, .bind_arg = b,
                            .peers = rt->options.peers};
  set_end(rt, q, &config);
  return q->ops->open(&config, &q->impl);
}

/* Opens the worker's queues, which binds it, and then makes the arenas of its devices, so
 * that they lie near. Runs one worker at a time: the order is fixed and the arena needs
 * no lock. */
static void open_worker(worker *w) {
  for (int32_t i = 0; i < w->nqueues && !w->status; i++)
    w->status = open_queue(w, w->queues[i]);
  if (!w->status) w->status = sli_arenas_create(w->rt, w);
  if (w->status) w->detail = sli_strdup(sl_detail());
}

static void *worker_main(void *arg) {
  worker *w = arg;
  sl_runtime *rt = w->rt;
  uint32_t seen = 0;
  prctl(PR_SET_TIMERSLACK, 1000); /* ns: a short sleep is to be short */
  open_worker(w);
  for (;;) {
    uint32_t left = atomic_fetch_sub_explicit(&rt->active, 1, memory_order_acq_rel) - 1;
    if (!left) sli_futex_wake(&rt->active);
    if (left == 1 && rt->carrier) sli_worker_wake(rt->carrier);
    uint32_t now;
    while ((now = atomic_load_explicit(&rt->epoch, memory_order_acquire)) == seen)
      sli_futex_wait(&rt->epoch, seen, UINT64_MAX);
    seen = now;
    if (atomic_load(&rt->quit)) return NULL;
    sli_worker_run(w);
  }
}

/* Sleeps until all workers are done, and keeps an eye on their progress. */
static void wait_for_workers(sl_runtime *rt, bool watch) {
  double period = rt->options.watchdog_seconds ? rt->options.watchdog_seconds : 30;
  uint64_t last = 0, since = sli_now_ns();
  uint32_t active;
  while ((active = atomic_load_explicit(&rt->active, memory_order_acquire))) {
    sli_futex_wait(&rt->active, active, watch && period > 0 ? (uint64_t)(period * 2.5e8) : UINT64_MAX);
    if (!watch || period < 0) continue;
    uint64_t sum = 0, now = sli_now_ns();
    for (int32_t i = 0; i < rt->nworkers; i++)
      sum += worker_fired(&rt->workers[i]);
    if (sum != last) last = sum, since = now;
    if ((double)(now - since) < period * 1e9) continue;
    char *text = sli_explain(rt);
    sli_log("no actor has fired for %.0f s\n%s", (double)(now - since) / 1e9, text);
    free(text);
    since = now;
  }
}

static sl_status start_workers(sl_runtime *rt) {
  sl_status status = sli_arenas_create(rt, NULL);
  if (status) return status;
  for (int32_t i = 0; i < rt->nworkers; i++) {
    worker *w = &rt->workers[i];
    if (!rt->threads) {
      open_worker(w);
    } else {
      atomic_store(&rt->active, 1);
      if (pthread_create(&w->thread, NULL, worker_main, w)) {
        w->thread = 0;
        return sl_fail(SL_E_MEMORY, "cannot start worker thread %d of %d", i, rt->nworkers);
      }
      wait_for_workers(rt, false);
    }
    if (w->status) return sl_fail(w->status, "%s", w->detail);
  }
  sli_arenas_point(rt);
  for (int32_t i = 0; i < rt->plan->nactors; i++)
    if (rt->actors[i].queue->worker->process < 0)
      sli_actor_start(rt->actors[i].queue->worker, &rt->actors[i]);
  return SL_OK;
}

static void make_rings(sl_runtime *rt) {
  uint64_t records = 1;
  while (records < (rt->options.trace_records ? rt->options.trace_records : 1u << 16)) records *= 2;
  for (int32_t i = 0; i < rt->nworkers; i++) {
    rt->workers[i].ring = sli_calloc(records, sizeof *rt->workers[i].ring);
    rt->workers[i].ring_mask = records - 1;
  }
}

static sl_status check_queues(const sl_plan *plan, const sl_runtime_options *options) {
  for (int32_t i = 0; i < plan->nactors; i++) {
    const sl_queue_ops *ops = plan->queues[plan->actors[i].queue].ops;
    if (options->clock == SL_CLOCK_VIRTUAL && !ops->timed && ops != &sl_queue_null)
      return sl_fail(SL_E_USAGE, "queue %s runs real kernels: it cannot follow a virtual clock",
                     plan->queues[plan->actors[i].queue].name);
  }
  return SL_OK;
}

/* Those of this process, as the kind of their queue does it. */
static sl_status prepare_programs(sl_runtime *rt) {
  sl_status status = SL_OK;
  for (int32_t i = 0; i < rt->plan->nactors && !status; i++) {
    const actor *a = &rt->actors[i];
    const sl_queue *q = a->queue->plan;
    if (!a->program || q->ops->timed || is_away(rt, q->device)) continue;
    status = q->ops->prepare
                 ? q->ops->prepare(a->plan->program, rt->plan->devices[q->device].number)
                 : sl_program_prepare(a->plan->program);
  }
  return status;
}

sl_status sl_runtime_create(const sl_plan *plan, const sl_runtime_options *options,
                            sl_runtime **out) {
  sl_status status = check_queues(plan, options);
  if (status) return status;
  sl_runtime *rt = sli_calloc(1, sizeof *rt);
  rt->plan = plan;
  rt->options = *options;
  rt->threads = options->clock == SL_CLOCK_REAL;
  rt->first_step = rt->steps = options->first_step;
  atomic_init(&rt->gate, (uint64_t)options->first_step << SLI_GATE_BITS);
  int threads = 0, here = 0;
  for (int32_t d = 0; d < plan->ndevices; d++) {
    here += !is_away(rt, d);
    if (!is_away(rt, d)) threads += SLI_MAX(plan->devices[d].threads, 1);
  }
  int32_t workers = options->workers ? SLI_MIN(options->workers, here) : here;
  rt->nworkers = rt->threads ? SLI_MAX(workers, 1) : 1;
  rt->oversubscribed = SLI_MAX(threads, rt->nworkers) > sysconf(_SC_NPROCESSORS_ONLN);
  sli_clock_init(&rt->clock);
  make_state(rt);
  make_rings(rt);
  status = prepare_programs(rt);
  if (!status) status = start_workers(rt);
  if (status) {
    sl_runtime_destroy(rt);
    return status;
  }
  *out = rt;
  return SL_OK;
}

void sl_runtime_destroy(sl_runtime *rt) {
  if (!rt) return;
  atomic_store(&rt->quit, true);
  atomic_fetch_add_explicit(&rt->epoch, 1, memory_order_release);
  sli_futex_wake(&rt->epoch);
  for (int32_t i = 0; i < rt->nworkers; i++) {
    worker *w = &rt->workers[i];
    if (w->thread) pthread_join(w->thread, NULL);
    sli_mailbox_fini(&w->mailbox);
    sli_arena_fini(&w->memory);
    free(w->ring);
    free(w->detail);
  }
  for (int32_t i = 0; i < rt->plan->nqueues; i++)
    if (rt->queues[i].impl) rt->queues[i].ops->close(rt->queues[i].impl);
  sli_arenas_destroy(rt);
  for (int32_t i = 0; rt->away && i < rt->plan->nprocesses; i++)
    sli_arena_fini(&rt->away[i].memory);
  sli_remotes_free(rt);
  free(rt->away);
  free(rt->workers);
  sli_arena_fini(&rt->memory);
  free(rt);
}

/* ---- running ------------------------------------------------------------------------ */

static bool all_fired(const sl_runtime *rt, int64_t steps) {
  for (int32_t i = 0; i < rt->nworkers; i++)
    if (worker_fired(&rt->workers[i]) != worker_share(&rt->workers[i], steps))
      return false;
  return true;
}

sl_status sl_runtime_run(sl_runtime *rt, int64_t steps) {
  uint64_t gate = atomic_load(&rt->gate);
  if (gate & SLI_GATE_ABORTED) return sl_fail(rt->failure, "%s", rt->failure_text);
  bool over = (int64_t)(gate >> SLI_GATE_BITS) <= rt->steps && !(gate & SLI_GATE_HELD);
  if ((gate & SLI_GATE_CLOSED) && over) return sl_fail(SL_E_STOPPED, "the run was stopped");
  rt->goal = rt->steps + steps;
  if (rt->threads) {
    atomic_store(&rt->active, (uint32_t)rt->nworkers);
    atomic_fetch_add_explicit(&rt->epoch, 1, memory_order_release);
    sli_futex_wake(&rt->epoch);
    wait_for_workers(rt, true);
  } else {
    sli_worker_run(&rt->workers[0]);
  }
  int64_t final = sli_final_steps(rt);
  if (atomic_load(&rt->gate) & SLI_GATE_ABORTED)
    return sl_fail(rt->failure, "%s", rt->failure_text);
  if (!all_fired(rt, final)) {
    char *text = sli_explain(rt);
    sl_fail(SL_E_STUCK, "%s", text);
    free(text);
    return SL_E_STUCK;
  }
  rt->steps = final;
  if (atomic_load_explicit(&rt->failed, memory_order_acquire) == 2)
    return sl_fail(rt->failure, "%s", rt->failure_text);
  if (final < rt->goal) return sl_fail(SL_E_STOPPED, "stopped after step %lld", (long long)final);
  return SL_OK;
}

static void wake_all(sl_runtime *rt) {
  for (int32_t i = 0; i < rt->nworkers; i++) sli_worker_wake(&rt->workers[i]);
}

void sl_runtime_stop(sl_runtime *rt) {
  if (rt->options.peers) {
    atomic_store(&rt->wants_stop, true);
    return;
  }
  atomic_fetch_or_explicit(&rt->gate, SLI_GATE_CLOSED, memory_order_acq_rel);
  wake_all(rt);
}

bool sl_runtime_wants_stop(const sl_runtime *rt) { return atomic_load(&rt->wants_stop); }

int64_t sl_runtime_hold(sl_runtime *rt) {
  uint64_t word = atomic_fetch_or(&rt->gate, SLI_GATE_CLOSED | SLI_GATE_HELD);
  return (int64_t)(word >> SLI_GATE_BITS);
}

void sl_runtime_end_at(sl_runtime *rt, int64_t steps) {
  uint64_t held = atomic_load(&rt->gate), open;
  do {
    open = (uint64_t)steps << SLI_GATE_BITS | SLI_GATE_CLOSED | (held & SLI_GATE_ABORTED);
  } while (!atomic_compare_exchange_weak(&rt->gate, &held, open));
  atomic_fetch_add_explicit(&rt->reopened, 1, memory_order_release);
  wake_all(rt);
}

/* The first failure is the one that counts. */
static void keep_failure(sl_runtime *rt, sl_status status, const char *detail) {
  int none = 0;
  if (!atomic_compare_exchange_strong(&rt->failed, &none, 1)) return;
  rt->failure = status;
  snprintf(rt->failure_text, sizeof rt->failure_text, "%s", detail);
  atomic_store_explicit(&rt->failed, 2, memory_order_release);
}

void sl_runtime_fail(sl_runtime *rt, sl_status status, const char *detail) {
  keep_failure(rt, status, detail);
  sl_runtime_stop(rt);
}

void sl_runtime_abort(sl_runtime *rt, sl_status status, const char *detail) {
  keep_failure(rt, status, detail);
  atomic_fetch_or(&rt->gate, SLI_GATE_CLOSED | SLI_GATE_ABORTED);
  wake_all(rt);
}

int64_t sl_runtime_begun(const sl_runtime *rt) {
  return (int64_t)(atomic_load_explicit(&rt->gate, memory_order_relaxed) >> SLI_GATE_BITS);
}
