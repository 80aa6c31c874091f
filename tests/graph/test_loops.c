/* SPDX-License-Identifier: Apache-2.0 */
/* Loops: blocks that are visited several times, and delays. A looped model learns, bit for bit,
 * what its unrolled form learns, on any number of stages, under any schedule, on grids, and with
 * exact numbers. A delay gives each tick the value of some ticks ago, which a plain loop computes
 * too. Loops without slots, delays deeper than their quota, and visits in other shapes are refused.
 * labels: unthreaded */
#include <math.h>
#include <string.h>

#include <sluice/ops.h>
#include <sluice/sluice.h>

#include "base/base.h"
#include "base/philox.h"
#include "tests/support/test.h"

enum { ROWS = 6, WIDTH = 8, STEPS = 3, MOST_TICKS = 64 };

static float number_of(int64_t tick, int o, int64_t i) {
  uint32_t words[4] = {(uint32_t)i, (uint32_t)tick, (uint32_t)o};
  sli_philox(words, 7);
  return (float)(int32_t)words[0] * 0x1p-31f;
}

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx;
  for (int o = 0; o < 2; o++)
    for (int64_t i = 0; out[o] && i < ROWS * WIDTH; i++)
      ((float *)out[o])[i] = number_of(tick->number, o, i);
}

static const sl_type types[] = {{SL_F32, 2, {ROWS, WIDTH}}, {SL_F32, 2, {ROWS, WIDTH}}};
static const sl_source source = {.nout = 2, .types = types, .fill = fill};

/* ---- visits -------------------------------------------------------------------------------- */

typedef struct looped {
  bool again; /* visits, not blocks of their own with the same parameters */
  int times;
} looped;

static sl_tensor *weight(sl_graph *g, const char *name, int number) {
  return sl_param(g, SL_TYPE(SL_F32, WIDTH, WIDTH), SL_NORMAL(0.4f), "%s.%d", name, number);
}

static void build_looped(sl_graph *g, const looped *how) {
  sl_tensor *data[2], *w[2] = {0};
  sl_data(g, &source, data);
  sl_block(g, "first");
  sl_tensor *x = sl_linear(g, data[0], weight(g, "first", 0), NULL);
  for (int visit = 0; visit < how->times; visit++)
    for (int b = 0; b < 2; b++) {
      if (visit && how->again) sl_block_again(g, "h.%d", b);
      else sl_block(g, "h.%d", b);
      if (!visit || how->again) w[b] = weight(g, "h", b);
      x = sl_add(g, x, sl_gelu(g, sl_linear(g, x, w[b], NULL)));
    }
  sl_block(g, "last");
  x = sl_linear(g, x, weight(g, "last", 0), NULL);
  sl_train(g, sl_mse(g, x, data[1]), &(sl_optimizer){.rule = &sl_op_adamw, .lr = 0.01f});
}

typedef struct losses {
  double loss[STEPS], norm[STEPS];
} losses;

static void take_step(void *ctx, const sl_step_report *report) {
  ((losses *)ctx)->loss[report->step] = report->loss;
  ((losses *)ctx)->norm[report->step] = report->grad_norm;
}

static losses run_looped(const looped *model, sl_lower_options how, int microbatches) {
  losses out = {{0}, {0}};
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = microbatches});
  sl_lowered *lowered;
  sl_runtime *rt;
  build_looped(g, model);
  how.devices = (sl_device_options){.kind = "cpu", .threads = 1};
  how.report.on_step = take_step;
  how.report.ctx = &out;
  CHECK(!sl_lower(g, &how, &lowered), "%s", sl_detail());
  CHECK(!sl_plan_prove(sl_lowered_plan(lowered)), "%s", sl_detail());
  sl_runtime_options checked = {
      .check = true, .jitter_seed = 5, .jitter_ns = 2000, .watchdog_seconds = 20};
  CHECK(!sl_runtime_create(sl_lowered_plan(lowered), &checked, &rt), "%s", sl_detail());
  sl_lowered_attach(lowered, rt);
  CHECK(!sl_params_init(lowered, rt, 1) && !sl_runtime_run(rt, STEPS), "%s", sl_detail());
  sl_runtime_destroy(rt);
  sl_lowered_destroy(lowered);
  sl_graph_destroy(g);
  return out;
}

