/* SPDX-License-Identifier: Apache-2.0 */
/* Tests cases outside the published tables: fewer microbatches than devices, any number of
 * microbatches, stages of any length, a slow device, jitter. Nothing hangs, and no bubble is worse
 * than that of the published order with the same durations.
 *
 *   test_models_schedules_beyond [SEED [COUNT]]
 * labels: random unthreaded long */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "tests/support/actors_plans.h"
#include "tests/support/schedules.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MOST_STAGES = 64, DRAWS = 6 };
#else
enum { MOST_STAGES = 64, DRAWS = 40 };
#endif

/* A run with a published order. */
typedef struct shape {
  const char *schedule;
  int p, v, m;
  double comm;
} shape;

static timetable published_order(const shape *s) {
  if (!strcmp(s->schedule, "gpipe")) return gpipe_order(s->p, s->m);
  if (!strcmp(s->schedule, "1f1b")) return one_f_one_b_order(s->p, s->m);
  if (!strcmp(s->schedule, "eager-1f1b")) return eager_order(s->p, s->m);
  if (!strcmp(s->schedule, "zb-h1")) return zb_h1_order(s->p, s->m);
  return interleaved_order(s->p, s->v, s->m);
}

/* Returns the longest span of a device divided by that of the published order. */
static double against_published(const shape *s, double (*of)[SL_CLASS_COUNT], uint64_t jitter_seed,
                                uint64_t jitter_ns) {
  stage_seconds seconds = {s->p * s->v, of};
  lowered_model x;
  double peak;
  pipeline_init(&x, s->m, 1,
                &(sl_lower_options){.parallel.stages = s->p,
                                    .schedule.chunks = s->v,
                                    .schedule.name = s->schedule,
                                    .simulation.cost = {.comm = s->comm},
                                    .simulation.op_seconds = stage_op_seconds,
                                    .simulation.op_seconds_ctx = &seconds});
  CHECK(!sl_plan_prove(x.plan), "%s", sl_detail());
  timetable got = measure(x.plan, jitter_seed, jitter_ns, &peak), order = published_order(s);
  timetable want = replay(&order, &got, s->comm);
  double ratio = timetable_span(&got) / timetable_span(&want);
  timetable_free(&got);
  timetable_free(&order);
  timetable_free(&want);
  lowered_model_fini(&x);
  return ratio;
}

/* ---- durations -------------------------------------------------------------------------- */

static double uniform(uint64_t *random) {
  return random_below(random, 1 << 20) / (double)(1 << 20);
}

static void equal_passes(double (*of)[SL_CLASS_COUNT]) {
  for (int s = 0; s < MOST_STAGES; s++)
    of[s][SL_CLASS_F] = of[s][SL_CLASS_B] = of[s][SL_CLASS_W] = 1;
}

static void uneven_passes(double (*of)[SL_CLASS_COUNT], uint64_t *random) {
  for (int s = 0; s < MOST_STAGES; s++)
    for (int c = 0; c < 3; c++)
      of[s][(const int[]){SL_CLASS_F, SL_CLASS_B, SL_CLASS_W}[c]] = 0.5 + uniform(random);
}

static void slow_device(double (*of)[SL_CLASS_COUNT], int p, int device) {
  equal_passes(of);
  for (int s = device; s < MOST_STAGES; s += p)
    of[s][SL_CLASS_F] = of[s][SL_CLASS_B] = of[s][SL_CLASS_W] = 1.5;
}

/* ---- claims ------------------------------------------------------------------------------ */

/* The order that emerges and the published one can differ although their bubbles are equal; other
 * durations then tell them apart. `slack` allows for that. */
static const struct row {
  const char *name;
  int v;
  double slack;
} rows[] = {{"gpipe", 1, 0},
            {"1f1b", 1, 0},
            {"eager-1f1b", 1, 0},
            {"zb-h1", 1, 0},
            {"interleaved", 2, 0.06}};

static shape random_shape(const struct row *row, uint64_t *random) {
  int p = 2 + random_below(random, 7), m = p + random_below(random, 3 * p);
  if (row->v > 1) m = (m + p - 1) / p * p;
  return (shape){row->name, p, row->v, m, random_below(random, 2) * 0.1};
}

