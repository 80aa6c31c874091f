/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actors_plans.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tests/support/actors_streams.h"
#include "tests/support/test.h"

enum { MOST_ACTORS = 10, MOST_PORTS = 40, MOST_STEPS = 8 };

/* Period of an actor's firing, or lifetime of a register's slot. */
typedef enum level { PIECE, MICROBATCH, STEP } level;

typedef struct slot {
  uint64_t value;
  int64_t key;
  int32_t reg;
} slot;

typedef struct node {
  random_plan *plan;
  int32_t id;
  level level;
  bool reversed;
  int64_t fired;
  sl_port in[MOST_PORTS], out[MOST_PORTS];
  int nin, nout;
} node;

struct random_plan {
  sl_plan *plan;
  uint64_t seed, random;
  random_queues queues;
  int nnodes;
  node nodes[MOST_ACTORS];
  struct {
    level level;
    int32_t initial;
    slot *expected; /* indexed by key */
    int64_t known;  /* number of complete keys */
    uint8_t *have;
  } regs[4 * MOST_ACTORS];
  int64_t expected_steps;
};

uint64_t random_next(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return z ^ z >> 31;
}

int random_below(uint64_t *state, int n) { return (int)(random_next(state) % (uint64_t)n); }

static uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t state = a * 31 + b;
  return random_next(&state);
}

/* ---- the op ----------------------------------------------------------------------- */

/* Returns the value of a firing, from its inputs' values in order of ports. */
static uint64_t firing_value(const node *n, int64_t tick, const uint64_t *in, int nin) {
  uint64_t value = mix((uint64_t)n->id, (uint64_t)tick);
  for (int i = 0; i < nin; i++) value = mix(value, in[i]);
  return value;
}

static int64_t port_key(const random_plan *r, const sl_port *p, int64_t firing, uint32_t *flags) {
  return sl_map_key(&r->plan->maps[p->map], firing, flags);
}

static void hash_inputs(const sl_call *call) {
  node *n = (node *)call->attrs->user;
  const random_plan *r = n->plan;
  uint64_t values[MOST_PORTS];
  uint32_t flags;
  int64_t firing = n->fired++, tick = sl_plan_tick(r->plan, n->id, firing).number;
  CHECK(call->tick.number == tick,
        "seed %" PRIu64 ": actor %d got tick %" PRId64 " instead of %" PRId64, r->seed, n->id,
        call->tick.number, tick);
  CHECK(call->tick.step == firing / r->plan->actors[n->id].firings_per_step,
        "seed %" PRIu64 ": actor %d firing %" PRId64 " in step %" PRId64, r->seed, n->id, firing,
        call->tick.step);
  int count = 0;
  for (int i = 0; i < n->nin; i++) {
    int64_t key = port_key(r, &n->in[i], firing, &flags);
    if (flags & SL_SKIP) continue;
    const slot *s = call->in[i], *want = &r->regs[n->in[i].reg].expected[key];
    CHECK(s->reg == want->reg && s->key == key && s->value == want->value,
          "seed %" PRIu64 ": actor %d firing %" PRId64 " reads register %d key %" PRId64
          " and finds register %d key %" PRId64 " value %" PRIx64 ", not %" PRIx64,
          r->seed, n->id, firing, n->in[i].reg, key, s->reg, s->key, s->value, want->value);
    values[count++] = s->value;
  }
  uint64_t value = firing_value(n, tick, values, count);
  for (int o = 0; o < n->nout; o++) {
    slot *s = call->out[o];
    int64_t key = port_key(r, &n->out[o], firing, &flags);
    bool adds = call->accumulate >> o & 1;
    if (r->plan->regs[n->out[o].reg].held) {
      s->value += value; /* private: no other firing may have changed it */
      continue;
    }
    if (adds)
      CHECK(s->key == key, "seed %" PRIu64 ": actor %d adds to another slot", r->seed, n->id);
    *s = (slot){(adds ? s->value : 0) + mix(value, (uint64_t)o), key, n->out[o].reg};
  }
}

