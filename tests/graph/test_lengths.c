/* SPDX-License-Identifier: Apache-2.0 */
/* A model whose calls report how many rows they fill. It picks some rows of a microbatch, sends
 * them through layers on other stages and puts them back. It learns as a model does that computes
 * all rows and masks the rest, on every schedule. A tick may pick no rows, and only picked rows
 * move between stages. Ops that cannot skip rows are refused with an error that names them.
 * labels: unthreaded */
#include <math.h>
#include <string.h>

#include <sluice/ops.h>
#include <sluice/sluice.h>
#include <sluice/trace.h>

#include "base/base.h"
#include "base/philox.h"
#include "tests/support/test.h"

enum { ROWS = 24, WIDTH = 8, MICROBATCHES = 4, STEPS = 4 };

/* ---- data -------------------------------------------------------------------------------- */

/* Column 0 decides which rows are picked: none in every third tick. */
static float number_of(int64_t tick, int o, int64_t i) {
  uint32_t words[4] = {(uint32_t)i, (uint32_t)tick, (uint32_t)o};
  sli_philox(words, 11);
  float x = (float)(int32_t)words[0] * 0x1p-31f;
  return !o && i % WIDTH == 0 && tick % 3 == 2 ? -fabsf(x) : x;
}

static int picked_in(int64_t tick) {
  int n = 0;
  for (int64_t r = 0; r < ROWS; r++) n += number_of(tick, 0, r * WIDTH) > 0;
  return n;
}

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx;
  for (int o = 0; o < 2; o++)
    for (int64_t i = 0; out[o] && i < ROWS * WIDTH; i++)
      ((float *)out[o])[i] = number_of(tick->number, o, i);
}

static const sl_type types[] = {{SL_F32, 2, {ROWS, WIDTH}}, {SL_F32, 2, {ROWS, WIDTH}}};
static const sl_source source = {.nout = 2, .types = types, .fill = fill};

/* ---- the user's ops ------------------------------------------------------------------------ */

/* pick(x, data) -> rows, index: the rows of x whose data starts with a positive number. */
static sl_status pick_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = in[0];
  out[1] = SL_TYPE(SL_I32, in[0].dim[0]);
  return SL_OK;
}

static void pick_cpu(const sl_call *call) {
  const float *x = call->in[0], *data = call->in[1];
  float *rows = call->out[0];
  int32_t *index = call->out[1];
  int64_t n = 0;
  for (int32_t r = 0; r < ROWS; r++) {
    if (data[r * WIDTH] <= 0) continue;
    memcpy(rows + n * WIDTH, x + r * WIDTH, WIDTH * sizeof *x);
    index[n++] = r;
  }
  sl_call_fill(call, 0, n);
  sl_call_fill(call, 1, n);
}

/* restore(rows, index) -> y: the rows at their old positions, zeros elsewhere. Also the gradient of
 * pick. */
static sl_status restore_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = in[0];
  return SL_OK;
}

static void restore_cpu(const sl_call *call) {
  const float *rows = call->in[0];
  const int32_t *index = call->in[1];
  float *y = call->out[0];
  int64_t n = sl_call_rows(call, 0, ROWS);
  CHECK(n == sl_call_rows(call, 1, ROWS), "rows and their index are as many");
  memset(y, 0, ROWS * WIDTH * sizeof *y);
  for (int64_t r = 0; r < n; r++) memcpy(y + index[r] * WIDTH, rows + r * WIDTH, WIDTH * sizeof *y);
}

/* select(dy, index) -> drows: the gradient of restore. */
static void select_cpu(const sl_call *call) {
  const float *dy = call->in[0];
  const int32_t *index = call->in[1];
  float *rows = call->out[0];
  int64_t n = sl_call_rows(call, 1, ROWS);
  for (int64_t r = 0; r < n; r++)
    memcpy(rows + r * WIDTH, dy + index[r] * WIDTH, WIDTH * sizeof *dy);
  sl_call_fill(call, 0, n);
}

