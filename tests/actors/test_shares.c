/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes of a device fire at once while their shares sum to at most 1, each firing as slowly as its
 * share makes it. A share that no device has is named by the proof.
 *
 *   test_actors_shares [SEED [COUNT]]
 * labels: random unthreaded */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sluice/runtime.h>
#include <sluice/trace.h>

#include "base/base.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

/* ---- plans ----------------------------------------------------------------------------------- */

static sl_plan *make_device(int ticks, int lanes) {
  static const char *const names[] = {"compute", "memory", "network"};
  sl_plan *plan = sl_plan_create(ticks, 1);
  sl_plan_add_device(plan, (sl_device){.name = "timed:0", .kind = "timed", .threads = 1});
  for (int i = 0; i < lanes; i++)
    sl_plan_add_queue(plan, (sl_queue){.name = names[i],
                                       .device = 0,
                                       .ops = &sl_queue_timed,
                                       .run_ahead = 1,
                                       .lane = names[i]});
  return plan;
}

/* Adds an actor that fires in each tick and reads nothing. */
static int32_t add_source(sl_plan *plan, const char *name, int32_t lane, double seconds,
                          int nshares, const sl_share *shares) {
  return sl_plan_add_actor(plan, (sl_actor){.name = name,
                                            .queue = lane,
                                            .stage = SL_NONE,
                                            .chunk = SL_NONE,
                                            .ticks = sl_plan_map_each(plan),
                                            .firings_per_step = plan->microbatches,
                                            .seconds = seconds,
                                            .nshares = nshares,
                                            .shares = shares});
}

static sl_runtime *run(const sl_plan *plan, int steps) {
  sl_runtime *rt;
  sl_runtime_options options = {
      .clock = SL_CLOCK_VIRTUAL, .no_data = true, .trace_records = 1 << 14};
  CHECK(!sl_plan_prove(plan), "%s", sl_detail());
  CHECK(!sl_runtime_create(plan, &options, &rt), "%s", sl_detail());
  CHECK(!sl_runtime_run(rt, steps), "%s", sl_detail());
  return rt;
}

static double end_of(const sl_runtime *rt) {
  sl_trace_record *records;
  uint64_t last = 0;
  size_t n = sl_runtime_trace(rt, &records, NULL);
  for (size_t i = 0; i < n; i++) last = SLI_MAX(last, records[i].end_ns);
  free(records);
  return (double)last * 1e-9;
}

/* Returns the end of one firing on each of two lanes. */
static double two_firings(sl_share a, sl_share b) {
  sl_plan *plan = make_device(1, 2);
  add_source(plan, "product", 0, 3, 1, &a);
  add_source(plan, "attention", 1, 2, 1, &b);
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  sl_runtime *rt = run(plan, 1);
  double end = end_of(rt);
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
  return end;
}

static void firings_share_a_device(void) {
  double end = two_firings((sl_share){.6, .6}, (sl_share){.4, .8});
  CHECK(fabs(end - 5) < 1e-6, "3 s at .6 beside 2 s at .8: %g s", end);
  end = two_firings((sl_share){.7, .7}, (sl_share){.4, .8});
  CHECK(fabs(end - (3 / .7 + 2.5)) < 1e-6, "shares above 1 go one after another: %g s", end);
  end = two_firings((sl_share){.1, .3}, (sl_share){.9, .95});
  CHECK(fabs(end - 10) < 1e-6, "shares of exactly 1: %g s", end);
}

/* A firing asks anew in each tick. */
static void shares_follow_ticks(void) {
  static const sl_share alone_then_beside[] = {{1, 1}, {.5, .5}, {.5, .5}}, beside = {.5, .5};
  sl_plan *plan = make_device(3, 2);
  add_source(plan, "forward", 0, 1, 3, alone_then_beside);
  add_source(plan, "backward", 1, 1, 1, &beside);
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  sl_runtime *rt = run(plan, 1);
  double end = end_of(rt);
  CHECK(fabs(end - 7) < 1e-6, "one alone, two beside each other, one on half: %g s", end);
  sl_statistics s = sl_runtime_statistics(rt);
  CHECK(fabs(s.devices[0].busy_seconds - 6) < 1e-6, "shares of %g s are busy",
        s.devices[0].busy_seconds);
  free(s.devices);
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
}

