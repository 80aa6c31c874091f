/* SPDX-License-Identifier: Apache-2.0 */
/* LLaMA: decoder.h with SwiGLU. Mistral adds a window; Qwen2 has biases on q, k and v. Weight
 * files of Hugging Face's LlamaForCausalLM load in both directions. */
#include "decoder.h"

/* clang-format off */
static const sl_option options[] = {
    DECODER_OPTIONS,
    {"ffn", SL_OPTION_INT, "0", "inner width of the feed-forward half; 0: 8/3 of the width, up "
     "to a multiple of 64", 0, 1 << 24},
    SL_OPTIMIZER_OPTIONS,
    {0}};
/* clang-format on */

static sl_tensor *feed_forward(sl_graph *g, decoder *d, sl_tensor *x, float residual, int layer) {
  return decoder_swiglu(g, d, x, d->ffn, residual, layer, "mlp");
}

static sl_status build(sl_graph *g, const sl_args *args) {
  decoder d = decoder_of(g, args, "llama");
  d.ffn = sl_arg_int(args, "ffn");
  if (!d.ffn) d.ffn = (d.width * 8 / 3 + 63) / 64 * 64;
  return decoder_build(g, args, &d, feed_forward);
}

SL_MODEL(llama, "LLaMA: rmsnorm, rotary positions, SwiGLU, grouped queries", options, build);
