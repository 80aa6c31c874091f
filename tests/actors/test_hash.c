/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's hash covers its fields: changing any field that can affect a run changes the hash, in a
 * plan with one of each kind and in random plans. Settings that a process may choose for itself do
 * not change it.
 * labels: unthreaded */
#include <sluice/ops.h>
#include <sluice/optimizer.h>

#include <string.h>

#include "actors/plan/plan.h"
#include "tests/support/actors_plans.h"
#include "tests/support/test.h"

/* ---- a plan with one of each ------------------------------------------------------------ */

static sl_optimizer optimizer;
static sl_part parts[2];
static sl_joint joint;
static sl_type types[3];
static sl_source source;
static sl_program_call calls[4];
static sl_program_piece pieces[2];
static sl_program program;
static sl_map_entry entries[2];
static int32_t order[3];

static void reset_records(void) {
  static const sl_place places[] = {{0, 0}, {1, 64}, {2, 128}, {2, 192}};
  optimizer = (sl_optimizer){.lr = 1e-3f,
                             .min_lr = 1e-4f,
                             .warmup = 20,
                             .decay_steps = 100,
                             .beta1 = 0.9f,
                             .beta2 = 0.95f,
                             .eps = 1e-8f,
                             .weight_decay = 0.1f,
                             .clip = 1};
  parts[0] = (sl_part){0, 2, {0, 4}, {2, 1}};
  parts[1] = (sl_part){0, 1, {2}, {2}};
  for (int i = 0; i < 3; i++) types[i] = SL_TYPE(SL_F32, 4, 6);
  joint = (sl_joint){types[0], parts};
  source = (sl_source){.nout = 1, .types = types, .cut = 1};
  const sl_program_call call = {.name = "call",
                                .nin = 1,
                                .nout = 1,
                                .in_type = types,
                                .out_type = types + 1,
                                .in = places,
                                .out = places + 1};
  for (size_t c = 0; c < SLI_COUNT(calls); c++) calls[c] = call;
  calls[0].op = &sl_op_clip, calls[0].attrs.user = &optimizer;
  calls[1].op = &sl_op_slice, calls[1].attrs.user = &parts[0];
  calls[2].op = &sl_op_join, calls[2].attrs.user = &joint, calls[2].nin = 2;
  calls[3].op = &sl_op_source, calls[3].attrs.user = &source, calls[3].nin = 0;
  pieces[0] = (sl_program_piece){0, 8, 0};
  pieces[1] = (sl_program_piece){8, 4, 1};
  program =
      (sl_program){.ncalls = 2, .nvariants = 2, .nbases = 4, .calls = calls, .pieces = pieces};
  entries[0] = (sl_map_entry){0, SL_FIRST};
  entries[1] = (sl_map_entry){0, SL_LAST};
  for (int i = 0; i < 3; i++) order[i] = i < 2 ? 0 : 1;
}

/* Builds the plan; the programs belong to this test and are part of the plan only while it is
 * hashed. */
static sl_plan *make_plan(void) {
  sl_plan *plan = sl_plan_create(2, 1);
  int32_t each = sl_plan_map_each(plan), span = sl_plan_add_map(plan, 2, 1, entries);
  sl_plan_add_device(
      plan, (sl_device){.name = "a", .kind = "cpu", .threads = 2, .budget_bytes = 1 << 30});
  sl_plan_add_device(plan, (sl_device){.name = "b", .kind = "cpu", .threads = 2, .process = 1});
  sl_plan_add_queue(plan, (sl_queue){.name = "q",
                                     .device = 0,
                                     .ops = &sl_queue_cpu,
                                     .threads = 2,
                                     .run_ahead = 1,
                                     .norder = 3,
                                     .order = order});
  sl_plan_add_queue(
      plan,
      (sl_queue){.name = "p", .device = 0, .ops = &sl_queue_timed, .run_ahead = 1, .watermark = 3});
  sl_plan_add_pool(plan, (sl_pool){"pool", 4});
  sl_plan_add_pool(plan, (sl_pool){"other", 4});
  const sl_register reg = {
      .name = "r", .quota_name = "act", .quota = 2, .pool = 0, .slot_bytes = 64, .activation = 1};
  sl_plan_add_register(plan, reg);
  sl_plan_add_register(
      plan, (sl_register){
                .name = "s", .quota_name = "act", .quota = 2, .pool = SL_NONE, .slot_bytes = 64});
  sl_plan_add_actor(plan, (sl_actor){.name = "x",
                                     .ticks = each,
                                     .firings_per_step = 2,
                                     .nout = 1,
                                     .out = &(sl_port){0, each},
                                     .seconds = 1});
  sl_plan_add_actor(plan, (sl_actor){.name = "y",
                                     .ticks = span,
                                     .firings_per_step = 1,
                                     .nin = 1,
                                     .nout = 1,
                                     .in = &(sl_port){0, span},
                                     .out = &(sl_port){1, each}});
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  return plan;
}