/* hide(x, data) -> y: x with zeros in the rows that are not picked. */
static void hide_cpu(const sl_call *call) {
  const float *x = call->in[0], *data = call->in[1];
  float *y = call->out[0];
  for (int64_t i = 0; i < ROWS * WIDTH; i++) y[i] = data[i / WIDTH * WIDTH] > 0 ? x[i] : 0;
}

static const sl_op select_row = {.name = "select",
                                 .min_in = 2,
                                 .max_in = 2,
                                 .nout = 1,
                                 .infer = restore_infer,
                                 .kernels = SL_CPU_KERNEL(select_cpu),
                                 .rows = &(const sl_op_rows){.looks = 2, .fills = 1}};
static const sl_op unpick = {.name = "unpick",
                             .min_in = 2,
                             .max_in = 2,
                             .nout = 1,
                             .infer = restore_infer,
                             .kernels = SL_CPU_KERNEL(restore_cpu),
                             .rows = &(const sl_op_rows){.looks = 3}};
/* The expected rows where no values are computed. */
static int64_t pick_expects(const sl_attrs *attrs, int o, const sl_type *type, int32_t tick) {
  (void)attrs, (void)o;
  return tick % 2 ? 0 : type->dim[0] / 2;
}

static const sl_op pick = {
    .name = "pick",
    .min_in = 2,
    .max_in = 2,
    .nout = 2,
    .infer = pick_infer,
    .kernels = SL_CPU_KERNEL(pick_cpu),
    .rows = &(const sl_op_rows){.fills = 3, .expects = pick_expects},
    .grad = {
        {.op = &unpick, .cls = SL_CLASS_B, .in = {SL_DOUT(0), SL_OUT(1)}, .nwrt = 1, .wrt = {0}}}};
static const sl_op restore = {.name = "restore",
                              .min_in = 2,
                              .max_in = 2,
                              .nout = 1,
                              .infer = restore_infer,
                              .kernels = SL_CPU_KERNEL(restore_cpu),
                              .rows = &(const sl_op_rows){.looks = 3},
                              .grad = {{.op = &select_row,
                                        .cls = SL_CLASS_B,
                                        .in = {SL_DOUT(0), SL_IN(1)},
                                        .nwrt = 1,
                                        .wrt = {0}}}};
static const sl_op hide_b = {.name = "hide_b",
                             .min_in = 2,
                             .max_in = 2,
                             .nout = 1,
                             .infer = restore_infer,
                             .kernels = SL_CPU_KERNEL(hide_cpu)};
static const sl_op hide = {
    .name = "hide",
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .infer = restore_infer,
    .kernels = SL_CPU_KERNEL(hide_cpu),
    .grad = {
        {.op = &hide_b, .cls = SL_CLASS_B, .in = {SL_DOUT(0), SL_IN(1)}, .nwrt = 1, .wrt = {0}}}};

/* ---- models -------------------------------------------------------------------------------- */

static sl_tensor *apply(sl_graph *g, const sl_op *op, sl_tensor *a, sl_tensor *b,
                        sl_tensor **more) {
  sl_tensor *in[] = {a, b}, *out[2];
  sl_apply(g, op, NULL, 2, in, 0, out);
  if (more) *more = out[1];
  return out[0];
}

static sl_tensor *layers(sl_graph *g, sl_tensor *x) {
  sl_tensor *v = sl_param(g, SL_TYPE(SL_F32, WIDTH), SL_CONSTANT(1), "v");
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, WIDTH, WIDTH), SL_NORMAL(0.4f), "u");
  return sl_add(g, sl_gelu(g, sl_linear(g, sl_rmsnorm(g, x, v, 1e-3f), w, NULL)), x);
}

static void build(sl_graph *g, bool extents) {
  sl_tensor *data[2], *index = NULL;
  sl_data(g, &source, data);
  sl_block(g, "before");
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, WIDTH, WIDTH), SL_NORMAL(0.4f), "w");
  sl_tensor *x = sl_linear(g, data[0], w, NULL);
  if (extents) x = apply(g, &pick, x, data[0], &index);
  sl_block(g, "layers");
  x = layers(g, x);
  sl_block(g, "behind");
  x = extents ? apply(g, &restore, x, index, NULL) : apply(g, &hide, x, data[0], NULL);
  sl_train(g, sl_mse(g, x, data[1]), &(sl_optimizer){.rule = &sl_op_sgd, .lr = 0.1f});
}

