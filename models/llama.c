/* SPDX-License-Identifier: Apache-2.0 */
/* LLaMA: decoder.h with SwiGLU. Mistral adds a window; Qwen2 has biases on q, k and v, Qwen3 norms
 * of queries and keys. OLMo 2 has its norms after the halves of a block. Weight files of Hugging
 * Face's models load in both directions. */
#include "decoder.h"

/* clang-format off */
static const sl_option options[] = {
    DECODER_OPTIONS,
    {"ffn", SL_OPTION_INT, "0", "inner width of the feed-forward half; 0: 8/3 of the width, up "
     "to a multiple of 64", 0, 1 << 24},
    DECODER_QK_NORM,
    {"qk-norm-whole", SL_OPTION_FLAG, "0", "an rmsnorm of all heads' queries, and of all keys (OLMo 2)", 0, 0},
    {"norms", SL_OPTION_TEXT, "before", "`WHERE` the halves of a block are normed: before, after (OLMo 2), "
     "or both (Gemma)", 0, 0},
    {"plus-one", SL_OPTION_FLAG, "0", "gains of norms are 1 plus their parameter (Gemma)", 0, 0},
    SL_OPTIMIZER_OPTIONS,
    {0}};
/* clang-format on */

static sl_tensor *feed_forward(sl_graph *g, decoder *d, sl_tensor *x, float residual, int layer) {
  return decoder_swiglu(g, d, x, d->ffn, residual, layer, "mlp");
}

/* Choices in which families of models differ. */
static void choose(sl_graph *g, const sl_args *args, decoder *d) {
  const char *norms = sl_arg_text(args, "norms");
  bool after = !strcmp(norms, "after"), both = !strcmp(norms, "both");
  if (!after && !both && strcmp(norms, "before"))
    sl_graph_fail(g, SL_E_USAGE, "llama: --norms %s: it is one of before, after, both", norms);
  d->norms = after ? DECODER_NORMS_AFTER : both ? DECODER_NORMS_BOTH : DECODER_NORMS_BEFORE;
  d->plus_one = sl_arg_flag(args, "plus-one");
  bool heads = sl_arg_flag(args, "qk-norm"), whole = sl_arg_flag(args, "qk-norm-whole");
  if (heads && whole) sl_graph_fail(g, SL_E_USAGE, "llama: --qk-norm or --qk-norm-whole, not both");
  d->qk_norm = heads ? DECODER_QK_HEADS : whole ? DECODER_QK_WHOLE : DECODER_QK_PLAIN;
}

static sl_status build(sl_graph *g, const sl_args *args) {
  decoder d = decoder_of(g, args, "llama");
  choose(g, args, &d);
  d.ffn = sl_arg_int(args, "ffn");
  if (!d.ffn) d.ffn = (d.width * 8 / 3 + 63) / 64 * 64;
  return decoder_build(g, args, &d, feed_forward);
}

SL_MODEL(llama, "LLaMA: rmsnorm, rotary positions, SwiGLU, grouped queries", options, build);