static void visits_learn_as_blocks(int times, const char *schedule, const char *recompute) {
  for (int m = 1; m <= 3; m += 2) {
    sl_lower_options how = {.parallel.stages = 1, .schedule.name = schedule};
    losses want = run_looped(&(looped){false, times}, how, m);
    how.memory.recompute = recompute;
    for (int stages = 1; stages <= 4; stages++) {
      how.parallel.stages = stages;
      losses got = run_looped(&(looped){true, times}, how, m);
      CHECK(!memcmp(&got, &want, sizeof got),
            "%d visits, %s, %d microbatches, %d stages: loss %a, not %a", times, schedule, m,
            stages, got.loss[STEPS - 1], want.loss[STEPS - 1]);
    }
  }
}

static void exact_visits_learn_as_blocks(void) {
  sl_lower_options how = {.parallel.stages = 1, .numbers.exact = true};
  losses want = run_looped(&(looped){false, 3}, how, 2);
  const int grids[][3] = {{2, 2, 1}, {2, 1, 2}, {3, 1, 3}};
  for (size_t i = 0; i < SLI_COUNT(grids); i++) {
    how.parallel.stages = grids[i][0];
    how.parallel.data = grids[i][2];
    how.parallel.tensor = grids[i][1];
    losses got = run_looped(&(looped){true, 3}, how, 2);
    CHECK(!memcmp(got.loss, want.loss, sizeof got.loss), "grid %zu: loss %a, not %a", i,
          got.loss[STEPS - 1], want.loss[STEPS - 1]);
  }
}

/* ---- delays -------------------------------------------------------------------------------- */

typedef struct line {
  int ticks; /* of the delay */
  int count;
  float last[MOST_TICKS]; /* last number of each tick's output */
} line;

static void take_output(void *ctx, const char *name, const sl_type *type, const void *data) {
  line *l = ctx;
  (void)name;
  l->last[l->count++] = ((const float *)data)[sl_type_elements(type) - 1];
}

/* y = x + y of some ticks ago / 2, with as many blocks in between as there are stages. */
static void build_delayed(sl_graph *g, int ticks) {
  sl_tensor *data[2];
  sl_data(g, &source, data);
  sl_block(g, "first");
  sl_tensor *before = sl_delayed(g, types[0], ticks, "sum");
  sl_tensor *y = sl_add(g, data[0], sl_scale(g, before, 0.5f));
  for (int b = 0; b < 3; b++) {
    sl_block(g, "h.%d", b);
    y = sl_scale(g, y, 1);
  }
  sl_delay(g, before, y);
  sl_output(g, "sum", y);
}

static void delays_give_earlier_values(int ticks, int stages, int microbatches) {
  line l = {.ticks = ticks};
  float want[MOST_TICKS];
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = microbatches, .infer = true});
  sl_lowered *lowered;
  sl_runtime *rt;
  build_delayed(g, ticks);
  sl_lower_options how = {.parallel.stages = stages,
                          .devices = {.kind = "cpu", .threads = 1},
                          .report.on_output = take_output,
                          .report.ctx = &l};
  CHECK(!sl_lower(g, &how, &lowered), "%s", sl_detail());
  CHECK(!sl_plan_prove(sl_lowered_plan(lowered)), "%s", sl_detail());
  sl_runtime_options checked = {
      .check = true, .jitter_seed = 5, .jitter_ns = 2000, .watchdog_seconds = 20};
  CHECK(!sl_runtime_create(sl_lowered_plan(lowered), &checked, &rt), "%s", sl_detail());
  sl_lowered_attach(lowered, rt);
  int steps = 12 / microbatches;
  CHECK(!sl_runtime_run(rt, steps), "%s", sl_detail());
  CHECK(l.count == steps * microbatches, "%d ticks, not %d", l.count, steps * microbatches);
  for (int t = 0; t < l.count; t++) {
    float before = t < ticks ? 0 : want[t - ticks];
    want[t] = number_of(t, 0, ROWS * WIDTH - 1) + before * 0.5f;
    CHECK(l.last[t] == want[t], "%d ticks, %d stages: tick %d: %g, not %g", ticks, stages, t,
          (double)l.last[t], (double)want[t]);
  }
  sl_runtime_destroy(rt);
  sl_lowered_destroy(lowered);
  sl_graph_destroy(g);
}