static const sl_op hash_op = {.name = "hash", .max_in = -1, .kernels = SL_CPU_KERNEL(hash_inputs)};

static sl_program *make_program(sl_plan *plan, node *n) {
  sl_program *program = sl_plan_alloc(plan, sizeof *program);
  sl_program_call *call = sl_plan_alloc(plan, sizeof *call);
  sl_place *places = sl_plan_alloc(plan, (size_t)(n->nin + n->nout + 1) * sizeof *places);
  sl_type *types = sl_plan_alloc(plan, (size_t)(n->nin + n->nout + 1) * sizeof *types);
  for (int i = 0; i < n->nin + n->nout; i++) {
    places[i] = (sl_place){i, 0};
    types[i] = SL_TYPE(SL_F64, sizeof(slot) / 8);
  }
  *call = (sl_program_call){.op = &hash_op,
                            .name = "hash",
                            .attrs = {.user = n},
                            .nin = n->nin,
                            .nout = n->nout,
                            .in_type = types,
                            .out_type = types + n->nin,
                            .in = places,
                            .out = places + n->nin,
                            .accumulate_span = n->nout ? (1u << n->nout) - 1 : 0};
  *program = (sl_program){.ncalls = 1, .calls = call, .nbases = n->nin + n->nout + 1};
  return program;
}

/* ---- a queue that completes later --------------------------------------------------- */

enum { LATER_MOST = 8 };
typedef struct later {
  void *cpu;
  uint64_t launched, completed;
  int patience; /* polls before the oldest firing completes */
  struct {
    const sl_program *program;
    sl_tick tick;
    void *bases[MOST_PORTS + 1];
    uint8_t first[MOST_PORTS + 1];
    int32_t *extents[MOST_PORTS + 1];
    bool sized;
  } flights[LATER_MOST];
} later;

static sl_status later_open(const sl_queue_config *config, void **queue) {
  later *q = sli_calloc(1, sizeof *q);
  sl_status status = sl_queue_cpu.open(config, &q->cpu);
  CHECK(!status, "%s", sl_detail());
  *queue = q;
  return SL_OK;
}

static void later_close(void *queue) {
  later *q = queue;
  sl_queue_cpu.close(q->cpu);
  free(q);
}

static bool later_launch(void *queue, const sl_program *program, const sl_firing *firing,
                         uint64_t now_ns, uint64_t duration_ns, uint64_t *fence) {
  (void)now_ns, (void)duration_ns;
  later *q = queue;
  CHECK(q->launched - q->completed < LATER_MOST, "more firings under way than run-ahead allows");
  *fence = q->launched++;
  size_t at = *fence % LATER_MOST, nbases = (size_t)program->nbases;
  q->flights[at].program = program;
  q->flights[at].tick = firing->tick;
  memcpy(q->flights[at].bases, firing->bases, nbases * sizeof *firing->bases);
  memcpy(q->flights[at].first, firing->first, nbases);
  q->flights[at].sized = firing->lengths;
  if (firing->lengths)
    memcpy(q->flights[at].extents, firing->lengths, nbases * sizeof *firing->lengths);
  return false;
}

static bool later_done(void *queue, uint64_t fence, uint64_t now_ns) {
  later *q = queue;
  uint64_t none;
  if (fence < q->completed) return true;
  CHECK(fence == q->completed, "completions asked for out of order");
  if (q->patience-- > 0) return false;
  q->patience = (int)(mix(fence, now_ns) % 4);
  size_t at = fence % LATER_MOST;
  sl_firing firing = {.tick = q->flights[at].tick,
                      .bases = q->flights[at].bases,
                      .first = q->flights[at].first,
                      .lengths = q->flights[at].sized ? q->flights[at].extents : NULL};
  sl_queue_cpu.launch(q->cpu, q->flights[at].program, &firing, 0, 0, &none);
  q->completed++;
  return true;
}

static uint64_t later_due(void *queue, uint64_t fence) {
  (void)queue, (void)fence;
  return UINT64_MAX;
}

