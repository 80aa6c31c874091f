/* SPDX-License-Identifier: Apache-2.0 */
/* An encoder that fills in masked bytes, after BERT (Devlin et al., arXiv 1810.04805), built only
 * from shipped ops. Each byte is chosen with probability `mask`. Of the chosen bytes 80 % are
 * masked, 10 % are replaced by a random byte and 10 % stay unchanged; the loss covers only chosen
 * bytes. A byte attends to its whole document in both directions, and to no other document; a line
 * feed ends a document. The choice depends on the seed, the step and the byte's position only, so
 * sharding does not change it.
 *
 *     actorrun --steps 600 --eval OTHER --eval-every 200 examples/bert.c --data FILE --lr 3e-3
 *     actorrun --steps 600 --data-parallel 2 examples/bert.c --data FILE --lr 3e-3
 *
 * Trained on five pages of Sluice's own docs (2000 steps, --min-lr 3e-4 --decay-steps 2000), it
 * fills in 49.5 % of the masked bytes of a sixth page. Always predicting a space would give 17.8
 * %. */
#include <sluice/sluice.h>
#include <stdio.h>

/* clang-format off */
static const sl_option options[] = {
    {"data", SL_OPTION_LIST, NULL, "text `FILE` to learn; may be repeated", 0, 0},
    {"layers", SL_OPTION_INT, "2", "encoder layers", 1, 100},
    {"width", SL_OPTION_INT, "64", "numbers per byte", 1, 1 << 14},
    {"heads", SL_OPTION_INT, "4", "attention heads; must divide the width", 1, 1 << 10},
    {"context", SL_OPTION_INT, "64", "bytes of a row", 1, 1 << 12},
    {"batch", SL_OPTION_INT, "16", "rows of a step", 1, 1 << 20},
    {"mask", SL_OPTION_FLOAT, "0.15", "how likely a byte is chosen", 0.01, 1},
    {"document-end", SL_OPTION_INT, "10", "byte that ends a document", 0, 255},
    SL_OPTIMIZER_OPTIONS, {0}};
/* clang-format on */

enum { BYTES = 256, HIDDEN = BYTES, TOKENS }; /* masked bytes have a separate token */

static sl_tensor *dense(sl_graph *g, sl_tensor *x, int64_t out, const char *name) {
  sl_tensor *w =
      sl_param(g, SL_TYPE(SL_F32, out, sl_dim(x, -1)), SL_NORMAL(0.05f), "%s.weight", name);
  sl_tensor *b = sl_param(g, SL_TYPE(SL_F32, out), SL_CONSTANT(0), "%s.bias", name);
  return sl_linear(g, x, w, b);
}

static sl_tensor *norm(sl_graph *g, sl_tensor *x, const char *name) {
  sl_tensor *gain = sl_param(g, SL_TYPE(SL_F32, sl_dim(x, -1)), SL_CONSTANT(1), "%s.weight", name);
  sl_tensor *bias = sl_param(g, SL_TYPE(SL_F32, sl_dim(x, -1)), SL_CONSTANT(0), "%s.bias", name);
  return sl_layernorm(g, x, gain, bias, 1e-5f);
}

/* Adds a layer to x [B, T, C]; bytes with the same id in documents [B, T] attend to each other. */
static sl_tensor *layer(sl_graph *g, sl_tensor *x, sl_tensor *documents, int heads, int number) {
  int64_t C = sl_dim(x, -1);
  char name[6][32];
  static const char *const parts[] = {"norm.0", "qkv", "out", "norm.1", "up", "down"};
  for (int i = 0; i < 6; i++) snprintf(name[i], sizeof name[i], "layer.%d.%s", number, parts[i]);
  sl_block(g, "layer.%d", number);
  sl_tensor *y = dense(g, norm(g, x, name[0]), 3 * C, name[1]); /* [B, T, 3C] */
  y = sl_attend_packed_within(g, y, documents, &(sl_attention_attrs){.heads = heads, .full = true});
  x = sl_add(g, x, dense(g, y, C, name[2]));
  y = sl_gelu(g, dense(g, norm(g, x, name[3]), 4 * C, name[4])); /* [B, T, 4C] */
  return sl_add(g, x, dense(g, y, C, name[5]));
}

static sl_tensor *number(sl_graph *g, float value) {
  return sl_filled(g, SL_TYPE(SL_F32, 1), value, NULL);
}

/* Masks bytes [B, T] for the encoder; *targets has the chosen bytes, and -100 elsewhere. */
static sl_tensor *mask(sl_graph *g, sl_tensor *bytes, float p, sl_tensor **targets) {
  sl_tensor *x = sl_cast(g, bytes, SL_F32), *u = sl_uniform(g, bytes, 0, 1);
  sl_tensor *other = sl_uniform(g, bytes, 0, BYTES);
  *targets = sl_cast(g, sl_where(g, sl_lt(g, u, number(g, p)), x, number(g, -100)), SL_I32);
  sl_tensor *y = sl_where(g, sl_lt(g, u, number(g, 0.9f * p)), other, x);
  y = sl_where(g, sl_lt(g, u, number(g, 0.8f * p)), number(g, HIDDEN), y);
  return sl_cast(g, y, SL_I32);
}

static sl_status build(sl_graph *g, const sl_args *args) {
  int64_t B = sl_microbatch_rows(g, sl_arg_int(args, "batch")), T = sl_arg_int(args, "context");
  int64_t C = sl_arg_int(args, "width");
  float p = (float)sl_arg_float(args, "mask");
  sl_block(g, "embedding");
  sl_tensor *next, *places, *targets;
  sl_tensor *bytes = sl_tokens(g, sl_arg_text(args, "data"), B, T, BYTES, &next);
  sl_tensor *documents = sl_documents(g, bytes, (int32_t)sl_arg_int(args, "document-end"), &places);
  sl_tensor *table = sl_param(g, SL_TYPE(SL_F32, TOKENS, C), SL_NORMAL(0.1f), "tokens");
  sl_tensor *positions = sl_param(g, SL_TYPE(SL_F32, T, C), SL_NORMAL(0.1f), "positions");
  sl_tensor *x = sl_embedding(g, mask(g, bytes, p, &targets), table); /* [B, T, C] */
  x = sl_add(g, x, sl_embedding(g, places, positions));
  for (int i = 0; i < sl_arg_int(args, "layers"); i++)
    x = layer(g, x, documents, (int)sl_arg_int(args, "heads"), i);
  sl_block(g, "head");
  sl_tensor *logits = dense(g, norm(g, x, "norm"), BYTES, "head"); /* [B, T, 256] */
  sl_output(g, "logits", logits);
  /* accuracy over the chosen bytes, on average a fraction p of all bytes */
  sl_metric(g, "accuracy", sl_scale(g, sl_accuracy(g, logits, targets), 1 / p));
  sl_optimizer optimizer = sl_arg_optimizer(args);
  sl_train(g, sl_cross_entropy_with(g, logits, targets, NULL), &optimizer);
  return sl_graph_status(g);
}

SL_MODEL(bert, "an encoder of bytes that fills in those that are masked", options, build);
