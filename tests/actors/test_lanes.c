/* SPDX-License-Identifier: Apache-2.0 */
/* Registers that share slots form one lane: their makers take turns with any timing, quota and
 * workers, and no slot is written while a reader may still read it. Plans that cannot guarantee
 * this are refused with an error that names the registers.
 *
 *   test_actors_lanes [SEED [COUNT]]
 * labels: random */
#include <stdio.h>
#include <stdlib.h>

#include <sluice/runtime.h>

#include "base/base.h"
#include "tests/support/kernel_call.h"
#include "tests/support/seeds.h"

enum { MOST = 6, MICROBATCHES = 3, STEPS = 40, MARK = 1 << 20 };

static int below(int n) { return (int)(random_bits() % (uint64_t)n); }

/* A maker writes its number and the tick; a reader reads twice. */
static void make(const sl_call *call) {
  *(volatile int64_t *)call->out[0] =
      call->attrs->attention.heads * (int64_t)MARK + call->tick.number;
}

static void rs(const sl_call *call) {
  const volatile int64_t *slot = call->in[0];
  int64_t want = call->attrs->attention.heads * (int64_t)MARK + call->tick.number;
  CHECK(*slot == want, "register %d at tick %lld holds %lld", call->attrs->attention.heads,
        (long long)call->tick.number, (long long)*slot);
  for (volatile int i = 0; i < 200; i++) {}
  CHECK(*slot == want, "register %d changes while it is read", call->attrs->attention.heads);
}

static const sl_op make_row = {.name = "make", .kernels = SL_CPU_KERNEL(make)},
                   look_row = {.name = "look", .kernels = SL_CPU_KERNEL(rs)};
static const sl_type type = {SL_F64, 0, {0}};

/* A program with `nin` inputs and `nout` outputs; the value is input 0 or output 0. */
static sl_program *program(sl_plan *plan, const sl_op *op, int who, int nin, int nout) {
  sl_program *p = sl_plan_alloc(plan, sizeof *p);
  sl_place *place = sl_plan_alloc(plan, sizeof *place);
  bool makes = op == &make_row;
  *place = (sl_place){makes ? nin : 0, 0};
  p->calls = sl_plan_alloc(plan, sizeof *p->calls);
  p->calls[0] = (sl_program_call){.op = op,
                                  .name = op->name,
                                  .attrs = {.attention.heads = who},
                                  .nin = !makes,
                                  .nout = makes,
                                  .in_type = &type,
                                  .out_type = &type,
                                  .in = makes ? NULL : place,
                                  .out = makes ? place : NULL};
  p->ncalls = 1;
  p->nbases = nin + nout + 1;
  return p;
}

typedef struct ring {
  sl_plan *plan;
  int n, quota, readers; /* makers, slots, reading devices */
  int turns;             /* 1 if makers pass a turn around, else 0 */
  int32_t made[MOST], turn[MOST];
} ring;

static void add_maker(ring *r, int i) {
  sl_plan *plan = r->plan;
  bool last = i + 1 == r->n;
  sl_port in = {r->turn[i], sl_plan_map_each(plan)};
  sl_port out[] = {
      {r->made[i], sl_plan_map_each(plan)},
      {r->turn[(i + 1) % r->n], last ? sl_plan_map_lag(plan, 1, 1) : sl_plan_map_each(plan)}};
  sl_plan_add_actor(plan,
                    (sl_actor){.name = sl_plan_format(plan, "make%d", i),
                               .cls = SL_CLASS_C,
                               .queue = 0,
                               .stage = 0,
                               .ticks = sl_plan_map_each(plan),
                               .firings_per_step = MICROBATCHES,
                               .source = !i,
                               .nin = r->turns,
                               .in = &in,
                               .nout = 1 + r->turns,
                               .out = out,
                               .seconds = 1e-6,
                               .program = program(plan, &make_row, i, r->turns, 1 + r->turns)});
}

static void add_reader(ring *r, int i, int device) {
  sl_plan *plan = r->plan;
  sl_port in = {r->made[i], sl_plan_map_each(plan)};
  sl_plan_add_actor(plan, (sl_actor){.name = sl_plan_format(plan, "look%d@%d", i, device),
                                     .cls = SL_CLASS_F,
                                     .queue = device,
                                     .stage = 0,
                                     .ticks = sl_plan_map_each(plan),
                                     .seconds = 1e-6 * below(4),
                                     .firings_per_step = MICROBATCHES,
                                     .nin = 1,
                                     .in = &in,
                                     .program = program(plan, &look_row, i, 1, 0)});
}

