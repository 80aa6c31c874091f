/* SPDX-License-Identifier: Apache-2.0 */
/* A custom op: snake(x, a) = x + sin(a x)^2 / a, an activation for periodic functions (Ziyin et
 * al., arXiv 2006.08195), with a learned frequency `a` per channel. A small network with it learns
 * a wave.
 *
 *     actorrun --steps 400 examples/snake.c
 *     actorrun --steps 400 --stages 2 --microbatches 4 --schedule zb-h1 examples/snake.c
 *     actorrun --steps 400 --data-parallel 2 examples/snake.c
 *
 * docs/models.md explains it line by line. */
#include <math.h>
#include <stdio.h>
#include <sluice/sluice.h>

/* ---- the op ----------------------------------------------------------------------
 *
 * An sl_op describes an op. Kernels get rows of C numbers; x and y are [..., C], a is [C]. */

/* Infers the output's shape; rejects shapes that do not match. */
static sl_status infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  if (in[0].dtype != SL_F32 || in[0].ndim < 1)
    return sl_fail(SL_E_SHAPE, "x must be f32 with at least one dim");
  if (in[1].dtype != SL_F32 || in[1].ndim != 1 || in[1].dim[0] != sl_type_last(&in[0]))
    return sl_fail(SL_E_SHAPE, "a must be f32[%lld]", (long long)sl_type_last(&in[0]));
  out[0] = in[0];
  return SL_OK;
}

/* Infers the gradient of a, which has a's shape. */
static sl_status infer_w(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_status status = infer(attrs, nin, in, out);
  out[0] = in[1];
  return status;
}

static void snake(const sl_call *call) {
  int64_t rows = sl_type_rows(&call->in_type[0]), C = sl_type_last(&call->in_type[0]);
  const float *x = call->in[0], *a = call->in[1];
  float *y = call->out[0];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < C; c++) {
      float s = sinf(a[c] * x[r * C + c]);
      y[r * C + c] = x[r * C + c] + s * s / a[c];
    }
}

/* Computes dx = dy (1 + sin(2 a x)). */
static void snake_b(const sl_call *call) {
  int64_t rows = sl_type_rows(&call->in_type[0]), C = sl_type_last(&call->in_type[0]);
  const float *x = call->in[0], *a = call->in[1], *dy = call->in[2];
  float *dx = call->out[0];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < C; c++)
      dx[r * C + c] = dy[r * C + c] * (1 + sinf(2 * a[c] * x[r * C + c]));
}

/* Computes da = sum over rows of dy (x sin(2 a x) / a - sin(a x)^2 / a^2). Parameter gradients
 * accumulate over microbatches: if the call asks for it, the sum is added to the existing
 * values. */
static void snake_w(const sl_call *call) {
  int64_t rows = sl_type_rows(&call->in_type[0]), C = sl_type_last(&call->in_type[0]);
  const float *x = call->in[0], *a = call->in[1], *dy = call->in[2];
  float *da = call->out[0];
  for (int64_t c = 0; c < C; c++) {
    double sum = 0;
    for (int64_t r = 0; r < rows; r++) {
      float v = x[r * C + c], s = sinf(a[c] * v);
      sum += dy[r * C + c] * (v * sinf(2 * a[c] * v) / a[c] - s * s / (a[c] * a[c]));
    }
    da[c] = (call->accumulate & 1 ? da[c] : 0) + (float)sum;
  }
}

/* Signature of the op: rows are independent of each other, and every device needs all of a. The op
 * can therefore be sharded by rows, and sequences can be cut into pieces. */
enum { A_IS_WHOLE = 1 << 1 };
static const sl_op row_b = {
    .name = "snake_b",
    .min_in = 3,
    .max_in = 3,
    .nout = 1,
    .infer = infer,
    .kernels = SL_CPU_KERNEL(snake_b),
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_ROWS, .whole = A_IS_WHOLE}};
static const sl_op row_w = {
    .name = "snake_w",
    .min_in = 3,
    .max_in = 3,
    .nout = 1,
    .infer = infer_w,
    .kernels = SL_CPU_KERNEL(snake_w),
    .accumulates = 1,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_ROWS, .whole = A_IS_WHOLE}};
