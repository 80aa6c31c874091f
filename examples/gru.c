/* SPDX-License-Identifier: Apache-2.0 */
/* A recurrent network: gated recurrent units (Cho et al., arXiv 1406.1078) read a text byte by byte
 * and predict the next one. The recurrence is unrolled step by step, with shipped ops only.
 *
 *     actorrun --steps 500 examples/gru.c --data FILE
 *     actorrun --steps 500 --stages 2 --microbatches 4 --schedule zb-h1 \
 *       examples/gru.c --data FILE */
#include <sluice/sluice.h>

/* clang-format off */
static const sl_option options[] = {
    {"data", SL_OPTION_LIST, NULL, "text `FILE` to learn; may be repeated", 0, 0},
    {"layers", SL_OPTION_INT, "2", "layers of units", 1, 100},
    {"width", SL_OPTION_INT, "96", "units of a layer", 1, 1 << 14},
    {"context", SL_OPTION_INT, "32", "bytes of a sequence", 1, 1 << 12},
    {"batch", SL_OPTION_INT, "32", "sequences of a step", 1, 1 << 20},
    SL_OPTIMIZER_OPTIONS, {0}};
/* clang-format on */

/* One layer: x [B, T, C] -> h [B, T, H].
 *
 *     z = sigmoid(Wz x + Uz h'),  r = sigmoid(Wr x + Ur h'),  n = tanh(Wn x + r (Un h'))
 *     h = n + z (h' - n)
 *
 * h' is the h of the previous byte, 0 at the first. One product computes W x of all bytes. */
static sl_tensor *layer(sl_graph *g, sl_tensor *x, int64_t H, const char *name) {
  int64_t T = sl_dim(x, 1), C = sl_dim(x, -1);
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, 3 * H, C), SL_NORMAL(0.1f), "%s.input.weight", name);
  sl_tensor *b = sl_param(g, SL_TYPE(SL_F32, 3 * H), SL_CONSTANT(0), "%s.input.bias", name);
  sl_tensor *u = sl_param(g, SL_TYPE(SL_F32, 2 * H, H), SL_NORMAL(0.1f), "%s.gates.weight", name);
  sl_tensor *v = sl_param(g, SL_TYPE(SL_F32, H, H), SL_NORMAL(0.1f), "%s.state.weight", name);
  sl_tensor *all = sl_linear(g, x, w, b); /* [B, T, 3H]: for z, r and n */
  sl_tensor **h = sl_graph_alloc(g, (size_t)(T > 0 ? T : 1) * sizeof *h), *before = NULL;
  for (int64_t t = 0; t < T; t++) {
    sl_tensor *now = sl_slice(g, all, 1, t, 1); /* [B, 1, 3H] */
    sl_tensor *gates = sl_slice(g, now, 2, 0, 2 * H), *n = sl_slice(g, now, 2, 2 * H, H);
    if (before) gates = sl_add(g, gates, sl_linear(g, before, u, NULL));
    gates = sl_sigmoid(g, gates);
    sl_tensor *z = sl_slice(g, gates, 2, 0, H), *r = sl_slice(g, gates, 2, H, H);
    if (before) n = sl_add(g, n, sl_mul(g, r, sl_linear(g, before, v, NULL)));
    n = sl_tanh(g, n);
    h[t] =
        before ? sl_add(g, n, sl_mul(g, z, sl_sub(g, before, n))) : sl_sub(g, n, sl_mul(g, z, n));
    before = h[t];
  }
  return sl_concat(g, 1, (int)T, h);
}

static sl_status build(sl_graph *g, const sl_args *args) {
  int64_t B = sl_microbatch_rows(g, sl_arg_int(args, "batch")), T = sl_arg_int(args, "context");
  int64_t H = sl_arg_int(args, "width");
  sl_tensor *next, *ids = sl_tokens(g, sl_arg_text(args, "data"), B, T, 256, &next);
  sl_tensor *table = sl_param(g, SL_TYPE(SL_F32, 256, H), SL_NORMAL(0.1f), "embedding");
  sl_tensor *x = sl_embedding(g, ids, table); /* [B, T, H] */
  for (int64_t i = 0; i < sl_arg_int(args, "layers"); i++) {
    char name[32];
    snprintf(name, sizeof name, "layer.%d", (int)i);
    sl_block(g, "%s", name);
    x = layer(g, x, H, name);
  }
  sl_block(g, "head");
  sl_tensor *head = sl_param(g, SL_TYPE(SL_F32, 256, H), SL_NORMAL(0.1f), "head");
  sl_tensor *logits = sl_linear(g, x, head, NULL); /* [B, T, 256] */
  sl_output(g, "logits", logits);
  sl_optimizer optimizer = sl_arg_optimizer(args);
  sl_train(g, sl_cross_entropy(g, logits, next), &optimizer);
  return sl_graph_status(g);
}

SL_MODEL(gru, "gated recurrent units on bytes, written out", options, build);
