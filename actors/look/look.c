/* A look at a run from outside.
 *
 * A worker in the middle of a kernel can answer nobody, and one that hangs never
 * will. So nobody is asked. Each worker leaves a few numbers behind as it goes, with
 * plain stores that cost it next to nothing: how many firings of each actor are
 * complete, and what it is at now. The rest follows. Which keys a firing takes and
 * gives up is fixed before the run; so from how far a register's producer and
 * consumers are it follows which keys are ready and which slots are taken, and from
 * that what any actor lacks for its next firing. That holds across processes too:
 * their numbers only have to be put side by side.
 *
 * The numbers are not of one moment. An actor may seem to lack what is on its way, or
 * to have what it needs and not go; if nothing moves for a while, both are over. */
#include <sluice/look.h>

#include "actors/look/look.h"
#include "actors/plan/plan.h"
#include "actors/run/run.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is known ------------------------------------------------------------------ */

/* Who reads a register. */
typedef struct reader {
  int32_t actor, map;
} reader;

struct sli_look_memory {
  sli_arena arena;
  int32_t *first;   /* [nregs + 1] into readers */
  reader *readers;
};

static void index_readers(sl_look *look) {
  const sl_plan *plan = look->plan;
  struct sli_look_memory *m = look->memory;
  int32_t total = 0;
  for (int32_t i = 0; i < plan->nregs; i++) total += plan->regs[i].nconsumers;
  m->first = sli_arena_alloc(&m->arena, ((size_t)plan->nregs + 1) * sizeof *m->first);
  m->readers = sli_arena_alloc(&m->arena, ((size_t)total + 1) * sizeof *m->readers);
  for (int32_t i = 0; i < plan->nregs; i++)
    m->first[i + 1] = m->first[i] + plan->regs[i].nconsumers;
  int32_t *next = sli_calloc((size_t)plan->nregs + 1, sizeof *next);
  memcpy(next, m->first, (size_t)plan->nregs * sizeof *next);
  for (int32_t a = 0; a < plan->nactors; a++)
    for (int32_t p = 0; p < plan->actors[a].nin; p++) {
      const sl_port *port = &plan->actors[a].in[p];
      m->readers[next[port->reg]++] = (reader){a, port->map};
    }
  free(next);
}

sl_look *sl_look_create(const sl_plan *plan) {
  sl_look *look = sli_calloc(1, sizeof *look);
  look->plan = plan;
  look->memory = sli_calloc(1, sizeof *look->memory);
  sli_arena *arena = &look->memory->arena;
  look->fired = sli_arena_alloc(arena, (size_t)plan->nactors * sizeof *look->fired);
  look->slots = sli_arena_alloc(arena, (size_t)plan->nregs * sizeof *look->slots);
  look->queues = sli_arena_alloc(arena, (size_t)plan->nqueues * sizeof *look->queues);
  look->idle = sli_arena_alloc(arena, (size_t)plan->ndevices * sizeof *look->idle);
  for (int32_t i = 0; i < plan->nactors; i++) look->fired[i] = SL_UNKNOWN;
  for (int32_t i = 0; i < plan->nregs; i++) look->slots[i] = SL_UNKNOWN;
  for (int32_t i = 0; i < plan->nqueues; i++) look->queues[i].running = SL_UNKNOWN;
  for (int32_t i = 0; i < plan->ndevices; i++) look->idle[i] = SL_UNKNOWN;
  index_readers(look);
  return look;
}

void sl_look_destroy(sl_look *look) {
  if (!look) return;
  sli_arena_fini(&look->memory->arena);
  free(look->memory);
  free(look);
}

/* ---- one process ---------------------------------------------------------------------- */

/* A worker's newest records, from the newest back. It may go on meanwhile, and then
 * writes half a ring away from what is read here, never nearer. */
typedef struct past {
  sli_ring ring;
  uint64_t next, oldest; /* next: one more than the record's number */
} past;

static past look_back(const sl_runtime *rt, int32_t worker) {
  sli_ring ring = sli_runtime_ring(rt, worker);
  return (past){ring, ring.written, ring.written - SLI_MIN(ring.written, ring.mask / 2)};
}

static const sl_trace_record *earlier(past *p) {
  return p->next > p->oldest ? &p->ring.records[--p->next & p->ring.mask] : NULL;
}

