/* SPDX-License-Identifier: Apache-2.0 */
/* A transformer in levels, like a hierarchical vision transformer (Liu et al., arXiv 2103.14030):
 * each level has twice the width and a quarter of the positions of the one before, and attends
 * within windows. First levels have large activations and small weights, last ones the reverse, so
 * blocks are cheapest in different layouts. A position of the last level predicts all tokens that
 * it merges. */
#include <sluice/sluice.h>

#include <stdio.h>

static const sl_option options[] = {
    {"data", SL_OPTION_LIST, NULL, "`FILE` to learn", 0, 0},
    {"width", SL_OPTION_INT, "64", "width of the first level", 1, 1 << 16},
    {"levels", SL_OPTION_INT, "4", "levels, each of twice the width and a quarter of the positions",
     1, 8},
    {"depth", SL_OPTION_INT, "2", "blocks of a level", 1, 1 << 10},
    {"deep", SL_OPTION_INT, "6", "blocks of the last level but one", 1, 1 << 10},
    {"context", SL_OPTION_INT, "256", "positions", 1, 1 << 20},
    {"window", SL_OPTION_INT, "16", "positions that attend to each other", 1, 1 << 20},
    {"heads", SL_OPTION_INT, "8", "heads of the first level", 1, 1 << 10},
    {"batch", SL_OPTION_INT, "8", "rows of a step", 1, 1 << 20},
    {0}};

static sl_tensor *weight(sl_graph *g, int64_t n, int64_t k, const char *place, const char *name) {
  return sl_param(g, SL_TYPE(SL_F32, n, k), SL_NORMAL(0.02f), "%s.%s", place, name);
}

static sl_tensor *norm(sl_graph *g, sl_tensor *x, int64_t n, const char *place, const char *name) {
  return sl_rmsnorm(g, x, sl_param(g, SL_TYPE(SL_F32, n), SL_CONSTANT(1), "%s.%s", place, name),
                    1e-5f);
}

static sl_tensor *block(sl_graph *g, sl_tensor *x, int64_t B, int64_t T, int64_t C, int64_t W,
                        int heads, const char *place) {
  sl_tensor *n = norm(g, x, C, place, "norm1");
  sl_tensor *q = sl_reshape(g, sl_linear(g, n, weight(g, C, C, place, "q"), NULL), B * T / W, W, C);
  sl_tensor *k = sl_reshape(g, sl_linear(g, n, weight(g, C, C, place, "k"), NULL), B * T / W, W, C);
  sl_tensor *v = sl_reshape(g, sl_linear(g, n, weight(g, C, C, place, "v"), NULL), B * T / W, W, C);
  sl_tensor *o = sl_reshape(g, sl_attention(g, q, k, v, heads, heads), B, T, C);
  x = sl_add(g, x, sl_linear(g, o, weight(g, C, C, place, "o"), NULL));
  n = norm(g, x, C, place, "norm2");
  sl_tensor *up = sl_gelu(g, sl_linear(g, n, weight(g, 4 * C, C, place, "up"), NULL));
  return sl_add(g, x, sl_linear(g, up, weight(g, C, 4 * C, place, "down"), NULL));
}

static sl_status build(sl_graph *g, const sl_args *args) {
  int64_t B = sl_microbatch_rows(g, sl_arg_int(args, "batch")), T = sl_arg_int(args, "context"),
          C = sl_arg_int(args, "width");
  int levels = (int)sl_arg_int(args, "levels"), heads = (int)sl_arg_int(args, "heads");
  int64_t window = sl_arg_int(args, "window");
  sl_tensor *next, *ids = sl_tokens(g, sl_arg_text(args, "data"), B, T, 256, &next);
  sl_block(g, "table");
  sl_tensor *x = sl_embedding(g, ids, weight(g, 256, C, "ends", "table"));
  for (int l = 0; l < levels; l++) {
    int64_t n = sl_arg_int(args, l == levels - 2 ? "deep" : "depth");
    for (int i = 0; i < n; i++) {
      char place[32];
      snprintf(place, sizeof place, "l%d.%d", l, i);
      sl_block(g, "%s", place);
      if (l && !i) {
        T /= 4, C *= 2, heads *= 2;
        x = sl_linear(g, sl_reshape(g, x, B, T, 2 * C), weight(g, C, 2 * C, place, "merge"), NULL);
      }
      x = block(g, x, B, T, C, T < window ? T : window, heads, place);
    }
  }
  sl_block(g, "head");
  x = norm(g, x, C, "ends", "norm");
  int64_t merged = sl_arg_int(args, "context") / T;
  sl_tensor *logits = sl_reshape(
      g, sl_linear(g, x, weight(g, 256 * merged, C, "ends", "head"), NULL), B, T * merged, 256);
  sl_train(g, sl_cross_entropy(g, logits, next), NULL);
  return sl_graph_status(g);
}

SL_MODEL(pyramid, "a transformer whose width grows while its positions shrink", options, build);