/* ---- refused ------------------------------------------------------------------------------- */

static void no_slots(sl_graph *g) { build_delayed(g, 0); }
static void no_value(sl_graph *g) {
  sl_output(g, "x", sl_scale(g, sl_delayed(g, types[0], 1, "lost"), 2));
}
static void other_shape(sl_graph *g) {
  sl_tensor *before = sl_delayed(g, types[0], 1, "state"), *data[2];
  sl_data(g, &source, data);
  sl_delay(g, before, sl_reshape(g, sl_add(g, before, data[0]), ROWS * WIDTH));
}
static void visit_in_other_shape(sl_graph *g) {
  sl_tensor *data[2];
  sl_data(g, &source, data);
  sl_block(g, "h");
  sl_linear(g, data[0], weight(g, "w", 0), NULL);
  sl_block_again(g, "h");
  sl_param(g, SL_TYPE(SL_F32, WIDTH, 2 * WIDTH), SL_NORMAL(0.4f), "w.0");
}
static void visit_of_nothing(sl_graph *g) { sl_block_again(g, "h.7"); }

static void check_refused(void (*build)(sl_graph *g), const char *words) {
  sl_graph *g = sl_graph_create(&(sl_graph_options){.infer = true});
  sl_lowered *lowered = NULL;
  build(g);
  sl_status status =
      sl_lower(g, &(sl_lower_options){.parallel.stages = 1, .devices = {.kind = "cpu"}}, &lowered);
  CHECK(status && strstr(sl_detail(), words), "\"%s\", not \"%s\"", sl_detail(), words);
  sl_graph_destroy(g);
}

static void deep_delays_are_refused(void) {
  sl_graph *g = sl_graph_create(&(sl_graph_options){.infer = true});
  sl_lowered *lowered = NULL;
  build_delayed(g, 4);
  sl_quota quota = {"delay", SL_NONE, 3};
  sl_lower_options how = {
      .parallel.stages = 1, .devices = {.kind = "cpu"}, .memory = {.nquotas = 1, .quotas = &quota}};
  CHECK(sl_lower(g, &how, &lowered) && strstr(sl_detail(), "delay:sum: 4 initial slots"), "%s",
        sl_detail());
  sl_graph_destroy(g);
}

int main(void) {
  RUN(visits_learn_as_blocks, 2, "1f1b", "none");
  RUN(visits_learn_as_blocks, 3, "gpipe", "full");
  RUN(visits_learn_as_blocks, 4, "zb-h1", "none");
  RUN(exact_visits_learn_as_blocks);
  for (int ticks = 1; ticks <= 5; ticks++)
    for (int stages = 1; stages <= 4; stages++)
      RUN(delays_give_earlier_values, ticks, stages, 1 + (ticks + stages) % 4);
  RUN(check_refused, no_slots, "0 slots are full at the start");
  RUN(check_refused, no_value, "delay lost: no sl_delay()");
  RUN(check_refused, other_shape, "delay state: its value");
  RUN(check_refused, visit_in_other_shape, "block h: visit 2 needs parameter w.0 as f32[8, 16]");
  RUN(check_refused, visit_of_nothing, "block h.7: cannot be visited again");
  RUN(deep_delays_are_refused);
  return 0;
}