/* ---- traces --------------------------------------------------------------------------------- */

static sl_trace *trace_of(const sl_plan *plan, const sl_runtime *rt, sl_clock clock) {
  sl_trace *t;
  CHECK(!sl_trace_write("graph_extents.trace", plan, rt, clock), "%s", sl_detail());
  CHECK(!sl_trace_read("graph_extents.trace", &t), "%s", sl_detail());
  return t;
}

static bool is_of(const sl_trace *t, const sl_trace_firing *f, const char *actor) {
  return !strcmp(t->plan->actors[f->record.actor].name, actor);
}

static void check_rows(const sl_trace *t, const char *actor, int (*want)(int64_t tick)) {
  int firings = 0;
  for (size_t i = 0; i < t->nfirings; i++) {
    const sl_trace_firing *f = &t->firings[i];
    if (!is_of(t, f, actor)) continue;
    CHECK(f->rows == want(f->tick.number), "%s, tick %lld: the trace says %d rows", actor,
          (long long)f->tick.number, f->rows);
    firings++;
  }
  CHECK(firings, "there is an actor %s", actor);
}

/* ---- runs ---------------------------------------------------------------------------------- */

typedef struct outcome {
  double loss[STEPS];
  uint64_t pipeline_bytes;
} outcome;

static void take_step(void *ctx, const sl_step_report *report) {
  ((outcome *)ctx)->loss[report->step] = report->loss;
}

static outcome run(bool extents, int stages, const char *schedule, const char *recompute) {
  outcome o = {{0}, 0};
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = MICROBATCHES});
  build(g, extents);
  CHECK(!sl_graph_status(g), "%s", sl_detail());
  sl_lower_options options = {.parallel.stages = stages,
                              .schedule.name = schedule,
                              .memory.recompute = recompute,
                              .devices = {.kind = "cpu", .threads = 1},
                              .report.on_step = take_step,
                              .report.ctx = &o};
  sl_lowered *lowered;
  CHECK(!sl_lower(g, &options, &lowered), "%s", sl_detail());
  const sl_plan *plan = sl_lowered_plan(lowered);
  CHECK(!sl_plan_prove(plan), "%s", sl_detail());
  sl_runtime *rt;
  sl_runtime_options how = {
      .check = true, .jitter_seed = 3, .jitter_ns = 2000, .watchdog_seconds = 20};
  CHECK(!sl_runtime_create(plan, &how, &rt), "%s", sl_detail());
  sl_lowered_attach(lowered, rt);
  sl_params_init(lowered, rt, 1);
  CHECK(!sl_runtime_run(rt, STEPS), "%s", sl_detail());
  if (extents && stages > 1) {
    sl_trace *t = trace_of(plan, rt, SL_CLOCK_REAL);
    check_rows(t, "F1", picked_in);
    sl_trace_destroy(t);
  }
  o.pipeline_bytes = sl_runtime_count(rt).moved_bytes[SL_TRAFFIC_PIPELINE];
  sl_runtime_destroy(rt);
  sl_lowered_destroy(lowered);
  sl_graph_destroy(g);
  return o;
}

static void check_losses(const outcome *a, const outcome *b, double most, const char *what) {
  for (int s = 0; s < STEPS; s++)
    CHECK(fabs(a->loss[s] - b->loss[s]) <= most, "%s: step %d: loss %.17g, not %.17g", what, s,
          a->loss[s], b->loss[s]);
}

/* Targets go whole to the last stage. Picked data moves its index there once, and
 * each row four times: forward and backward between each two stages, however many actors read it.
 */
static void check_bytes(const outcome *o, const char *what) {
  uint64_t picked = 0, ticks = STEPS * MICROBATCHES;
  for (uint64_t t = 0; t < ticks; t++) picked += (uint64_t)picked_in((int64_t)t);
  uint64_t want = sizeof(float) * (ticks * ROWS * WIDTH + picked * (4 * WIDTH + 1));
  CHECK(o->pipeline_bytes == want, "%s: %llu bytes moved, not %llu", what,
        (unsigned long long)o->pipeline_bytes, (unsigned long long)want);
}