static uint64_t hash_of(sl_plan *plan) {
  plan->actors[0].program = &program;
  uint64_t hash = sli_plan_hash(plan);
  plan->actors[0].program = NULL;
  return hash;
}

/* ---- one change -------------------------------------------------------------------------- */

static sl_plan *plan;

/* X(change): a statement that changes `plan` or the records. */
/* clang-format off */
#define CHANGES(X)                                                                              \
  X(plan->microbatches++) X(plan->pieces++)                                                     \
  X(plan->devices[0].name = "c") X(plan->devices[0].kind = "cuda")                              \
  X(plan->devices[1].process = 0) X(plan->devices[0].at[SL_AT_DATA] = 1)                        \
  X(plan->devices[0].room[SL_SPACE_HOST].workspace_bytes = 64)                                  \
  X(plan->devices[0].room[SL_SPACE_DISK].workspace_bytes = 64)                                  \
  X(plan->queues[0].name = "z") X(plan->queues[0].device = 1)                                   \
  X(plan->queues[1].ops = &sl_queue_null) X(plan->queues[0].space = SL_SPACE_HOST)              \
  X(plan->queues[0].run_ahead = 2) X(plan->queues[0].class_order[SL_CLASS_W] = 1)               \
  X(plan->queues[0].lazy_w = true) X(plan->queues[1].watermark = 4)                             \
  X(plan->queues[0].look_ahead = 1e-9) X(plan->queues[0].apart = true)                          \
  X(plan->queues[0].norder = 2) X(plan->queues[0].order = NULL) X(order[0] = 1, order[2] = 0)   \
  X(plan->pools[0].name = "z") X(plan->pools[1].quota = 5) X(plan->npools = 1)                  \
  X(entries[0].offset = 1) X(entries[1].flags |= SL_FIRST)                                      \
  X(plan->maps[1].stride = 2) X(plan->maps[1].period = 1)                                       \
  X(plan->regs[0].name = "z") X(plan->regs[0].quota_name = "z") X(plan->regs[0].quota = 3)      \
  X(plan->regs[0].quota_most = 3) X(plan->regs[0].pool = 1) X(plan->regs[0].kept = 2)           \
  X(plan->regs[0].initial = 1) X(plan->regs[0].held = true) X(plan->regs[0].device = 1)         \
  X(plan->regs[0].space = SL_SPACE_HOST) X(plan->regs[0].memory = SL_MEMORY_OPTIMIZER)          \
  X(plan->regs[0].slot_bytes = 128) X(plan->regs[0].payload_bytes = 60)                         \
  X(plan->regs[1].shares = 1) X(plan->regs[1].aliases = 1) X(plan->regs[0].activation = 2)         \
  X(plan->regs[0].aside = true) X(plan->regs[0].peer = true)                                                                 \
  X(plan->actors[0].name = "z") X(plan->actors[0].cls = SL_CLASS_B) X(plan->actors[0].queue = 1)\
  X(plan->actors[0].stage = 1) X(plan->actors[0].chunk = 1) X(plan->actors[0].ticks = 1)        \
  X(plan->actors[0].firings_per_step = 4) X(plan->actors[0].every = 2)                          \
  X(plan->actors[1].source = true) X(plan->actors[0].rank = 1)                                  \
  X(plan->actors[0].rank_group = 1) X(plan->actors[0].rank_stride = 1)                          \
  X(plan->actors[0].rank_shift = 1) X(plan->actors[1].in[0].reg = 1)                            \
  X(plan->actors[1].in[0].map = 0) X(plan->actors[1].out[0].reg = 0) X(plan->actors[1].nin = 0) \
  X(plan->actors[0].seconds = 1 + 1e-15)                                                        \
  X(program.ncalls = 1) X(program.nvariants = 1) X(program.nbases = 5)                          \
  X(program.pieces = NULL) X(pieces[0].row = 1) X(pieces[0].rows = 9) X(pieces[0].variant = 1)  \
  X(calls[0].op = &sl_op_adamw) X(calls[0].name = "z") X(calls[0].accumulate = 1)               \
  X(calls[0].accumulate_span = 1) X(calls[1].nin = 0) X(calls[1].nout = 0)                      \
  X(calls[0].in = &calls[0].out[1]) X(calls[0].out = calls[0].in)                               \
  X(calls[1].attrs.user = &parts[1])                                                            \
  X(calls[1].attrs.place.length = 1) X(calls[0].attrs.numbers.part[2] = 1)                      \
  X(types[0].dtype = SL_BF16) X(types[1].ndim = 1) X(types[1].dim[1] = 7)                       \
  X(optimizer.lr = 2e-3f) X(optimizer.min_lr = 0) X(optimizer.warmup = 21)                      \
  X(optimizer.decay_steps = 0) X(optimizer.beta1 = 0.8f) X(optimizer.beta2 = 0.9f)              \
  X(optimizer.eps = 1e-6f) X(optimizer.weight_decay = 0) X(optimizer.clip = 0)                  \
  X(optimizer.schedule = SL_RATE_LINEAR) X(optimizer.decay_all = true)                          \
  X(parts[0].axis = SL_PART_FLAT) X(parts[0].nranges = 1) X(parts[0].begin[1] = 5)              \
  X(parts[0].count[1] = 2) X(parts[1].begin[0] = 3) X(joint.type.dim[0] = 5)                    \
  X(source.cut = 0) X(source.nout = 2)
