/* SPDX-License-Identifier: Apache-2.0 */
/* Sluice embedded in a program: builds a graph, lowers it to a plan and trains it until the loss
 * falls.
 *
 * A network of two layers learns whether the number of ones among eight bits is odd. The pipeline
 * has two stages on two CPU devices of one thread each. */
#include <stdio.h>
#include <sluice/sluice.h>

enum { BITS = 8, ROWS = 64, MICROBATCHES = 4, STEPS = 400 };

/* Fills a microbatch with a quarter of the 256 patterns. */
static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx;
  float *bits = out[0];  /* [ROWS, BITS] */
  int32_t *odd = out[1]; /* [ROWS] */
  for (int row = 0; row < ROWS; row++) {
    int pattern = tick->microbatch * ROWS + row;
    for (int b = 0; b < BITS && bits; b++) bits[row * BITS + b] = pattern >> b & 1 ? 1.0f : -1.0f;
    if (odd) odd[row] = __builtin_parity((unsigned)pattern);
  }
}

static const sl_type types[] = {{SL_F32, 2, {ROWS, BITS}}, {SL_I32, 1, {ROWS}}};
static const sl_source source = {.nout = 2, .types = types, .fill = fill};

static sl_tensor *dense(sl_graph *g, sl_tensor *x, int64_t in, int64_t out, const char *name) {
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, out, in), SL_UNIFORM(0.5f), "%s.weight", name);
  sl_tensor *b = sl_param(g, SL_TYPE(SL_F32, out), SL_CONSTANT(0), "%s.bias", name);
  return sl_linear(g, x, w, b); /* [ROWS, out] */
}

static sl_graph *make_graph(void) {
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = MICROBATCHES, .pieces = 1});
  sl_tensor *data[2]; /* bits, odd */
  sl_block(g, "hidden");
  sl_data(g, &source, data);
  sl_tensor *h = sl_tanh(g, dense(g, data[0], BITS, 64, "hidden")); /* [ROWS, 64] */
  sl_block(g, "output");
  sl_tensor *logits = dense(g, h, 64, 2, "output"); /* [ROWS, 2] */
  sl_train(g, sl_cross_entropy(g, logits, data[1]),
           &(sl_optimizer){.lr = 0.01f, .beta2 = 0.99f, .weight_decay = SL_OFF, .clip = SL_OFF});
  return g;
}

static void on_step(void *ctx, const sl_step_report *report) {
  *(double *)ctx = report->loss;
  if (report->step % 50 == 0 || report->step + 1 == STEPS)
    printf("step %lld loss %.4f\n", (long long)report->step, report->loss);
}

int main(void) {
  double loss = 0;
  sl_graph *g = make_graph();
  sl_lowered *lowered = NULL;
  sl_runtime *rt = NULL;
  sl_lower_options options = {.parallel.stages = 2,
                              .schedule.chunks = 1,
                              .devices = {.kind = "cpu"},
                              .report.on_step = on_step,
                              .report.ctx = &loss};
  sl_status status = sl_lower(g, &options, &lowered);
  if (!status) status = sl_plan_prove(sl_lowered_plan(lowered));
  if (!status) status = sl_runtime_create(sl_lowered_plan(lowered), &(sl_runtime_options){0}, &rt);
  if (!status) {
    sl_lowered_attach(lowered, rt);
    sl_params_init(lowered, rt, 1);
    status = sl_runtime_run(rt, STEPS);
  }
  if (status) fprintf(stderr, "parity: %s\n", sl_detail());
  sl_runtime_destroy(rt);
  sl_lowered_destroy(lowered);
  sl_graph_destroy(g);
  return status ? sl_status_exit(status) : loss < 0.1 ? 0 : 1;
}
