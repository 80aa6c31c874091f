/* SPDX-License-Identifier: Apache-2.0 */
/* --schedule auto is never worse than the best named schedule that fits, for random durations and
 * budgets from a third of 1F1B's memory to all of it. It obeys the user's types and passes, and
 * says why if no schedule fits.
 *
 *   test_models_schedules_auto [SEED [COUNT]]
 * labels: random unthreaded */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "graph/schedule/schedule.h"
#include "tests/support/actors_plans.h"
#include "tests/support/schedules.h"
#include "tests/support/seeds.h"
#include "tests/support/shipped.h"
#include "tests/support/test.h"

typedef struct draw {
  uint64_t seed;
  int p, m;
  double budget;
  sl_cost cost; /* everything a device runs */
} draw;

static draw draw_run(uint64_t seed) {
  uint64_t random = seed;
  draw x = {.seed = seed, .p = 2 + random_below(&random, 3)};
  x.m = x.p + random_below(&random, x.p + 1);
  x.budget = x.p * (4 + random_below(&random, 9)) / 12.0;
  x.cost = (sl_cost){.F = 1};
  x.cost.B = 0.5 + random_below(&random, 100) / 100.0;
  x.cost.W = 0.3 + random_below(&random, 100) / 100.0;
  x.cost.comm = random_below(&random, 2) * 0.05;
  return x;
}

/* Finds the bubble and the most activations that a device holds; returns false if the schedule is
 * impossible. */
static bool try_schedule(const draw *x, const char *name, double *bubble, double *peak) {
  lowered_model model;
  sl_statistics f;
  bool open = !strcmp(name, "auto");
  sl_status status =
      lowered_model_init(&model, "pipeline", NULL, x->m, 1,
                         &(sl_lower_options){.parallel.stages = x->p,
                                             .schedule.name = name,
                                             .devices.kind = "timed",
                                             .schedule.activations = open ? x->budget : 0,
                                             .simulation.cost = x->cost});
  CHECK(!status || open, "seed %" PRIu64 ": %s: %s", x->seed, name, sl_detail());
  if (!status) {
    CHECK(!sl_plan_prove(model.plan), "seed %" PRIu64 ": %s", x->seed, sl_detail());
    CHECK(!sl_plan_predict(model.plan, NULL, &f), "seed %" PRIu64 ": %s", x->seed, sl_detail());
    *bubble = f.bubble_fraction;
    *peak = 0;
    for (int d = 0; d < x->p; d++) *peak = SLI_MAX(*peak, f.devices[d].peak_activations);
    free(f.devices);
  }
  lowered_model_fini(&model);
  return !status;
}

static void check_draw(uint64_t seed) {
  draw x = draw_run(seed);
  double best = 2, bubble, peak;
  const char *best_name = "none";
  for (const char *const *name = sl_schedule_names(); *name; name++) {
    if (!strcmp(*name, "auto")) continue;
    try_schedule(&x, *name, &bubble, &peak);
    if (peak <= x.budget + 1e-9 && bubble < best) best = bubble, best_name = *name;
  }
  if (!try_schedule(&x, "auto", &bubble, &peak)) {
    CHECK(best == 2, "seed %" PRIu64 ": %s fits, but auto finds nothing: %s", seed, best_name,
          sl_detail());
    return;
  }
  printf("p %d, m %d, room for %.2f: %-12s %.4f, auto %.4f with %.2f\n", x.p, x.m, x.budget,
         best_name, best, bubble, peak);
  CHECK(peak <= x.budget + 1e-9, "seed %" PRIu64 ": auto holds %g, the budget is %g", seed, peak,
        x.budget);
  CHECK(bubble <= best + 1e-9, "seed %" PRIu64 ": auto's bubble is %.5f, that of %s %.5f", seed,
        bubble, best_name, best);
}

/* ---- settings of the user hold for the schedule found ------------------------------------- */

static sl_status lower_pieces(lowered_model *model, int pieces, sl_lower_options options) {
  char *text = shipped_text();
  char *words[] = {"--layers", "2",       "--width", "16",     "--heads", "2", "--context",
                   "8",        "--batch", "4",       "--data", text,      NULL};
  options.schedule.name = "auto";
  sl_status status = lowered_model_init(model, "gpt", words, 4, pieces, &options);
  free(text);
  return status;
}

static sl_status lower_auto(lowered_model *model, sl_lower_options options) {
  return lower_pieces(model, 1, options);
}

static void check_types(void) {
  lowered_model model;
  CHECK(!lower_auto(&model,
                    (sl_lower_options){
                        .parallel.stages = 2, .devices.kind = "timed", .numbers.dtype = SL_BF16}),
        "%s", sl_detail());
  CHECK(!strcmp(sl_lowered_products(model.lowered), "bf16") &&
            !strcmp(sl_lowered_tensors(model.lowered), "bf16"),
        "asked for bf16, products are %s and tensors %s", sl_lowered_products(model.lowered),
        sl_lowered_tensors(model.lowered));
  lowered_model_fini(&model);
}

static void check_backward(const char *backward, bool split) {
  lowered_model model;
  CHECK(
      !lower_auto(&model, (sl_lower_options){.parallel.stages = 2, .schedule.backward = backward}),
      "%s", sl_detail());
  int found = 0;
  for (int32_t i = 0; i < model.plan->nactors; i++)
    found += model.plan->actors[i].cls == SL_CLASS_W;
  CHECK(split == (found > 0), "--backward %s, and %d actors are of class W", backward, found);
  lowered_model_fini(&model);
}