static void add_devices(ring *r) {
  for (int d = 0; d <= r->readers; d++) {
    sl_plan_add_device(
        r->plan,
        (sl_device){.name = sl_plan_format(r->plan, "cpu:%d", d), .kind = "cpu", .threads = 1});
    sl_plan_add_queue(r->plan, (sl_queue){.name = sl_plan_format(r->plan, "q@%d", d),
                                          .device = d,
                                          .ops = &sl_queue_cpu,
                                          .run_ahead = 1});
  }
}

static void add_lane(ring *r) {
  for (int i = 0; i < r->n; i++) {
    r->made[i] =
        sl_plan_add_register(r->plan, (sl_register){.name = sl_plan_format(r->plan, "lane%d", i),
                                                    .quota_name = "lane",
                                                    .quota = r->quota,
                                                    .pool = SL_NONE,
                                                    .slot_bytes = 8 + 64 * (size_t)i,
                                                    .memory = SL_MEMORY_ACTIVATIONS,
                                                    .shares = i ? r->made[0] + 1 : 0});
    if (r->turns)
      r->turn[i] =
          sl_plan_add_register(r->plan, (sl_register){.name = sl_plan_format(r->plan, "turn%d", i),
                                                      .quota_name = "turn",
                                                      .quota = 1,
                                                      .pool = SL_NONE,
                                                      .initial = !i,
                                                      .memory = SL_MEMORY_ACTIVATIONS});
  }
}

static ring make_ring(uint64_t seed, int turns) {
  seed_random(seed);
  ring r = {sl_plan_create(MICROBATCHES, 1),
            2 + below(MOST - 1),
            1 + below(3),
            1 + below(3),
            turns,
            {0},
            {0}};
  add_devices(&r);
  add_lane(&r);
  for (int i = 0; i < r.n; i++) add_maker(&r, i);
  for (int i = 0; i < r.n; i++)
    for (int d = 1; d <= r.readers; d++)
      if (d == 1 || below(2)) add_reader(&r, i, d);
  return r;
}

static void run_one(uint64_t seed) {
  ring r = make_ring(seed, 1);
  CHECK(!sl_plan_finish(r.plan), "seed %llu: %s", (unsigned long long)seed, sl_detail());
  CHECK(!sl_plan_prove(r.plan), "seed %llu: %s", (unsigned long long)seed, sl_detail());
  size_t lane = 0;
  for (int i = 0; i < r.n; i++) {
    const sl_register *reg = &r.plan->regs[r.made[i]];
    CHECK(reg->offset == r.plan->regs[r.made[0]].offset, "they lie in one place");
    lane = SLI_MAX(lane, reg->slot_bytes);
  }
  CHECK(r.plan->regs[r.made[0]].slot_stride >= lane, "the largest fits");
  sl_runtime_options options = {.workers = 1 + below(r.readers + 1),
                                .jitter_seed = seed,
                                .jitter_ns = below(2) ? 20000 : 0,
                                .watchdog_seconds = 20};
  sl_runtime *rt;
  CHECK(!sl_runtime_create(r.plan, &options, &rt), "%s", sl_detail());
  CHECK(!sl_runtime_run(rt, STEPS), "seed %llu: %s", (unsigned long long)seed, sl_detail());
  CHECK(!sl_runtime_run(rt, 3), "seed %llu: %s", (unsigned long long)seed, sl_detail());
  sl_runtime_destroy(rt);
  sl_plan_destroy(r.plan);
}

static void refuse(const char *words, void (*spoil)(ring *r)) {
  ring r = make_ring(3, 1);
  spoil(&r);
  CHECK(sl_plan_finish(r.plan) == SL_E_INPUT && strstr(sl_detail(), words), "%s: %s", words,
        sl_detail());
  sl_plan_destroy(r.plan);
}

/* A lazy W keeps its slot until the slot is wanted, also by another register that shares it. B
 * reads the last register of the lane as well; otherwise W could wait for that one. */
