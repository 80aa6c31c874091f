/* SPDX-License-Identifier: Apache-2.0 */
/* LLaMA: decoder.h with SwiGLU. Mistral adds a sliding window; Qwen2 has biases on q, k and v;
 * Qwen3 normalizes queries and keys. OLMo 2 normalizes after the halves of a block; Phi 3 packs
 * weights. Gemma 3 has windows in most blocks, norms before and after, and gelu gates. Weight files
 * of Hugging Face's models load in both directions. */
#include "decoder.h"

/* clang-format off */
static const sl_option options[] = {
    DECODER_OPTIONS,
    DECODER_FAMILY_OPTIONS,
    {"norms", SL_OPTION_TEXT, "before", "`WHERE` the halves of a block have norms: before, after "
     "(OLMo 2), or both (Gemma)", 0, 0},
    {"packed", SL_OPTION_FLAG, "0", "q, k and v are one projection, and so are gate and up (Phi "
     "3)", 0, 0},
    {"gate", SL_OPTION_TEXT, "silu", "`HOW` feed-forward halves are gated: silu, or gelu in its tanh form "
     "(Gemma)", 0, 0},
    DECODER_FULL_EVERY("0"),
    SL_OPTIMIZER_OPTIONS,
    {0}};
/* clang-format on */

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
  d->packed_qkv = d->packed_gates = sl_arg_flag(args, "packed");
  d->function = is_gelu(g, args) ? DECODER_GELU : DECODER_SILU;
  decoder_windows(d, sl_arg_int(args, "window") > 0, (int)sl_arg_int(args, "full-every"));
  decoder_family(g, args, d);
}

static sl_status build(sl_graph *g, const sl_args *args) {
  decoder d = decoder_of(g, args, "llama");
  choose(g, args, &d);
  decoder_halves(&d, decoder_attention, decoder_mlp);
  return decoder_build(g, args, &d);
}

SL_MODEL(llama, "LLaMA: rmsnorm, rotary positions, SwiGLU, grouped-query attention", options,
         build);
