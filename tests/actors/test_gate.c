/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the gate against its specification under any threads and timing. Actors fire exactly the
 * steps begun, and nothing begins after a stop or a hold. Gates held and ended together end at the
 * same step. A runtime's workers notice, whether firing, polling or asleep.
 *
 *   test_actors_gate [SEED [COUNT]]
 * labels: random computes */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include <sluice/runtime.h>

#include "actors/run/gate.h"
#include "base/base.h"
#include "tests/support/rng.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

enum { ACTORS = 3, GATES = 3, GOAL = 4000 };

static void spin(uint32_t rounds) {
  for (uint32_t i = 0; i < rounds; i++) __asm__ volatile("" ::: "memory");
}

/* ---- a gate alone -------------------------------------------------------------------------- */

/* An actor that only asks for one step after another. */
typedef struct asker {
  pthread_t thread;
  gate *gate;
  uint64_t seed;
  int64_t fired;
} asker;

static bool is_over(const gate *g, int64_t fired) {
  gate_view v = gate_look(g);
  if (v.aborted) return true;
  return !v.held && fired >= (v.closed ? v.begun : g->goal);
}

static void *ask(void *arg) {
  asker *a = arg;
  rng d = {a->seed, 0};
  while (!is_over(a->gate, a->fired)) {
    if (gate_begin(a->gate, a->fired)) a->fired++;
    else sched_yield();
    if (!rng_below(&d, 16)) spin(rng_below(&d, 4000));
  }
  return NULL;
}

static void start(asker *askers, int n, gate *g, uint64_t seed) {
  for (int i = 0; i < n; i++) {
    askers[i] = (asker){.gate = g, .seed = seed * 31 + (uint64_t)i};
    CHECK(!pthread_create(&askers[i].thread, NULL, ask, &askers[i]), "no thread");
  }
}

static void join(asker *askers, int n) {
  for (int i = 0; i < n; i++) pthread_join(askers[i].thread, NULL);
}

/* Checks that all actors have fired the steps that the gate reports, namely those begun. */
static void check_fired(const asker *askers, int n, const gate *g, uint64_t seed) {
  gate_view v = gate_look(g);
  for (int i = 0; i < n; i++) {
    int64_t fired = askers[i].fired;
    CHECK(v.aborted ? fired <= v.begun : fired == gate_final(g) && fired == v.begun,
          "seed %" PRIu64 ": actor %d fired %lld of %lld steps begun, %lld final", seed, i,
          (long long)fired, (long long)v.begun, (long long)gate_final(g));
  }
}

/* Checks twice that no further step has begun, with a pause for one to begin wrongly. */
static void check_still(const gate *g, int64_t begun, rng *d, const char *after, uint64_t seed) {
  for (int i = 0; i < 2; i++, spin(rng_below(d, 20000)))
    CHECK(gate_look(g).begun == begun, "seed %" PRIu64 ": a step began after %s", seed, after);
}

static void end_somewhere(gate *g, rng *d, uint64_t seed) {
  int64_t begun = gate_hold(g), more = SLI_MIN(begun + rng_below(d, 9), GOAL);
  check_still(g, begun, d, "hold", seed);
  gate_end(g, rng_below(d, 4) ? more : begun - rng_below(d, 3)); /* fewer than begun: those begun */
  CHECK(gate_final(g) >= begun, "seed %" PRIu64 ": a step was taken back", seed);
}

/* Draws a hold and an end, then stops and aborts: after a stop, actors may be gone. */
static void interfere(gate *g, rng *d, uint64_t seed) {
  spin(rng_below(d, 60000));
  if (rng_below(d, 2)) end_somewhere(g, d, seed);
  for (uint32_t n = rng_below(d, 3); n; n--) {
    spin(rng_below(d, 30000));
    bool aborts = !rng_below(d, 4);
    if (aborts) gate_abort(g);
    else gate_stop(g);
    check_still(g, gate_look(g).begun, d, aborts ? "abort" : "stop", seed);
  }
}

static void one_gate(uint64_t seed) {
  gate g;
  asker askers[ACTORS];
  rng d = {seed, 0};
  gate_init(&g, 0);
  gate_aim(&g, GOAL);
  start(askers, ACTORS, &g, seed);
  if (rng_below(&d, 8)) interfere(&g, &d, seed);
  join(askers, ACTORS);
  check_fired(askers, ACTORS, &g, seed);
}

/* Several threads hold, stop and abort one gate concurrently. */
typedef struct meddler {
  pthread_t thread;
  gate *gate;
  uint64_t seed;
} meddler;

static void *meddle(void *arg) {
  meddler *m = arg;
  rng d = {m->seed, 0};
  for (int i = 0; i < 4; i++) {
    spin(rng_below(&d, 20000));
    if (rng_below(&d, 3)) gate_end(m->gate, SLI_MIN(gate_hold(m->gate) + rng_below(&d, 3), GOAL));
    else gate_stop(m->gate);
  }
  return NULL;
}