/* When the last firing of a queue ended, or the earliest time that is remembered. */
static uint64_t last_end_ns(const sl_runtime *rt, int32_t queue, int32_t worker) {
  enum { MOST = 4096 };
  const sl_plan *plan = sli_runtime_plan(rt);
  past p = look_back(rt, worker);
  uint64_t end = 0;
  const sl_trace_record *r;
  for (int i = 0; i < MOST && (r = earlier(&p)); i++) {
    end = r->start_ns;
    if (plan->actors[r->actor].queue == queue) return r->end_ns;
  }
  return end;
}

static double since(const sl_runtime *rt, uint64_t then_ns) {
  uint64_t now = sli_runtime_now_ns(rt);
  return now > then_ns ? (double)(now - then_ns) * 1e-9 : 0;
}

static sl_queue_look look_at_queue(const sl_runtime *rt, int32_t id) {
  sli_queue_state q = sli_runtime_queue(rt, id);
  if (q.flying != SL_NONE) return (sl_queue_look){q.flying, since(rt, q.flying_ns)};
  if (q.current == SL_NONE || sli_runtime_plan(rt)->actors[q.current].queue != id)
    return (sl_queue_look){SL_NONE, since(rt, last_end_ns(rt, id, q.worker))};
  past p = look_back(rt, q.worker);
  const sl_trace_record *last = earlier(&p);
  return (sl_queue_look){q.current, since(rt, SLI_MAX(q.woke_ns, last ? last->end_ns : 0))};
}

/* Adds a worker's passes of the last two steps or seconds to busy[ndevices], and
 * returns when that began. */
static uint64_t count_busy(const sl_runtime *rt, int32_t worker, uint64_t now, double *busy) {
  const uint64_t least_ns = 2000000000u;
  const sl_plan *plan = sli_runtime_plan(rt);
  past p = look_back(rt, worker);
  uint64_t begin = now;
  int64_t newest = -1;
  for (const sl_trace_record *r; (r = earlier(&p)); begin = r->start_ns) {
    const sl_actor *a = &plan->actors[r->actor];
    int64_t step = sl_plan_tick(plan, r->actor, r->firing).step;
    newest = SLI_MAX(newest, step);
    if (r->end_ns + least_ns < now && step < newest - 2) return r->end_ns;
    if (sli_is_work(a))
      busy[plan->queues[a->queue].device] += (double)(r->end_ns - r->start_ns) * 1e-9;
  }
  return p.oldest ? begin : sli_runtime_began_ns(rt);
}

static void look_at_devices(const sl_runtime *rt, sl_look *look) {
  const sl_plan *plan = look->plan;
  uint64_t now = sli_runtime_now_ns(rt);
  int32_t nworkers = sli_runtime_workers(rt);
  double *busy = sli_calloc((size_t)plan->ndevices, sizeof *busy);
  uint64_t *begin = sli_calloc((size_t)nworkers, sizeof *begin);
  for (int32_t i = 0; i < nworkers; i++) begin[i] = count_busy(rt, i, now, busy);
  for (int32_t i = 0; i < plan->nqueues; i++) {
    const sl_queue_look *q = &look->queues[i];
    if (q->running >= 0 && sli_is_work(&plan->actors[q->running]) &&
        sli_runtime_has_device(rt, plan->queues[i].device))
      busy[plan->queues[i].device] += q->seconds;
  }
  for (int32_t d = 0; d < plan->ndevices; d++) {
    int32_t worker = sli_runtime_device_worker(rt, d);
    if (!sli_runtime_has_device(rt, d) || worker == SL_NONE) continue;
    double span = (double)(now - SLI_MIN(begin[worker], now)) * 1e-9;
    look->idle[d] = span > 0 ? SLI_MAX(1 - busy[d] / span, 0) : 0;
  }
  free(busy);
  free(begin);
}

void sl_runtime_look(const sl_runtime *rt, sl_look *look) {
  const sl_plan *plan = sli_runtime_plan(rt);
  for (int32_t i = 0; i < plan->nqueues; i++)
    if (sli_runtime_has_queue(rt, i)) look->queues[i] = look_at_queue(rt, i);
  for (int32_t i = 0; i < plan->nactors; i++)
    if (sli_runtime_has_actor(rt, i)) look->fired[i] = sli_runtime_done(rt, i);
  for (int32_t i = 0; i < plan->nregs; i++)
    if (sli_runtime_has_register(rt, i)) look->slots[i] = sl_runtime_slots(rt, i);
  look_at_devices(rt, look);
}