/* ---- refusals ------------------------------------------------------------------------------- */

static void expect(sl_status status, sl_status want, const char *words) {
  CHECK(status == want && strstr(sl_detail(), words), "status %d: %s", status,
        status ? sl_detail() : "fine");
}

static void the_proof_names_a_share_that_no_device_has(void) {
  static const sl_share much[] = {{.5, .5}, {1.25, 1}};
  sl_plan *plan = make_device(2, 2);
  add_source(plan, "greedy", 1, 1, 2, much);
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  expect(sl_plan_prove(plan), SL_E_STUCK,
         "greedy asks for 1.25 of timed:0 (memory), more than a device has");
  sl_plan_destroy(plan);
}

static void impossible_lanes_are_refused(void) {
  static const sl_share none = {0, 1}, half = {.5, .5};
  sl_plan *plan = make_device(1, 1);
  add_source(plan, "idle", 0, 1, 1, &none);
  expect(sl_plan_finish(plan), SL_E_INPUT, "actor idle asks for a share of 0");
  sl_plan_destroy(plan);
  plan = make_device(1, 1);
  plan->queues[0].lane = NULL;
  add_source(plan, "apart", 0, 1, 1, &half);
  expect(sl_plan_finish(plan), SL_E_INPUT, "queue compute is no lane");
  sl_plan_destroy(plan);
  plan = make_device(1, 1);
  plan->queues[0].run_ahead = 2;
  add_source(plan, "early", 0, 1, 1, &half);
  expect(sl_plan_finish(plan), SL_E_INPUT, "it can neither run ahead nor apart");
  sl_plan_destroy(plan);
  plan = make_device(1, 2);
  int32_t a = add_source(plan, "a", 0, 1, 1, &half), order[] = {a, 1};
  add_source(plan, "b", 1, 1, 1, &half);
  plan->queues[0].order = order;
  plan->queues[0].norder = 2;
  expect(sl_plan_finish(plan), SL_E_INPUT, "lanes of timed:0, which have one fixed order");
  sl_plan_destroy(plan);
}

/* ---- traces ---------------------------------------------------------------------------------- */

static void traces_keep_lanes_and_shares(void) {
  static const sl_share shares[] = {{.25, .5}, {1, 1}};
  char path[] = "/tmp/test_shares_XXXXXX";
  int file = mkstemp(path);
  sl_plan *plan = make_device(2, 2);
  add_source(plan, "a", 0, 1, 2, shares);
  add_source(plan, "b", 1, 1, 0, NULL);
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  sl_runtime *rt = run(plan, 2);
  sl_trace *trace;
  CHECK(!sl_trace_write(path, plan, rt, SL_CLOCK_VIRTUAL), "%s", sl_detail());
  CHECK(!sl_trace_read(path, &trace), "%s", sl_detail());
  const sl_plan *read = trace->plan;
  CHECK(!trace->damaged && !strcmp(read->queues[1].lane, "memory"), "the lane of queue 1");
  CHECK(read->actors[0].nshares == 2 && fabs(read->actors[0].shares[0].rate - .5) < 1e-12 &&
            !read->actors[1].nshares,
        "the shares of actors");
  sl_trace_destroy(trace);
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
  close(file);
  unlink(path);
}

/* ---- random plans -----------------------------------------------------------------------------
 */

enum { LANES = 3, ACTORS = 6, TICKS = 5, STEPS = 3 };

static int draw(uint64_t *state, int count) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int)(*state >> 33) % count;
}

