/* SPDX-License-Identifier: Apache-2.0 */
/* Every plan that the proof accepts finishes with any timing, keeps its quotas, and delivers every
 * tick once, in order and with the right contents. Tests thousands of random plans, on the virtual
 * clock and on real threads.
 *
 *   test_actors_random [FIRST_SEED [COUNT]]
 * labels: random first more */
#include <inttypes.h>
#include <string.h>

#include "base/base.h"
#include "tests/support/actors_plans.h"
#include "tests/support/actors_streams.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

static int accepted, refused;

/* Runs with modelled durations, which jitter changes in every run. */
static void check_modelled(uint64_t seed, uint64_t quotas) {
  random_plan *r = random_plan_create(seed, quotas, QUEUES_TIMED);
  const sl_plan *plan = random_plan_get(r);
  sl_status status = sl_plan_prove(plan);
  CHECK(status == SL_OK || status == SL_E_STUCK, "seed %" PRIu64 ": %s", seed, sl_detail());
  status ? refused++ : accepted++;
  if (status)
    CHECK(strstr(sl_detail(), "waits for"), "seed %" PRIu64 ": stuck, but: %s", seed, sl_detail());
  for (uint64_t timing = 0; timing < 3 && !status; timing++) {
    sl_runtime *rt;
    CHECK(!sl_runtime_create(plan,
                             &(sl_runtime_options){.clock = SL_CLOCK_VIRTUAL,
                                                   .no_data = true,
                                                   .jitter_seed = timing,
                                                   .jitter_ns = 9000},
                             &rt),
          "seed %" PRIu64 ": %s", seed, sl_detail());
    for (int run = 0; run < 2; run++)
      CHECK(!sl_runtime_run(rt, 2), "seed %" PRIu64 " timing %" PRIu64 ": accepted, but\n%s", seed,
            timing, sl_detail());
    random_plan_check(r, rt, 4);
    sl_runtime_destroy(rt);
  }
  random_plan_destroy(r);
}

/* Runs with real threads and real slots; the op itself checks the contents. */
static void check_data(uint64_t seed, uint64_t quotas, random_queues queues, int workers) {
  random_plan *r = random_plan_create(seed, quotas, queues);
  const sl_plan *plan = random_plan_get(r);
  if (!sl_plan_prove(plan)) {
    sl_runtime *rt;
    sl_runtime_options options = {
        .workers = workers, .jitter_seed = seed % 3, .jitter_ns = 500, .watchdog_seconds = 20};
    CHECK(!sl_runtime_create(plan, &options, &rt), "seed %" PRIu64 ": %s", seed, sl_detail());
    random_plan_expect(r, 4);
    random_plan_fill(r, rt);
    for (int run = 0; run < 2; run++)
      CHECK(!sl_runtime_run(rt, 2), "seed %" PRIu64 ": %s", seed, sl_detail());
    random_plan_check(r, rt, 4);
    sl_runtime_destroy(rt);
  }
  random_plan_destroy(r);
}

enum { COUNT = 1000, SANITIZED_COUNT = 150 };

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, TEST_SANITIZED ? SANITIZED_COUNT : COUNT);
  uint64_t count = seeds_count(s);
  for (uint64_t seed = s.first; seed < s.end; seed++) {
    RUN(check_modelled, seed, seed);
    RUN(check_data, seed, seed, QUEUES_CPU, 1 + (int)(seed % 4));
    RUN(check_data, seed, seed + 1, QUEUES_LATER, 1 + (int)(seed / 4 % 4));
    RUN(check_data, seed, seed + 2, QUEUES_STREAMS, 1 + (int)(seed / 4 % 4));
  }
  printf("%d plans accepted, %d refused\n", accepted, refused);
  CHECK(count < 100 || streams_waits() > count, "streams waited %lu times for another",
        streams_waits());
  CHECK(count < 1000 || (accepted > (int)count / 5 && refused > (int)count / 5),
        "the plans are all of one kind");
  return 0;
}