/* ---- on modelled devices ------------------------------------------------------------------- */

static int expected_in(int64_t tick) { return tick % MICROBATCHES % 2 ? 0 : ROWS / 2; }

/* On modelled devices, the expected number of rows decides time and traffic. */
static void modelled_devices_expect(void) {
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = MICROBATCHES});
  build(g, true);
  sl_lower_options options = {
      .parallel.stages = 3, .schedule.name = "1f1b", .devices = {.kind = "timed"}};
  sl_lowered *lowered;
  CHECK(!sl_lower(g, &options, &lowered), "%s", sl_detail());
  const sl_plan *plan = sl_lowered_plan(lowered);
  sl_runtime *rt;
  sl_runtime_options how = {.clock = SL_CLOCK_VIRTUAL, .no_data = true};
  CHECK(!sl_runtime_create(plan, &how, &rt) && !sl_runtime_run(rt, 2), "%s", sl_detail());
  sl_trace *t = trace_of(plan, rt, SL_CLOCK_VIRTUAL);
  check_rows(t, "F1", expected_in);
  check_rows(t, "B1", expected_in);
  for (size_t i = 0; i < t->nfirings; i++) {
    const sl_trace_firing *f = &t->firings[i];
    bool took = f->record.end_ns > f->record.start_ns;
    CHECK(!is_of(t, f, "F1") || took == (expected_in(f->tick.number) > 0),
          "a stage takes time in ticks in which it has rows");
  }
  sl_trace_destroy(t);
  sl_runtime_destroy(rt);
  sl_lowered_destroy(lowered);
  sl_graph_destroy(g);
}

/* ---- refused models ---------------------------------------------------------------------- */

static sl_tensor *hide_picked(sl_graph *g, sl_tensor *rows, sl_tensor *data) {
  return apply(g, &hide, rows, data, NULL);
}

static sl_tensor *add_full(sl_graph *g, sl_tensor *rows, sl_tensor *data) {
  return sl_add(g, rows, data);
}

static void check_refused(sl_tensor *(*use)(sl_graph *g, sl_tensor *rows, sl_tensor *data),
                          const char *word) {
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = MICROBATCHES});
  sl_tensor *data[2], *index;
  sl_data(g, &source, data);
  sl_block(g, "all");
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, WIDTH, WIDTH), SL_NORMAL(0.4f), "w");
  sl_tensor *rows = apply(g, &pick, sl_linear(g, data[0], w, NULL), data[0], &index);
  sl_tensor *y = apply(g, &restore, use(g, rows, data[0]), index, NULL);
  sl_train(g, sl_mse(g, y, data[1]), NULL);
  sl_lowered *lowered;
  sl_lower_options options = {.parallel.stages = 1, .devices = {.kind = "cpu", .threads = 1}};
  CHECK(sl_lower(g, &options, &lowered) == SL_E_UNSUPPORTED && strstr(sl_detail(), word) &&
            strstr(sl_detail(), "rows"),
        "refused, but: %s", sl_detail());
  sl_graph_destroy(g);
}

int main(void) {
  outcome dense = run(false, 1, "1f1b", NULL), alone = run(true, 1, "1f1b", NULL);
  printf("loss %.6f -> %.6f\n", alone.loss[0], alone.loss[STEPS - 1]);
  RUN(check_losses, &alone, &dense, 1e-6, "as one that computes all");
  static const char *const schedules[] = {"gpipe", "1f1b", "zb-h1"};
  for (size_t s = 0; s < SLI_COUNT(schedules); s++) {
    outcome piped = run(true, 3, schedules[s], s == 1 ? "full" : NULL);
    RUN(check_losses, &piped, &alone, 0, schedules[s]);
    RUN(check_bytes, &piped, schedules[s]);
  }
  RUN(modelled_devices_expect);
  RUN(check_refused, hide_picked, "hide");
  RUN(check_refused, add_full, "all rows of");
  return 0;
}
