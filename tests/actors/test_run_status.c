/* SPDX-License-Identifier: Apache-2.0 */
/* The status of a run tells its progress and who waits for whom. Tested on a line of actors with
 * one that hangs, on random plans at rest (where it must agree with the runtime's own counters),
 * and assembled from parts; invalid parts are rejected.
 *
 *   test_actors_run_status [SEED [COUNT]]
 * labels: random */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include <sluice/run_status.h>

#include "actors/run/state.h"
#include "tests/support/actors_plans.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

/* ---- a line that hangs ------------------------------------------------------------------ */

enum { STAGES = 4, QUOTA = 3, HANGS = 2, AT = 5, TICKS = 16 };

static atomic_bool released;

static void hang_sometimes(const sl_call *call) {
  if (call->nin && call->nout && call->tick.number == AT)
    while (!atomic_load(&released)) usleep(1000);
}
static const sl_op hang_row = {
    .name = "hang", .max_in = -1, .kernels = SL_CPU_KERNEL(hang_sometimes)};

static sl_program *make_program(sl_plan *plan) {
  static const sl_place in = {0, 0}, out = {1, 0};
  static const sl_type type = {SL_F64, 0, {0}};
  sl_program *program = sl_plan_alloc(plan, sizeof *program);
  program->calls = sl_plan_alloc(plan, sizeof *program->calls);
  program->ncalls = 1;
  program->nbases = 3;
  program->calls[0] = (sl_program_call){.op = &hang_row,
                                        .name = "hang",
                                        .nin = 1,
                                        .nout = 1,
                                        .in_type = &type,
                                        .out_type = &type,
                                        .in = &in,
                                        .out = &out};
  return program;
}

/* a -> b -> c -> d on separate devices; c hangs in tick AT. */
static sl_plan *make_line(void) {
  static const char *const names[] = {"a", "b", "c", "d"};
  sl_plan *plan = sl_plan_create(TICKS, 1);
  int32_t each = sl_plan_map_each(plan);
  for (int s = 0; s < STAGES; s++) {
    sl_plan_add_device(plan, (sl_device){.name = names[s], .kind = "cpu", .threads = 1});
    sl_plan_add_queue(plan, (sl_queue){.name = names[s], .device = s, .ops = &sl_queue_cpu});
    if (s + 1 < STAGES)
      sl_plan_add_register(plan, (sl_register){.name = names[s],
                                               .quota_name = "link",
                                               .quota = QUOTA,
                                               .pool = SL_NONE,
                                               .device = s,
                                               .slot_bytes = 8});
    sl_plan_add_actor(plan, (sl_actor){.name = names[s],
                                       .queue = s,
                                       .cls = SL_CLASS_F,
                                       .ticks = each,
                                       .firings_per_step = TICKS,
                                       .nin = s > 0,
                                       .in = &(sl_port){s - 1, each},
                                       .nout = s + 1 < STAGES,
                                       .out = &(sl_port){s, each},
                                       .program = s == HANGS ? make_program(plan) : NULL});
  }
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  return plan;
}

static void *run_once(void *rt) {
  CHECK(!sl_runtime_run(rt, 1), "%s", sl_detail());
  return NULL;
}

/* Firings once nothing moves: c has finished AT and has one in flight. Each of a and b is a quota
 * ahead of the next actor, and d has all that c made. */
static const int64_t settled[STAGES] = {AT + 2 * QUOTA, AT + QUOTA, AT, AT};

static void wait_until_settled(const sl_runtime *rt, sl_run_status *rs) {
  for (int ms = 0; ms < 5000; ms++) {
    sl_runtime_run_status(rt, rs);
    bool there = rs->queues[HANGS].running == HANGS;
    for (int s = 0; s < STAGES; s++)
      there &= rs->fired[s] == settled[s] && (s == HANGS || rs->queues[s].running == SL_NONE);
    if (there) break;
    usleep(1000);
  }
  usleep(50000);
  sl_runtime_run_status(rt, rs);
  /* Waits until the hang has lasted longer than the time before it, on a machine of any speed. */
  for (int ms = 0; ms < 20000 && rs->idle[HANGS] >= 0.4; ms += 10) {
    usleep(10000);
    sl_runtime_run_status(rt, rs);
  }
}