static void many_meddle(uint64_t seed) {
  gate g;
  asker askers[ACTORS];
  meddler meddlers[2];
  gate_init(&g, 0);
  gate_aim(&g, GOAL);
  start(askers, ACTORS, &g, seed);
  for (int i = 0; i < 2; i++) {
    meddlers[i] = (meddler){.gate = &g, .seed = seed * 17 + (uint64_t)i};
    CHECK(!pthread_create(&meddlers[i].thread, NULL, meddle, &meddlers[i]), "no thread");
  }
  for (int i = 0; i < 2; i++) pthread_join(meddlers[i].thread, NULL);
  gate_end(&g, gate_hold(&g)); /* a hold may follow the last end */
  join(askers, ACTORS);
  for (int i = 0; i < ACTORS; i++)
    CHECK(askers[i].fired <= gate_look(&g).begun, "seed %" PRIu64 ": actor %d", seed, i);
}

/* Gates end as processes do: all hold, then all end at the most steps that one has begun. */
static void gates_end_alike(uint64_t seed) {
  gate g[GATES];
  asker askers[GATES][2];
  rng d = {seed, 0};
  int64_t most = 0;
  for (int i = 0; i < GATES; i++) {
    gate_init(&g[i], 0);
    gate_aim(&g[i], GOAL);
    start(askers[i], 2, &g[i], seed + (uint64_t)i);
  }
  spin(rng_below(&d, 60000));
  for (int i = 0; i < GATES; i++) most = SLI_MAX(most, gate_hold(&g[i]));
  for (int i = 0; i < GATES; i++) gate_end(&g[i], most);
  for (int i = 0; i < GATES; i++) {
    join(askers[i], 2);
    check_fired(askers[i], 2, &g[i], seed);
    CHECK(gate_final(&g[i]) == most, "seed %" PRIu64 ": gate %d ends after %lld, not %lld", seed, i,
          (long long)gate_final(&g[i]), (long long)most);
  }
}

/* ---- a runtime ------------------------------------------------------------------------------- */

/* Two actors on separate devices: the second waits for the first. */
static sl_plan *make_pair(void) {
  static const char *const names[] = {"a", "b"};
  sl_plan *plan = sl_plan_create(1, 1);
  int32_t each = sl_plan_map_each(plan);
  for (int i = 0; i < 2; i++) {
    sl_plan_add_device(plan, (sl_device){.name = names[i], .kind = "null", .threads = 1});
    sl_plan_add_queue(plan, (sl_queue){.name = names[i], .device = i, .ops = &sl_queue_null});
  }
  sl_plan_add_register(
      plan, (sl_register){
                .name = "ab", .quota_name = "act", .quota = 2, .pool = SL_NONE, .slot_bytes = 8});
  for (int i = 0; i < 2; i++)
    sl_plan_add_actor(plan, (sl_actor){.name = names[i],
                                       .queue = i,
                                       .ticks = each,
                                       .firings_per_step = 1,
                                       .nin = i,
                                       .nout = !i,
                                       .in = &(sl_port){0, each},
                                       .out = &(sl_port){0, each}});
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  return plan;
}

static void *run_on(void *rt) {
  sl_status *status = sli_calloc(1, sizeof *status);
  *status = sl_runtime_run(rt, INT32_MAX);
  return status;
}

/* The run is held and released after a random delay, so workers may be firing, polling, or
 * asleep. */
static void workers_hear(const sl_plan *plan, uint64_t seed) {
  sl_runtime *rt;
  pthread_t thread;
  void *status;
  rng d = {seed, 0};
  CHECK(!sl_runtime_create(plan, &(sl_runtime_options){.workers = 1 + (int)(seed % 2)}, &rt), "%s",
        sl_detail());
  CHECK(!pthread_create(&thread, NULL, run_on, rt), "no thread");
  while (sl_runtime_begun(rt) < 3) sched_yield();
  int64_t last = sl_runtime_hold(rt) + 1 + rng_below(&d, 3);
  spin(rng_below(&d, rng_below(&d, 2) ? 4000 : 200000));
  sl_runtime_end_at(rt, last);
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 10;
  CHECK(!pthread_timedjoin_np(thread, &status, &until),
        "seed %" PRIu64 ": a run of %lld steps hangs after %" PRIu64 " firings", seed,
        (long long)last, sl_runtime_fired(rt));
  CHECK(*(sl_status *)status == SL_E_STOPPED, "seed %" PRIu64 ": %d", seed, *(sl_status *)status);
  CHECK(sl_runtime_steps(rt) == last && sl_runtime_fired(rt) == 2 * (uint64_t)last,
        "seed %" PRIu64 ": %lld steps, not %lld", seed, (long long)sl_runtime_steps(rt),
        (long long)last);
  free(status);
  sl_runtime_destroy(rt);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 200);
  sl_plan *plan = make_pair();
  for (uint64_t seed = s.first; seed < s.end; seed++) {
    RUN(one_gate, seed);
    RUN(many_meddle, seed);
    RUN(gates_end_alike, seed);
    RUN(workers_hear, plan, seed);
  }
  sl_plan_destroy(plan);
  return 0;
}
