/* SPDX-License-Identifier: Apache-2.0 */
/* LLaMA: decoder.h with SwiGLU. Mistral adds a sliding window; Qwen2 has biases on q, k and v;
 * Qwen3 normalizes queries and keys. OLMo 2 normalizes after the halves of a block; Phi 3 packs
 * weights. Gemma 3 has windows in most blocks, norms before and after, and gelu gates. Weight files
 * of Hugging Face's models load in both directions. */
#include "decoder.h"

/* clang-format off */
static const sl_option options[] = {
    DECODER_OPTIONS,
    {"ffn", SL_OPTION_INT, "0", "inner width of the feed-forward half; 0: 8/3 of the width, "
     "rounded up to a multiple of 64", 0, 1 << 24},
    DECODER_QK_NORM,
    {"qk-norm-whole", SL_OPTION_FLAG, "0", "rmsnorm over all heads' queries together, and over "
     "all keys (OLMo 2)", 0, 0},
    {"norms", SL_OPTION_TEXT, "before", "`WHERE` the halves of a block have norms: before, after "
     "(OLMo 2), or both (Gemma)", 0, 0},
    {"packed", SL_OPTION_FLAG, "0", "q, k and v are one projection, and so are gate and up (Phi "
     "3)", 0, 0},
    {"gate", SL_OPTION_TEXT, "silu", "`HOW` feed-forward halves are gated: silu, or gelu in its tanh form "
     "(Gemma)", 0, 0},
    {"scaled-embedding", SL_OPTION_FLAG, "0", "multiply embeddings by the square root of the "
     "width (Gemma)", 0,
     0},
    {"query-scalar", SL_OPTION_FLOAT, "0", "attention scores are divided by its square root; 0: "
     "the numbers per head", 0,
     1e9},
    {"full-every", SL_OPTION_INT, "0", "`N`: every N-th block attends to all earlier tokens, the "
     "rest within the window; 0: all use the window", 0, 1000},
    {"local-theta", SL_OPTION_FLOAT, "0", "base of the rotary frequencies, unscaled, in blocks "
     "with a window; 0: same as in the other blocks", 0, 1e30},
    {"logit-cap", SL_OPTION_FLOAT, "0", "`C`: soft cap on the logits, C tanh(x / C); 0: none "
     "(Gemma)", 0, 1e9},
    {"plus-one", SL_OPTION_FLAG, "0", "norms multiply by 1 plus their parameter (Gemma)", 0, 0},
    SL_OPTIMIZER_OPTIONS,
    {0}};
/* clang-format on */

/* Sets the options of windows and attention scores. */
static void choose_attention(const sl_args *args, decoder *d) {
  double scalar = sl_arg_float(args, "query-scalar");
  if (scalar > 0) d->attention.scale = (float)(1 / sqrt(scalar));
  decoder_windows(d, sl_arg_int(args, "window") > 0, (int)sl_arg_int(args, "full-every"));
  d->local_theta = (float)sl_arg_float(args, "local-theta");
}

static bool is_gelu(sl_graph *g, const sl_args *args) {
  const char *gate = sl_arg_text(args, "gate");
  bool gelu = !strcmp(gate, "gelu");
  if (!gelu && strcmp(gate, "silu"))
    sl_graph_fail(g, SL_E_USAGE, "llama: --gate %s: must be silu or gelu", gate);
  return gelu;
}

/* Sets the options in which model families differ. */
static void choose(sl_graph *g, const sl_args *args, decoder *d) {
  const char *norms = sl_arg_text(args, "norms");
  bool after = !strcmp(norms, "after"), both = !strcmp(norms, "both");
  if (!after && !both && strcmp(norms, "before"))
    sl_graph_fail(g, SL_E_USAGE, "llama: --norms %s: must be before, after or both", norms);
  d->norms = after ? DECODER_NORMS_AFTER : both ? DECODER_NORMS_BOTH : DECODER_NORMS_BEFORE;
  d->plus_one = sl_arg_flag(args, "plus-one");
  d->packed_qkv = d->packed_gates = sl_arg_flag(args, "packed");
  if (sl_arg_flag(args, "scaled-embedding")) d->factors.embedding = sqrtf((float)d->width);
  d->cap = (float)sl_arg_float(args, "logit-cap");
  d->function = is_gelu(g, args) ? DECODER_GELU : DECODER_SILU;
  bool heads = sl_arg_flag(args, "qk-norm"), whole = sl_arg_flag(args, "qk-norm-whole");
  if (heads && whole)
    sl_graph_fail(g, SL_E_USAGE, "llama: --qk-norm and --qk-norm-whole exclude each other");
  d->qk_norm = heads ? DECODER_QK_HEADS : whole ? DECODER_QK_WHOLE : DECODER_QK_PLAIN;
}

static sl_status build(sl_graph *g, const sl_args *args) {
  decoder d = decoder_of(g, args, "llama");
  choose(g, args, &d);
  choose_attention(args, &d);
  d.ffn = decoder_ffn(args, &d);
  decoder_halves(&d, decoder_attention, decoder_mlp);
  return decoder_build(g, args, &d);
}

SL_MODEL(llama, "LLaMA: rmsnorm, rotary positions, SwiGLU, grouped-query attention", options,
         build);
