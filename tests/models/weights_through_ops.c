/* SPDX-License-Identifier: Apache-2.0 */
/* A small model whose weights reach its products through ops: for the gradients of parameters that
 * are not those of a product alone (tests/models/compositions.py). */
#include <sluice/sluice.h>

static const sl_option options[] = {
    {"data", SL_OPTION_LIST, NULL, "`FILE` to learn", 0, 0},
    {"layers", SL_OPTION_INT, "1", "blocks of attention", 1, 16},
    {"width", SL_OPTION_INT, "16", "numbers of a position", 1, 256},
    {"heads", SL_OPTION_INT, "4", "heads of attention", 1, 64},
    {"kv-heads", SL_OPTION_INT, "0", "heads of keys and values; 0: as heads", 0, 64},
    {"context", SL_OPTION_INT, "16", "positions of a row", 1, 256},
    {"batch", SL_OPTION_INT, "6", "rows of a step", 1, 256},
    {"vocab", SL_OPTION_INT, "256", "tokens", 1, 4096},
    {"packed", SL_OPTION_FLAG, "0", "one product for queries, keys and values", 0, 0},
    {"through", SL_OPTION_INT, "0", "seed of the ops", 0, 1000},
    {0}};

/* Returns the next op's number: the same for the same seed. */
static int next_op(int *state, int count) {
  *state = (*state * 1103 + 12345) % 65521;
  return *state / 7 % count;
}

/* Where weights are made: the layer, and the state of the ops. */
typedef struct place {
  sl_graph *g;
  int layer, state;
} place;

static sl_tensor *param(const place *at, int64_t out, int64_t in, const char *name) {
  return sl_param(at->g, SL_TYPE(SL_F32, out, in), SL_NORMAL(0.1f), "h.%d.%s", at->layer, name);
}

static sl_tensor *through(place *at, int64_t out, int64_t in, const char *name) {
  sl_graph *g = at->g;
  sl_tensor *p = param(at, out, in, name);
  switch (next_op(&at->state, 12)) {
  case 1: return sl_scale(g, p, 1.5f);
  case 2: return sl_tanh(g, p);
  case 3: return sl_mul(g, p, p);
  case 4: return sl_add_constant(g, p, 0.01f);
  case 5:
    return sl_add(
        g, p,
        sl_param(g, SL_TYPE(SL_F32, out, in), SL_CONSTANT(0.02f), "h.%d.%s.one", at->layer, name));
  case 6: return sl_add_constant(g, sl_add_constant(g, p, 0.01f), -0.02f);
  case 7: return sl_reshape(g, p, out, in);
  case 8: return sl_add(g, p, p);
  case 9: return sl_add(g, sl_scale(g, p, 2.0f), p);
  case 10: return sl_transpose(g, sl_transpose(g, p, 0, 1), 0, 1);
  case 11: return sl_add_constant(g, sl_tanh(g, p), 0.1f);
  default: return p;
  }
}

static sl_tensor *linear(place *at, sl_tensor *x, int64_t in, int64_t out, const char *name) {
  return sl_linear(at->g, x, through(at, out, in, name), NULL);
}

static sl_tensor *attention(place *at, const sl_args *args, sl_tensor *x, int64_t C) {
  int heads = (int)sl_arg_int(args, "heads"), few = (int)sl_arg_int(args, "kv-heads");
  const sl_attention_attrs attrs = {.heads = heads, .kv_heads = few ? few : heads};
  int64_t keys = C / heads * attrs.kv_heads;
  if (sl_arg_flag(args, "packed"))
    return sl_attend_packed(at->g, linear(at, x, C, C + 2 * keys, "qkv"), &attrs);
  sl_tensor *q = linear(at, x, C, C, "q"), *k = linear(at, x, C, keys, "k");
  return sl_attend(at->g, q, k, linear(at, x, C, keys, "v"), &attrs);
}

static sl_status build(sl_graph *g, const sl_args *args) {
  int64_t B = sl_microbatch_rows(g, sl_arg_int(args, "batch")), T = sl_arg_int(args, "context");
  int64_t C = sl_arg_int(args, "width"), V = sl_arg_int(args, "vocab");
  int layers = (int)sl_arg_int(args, "layers");
  place at = {g, 0, (int)sl_arg_int(args, "through") + 1};
  sl_tensor *next, *ids = sl_tokens(g, sl_arg_text(args, "data"), B, T, V, &next);
  sl_tensor *x = sl_embedding(g, ids, through(&at, V, C, "table"));
  for (; at.layer < layers; at.layer++) {
    sl_block(g, "h.%d", at.layer);
    x = sl_add(g, x, linear(&at, attention(&at, args, x, C), C, C, "o"));
  }
  sl_block(g, "head");
  sl_train(g, sl_cross_entropy(g, linear(&at, x, C, V, "head"), next),
           &(sl_optimizer){.lr = .003f});
  return sl_graph_status(g);
}
SL_MODEL(weights_through_ops, "weights that reach their products through ops", options, build);
