/* SPDX-License-Identifier: Apache-2.0 */
/* Mixtral (Jiang et al., arXiv 2401.04088): LLaMA with a mixture of experts, moe.h. Weight files
 * of Hugging Face's MixtralForCausalLM load in both directions. */
#include "moe.h"

static const sl_option options[] = {DECODER_OPTIONS, MOE_OPTIONS("1"), SL_OPTIMIZER_OPTIONS, {0}};

static sl_status build(sl_graph *g, const sl_args *args) {
  return moe_build(g, args, "mixtral",
                   (moe_names){.router = "block_sparse_moe.gate",
                               .gate = "block_sparse_moe.experts.*.w1.weight",
                               .up = "block_sparse_moe.experts.*.w3.weight",
                               .down = "block_sparse_moe.experts.*.w2.weight"});
}

SL_MODEL(mixtral, "Mixtral: LLaMA with a mixture of experts", options, build);