static const sl_op row = {.name = "snake",
                          .min_in = 2,
                          .max_in = 2,
                          .nout = 1,
                          .infer = infer,
                          .kernels = SL_CPU_KERNEL(snake),
                          .cut = &(const sl_op_cut){.pieces = SL_PIECES_ROWS, .whole = A_IS_WHOLE},
                          .grad = {{.op = &row_b,
                                    .cls = SL_CLASS_B,
                                    .in = {SL_IN(0), SL_IN(1), SL_DOUT(0)},
                                    .nwrt = 1,
                                    .wrt = {0}},
                                   {.op = &row_w,
                                    .cls = SL_CLASS_W,
                                    .in = {SL_IN(0), SL_IN(1), SL_DOUT(0)},
                                    .nwrt = 1,
                                    .wrt = {1}}}};

/* ---- the data ---------------------------------------------------------------------- */

typedef struct wave {
  sl_source source;
  sl_type types[2];
  int64_t rows;
  int microbatches;
} wave;

/* Fills x in -3 .. 3 in steps of the golden ratio, and y = sin(2 x) + x / 4. The same tick always
 * gives the same points. */
static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  const wave *w = ctx;
  float *x = out[0], *y = out[1]; /* NULL if not read */
  int64_t first = (tick->step * w->microbatches + tick->microbatch) * w->rows;
  for (int64_t i = 0; i < w->rows; i++) {
    double at = 6 * fmod(0.6180339887498949 * (double)(first + i), 1) - 3;
    if (x) x[i] = (float)at;
    if (y) y[i] = (float)(sin(2 * at) + at / 4);
  }
}

/* ---- the model ------------------------------------------------------------------------ */

/* clang-format off */
static const sl_option options[] = {
    {"points", SL_OPTION_INT, "256", "points of a step", 1, 1 << 20},
    {"width", SL_OPTION_INT, "32", "units of a hidden layer", 1, 1 << 12},
    {"lr", SL_OPTION_FLOAT, "0.01", "learning rate", 0, 1}, {0}};
/* clang-format on */

static sl_tensor *dense(sl_graph *g, sl_tensor *x, int64_t out, const char *name) {
  int64_t in = sl_dim(x, -1);
  float bound = in > 0 ? 1 / sqrtf((float)in) : 0;
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, out, in), SL_UNIFORM(bound), "%s.weight", name);
  sl_tensor *b = sl_param(g, SL_TYPE(SL_F32, out), SL_UNIFORM(bound), "%s.bias", name);
  return sl_linear(g, x, w, b);
}

static sl_tensor *hidden(sl_graph *g, sl_tensor *x, int64_t width, const char *name) {
  sl_block(g, "%s", name);
  sl_tensor *a = sl_param(g, SL_TYPE(SL_F32, width), SL_CONSTANT(1), "%s.frequency", name);
  sl_tensor *in[2] = {dense(g, x, width, name), a}, *y;
  sl_apply(g, &row, NULL, 2, in, 0, &y);
  return y;
}

static sl_status build(sl_graph *g, const sl_args *args) {
  int64_t width = sl_arg_int(args, "width");
  wave *w = sl_graph_alloc(g, sizeof *w);
  w->rows = sl_microbatch_rows(g, sl_arg_int(args, "points"));
  w->microbatches = sl_graph_microbatches(g);
  w->types[0] = w->types[1] = SL_TYPE(SL_F32, w->rows, 1);
  w->source = (sl_source){.nout = 2, .types = w->types, .fill = fill, .ctx = w};

  sl_tensor *data[2];
  sl_data(g, &w->source, data);
  sl_tensor *h = hidden(g, hidden(g, data[0], width, "first"), width, "second");
  sl_block(g, "output");
  sl_tensor *y = dense(g, h, 1, "output");
  sl_output(g, "y", y);
  sl_train(g, sl_mse(g, y, data[1]), &(sl_optimizer){.lr = (float)sl_arg_float(args, "lr")});
  return sl_graph_status(g);
}

SL_MODEL(snake, "a wave learned with an activation of one's own", options, build);
