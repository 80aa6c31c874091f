/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of logits and of their gradient are padded if only products and a loss read them. Nothing
 * else changes.
 * labels: unthreaded */
#include <stdlib.h>
#include <string.h>

#include "graph/passes/passes.h"
#include "tests/support/shipped.h"

static sl_graph *gpt(const char *vocab, int pieces) {
  char *words[] = {"--layers", "1",       "--width", "64",      "--heads",     "4", "--context",
                   "32",       "--batch", "4",       "--vocab", (char *)vocab, NULL};
  sl_graph *g = shipped_graph("gpt", words, 2, pieces);
  sli_pass_narrow(g);
  return g;
}

/* Returns the total bytes of all tensors in the graph. */
static size_t all_bytes(const sl_graph *g) {
  size_t bytes = 0;
  for (int t = 0; t < g->ntensors; t++) bytes += sl_type_bytes(&g->tensors[t]->type);
  return bytes;
}

static void odd_vocabularies_are_padded(int pieces) {
  sl_graph *g = gpt("301", pieces);
  const sl_tensor *logits = shipped_node(g, "head/cross_entropy.1")->in[0];
  const sli_node *back = shipped_node(g, "head/cross_entropy.1:cross_entropy_b");
  size_t before = all_bytes(g);
  int64_t rows = sl_type_rows(&logits->type);
  sli_pass_pad(g);
  CHECK(sl_type_last(&logits->type) == 320, "%lld columns", (long long)sl_type_last(&logits->type));
  CHECK(sl_type_equal(&back->out[0]->type, &logits->type), "the gradient is as long");
  CHECK(all_bytes(g) == before + 2 * (size_t)rows * 19 * 2, "only these two are longer");
  CHECK(back->attrs.place.columns == 301 && back->about->attrs.place.columns == 301,
        "the loss is told");
  for (int v = 0; v < g->cut.nvariants; v++)
    CHECK(
        back->shapes[v].attrs.place.columns == 301 && sl_type_last(&back->shapes[v].out[0]) == 320,
        "pieces of length %d too", v);
  sl_graph_destroy(g);
}

static void even_ones_are_not(void) {
  sl_graph *g = gpt("320", 1);
  size_t before = all_bytes(g);
  sli_pass_pad(g);
  CHECK(all_bytes(g) == before, "nothing is longer");
  CHECK(!shipped_node(g, "head/cross_entropy.1")->attrs.place.columns, "nobody is told");
  sl_graph_destroy(g);
}

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx, (void)tick;
  memset(out[0], 0, 8 * 4 * sizeof(float));
  memset(out[1], 0, 8 * sizeof(int32_t));
}

/* x -> linear -> [gelu] -> cross entropy, with or without a bias. An op that sums rows of the
 * gradient or reads each logit would see the padding, so there must be none. */
static void not_if_others_see_them(bool gelu, bool bias) {
  const sl_type types[] = {SL_TYPE(SL_F32, 8, 4), SL_TYPE(SL_I32, 8)};
  const sl_source source = {.nout = 2, .types = types, .fill = fill};
  sl_graph *g = sl_graph_create(&(sl_graph_options){0});
  sl_tensor *data[2];
  sl_data(g, &source, data);
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, 7, 4), SL_NORMAL(1), "w");
  sl_tensor *b = bias ? sl_param(g, SL_TYPE(SL_F32, 7), SL_NORMAL(1), "b") : NULL;
  sl_tensor *y = sl_linear(g, data[0], w, b), *logits = gelu ? sl_gelu(g, y) : y;
  sl_train(g, sl_cross_entropy(g, logits, data[1]), NULL);
  CHECK(!sl_graph_status(g) && !sli_pass_gradients(g), "%s", sl_detail());
  sli_pass_narrow(g);
  sli_pass_pad(g);
  int64_t want = gelu || bias ? 7 : 64;
  CHECK(y->narrow && sl_type_last(&y->type) == want, "%lld columns with%s gelu, with%s bias",
        (long long)sl_type_last(&y->type), gelu ? "" : "out", bias ? "" : "out");
  sl_graph_destroy(g);
}

int main(void) {
  RUN(odd_vocabularies_are_padded, 1);
  RUN(odd_vocabularies_are_padded, 2);
  RUN(even_ones_are_not);
  for (int i = 0; i < 4; i++) RUN(not_if_others_see_them, i & 1, i & 2);
  return 0;
}