const sl_queue_ops later_queue = {.name = "later",
                                  .open = later_open,
                                  .close = later_close,
                                  .launch = later_launch,
                                  .done = later_done,
                                  .due = later_due};

/* ---- key maps ------------------------------------------------------------------------ */

/* Returns the firings per step of an actor at this level. */
static int32_t per_step(const random_plan *r, level l) {
  return l == PIECE        ? r->plan->microbatches * r->plan->pieces
         : l == MICROBATCH ? r->plan->microbatches
                           : 1;
}

/* Makes the map from firings at `from` to slots that last for `slot`. */
static int32_t make_map(random_plan *r, const node *n, level slot_level, int32_t lag) {
  sl_plan *plan = r->plan;
  int32_t span = per_step(r, n->level) / per_step(r, slot_level);
  if (n->level != PIECE || slot_level != PIECE || !n->reversed)
    return sl_plan_map_lag(plan, (uint32_t)span, lag);
  sl_map_entry entries[8];
  for (int32_t k = 0; k < plan->pieces; k++)
    entries[k] = (sl_map_entry){plan->pieces - 1 - k + lag, SL_FIRST | SL_LAST};
  return sl_plan_add_map(plan, (uint32_t)plan->pieces, plan->pieces, entries);
}

/* Makes a map that reads the slot in the first firing of its span and skips the others. */
static int32_t make_skipping_map(random_plan *r, const node *n, level slot_level) {
  int32_t span = per_step(r, n->level) / per_step(r, slot_level);
  sl_map_entry *entries = sli_calloc((size_t)span, sizeof *entries);
  for (int32_t i = 0; i < span; i++) entries[i].flags = i ? SL_SKIP : SL_FIRST | SL_LAST;
  int32_t map = sl_plan_add_map(r->plan, (uint32_t)span, 1, entries);
  free(entries);
  return map;
}

static int32_t make_ticks(random_plan *r, const node *n) {
  sl_plan *plan = r->plan;
  int32_t k = plan->pieces, mk = k * plan->microbatches;
  if (n->level == STEP) return sl_plan_add_map(plan, 1, mk, &(sl_map_entry){0, 0});
  if (n->level == MICROBATCH) return sl_plan_add_map(plan, 1, k, &(sl_map_entry){0, 0});
  if (!n->reversed) return sl_plan_map_each(plan);
  sl_map_entry entries[8];
  for (int32_t i = 0; i < k; i++) entries[i] = (sl_map_entry){k - 1 - i, 0};
  return sl_plan_add_map(plan, (uint32_t)k, k, entries);
}

/* ---- the plan ------------------------------------------------------------------------ */

static const sl_queue_ops *choose_queue(random_plan *r, random_queues queues) {
  static const sl_queue_ops *const modelled[] = {&sl_queue_timed, &sl_queue_timed, &sl_queue_delay,
                                                 &sl_queue_null};
  int which = random_below(&r->random, 4);
  if (queues == QUEUES_TIMED) return modelled[which];
  if (queues == QUEUES_STREAMS && which) return &stream_queue;
  return queues == QUEUES_LATER && which ? &later_queue : &sl_queue_cpu;
}

static void add_queues(random_plan *r, random_queues queues) {
  int devices = 1 + random_below(&r->random, 4);
  for (int d = 0; d < devices; d++) {
    char name[16];
    snprintf(name, sizeof name, "dev%d", d);
    sl_plan_add_device(r->plan, (sl_device){.name = name, .kind = "cpu", .threads = 1});
    for (int q = random_below(&r->random, 2); q >= 0; q--) {
      sl_queue queue = {.name = name,
                        .device = d,
                        .ops = choose_queue(r, queues),
                        .run_ahead = 1 + random_below(&r->random, 4)};
      for (int c = 0; c < SL_CLASS_COUNT; c++)
        queue.class_order[c] = (uint8_t)random_below(&r->random, 3);
      sl_plan_add_queue(r->plan, queue);
    }
  }
}