static void check_wait(const sl_run_status *rs, int32_t queue, sl_wait why, int32_t reg,
                       int32_t on) {
  sl_actor_wait w = sl_run_status_queue_wait(rs, queue);
  CHECK(w.actor == queue && w.why == why && w.reg == reg && w.on == on,
        "queue %d: actor %d, %s of register %d, on %d", queue, w.actor, sl_wait_name(w.why), w.reg,
        w.on);
  CHECK(w.tick.number == settled[queue], "queue %d: tick %lld", queue, (long long)w.tick.number);
}

static void check_hanging(const sl_run_status *rs) {
  for (int s = 0; s < STAGES; s++) {
    CHECK(rs->fired[s] == settled[s], "actor %d: %lld firings", s, (long long)rs->fired[s]);
    CHECK(rs->queues[s].running == (s == HANGS ? s : SL_NONE), "queue %d: %d", s,
          rs->queues[s].running);
    CHECK(rs->queues[s].seconds > 0.04 && rs->queues[s].seconds < 60, "queue %d: %g s", s,
          rs->queues[s].seconds);
    CHECK(s == STAGES - 1 || rs->slots[s] == QUOTA, "register %d: %d", s, rs->slots[s]);
  }
  check_wait(rs, 0, SL_WAIT_CREDIT, 0, 1);
  check_wait(rs, 1, SL_WAIT_CREDIT, 1, 2);
  check_wait(rs, 3, SL_WAIT_INPUT, 2, 2);
  CHECK(rs->idle[0] > 0.5 && rs->idle[3] > 0.5, "a and d idle %g and %g", rs->idle[0], rs->idle[3]);
  CHECK(rs->idle[HANGS] < 0.5, "c idle %g", rs->idle[HANGS]);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void check_refusals(const sl_plan *plan, const char *bytes, size_t size, uint64_t seed) {
  sl_run_status *rs = sl_run_status_create(plan);
  char *copy = sli_calloc(1, size + 1);
  for (size_t n = 0; n < size; n += 3)
    CHECK(sl_run_status_import(rs, bytes, n) == SL_E_INPUT, "the first %zu bytes are taken", n);
  for (int i = 0; i < 2000; i++) {
    memcpy(copy, bytes, size);
    for (int k = 0; k < 3; k++)
      copy[random_below(&seed, (int)size)] = (char)random_below(&seed, 256);
    if (sl_run_status_import(rs, copy, size)) continue;
    for (int32_t q = 0; q < plan->nqueues; q++) /* corrupted parts can be inspected, too */
      if (rs->queues[q].running == SL_NONE) sl_run_status_queue_wait(rs, q);
  }
  free(copy);
  sl_run_status_destroy(rs);
}

static void a_status_goes_to_another_process(const sl_runtime *rt, const sl_plan *plan,
                                             uint64_t seed) {
  void *bytes;
  size_t size = sl_runtime_run_status_export(rt, &bytes);
  sl_run_status *rs = sl_run_status_create(plan);
  CHECK(rs->fired[0] == SL_UNKNOWN && rs->queues[0].running == SL_UNKNOWN, "it knows already");
  CHECK(!sl_run_status_import(rs, bytes, size), "%s", sl_detail());
  check_hanging(rs);
  /* Without the part of c, its neighbours wait for an unknown actor. */
  rs->fired[HANGS] = SL_UNKNOWN;
  rs->queues[HANGS].running = SL_UNKNOWN;
  check_wait(rs, 1, SL_WAIT_CREDIT, 1, 2);
  check_wait(rs, 3, SL_WAIT_INPUT, 2, 2);
  sl_run_status_destroy(rs);
  check_refusals(plan, bytes, size, seed);
  free(bytes);
}

static void who_hangs_is_seen(uint64_t seed) {
  sl_plan *plan = make_line();
  sl_runtime *rt;
  pthread_t thread;
  CHECK(!sl_runtime_create(plan, &(sl_runtime_options){.workers = STAGES}, &rt), "%s", sl_detail());
  CHECK(!pthread_create(&thread, NULL, run_once, rt), "no thread");
  sl_run_status *rs = sl_run_status_create(plan);
  wait_until_settled(rt, rs);
  check_hanging(rs);
  a_status_goes_to_another_process(rt, plan, seed);
  CHECK(sl_runtime_begun(rt) == 1, "%lld steps begun", (long long)sl_runtime_begun(rt));
  atomic_store(&released, true);
  pthread_join(thread, NULL);
  sl_runtime_run_status(rt, rs);
  for (int s = 0; s < STAGES; s++) CHECK(rs->fired[s] == TICKS, "actor %d has not finished", s);
  sl_run_status_destroy(rs);
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
}

/* ---- at rest --------------------------------------------------------------------------------- */

static bool waits_in(const sl_runtime *rt, int32_t actor) {
  for (int32_t i = 0; i < sli_runtime_plan(rt)->actors[actor].nin; i++)
    if (rt->actors[actor].in[i].waiting) return true;
  return false;
}

static bool waits_out(const sl_runtime *rt, int32_t actor) {
  for (int32_t i = 0; i < sli_runtime_plan(rt)->actors[actor].nout; i++)
    if (rt->actors[actor].out[i].waiting) return true;
  return false;
}

static bool has_pool(const sl_plan *plan, int32_t actor) {
  const sl_actor *a = &plan->actors[actor];
  for (int32_t i = 0; i < a->nout; i++)
    if (plan->regs[a->out[i].reg].pool != SL_NONE) return true;
  return false;
}

/* Between runs each port of an actor knows whether it has what the next firing needs; with one
 * worker no message is in flight. The status finds the same from firing counts alone. */
static int64_t agree(const sl_runtime *rt, uint64_t seed) {
  const sl_plan *plan = sli_runtime_plan(rt);
  sl_run_status *rs = sl_run_status_create(plan);
  int64_t waits = 0;
  sl_runtime_run_status(rt, rs);
  for (int32_t i = 0; i < plan->nactors; i++) {
    sl_actor_wait w = sl_run_status_actor_wait(rs, i);
    sl_wait why = waits_in(rt, i)    ? SL_WAIT_INPUT
                  : waits_out(rt, i) ? SL_WAIT_CREDIT
                                     : SL_WAIT_NONE;
    if (why == SL_WAIT_NONE && has_pool(plan, i)) continue;
    CHECK(w.why == why, "seed %" PRIu64 ", actor %s, firing %lld: %s, not %s", seed,
          plan->actors[i].name, (long long)sli_runtime_done(rt, i), sl_wait_name(w.why),
          sl_wait_name(why));
    waits += why != SL_WAIT_NONE;
  }
  sl_run_status_destroy(rs);
  return waits;
}

static int64_t random_plans_at_rest(uint64_t seed) {
  random_plan *r = random_plan_create(seed, seed + 1, QUEUES_CPU);
  sl_runtime *rt;
  int64_t waits = 0;
  if (sl_plan_prove(random_plan_get(r))) { /* refused: its quotas are too small */
    random_plan_destroy(r);
    return 0;
  }
  random_plan_expect(r, 6);
  CHECK(!sl_runtime_create(random_plan_get(r), &(sl_runtime_options){.workers = 1}, &rt), "%s",
        sl_detail());
  random_plan_fill(r, rt);
  for (int i = 0; i < 3; i++) {
    CHECK(!sl_runtime_run(rt, 1 + i % 2), "seed %" PRIu64 ": %s", seed, sl_detail());
    waits += agree(rt, seed);
  }
  sl_runtime_destroy(rt);
  random_plan_destroy(r);
  return waits;
}

/* ---- the bubble of recent steps ---------------------------------------------------------- */

/* The bubble is measured the same way during a run and in its summary. */
static void recent_bubble_is_that_of_the_summary(void) {
  sl_plan *plan = make_line();
  sl_runtime *rt;
  atomic_store(&released, true);
  CHECK(!sl_runtime_create(plan, &(sl_runtime_options){.workers = STAGES}, &rt), "%s", sl_detail());
  CHECK(!sl_runtime_run(rt, 1), "%s", sl_detail());
  uint64_t since = sli_now_ns();
  CHECK(sl_runtime_live_bubble(rt, since) < 0, "no step has run since then");
  for (int i = 0; i < 5; i++) CHECK(!sl_runtime_run(rt, 1 + i % 2), "%s", sl_detail());
  sl_statistics f = sl_runtime_statistics(rt); /* the first step is a warm-up and does not count */
  double recent = sl_runtime_live_bubble(rt, since);
  CHECK(f.bubble_fraction > 0 && recent == f.bubble_fraction, "%g and %g", recent,
        f.bubble_fraction);
  free(f.devices);
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 60);
  int64_t waits = 0;
  RUN(who_hangs_is_seen, s.first);
  RUN(recent_bubble_is_that_of_the_summary);
  for (uint64_t seed = s.first; seed < s.end; seed++)
    RUN_AS("random_plans_at_rest", waits += random_plans_at_rest(seed));
  printf("%lld actors that wait\n", (long long)waits);
  CHECK(!seeds_count(s) || waits > (int64_t)seeds_count(s), "hardly any actor waits");
  return 0;
}