/* ---- between processes ------------------------------------------------------------------ */

/* The bytes of an export: this, then as many facts. */
typedef struct tale {
  uint64_t plan_hash, nfacts;
} tale;

typedef enum subject { OF_ACTOR, OF_REGISTER, OF_QUEUE, OF_DEVICE } subject;

typedef struct fact {
  int32_t subject, id;
  int64_t number;  /* firings, slots, what runs */
  double seconds;  /* of a queue; of a device: its idle share */
} fact;

static size_t list_facts(const sl_look *look, fact *out) {
  const sl_plan *plan = look->plan;
  size_t n = 0;
  for (int32_t i = 0; i < plan->nactors; i++)
    if (look->fired[i] != SL_UNKNOWN) out[n++] = (fact){OF_ACTOR, i, look->fired[i], 0};
  for (int32_t i = 0; i < plan->nregs; i++)
    if (look->slots[i] != SL_UNKNOWN) out[n++] = (fact){OF_REGISTER, i, look->slots[i], 0};
  for (int32_t i = 0; i < plan->nqueues; i++)
    if (look->queues[i].running != SL_UNKNOWN)
      out[n++] = (fact){OF_QUEUE, i, look->queues[i].running, look->queues[i].seconds};
  for (int32_t i = 0; i < plan->ndevices; i++)
    if (look->idle[i] != SL_UNKNOWN) out[n++] = (fact){OF_DEVICE, i, 0, look->idle[i]};
  return n;
}

size_t sl_runtime_look_export(const sl_runtime *rt, void **out) {
  const sl_plan *plan = sli_runtime_plan(rt);
  size_t most = (size_t)plan->nactors + (size_t)plan->nregs + (size_t)plan->nqueues +
                (size_t)plan->ndevices;
  sl_look *look = sl_look_create(plan);
  sl_runtime_look(rt, look);
  tale *t = sli_calloc(1, sizeof *t + most * sizeof(fact));
  t->plan_hash = plan->hash;
  t->nfacts = list_facts(look, (fact *)(t + 1));
  sl_look_destroy(look);
  *out = t;
  return sizeof *t + t->nfacts * sizeof(fact);
}

static bool is_fact(const sl_plan *plan, const fact *f) {
  const int32_t most[] = {plan->nactors, plan->nregs, plan->nqueues, plan->ndevices};
  if (f->subject < OF_ACTOR || f->subject > OF_DEVICE) return false;
  if (f->id < 0 || f->id >= most[f->subject]) return false;
  if (f->subject != OF_QUEUE) return f->number >= 0;
  return f->number == SL_NONE ||
         (f->number >= 0 && f->number < plan->nactors && plan->actors[f->number].queue == f->id);
}

static void learn(sl_look *look, const fact *f) {
  switch ((subject)f->subject) {
  case OF_ACTOR: look->fired[f->id] = f->number; break;
  case OF_REGISTER: look->slots[f->id] = (int32_t)f->number; break;
  case OF_QUEUE: look->queues[f->id] = (sl_queue_look){(int32_t)f->number, f->seconds}; break;
  case OF_DEVICE: look->idle[f->id] = f->seconds; break;
  }
}

sl_status sl_look_import(sl_look *look, const void *bytes, size_t size) {
  tale t;
  fact f;
  if (size < sizeof t) return sl_fail(SL_E_INPUT, "a look is cut off");
  memcpy(&t, bytes, sizeof t);
  if (t.plan_hash != look->plan->hash || t.nfacts != (size - sizeof t) / sizeof f ||
      (size - sizeof t) % sizeof f)
    return sl_fail(SL_E_INPUT, "a look is not of this plan");
  const char *facts = (const char *)bytes + sizeof t;
  for (uint64_t i = 0; i < t.nfacts; i++) {
    memcpy(&f, facts + i * sizeof f, sizeof f);
    if (!is_fact(look->plan, &f)) return sl_fail(SL_E_INPUT, "a look has an impossible fact");
  }
  for (uint64_t i = 0; i < t.nfacts; i++) {
    memcpy(&f, facts + i * sizeof f, sizeof f);
    learn(look, &f);
  }
  return SL_OK;
}