static int32_t add_register(random_plan *r, level l, int32_t initial, int32_t quota, int32_t pool) {
  char name[16];
  snprintf(name, sizeof name, "r%d", r->plan->nregs);
  int32_t reg = sl_plan_add_register(
      r->plan, (sl_register){.name = name,
                             .quota_name = "q",
                             .quota = quota,
                             .pool = pool,
                             .kept = pool == SL_NONE ? 0 : r->plan->pieces + initial,
                             .initial = initial,
                             .memory = SL_MEMORY_ACTIVATIONS,
                             .slot_bytes = sizeof(slot)});
  r->regs[reg].level = l;
  r->regs[reg].initial = initial;
  return reg;
}

static level coarser(random_plan *r, level from) {
  return (level)((int)from + random_below(&r->random, STEP - (int)from + 1));
}

/* Adds a register from one actor to some that can read its slots. */
static void add_edge(random_plan *r, node *from, int32_t quota, int32_t pool) {
  level l = random_below(&r->random, 3) ? from->level : coarser(r, from->level);
  bool back = random_below(&r->random, 10) == 0;
  int32_t lag = back ? 1 + random_below(&r->random, 2) : 0;
  int32_t reg = add_register(r, l, lag, SLI_MAX(quota, lag), pool);
  from->out[from->nout++] = (sl_port){reg, make_map(r, from, l, lag)};
  int readers = 1 + random_below(&r->random, 3);
  for (int tries = 0; tries < 12 && readers; tries++) {
    int to = random_below(&r->random, r->nnodes);
    node *n = &r->nodes[to];
    if ((back ? to > from->id : to <= from->id) || n->level > l || n->nin >= MOST_PORTS / 2)
      continue;
    bool skips = n->level < l && random_below(&r->random, 3) == 0;
    n->in[n->nin++] = (sl_port){reg, skips ? make_skipping_map(r, n, l) : make_map(r, n, l, 0)};
    readers--;
  }
}

static void add_state(random_plan *r, node *n) {
  int32_t reg = add_register(r, STEP, 0, 1, SL_NONE);
  r->plan->regs[reg].held = true;
  n->out[n->nout++] = (sl_port){reg, sl_plan_map_hold(r->plan)};
}

static sl_class random_class(random_plan *r) {
  static const sl_class classes[] = {
#define X(letter, number, name) SL_CLASS_##letter,
      SL_CLASS_TABLE(X)
#undef X
  };
  return classes[random_below(&r->random, SLI_COUNT(classes))];
}

static void add_actor(random_plan *r, node *n) {
  char name[16];
  snprintf(name, sizeof name, "a%d", n->id);
  sl_actor a = {.name = name,
                .cls = random_class(r),
                .queue = random_below(&r->random, r->plan->nqueues),
                .stage = SL_NONE,
                .chunk = SL_NONE,
                .ticks = make_ticks(r, n),
                .firings_per_step = per_step(r, n->level),
                .source = !n->nin,
                .rank = random_below(&r->random, 3),
                .rank_group = random_below(&r->random, 3),
                .rank_stride = random_below(&r->random, 3),
                .nin = n->nin,
                .nout = n->nout,
                .in = n->in,
                .out = n->out,
                .program = make_program(r->plan, n),
                .seconds = random_below(&r->random, 5) * 1e-6};
  sl_plan_add_actor(r->plan, a);
}

/* Places each register on the device that writes it. */
static void place_registers(random_plan *r) {
  for (int32_t a = 0; a < r->plan->nactors; a++)
    for (int32_t o = 0; o < r->plan->actors[a].nout; o++)
      r->plan->regs[r->plan->actors[a].out[o].reg].device =
          r->plan->queues[r->plan->actors[a].queue].device;
}