static void lazy_readers_give_slots_back(int workers) {
  seed_random(1);
  ring r = {sl_plan_create(MICROBATCHES, 1), 3, 1, 1, 1, {0}, {0}};
  add_devices(&r);
  add_lane(&r);
  r.plan->queues[1].lazy_w = true;
  r.plan->queues[1].watermark = 100;
  for (int i = 0; i < r.n; i++) add_maker(&r, i);
  for (int i = 0; i < r.n; i++) {
    add_reader(&r, i, 1);
    r.plan->actors[r.plan->nactors - 1].cls = SL_CLASS_W;
  }
  add_reader(&r, r.n - 1, 1);
  r.plan->actors[r.plan->nactors - 1].cls = SL_CLASS_B;
  CHECK(!sl_plan_finish(r.plan) && !sl_plan_prove(r.plan), "%s", sl_detail());
  sl_runtime_options options = {.workers = workers, .watchdog_seconds = 20};
  sl_runtime *rt;
  CHECK(!sl_runtime_create(r.plan, &options, &rt) && !sl_runtime_run(rt, STEPS), "%d workers: %s",
        workers, sl_detail());
  sl_runtime_destroy(rt);
  sl_plan_destroy(r.plan);
}

/* The proof rejects makers that may run in any order. */
static void run_without_turns(uint64_t seed) {
  ring r = make_ring(seed, 0);
  for (int i = 0; i < r.n; i++) r.plan->regs[r.made[i]].quota = 1;
  CHECK(!sl_plan_finish(r.plan), "%s", sl_detail());
  CHECK(sl_plan_prove(r.plan) && strstr(sl_detail(), "share slots, but do not take turns"), "%s",
        sl_detail());
  sl_plan_destroy(r.plan);
}

static void no_such_memory(ring *r) { r->plan->regs[r->made[1]].memory = SL_MEMORY_COUNT; }
static void one_maker(ring *r) {
  r->plan->regs[r->turn[1]].shares = r->made[0] + 1;
  r->plan->regs[r->turn[1]].quota = r->quota;
}
static void other_quota(ring *r) { r->plan->regs[r->made[1]].quota++; }
static void initial_slot(ring *r) { r->plan->regs[r->made[0]].initial = 1; }
static void later_register(ring *r) { r->plan->regs[r->made[0]].shares = r->made[1] + 1; }
static void other_device(ring *r) { r->plan->regs[r->made[1]].device = 1; }
static void other_queue(ring *r) { r->plan->actors[1].queue = 1; }

/* Turns a register that shared the first one's slots into one that aliases it. */
static void lie_over(ring *r) {
  sl_register *over = &r->plan->regs[r->made[1]];
  over->aliases = over->shares;
  over->shares = 0;
}
static void two_slots_over(ring *r) {
  lie_over(r);
  r->plan->regs[r->made[0]].quota = 1;
  r->plan->regs[r->made[1]].quota = 2;
}
static void other_device_over(ring *r) {
  lie_over(r);
  r->plan->regs[r->made[0]].quota = r->plan->regs[r->made[1]].quota = 1;
  r->plan->regs[r->made[1]].device = 1;
}
static void later_over(ring *r) { r->plan->regs[r->made[0]].aliases = r->made[1] + 1; }

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, TEST_SANITIZED ? 20 : 60);
  for (uint64_t seed = s.first; seed < s.end; seed++) RUN(run_one, seed);
  for (int workers = 1; workers <= 2; workers++) RUN(lazy_readers_give_slots_back, workers);
  RUN(refuse, "cannot share slots", other_quota);
  RUN(refuse, "cannot share slots", initial_slot);
  RUN(refuse, "which does not precede it", later_register);
  RUN(refuse, "cannot share slots", other_device);
  RUN(refuse, "not written on the same queue", other_queue);
  RUN(refuse, "lane1 cannot alias lane0", two_slots_over);
  RUN(refuse, "lane1 cannot alias lane0", other_device_over);
  RUN(refuse, "which does not precede it", later_over);
  RUN(refuse, "no memory", no_such_memory);
  RUN(refuse, "actor make0 writes registers lane0 and turn1, which share slots", one_maker);
  for (uint64_t seed = 1; seed < 6; seed++) RUN(run_without_turns, seed);
  return 0;
}