/* clang-format on */

/* Changes that a process may make for itself, and fields that follow from others. */
/* clang-format off */
#define OWN(X)                                                                                  \
  X(plan->devices[0].threads = 7) X(plan->devices[0].number = 3)                                \
  X(plan->devices[0].budget_bytes = 0) X(plan->queues[0].threads = 5)                           \
  X(plan->devices[0].room[SL_SPACE_DISK].path = "/tmp")                                         \
  X(plan->devices[0].room[SL_SPACE_DISK].budget_bytes = 4096)                                   \
  X(plan->regs[0].offset = 4096) X(plan->regs[0].nconsumers = 3)                                \
  X(parts[0].begin[2] = 9) X(types[0].dim[3] = 9) X(program.state = &program)                   \
  X(source.ctx = &program)
/* clang-format on */

#define X(...) #__VA_ARGS__,
static const char *const changes[] = {CHANGES(X)}, *const own[] = {OWN(X)};
#undef X

/* Applies change number `which` of a list. */
static void make_change(int which, bool of_own) {
  int at = 0;
#define X(...)         \
  if (at++ == which) { \
    __VA_ARGS__;       \
  }
  if (of_own) {
    OWN(X)
  } else {
    CHANGES(X)
  }
#undef X
}

/* A plan copies its maps: here the second map gets this test's entries instead. */
static void begin(void) {
  reset_records();
  plan = make_plan();
  plan->maps[1].entries = entries;
  plan->queues[0].order = order;
}

static void a_change_of_any_field_is_seen(void) {
  uint64_t seen[SLI_COUNT(changes) + 1];
  for (size_t i = 0; i <= SLI_COUNT(changes); i++) {
    begin();
    if (i < SLI_COUNT(changes)) make_change((int)i, false);
    seen[i] = hash_of(plan);
    const char *text = i < SLI_COUNT(changes) ? changes[i] : "no change";
    for (size_t k = 0; k < i; k++)
      CHECK(seen[k] != seen[i], "\"%s\" and \"%s\" have one hash", changes[k], text);
    reset_records();
    plan->npools = 2;
    sl_plan_destroy(plan);
  }
  printf("%zu changes\n", SLI_COUNT(changes));
}

static void what_is_a_processs_own_is_not(void) {
  for (size_t i = 0; i < SLI_COUNT(own); i++) {
    begin();
    uint64_t before = hash_of(plan);
    make_change((int)i, true);
    CHECK(hash_of(plan) == before, "%s changes the hash", own[i]);
    sl_plan_destroy(plan);
  }
}

/* ---- random plans ------------------------------------------------------------------------- */

static void random_plans_differ(void) {
  enum { COUNT = 200 };
  uint64_t seen[2 * COUNT];
  for (int i = 0; i < COUNT; i++) {
    random_plan *a = random_plan_create((uint64_t)i + 1, 1, QUEUES_CPU);
    random_plan *b = random_plan_create((uint64_t)i + 1, 1, QUEUES_CPU);
    sl_plan *p = (sl_plan *)random_plan_get(a);
    seen[2 * i] = p->hash;
    CHECK(p->hash == random_plan_get(b)->hash, "seed %d: the same calls, the same hash", i + 1);
    CHECK(!sl_plan_finish(p) && p->hash == seen[2 * i], "seed %d: finished once more", i + 1);
    p->regs[i % p->nregs].kept++;
    seen[2 * i + 1] = sli_plan_hash(p);
    p->regs[i % p->nregs].kept--;
    for (int k = 0; k < 2 * i; k++)
      CHECK(seen[k] != seen[2 * i] && seen[k] != seen[2 * i + 1], "seeds %d and %d", i + 1, k / 2);
    random_plan_destroy(a);
    random_plan_destroy(b);
  }
}

int main(void) {
  RUN(a_change_of_any_field_is_seen);
  RUN(what_is_a_processs_own_is_not);
  RUN(random_plans_differ);
  return 0;
}
