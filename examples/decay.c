/* SPDX-License-Identifier: Apache-2.0 */
/* A recurrent model with a custom op, for training and serving. Each channel of `decay` keeps a
 * running mean of its input, h[t] = d h[t-1] + (1 - d) x[t], with a d in (0, 1) per channel.
 *
 *     actorrun --steps 500 --save decay.safetensors examples/decay.c --data FILE
 *     actorserve --init decay.safetensors examples/decay.c
 *
 * For serving, the op names another op (sl_op.serve) that reads the batch: the sequence and
 * position of each row of a tick. It keeps its state in pages, as attention does. The pages are an
 * output that it updates in place; each page holds the state after its newest position. A sequence
 * that was preempted, or that begins with shared pages, finds its state in the page before the one
 * it computes. */
#include <sluice/batch.h>
#include <sluice/sluice.h>

/* clang-format off */
static const sl_option options[] = {
    {"data", SL_OPTION_LIST, NULL, "text `FILE` to learn; may be repeated", 0, 0},
    {"layers", SL_OPTION_INT, "2", "layers of means", 1, 100},
    {"width", SL_OPTION_INT, "96", "numbers per byte", 1, 1 << 14},
    {"context", SL_OPTION_INT, "128", "bytes of a sequence", 1, 1 << 12},
    {"batch", SL_OPTION_INT, "16", "sequences of a step", 1, 1 << 20},
    SL_OPTIMIZER_OPTIONS, {0}};
/* clang-format on */

/* Returns the decay of a channel: channel c of C forgets half in one to 2^8 positions. */
static float decay_of(int64_t c, int64_t C) { return 1 - 0.5f / (float)(1 << 8 * c / C); }

static float step(float before, float x, float d) { return d * before + (1 - d) * x; }

/* ---- training ------------------------------------------------------------------------------- */

static sl_status infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = in[0];
  return SL_OK;
}

/* x [B, T, C] -> h [B, T, C] */
static void forward(const sl_call *call) {
  const sl_type *type = &call->in_type[0];
  int64_t T = type->dim[1], C = type->dim[2];
  const float *x = call->in[0];
  float *h = call->out[0];
  for (int64_t i = 0; i < type->dim[0] * T * C; i++)
    h[i] = step(i / C % T ? h[i - C] : 0, x[i], decay_of(i % C, C));
}

/* Computes dx from dh, from the last position to the first. */
static void backward(const sl_call *call) {
  const sl_type *type = &call->in_type[0];
  int64_t T = type->dim[1], C = type->dim[2];
  const float *dh = call->in[0];
  float *dx = call->out[0];
  for (int64_t i = type->dim[0] * T * C - 1; i >= 0; i--) {
    float d = decay_of(i % C, C), after = i / C % T < T - 1 ? dx[i + C] / (1 - d) : 0;
    dx[i] = (1 - d) * (dh[i] + d * after);
  }
}

/* ---- serving --------------------------------------------------------------------------------- */

/* x, batch -> h, states [pages, C] */
static sl_status infer_served(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  out[0] = in[0];
  out[1] = SL_TYPE(SL_F32, attrs->pages.count, in[0].dim[2]);
  return SL_OK;
}

/* Runs a tick's rows; the rows of a sequence are in order. */
static void serve(const sl_call *call) {
  const sl_batch *batch = call->in[1];
  int64_t C = call->in_type[0].dim[2];
  for (int32_t r = 0; r < batch->rows; r++) {
    int32_t p = sl_batch_position(batch)[r];
    const int32_t *page = sl_batch_table(batch, sl_batch_sequence_of(batch)[r]) + p / SL_PAGE;
    const float *x = (const float *)call->in[0] + r * C;
    float *h = (float *)call->out[0] + r * C, *now = (float *)call->out[1] + *page * C;
    const float *before = p % SL_PAGE ? now : p ? (const float *)call->out[1] + page[-1] * C : NULL;
    for (int64_t c = 0; c < C; c++)
      h[c] = now[c] = step(before ? before[c] : 0, x[c], decay_of(c, C));
  }
}

static const sl_op decay_served = {
    .name = "decay_served",
    .min_in = 2,
    .max_in = 2,
    .nout = 2,
    .memory = &(const sl_op_memory){.updates = 2},
    .infer = infer_served,
    .kernels = SL_CPU_KERNEL(serve),
    .rows = &(const sl_op_rows){.looks = 1, .follows = 1},
};

static const sl_op decay_b = {.name = "decay_b",
                              .min_in = 1,
                              .max_in = 1,
                              .nout = 1,
                              .infer = infer,
                              .kernels = SL_CPU_KERNEL(backward)};

static const sl_op decay = {
    .name = "decay",
    .serve = &(const sl_op_serve){.op = &decay_served},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .infer = infer,
    .kernels = SL_CPU_KERNEL(forward),
    .grad = {{.op = &decay_b, .cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}},
};

/* ---- the model ------------------------------------------------------------------------------- */

static sl_tensor *layer(sl_graph *g, sl_tensor *x, int64_t C, int number) {
  sl_block(g, "layer.%d", number);
  sl_tensor *gain = sl_param(g, SL_TYPE(SL_F32, C), SL_CONSTANT(1), "layer.%d.norm", number);
  sl_tensor *up = sl_param(g, SL_TYPE(SL_F32, 4 * C, C), SL_NORMAL(0.05f), "layer.%d.up", number);
  sl_tensor *down =
      sl_param(g, SL_TYPE(SL_F32, C, 4 * C), SL_NORMAL(0.05f), "layer.%d.down", number);
  sl_tensor *h = sl_rmsnorm(g, x, gain, 1e-5f), *means;
  sl_apply(g, &decay, NULL, 1, &h, 0, &means);
  return sl_add(g, x,
                sl_linear(g, sl_gelu(g, sl_linear(g, sl_add(g, h, means), up, NULL)), down, NULL));
}

static sl_status build(sl_graph *g, const sl_args *args) {
  int64_t B = sl_microbatch_rows(g, sl_arg_int(args, "batch")), T = sl_arg_int(args, "context");
  int64_t C = sl_arg_int(args, "width");
  sl_tensor *next, *ids = sl_tokens(g, sl_arg_text(args, "data"), B, T, 256, &next);
  sl_tensor *table = sl_param(g, SL_TYPE(SL_F32, 256, C), SL_NORMAL(0.1f), "embedding");
  sl_tensor *x = sl_embedding(g, ids, table); /* [B, T, C] */
  for (int i = 0; i < sl_arg_int(args, "layers"); i++) x = layer(g, x, C, i);
  sl_block(g, "head");
  sl_tensor *head = sl_param(g, SL_TYPE(SL_F32, 256, C), SL_NORMAL(0.1f), "head");
  sl_tensor *logits = sl_linear(g, x, head, NULL); /* [B, T, 256] */
  sl_output(g, "logits", logits);
  sl_optimizer optimizer = sl_arg_optimizer(args);
  sl_train(g, sl_cross_entropy(g, logits, next), &optimizer);
  return sl_graph_status(g);
}

SL_MODEL(decay_model, "decaying means of bytes, an op that is served", options, build);