/* ---- who waits for whom ------------------------------------------------------------------- */

/* The firing in which a port with this map takes (SL_FIRST) or gives up (SL_LAST) a
 * key, or -1. */
static int64_t firing_of(const sl_map *map, int64_t key, uint32_t flag) {
  int64_t best = -1;
  for (uint32_t i = 0; i < map->period; i++) {
    const sl_map_entry *e = &map->entries[i];
    int64_t beyond = key - e->offset;
    if (!(e->flags & flag) || beyond < 0) continue;
    if (map->stride ? beyond % map->stride : beyond) continue;
    int64_t n = (map->stride ? beyond / map->stride : 0) * map->period + i;
    if (best < 0 || n < best) best = n;
  }
  return best;
}

static bool is_running(const sl_look *look, int32_t actor) {
  return look->queues[look->plan->actors[actor].queue].running == actor;
}

/* Has somebody had it? Then it was there, whatever its producer's number says: it may be
 * older, or not known. */
static bool was_taken(const sl_look *look, int32_t reg, int64_t key) {
  const struct sli_look_memory *m = look->memory;
  for (int32_t i = m->first[reg]; i < m->first[reg + 1]; i++) {
    const reader *c = &m->readers[i];
    int64_t n = firing_of(&look->plan->maps[c->map], key, SL_FIRST);
    if (n >= 0 && n < look->fired[c->actor]) return true;
  }
  return false;
}

static bool is_ready(const sl_look *look, int32_t reg, int64_t key) {
  const sl_register *r = &look->plan->regs[reg];
  const sl_port *out = sli_plan_output(look->plan, reg);
  if (key < r->initial || !out) return true;
  int64_t n = firing_of(&look->plan->maps[out->map], key, SL_LAST);
  return (n >= 0 && n < look->fired[r->producer]) || was_taken(look, reg, key);
}

/* The consumer that still has a key, SL_NONE if all are done with it. */
static int32_t who_has(const sl_look *look, int32_t reg, int64_t key) {
  const struct sli_look_memory *m = look->memory;
  for (int32_t i = m->first[reg]; i < m->first[reg + 1]; i++) {
    const reader *c = &m->readers[i];
    int64_t n = firing_of(&look->plan->maps[c->map], key, SL_LAST);
    if (n >= 0 && n >= look->fired[c->actor]) return c->actor;
  }
  return SL_NONE;
}

/* Slots of a register in use, and who has the oldest. The keys begun are looked
 * through from the newest back, as far as any of them can be in use. */
static int32_t slots_in_use(const sl_look *look, int32_t reg, int32_t *who) {
  const sl_plan *plan = look->plan;
  const sl_register *r = &plan->regs[reg];
  const sl_port *out = sli_plan_output(plan, reg);
  *who = SL_NONE;
  if (!out || r->held) return 0;
  const sl_map *map = &plan->maps[out->map];
  int64_t looked_at = 0, most = sli_quota_most(r) + 2 * (int64_t)map->period;
  int64_t n = look->fired[r->producer] + is_running(look, r->producer);
  int32_t used = 0;
  while (n-- > 0 && looked_at < most) {
    uint32_t flags;
    int64_t key = sl_map_key(map, n, &flags);
    if (!(flags & SL_FIRST)) continue;
    looked_at++;
    int32_t has = who_has(look, reg, key);
    int64_t last = firing_of(map, key, SL_LAST);
    if (has == SL_NONE && last < look->fired[r->producer]) continue;
    used++;
    if (has != SL_NONE) *who = has;
  }
  for (int64_t key = 0; n < 0 && key < r->initial; key++) {
    int32_t has = who_has(look, reg, key);
    if (has != SL_NONE) used++, *who = has;
  }
  return used;
}