static double check_against(const struct row *row, const shape *s, double (*of)[SL_CLASS_COUNT],
                            uint64_t seed, const char *what) {
  double ratio = against_published(s, of, 0, 0);
  CHECK(ratio <= 1 + row->slack + 1e-9,
        "seed %" PRIu64
        ", %s: %s, p %d, m %d, latency %g takes %.4f times as long as in the "
        "published order",
        seed, what, s->schedule, s->p, s->m, s->comm, ratio);
  return ratio;
}

static void uneven_stages_and_slow_devices_cost_what_they_must(uint64_t seed, int count) {
  double of[MOST_STAGES][SL_CLASS_COUNT] = {0};
  for (size_t r = 0; r < SLI_COUNT(rows); r++) {
    double uneven = 0, slow = 0;
    for (uint64_t i = seed; i < seed + (uint64_t)count; i++) {
      uint64_t random = i;
      shape s = random_shape(&rows[r], &random);
      uneven_passes(of, &random);
      uneven += check_against(&rows[r], &s, of, i, "uneven stages") / count;
      slow_device(of, s.p, random_below(&random, s.p));
      slow += check_against(&rows[r], &s, of, i, "a slow device") / count;
    }
    printf("%-12s uneven %.4f, slow %.4f of the time in the published order\n", rows[r].name,
           uneven, slow);
  }
}

static void few_microbatches_are_enough(void) {
  double of[MOST_STAGES][SL_CLASS_COUNT] = {0};
  equal_passes(of);
  for (size_t r = 0; r < SLI_COUNT(rows) - 1; r++)
    for (int p = 2; p <= 8; p++)
      for (int m = 1; m < p; m++)
        check_against(&rows[r], &(shape){rows[r].name, p, 1, m, 0}, of, 0, "few microbatches");
}

/* No order can anticipate jitter, so the mean is compared. */
static void jitter_costs_what_it_costs_the_published_order(uint64_t seed, int count) {
  double of[MOST_STAGES][SL_CLASS_COUNT] = {0};
  equal_passes(of);
  for (size_t r = 0; r < SLI_COUNT(rows); r++) {
    double sum = 0;
    for (int i = 0; i < count; i++) {
      uint64_t random = seed + (uint64_t)i;
      shape s = random_shape(&rows[r], &random);
      s.comm = 0; /* links have no jitter in the replay */
      sum += against_published(&s, of, seed + (uint64_t)i, 300000000) / count;
    }
    printf("%-12s jitter %.4f of the time in the published order\n", rows[r].name, sum);
    CHECK(sum <= 1.03, "%s loses %.1f %% to the published order", rows[r].name, 100 * (sum - 1));
  }
}

/* Every schedule, with any number of microbatches, on up to 32 devices. */
static void nothing_hangs(void) {
  static const int depths[] = {1, 2, 3, 5, 8, 13, 32};
  for (const char *const *name = sl_schedule_names(); *name; name++)
    for (size_t d = 0; d < SLI_COUNT(depths) && strcmp(*name, "auto"); d++)
      for (int m = 1; m <= SLI_MIN(2 * depths[d] + 1, 19); m++) {
        lowered_model x;
        sl_statistics f;
        pipeline_init(
            &x, m, 1,
            &(sl_lower_options){.parallel.stages = depths[d],
                                .schedule.name = *name,
                                .simulation.cost = {.F = 1, .B = 1, .W = 1, .comm = 0.1}});
        CHECK(!sl_plan_predict(x.plan, NULL, &f), "%s, p %d, m %d: %s", *name, depths[d], m,
              sl_detail());
        CHECK(f.bubble_fraction < 1, "%s, p %d, m %d runs", *name, depths[d], m);
        free(f.devices);
        lowered_model_fini(&x);
      }
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, DRAWS);
  int count = (int)seeds_count(s);
  RUN(nothing_hangs);
  RUN(few_microbatches_are_enough);
  RUN(uneven_stages_and_slow_devices_cost_what_they_must, s.first, count);
  RUN(jitter_costs_what_it_costs_the_published_order, s.first, count);
  return 0;
}