/* A line of actors, each on a random lane with random shares. */
static sl_plan *draw_plan(uint64_t *state) {
  static const char *const names[ACTORS] = {"a", "b", "c", "d", "e", "f"};
  sl_plan *plan = make_device(TICKS, LANES);
  int32_t each = sl_plan_map_each(plan);
  for (int i = 0; i < ACTORS; i++) {
    sl_share shares[TICKS];
    int n = draw(state, TICKS + 1);
    for (int t = 0; t < n; t++)
      shares[t] = (sl_share){(1 + draw(state, 10)) / 10.0, (1 + draw(state, 10)) / 10.0};
    if (i + 1 < ACTORS)
      sl_plan_add_register(plan, (sl_register){.name = names[i],
                                               .quota_name = "line",
                                               .quota = 1 + draw(state, 3),
                                               .pool = SL_NONE,
                                               .slot_bytes = 8});
    sl_plan_add_actor(plan, (sl_actor){.name = names[i],
                                       .queue = draw(state, LANES),
                                       .stage = SL_NONE,
                                       .chunk = SL_NONE,
                                       .ticks = each,
                                       .firings_per_step = TICKS,
                                       .seconds = draw(state, 5),
                                       .nin = i > 0,
                                       .in = &(sl_port){i - 1, each},
                                       .nout = i + 1 < ACTORS,
                                       .out = &(sl_port){i, each},
                                       .nshares = n,
                                       .shares = shares});
  }
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  return plan;
}

static double part_of(const sl_plan *plan, const sl_trace_record *r) {
  const sl_actor *a = &plan->actors[r->actor];
  int64_t tick = sl_plan_tick(plan, r->actor, r->firing).number;
  return a->nshares ? a->shares[tick % a->nshares].part : 1;
}

static double length_of(const sl_plan *plan, const sl_trace_record *r) {
  const sl_actor *a = &plan->actors[r->actor];
  int64_t tick = sl_plan_tick(plan, r->actor, r->firing).number;
  return a->seconds / (a->nshares ? a->shares[tick % a->nshares].rate : 1);
}

/* Sums the shares at a firing's start, and counts the firings of its lane. */
static void look_at_start(const sl_plan *plan, const sl_trace_record *all, size_t n,
                          const sl_trace_record *r, uint64_t seed) {
  double sum = 0;
  int same = 0;
  for (size_t i = 0; i < n; i++) {
    if (all[i].start_ns > r->start_ns || all[i].end_ns <= r->start_ns) continue;
    sum += part_of(plan, &all[i]);
    same += plan->actors[all[i].actor].queue == plan->actors[r->actor].queue;
  }
  CHECK(sum <= 1 + 1e-5 && same <= 1, "seed %" PRIu64 ": shares of %g at once, %d on one lane",
        seed, sum, same);
}

static void shares_never_exceed_a_device(uint64_t seed) {
  uint64_t state = seed;
  draw(&state, 2);
  sl_plan *plan = draw_plan(&state);
  sl_runtime *rt = run(plan, STEPS);
  sl_trace_record *records;
  size_t n = sl_runtime_trace(rt, &records, NULL);
  CHECK(n == ACTORS * TICKS * STEPS, "seed %" PRIu64 ": %zu firings", seed, n);
  for (size_t i = 0; i < n; i++) {
    double seconds = (double)(records[i].end_ns - records[i].start_ns) * 1e-9;
    CHECK(fabs(seconds - length_of(plan, &records[i])) < 1e-8, "seed %" PRIu64 ": took %g s", seed,
          seconds);
    if (seconds > 0) look_at_start(plan, records, n, &records[i], seed);
  }
  free(records);
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 400);
  if (seeds_count(s)) {
    RUN(firings_share_a_device);
    RUN(shares_follow_ticks);
    RUN(the_proof_names_a_share_that_no_device_has);
    RUN(impossible_lanes_are_refused);
    RUN(traces_keep_lanes_and_shares);
  }
  for (uint64_t i = s.first; i < s.end; i++) RUN(shares_never_exceed_a_device, i);
  return 0;
}