/* Restricts the pool to one device: registers written elsewhere leave it. */
static void settle_pool(random_plan *r, uint64_t *quotas) {
  int32_t kept = 0;
  for (int32_t i = 0; i < r->plan->nregs; i++) {
    sl_register *reg = &r->plan->regs[i];
    if (reg->pool == SL_NONE) continue;
    if (reg->device != 0) {
      reg->pool = SL_NONE;
    } else {
      kept += reg->kept;
      reg->quota = SLI_MAX(reg->quota, reg->kept);
      reg->activation = 1; /* so that the device's peak is the pool's */
    }
  }
  r->plan->pools[0].quota = kept + random_below(quotas, 3);
}

random_plan *random_plan_create(uint64_t seed, uint64_t quotas, random_queues queues) {
  random_plan *r = sli_calloc(1, sizeof *r);
  r->seed = r->random = seed;
  r->queues = queues;
  int m = 1 + random_below(&r->random, 5), k = 1 + random_below(&r->random, 4);
  r->plan = sl_plan_create(m, k);
  add_queues(r, queues);
  bool pooled = random_below(&r->random, 3) == 0;
  if (pooled) sl_plan_add_pool(r->plan, (sl_pool){.name = "pool", .quota = 1});
  r->nnodes = 2 + random_below(&r->random, MOST_ACTORS - 1);
  for (int i = 0; i < r->nnodes; i++)
    r->nodes[i] =
        (node){.plan = r,
               .id = i,
               .level = random_below(&r->random, 4) ? PIECE : (level)random_below(&r->random, 3),
               .reversed = random_below(&r->random, 3) == 0};
  for (int i = 0; i < r->nnodes; i++) {
    for (int e = random_below(&r->random, 3); e >= 0; e--) {
      /* three times of four, no quota below what a reversed reader needs */
      int32_t quota = 1 + random_below(&quotas, 5);
      if (random_below(&quotas, 8)) quota = SLI_MAX(quota, k);
      add_edge(r, &r->nodes[i], quota, pooled && random_below(&r->random, 2) ? 0 : SL_NONE);
    }
    if (random_below(&r->random, 4) == 0) add_state(r, &r->nodes[i]);
  }
  for (int i = 0; i < r->nnodes; i++) add_actor(r, &r->nodes[i]);
  place_registers(r);
  if (pooled) settle_pool(r, &quotas);
  sl_status status = sl_plan_finish(r->plan);
  CHECK(!status, "seed %" PRIu64 ": %s", seed, sl_detail());
  return r;
}

void random_plan_destroy(random_plan *r) {
  if (!r) return;
  for (int32_t i = 0; i < r->plan->nregs; i++) {
    free(r->regs[i].expected);
    free(r->regs[i].have);
  }
  sl_plan_destroy(r->plan);
  free(r);
}

const sl_plan *random_plan_get(const random_plan *r) { return r->plan; }

/* ---- expected values ------------------------------------------------------------------- */

static bool inputs_known(const random_plan *r, const node *n, int64_t firing) {
  uint32_t flags;
  for (int i = 0; i < n->nin; i++) {
    int64_t key = port_key(r, &n->in[i], firing, &flags);
    if (!(flags & SL_SKIP) && !r->regs[n->in[i].reg].have[key]) return false;
  }
  return true;
}

static void evaluate(random_plan *r, node *n, int64_t firing) {
  uint64_t values[MOST_PORTS];
  uint32_t flags;
  int count = 0;
  for (int i = 0; i < n->nin; i++) {
    int64_t key = port_key(r, &n->in[i], firing, &flags);
    if (!(flags & SL_SKIP)) values[count++] = r->regs[n->in[i].reg].expected[key].value;
  }
  uint64_t value = firing_value(n, sl_plan_tick(r->plan, n->id, firing).number, values, count);
  for (int o = 0; o < n->nout; o++) {
    int32_t reg = n->out[o].reg;
    if (r->plan->regs[reg].held) continue;
    int64_t key = port_key(r, &n->out[o], firing, &flags);
    r->regs[reg].expected[key].value += mix(value, (uint64_t)o);
    if (flags & SL_LAST) r->regs[reg].have[key] = 1;
  }
}