/* May the pool of a register give it one more slot? */
static bool pool_has_room(const sl_look *look, int32_t reg) {
  const sl_plan *plan = look->plan;
  int32_t pool = plan->regs[reg].pool, used = 0, kept = 0, who;
  if (pool == SL_NONE) return true;
  for (int32_t i = 0; i < plan->nregs; i++) {
    const sl_register *r = &plan->regs[i];
    if (r->pool != pool) continue;
    int32_t has = slots_in_use(look, i, &who);
    if (i == reg && has < sli_register_kept(r)) return true;
    used += has;
    kept += SLI_MAX(sli_register_kept(r) - has, 0);
  }
  return used + kept < plan->pools[pool].quota;
}

/* Where a port of an actor's next firing takes a key: that key, else -1. */
static int64_t next_key(const sl_look *look, int32_t actor, const sl_port *port) {
  uint32_t flags;
  int64_t key = sl_map_key(&look->plan->maps[port->map], look->fired[actor], &flags);
  return flags & SL_FIRST ? key : -1;
}

/* What an actor lacks for its next firing: the first input, or else the first slot. */
sl_actor_wait sl_look_actor_wait(const sl_look *look, int32_t actor) {
  const sl_actor *a = &look->plan->actors[actor];
  sl_actor_wait wait = {.actor = actor, .why = SL_WAIT_INPUT, .on = SL_NONE,
                        .tick = sl_plan_tick(look->plan, actor, look->fired[actor])};
  for (int32_t p = 0; p < a->nin; p++) {
    int64_t key = next_key(look, actor, &a->in[p]);
    if (key < 0 || is_ready(look, a->in[p].reg, key)) continue;
    wait.reg = a->in[p].reg;
    wait.on = look->plan->regs[wait.reg].producer;
    return wait;
  }
  wait.why = SL_WAIT_CREDIT;
  for (int32_t p = 0; p < a->nout; p++) {
    wait.reg = a->out[p].reg;
    if (next_key(look, actor, &a->out[p]) < 0) continue;
    int32_t used = slots_in_use(look, wait.reg, &wait.on);
    if (used >= look->slots[wait.reg] || !pool_has_room(look, wait.reg)) return wait;
  }
  wait.why = a->cls == SL_CLASS_W && look->plan->queues[a->queue].lazy_w ? SL_WAIT_POLICY
                                                                         : SL_WAIT_NONE;
  wait.reg = wait.on = SL_NONE;
  return wait;
}

/* The actor that a fixed order has next: one place further with each firing. */
static int32_t next_in_order(const sl_look *look, int32_t queue) {
  const sl_plan *plan = look->plan;
  const sl_queue *q = &plan->queues[queue];
  int64_t fired = 0;
  for (int32_t a = 0; a < plan->nactors; a++)
    if (plan->actors[a].queue == queue) fired += look->fired[a];
  return q->order[fired % q->norder];
}

static int how_much(const sl_look *look, int32_t queue, const sl_actor_wait *wait) {
  if (wait->why == SL_WAIT_POLICY) return 0;
  return wait->on == SL_NONE || look->plan->actors[wait->on].queue != queue ? 2 : 1;
}

/* Of two waits the one that tells more: what somebody elsewhere keeps waiting, then what
 * the queue itself does, then what it puts off; of those the older tick, and of one tick
 * the pass that comes first. */
static bool tells_more(const sl_look *look, int32_t queue, const sl_actor_wait *a,
                       const sl_actor_wait *b) {
  if (b->actor == SL_NONE) return true;
  int a_tells = how_much(look, queue, a), b_tells = how_much(look, queue, b);
  if (a_tells != b_tells) return a_tells > b_tells;
  if (a->tick.number != b->tick.number) return a->tick.number < b->tick.number;
  return look->plan->actors[a->actor].cls < look->plan->actors[b->actor].cls;
}

sl_actor_wait sl_look_queue_wait(const sl_look *look, int32_t queue) {
  const sl_plan *plan = look->plan;
  sl_actor_wait best = {.actor = SL_NONE, .reg = SL_NONE, .on = SL_NONE};
  if (look->queues[queue].running == SL_UNKNOWN) return best;
  if (plan->queues[queue].order) return sl_look_actor_wait(look, next_in_order(look, queue));
  for (int32_t a = 0; a < plan->nactors; a++) {
    if (plan->actors[a].queue != queue) continue;
    sl_actor_wait wait = sl_look_actor_wait(look, a);
    if (wait.why == SL_WAIT_NONE) return wait;
    if (tells_more(look, queue, &wait, &best)) best = wait;
  }
  return best;
}