/* A schedule that was found is not searched for again, and gives the same plan. */
static void check_chosen(void) {
  lowered_model first, second;
  sl_lower_options options = {.parallel.stages = 2,
                              .schedule.activations = 2,
                              .devices.kind = "timed",
                              .simulation.cost = {.F = 1, .B = 1.3, .W = 0.6, .comm = 0.05}};
  CHECK(!lower_auto(&first, options), "%s", sl_detail());
  options.schedule.chosen = sl_lowered_chosen(first.lowered);
  printf("chosen: %s\n", options.schedule.chosen);
  CHECK(!lower_auto(&second, options), "%s: %s", options.schedule.chosen, sl_detail());
  CHECK(first.plan->hash == second.plan->hash, "%s gives another plan", options.schedule.chosen);
  CHECK(!strcmp(options.schedule.chosen, sl_lowered_chosen(second.lowered)), "%s becomes %s",
        options.schedule.chosen, sl_lowered_chosen(second.lowered));
  lowered_model_fini(&second);
  static const char *const wrong[] = {"",
                                      "zb",
                                      "1f1b",
                                      "1f1b chunks=0",
                                      "1f1b chunks=1 act.b",
                                      "zb-v chunks=3",
                                      "1f1b chunks=1 act.b@64=1",
                                      "1f1b chunks=1 fwd=2",
                                      "1f1b chunks=1 pool@0=2"};
  for (size_t i = 0; i < SLI_COUNT(wrong); i++) {
    options.schedule.chosen = wrong[i];
    sl_status status = lower_auto(&second, options);
    CHECK(status == SL_E_USAGE && strstr(sl_detail(), wrong[i]), "%s: %s", wrong[i], sl_detail());
    lowered_model_fini(&second);
  }
  lowered_model_fini(&first);
}

static void check_texts(void) {
  const char *text =
      "zb-h1 chunks=1 split=1 act.b=1 act.w=-1 pool.most=6 order=2 act.b@3=-2 paths=0.2.3,0.1.13,0";
  sli_arena arena = {0};
  sli_pick pick;
  CHECK(!sli_pick_read(text, &arena, &pick), "%s", sl_detail());
  CHECK(pick.tune.act_b == 1 && pick.tune.stage_b[3] == -2 && pick.tune.order == 2, "%s", text);
  CHECK(pick.paths->microbatches == 3 && pick.paths->items[1].length == 3 &&
            pick.paths->items[1].stage[2] == 13,
        "%s", text);
  char *again = sli_pick_format(&pick);
  CHECK(!strcmp(again, text), "%s becomes %s", text, again);
  free(again);
  static const char *const wrong[] = {"",     "0.", ".0",  "0..1", "0,",
                                      "0,,1", "-1", "0.x", "0 1",  "9999999999999999999"};
  for (size_t i = 0; i < SLI_COUNT(wrong); i++) {
    char *one = sli_format("1f1b chunks=1 paths=%s", wrong[i]);
    CHECK(sli_pick_read(one, &arena, &pick) == SL_E_USAGE, "%s was read", one);
    free(one);
  }
  sli_arena_fini(&arena);
}

/* Checks that a refusal gives the reason, as for a named schedule. */
static void check_refusal(sl_lower_options options, sl_status expected, const char *word) {
  lowered_model model;
  sl_status status = lower_auto(&model, options);
  CHECK(status == expected && strstr(sl_detail(), word), "status %d, not %d: %s", status, expected,
        sl_detail());
  lowered_model_fini(&model);
}

static void check_refusals(void) {
  sl_quota unknown = {"fod", SL_NONE, 2};
  check_refusal(
      (sl_lower_options){.parallel.stages = 2, .memory.nquotas = 1, .memory.quotas = &unknown},
      SL_E_USAGE, "unknown quota fod");
  check_refusal((sl_lower_options){.parallel.stages = 9}, SL_E_USAGE, "only 4 blocks");
  check_refusal((sl_lower_options){.parallel.stages = 2, .schedule.activations = 0.01}, SL_E_BUDGET,
                "no schedule of 2 devices stays within schedule.activations 0.01");
  check_refusal((sl_lower_options){.parallel.stages = 2, .devices.budget_bytes = 1024}, SL_E_BUDGET,
                "no schedule of 2 devices fits in 1.0 KiB per device");
}

/* Where all schedules get stuck, the proof of one says which quota would help. */
static void check_stuck(void) {
  lowered_model model;
  sl_quota few = {"act.b", 0, 1};
  CHECK(!lower_pieces(
            &model, 2,
            (sl_lower_options){.parallel.stages = 2, .memory.nquotas = 1, .memory.quotas = &few}),
        "%s", sl_detail());
  CHECK(sl_plan_prove(model.plan) == SL_E_STUCK && strstr(sl_detail(), "--quota act.b@0=2"), "%s",
        sl_detail());
  lowered_model_fini(&model);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 8);
  for (uint64_t i = s.first; i < s.end; i++) RUN(check_draw, i);
  RUN(check_types);
  RUN(check_backward, "fused", false);
  RUN(check_backward, "split", true);
  RUN(check_refusals);
  RUN(check_stuck);
  RUN(check_chosen);
  RUN(check_texts);
  return 0;
}