static slot initial_slot(int32_t reg, int64_t key) {
  return (slot){mix((uint64_t)reg, (uint64_t)key), key, reg};
}

void random_plan_expect(random_plan *r, int64_t steps) {
  for (int32_t i = 0; i < r->plan->nregs; i++) {
    int64_t keys = (steps + 1) * per_step(r, r->regs[i].level) + r->regs[i].initial + 16;
    r->regs[i].expected = sli_calloc((size_t)keys, sizeof(slot));
    r->regs[i].have = sli_calloc((size_t)keys, 1);
    for (int64_t k = 0; k < keys; k++) {
      r->regs[i].expected[k] = (slot){0, k, i};
      if (k >= r->regs[i].initial) continue;
      r->regs[i].expected[k] = initial_slot(i, k);
      r->regs[i].have[k] = 1;
    }
  }
  int64_t fired[MOST_ACTORS] = {0};
  for (bool any = true; any;) {
    any = false;
    for (int i = 0; i < r->nnodes; i++) {
      node *n = &r->nodes[i];
      while (fired[i] < steps * per_step(r, n->level) && inputs_known(r, n, fired[i]))
        evaluate(r, n, fired[i]++), any = true;
    }
  }
  for (int i = 0; i < r->nnodes; i++)
    CHECK(fired[i] == steps * per_step(r, r->nodes[i].level),
          "seed %" PRIu64 ": the plan makes no sense: actor %d stops at %" PRId64, r->seed, i,
          fired[i]);
}

void random_plan_fill(random_plan *r, sl_runtime *rt) {
  for (int i = 0; i < r->nnodes; i++) r->nodes[i].fired = 0;
  for (int32_t i = 0; i < r->plan->nregs; i++)
    for (int32_t s = 0; s < r->regs[i].initial; s++)
      *(slot *)sl_runtime_slot(rt, i, s) = initial_slot(i, s);
}

/* ---- checks -------------------------------------------------------------------------------- */

static void check_trace(const random_plan *r, const sl_runtime *rt, int64_t steps) {
  sl_trace_record *records;
  uint64_t dropped;
  size_t n = sl_runtime_trace(rt, &records, &dropped);
  CHECK(!dropped, "seed %" PRIu64 ": the ring was too small", r->seed);
  int64_t seen[MOST_ACTORS] = {0};
  uint64_t last[MOST_ACTORS] = {0};
  for (size_t i = 0; i < n; i++) {
    const sl_trace_record *t = &records[i];
    CHECK(t->firing == seen[t->actor]++,
          "seed %" PRIu64 ": actor %d fires %" PRId64 " out of order", r->seed, t->actor,
          t->firing);
    CHECK(t->end_ns >= t->start_ns && t->end_ns >= last[t->actor],
          "seed %" PRIu64 ": actor %d ends before it began, or before its last firing", r->seed,
          t->actor);
    last[t->actor] = t->end_ns;
  }
  for (int i = 0; i < r->nnodes; i++)
    CHECK(seen[i] == steps * per_step(r, r->nodes[i].level),
          "seed %" PRIu64 ": actor %d fired %" PRId64 " times in %" PRId64 " steps", r->seed, i,
          seen[i], steps);
  free(records);
}

void random_plan_check(const random_plan *r, const sl_runtime *rt, int64_t steps) {
  check_trace(r, rt, steps);
  for (int32_t i = 0; i < r->plan->nregs; i++)
    CHECK(sl_runtime_peak_slots(rt, i) <= r->plan->regs[i].quota,
          "seed %" PRIu64 ": register %d held %d slots of %d", r->seed, i,
          sl_runtime_peak_slots(rt, i), r->plan->regs[i].quota);
  if (r->plan->npools)
    CHECK(sl_runtime_peak_activations(rt, 0) <= r->plan->pools[0].quota,
          "seed %" PRIu64 ": the pool held %g slots of %d", r->seed,
          sl_runtime_peak_activations(rt, 0), r->plan->pools[0].quota);
}
