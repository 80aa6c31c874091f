/* SPDX-License-Identifier: Apache-2.0 */
/* Two batch norms, each behind a convolution: the model of test_batch_norm.sh and of
 * tests/reference/make_batch_norm.py. */
#include <sluice/sluice.h>

enum { BATCH = 16, CHANNELS = 2, WIDTH = 7, MIDDLE = 4, OUT = 5 };

typedef struct data {
  sl_source source;
  sl_type types[2];
} data;

/* Returns a number that f32 represents exactly. */
static float number(int64_t at, int64_t salt) {
  return (float)((at * 7919 + salt * 104729 + at * at * 31) % 257 - 128) / 64;
}

static void fill_rows(const data *d, const sl_tick *tick, int64_t first, void *const *out) {
  int64_t rows = d->types[0].dim[0];
  int64_t at = first + tick->microbatch * rows;
  float *x = out[0], *t = out[1];
  for (int64_t i = 0; x && i < rows * CHANNELS * WIDTH; i++)
    x[i] = number(at * CHANNELS * WIDTH + i, 1);
  for (int64_t i = 0; t && i < rows * OUT; i++) t[i] = number(at * OUT + i, 2);
}

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  fill_rows(ctx, tick, tick->step * BATCH, out);
}

static void fill_held_out(void *ctx, const sl_tick *tick, void *const *out) {
  fill_rows(ctx, tick, 1000, out);
}

static sl_tensor *statistic(sl_graph *g, int64_t n, float start, const char *name) {
  return sl_param(g, SL_TYPE(SL_F32, n), SL_CONSTANT(start), "%s", name);
}

static sl_tensor *norm(sl_graph *g, sl_tensor *x, int number, float momentum, float eps) {
  static const char *const names[2][5] = {
      {"bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var", "bn1.num_batches_tracked"},
      {"bn2.weight", "bn2.bias", "bn2.running_mean", "bn2.running_var", "bn2.num_batches_tracked"}};
  const char *const *name = names[number];
  int64_t n = sl_dim(x, 1);
  sl_tensor *gain = statistic(g, n, 1, name[0]), *bias = statistic(g, n, 0, name[1]);
  sl_tensor *mean = statistic(g, n, 0, name[2]), *variance = statistic(g, n, 1, name[3]);
  sl_tensor *count = sl_param(g, SL_SCALAR(SL_F32), SL_CONSTANT(0), "%s", name[4]);
  sl_running(g, count, sl_filled(g, SL_SCALAR(SL_F32), 1, NULL), 0);
  return sl_batch_norm(g, x, gain, bias, mean, variance, momentum, eps);
}

static sl_status build(sl_graph *g, const sl_args *args) {
  data *d = sl_graph_alloc(g, sizeof *d);
  int64_t rows = sl_microbatch_rows(g, BATCH);
  sl_tensor *in[2];
  (void)args;
  d->types[0] = SL_TYPE(SL_F32, rows, CHANNELS, WIDTH);
  d->types[1] = SL_TYPE(SL_F32, rows, OUT);
  d->source = (sl_source){.nout = 2,
                          .types = d->types,
                          .fill = fill,
                          .ctx = d,
                          .fill_held_out = fill_held_out,
                          .held_out = 2};
  sl_block(g, "first");
  sl_data(g, &d->source, in);
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, MIDDLE, CHANNELS, 3), SL_NORMAL(0.3f), "conv.weight");
  sl_tensor *x = sl_conv(g, in[0], w, NULL, &(sl_window){.pad = {0, 1}});
  x = sl_relu(g, norm(g, x, 0, 0.1f, 1e-5f));
  sl_block(g, "second");
  x = sl_reshape(g, x, rows, MIDDLE * WIDTH);
  w = sl_param(g, SL_TYPE(SL_F32, OUT, MIDDLE * WIDTH), SL_NORMAL(0.2f), "fc.weight");
  x = norm(g, sl_linear(g, x, w, NULL), 1, 0.3f, 1e-2f);
  sl_train(g, sl_mse(g, x, in[1]),
           &(sl_optimizer){.rule = &sl_op_sgd, .lr = 0.1f, .clip = 2, .weight_decay = 0.01f});
  return sl_graph_status(g);
}

SL_MODEL(batch_norm, "two batch norms", NULL, build);
