/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen's mixtures of experts (Yang et al., arXiv 2407.10671 and 2505.09388): moe.h, with a
 * shared expert (Qwen2-MoE) or norms of queries and keys (Qwen3-MoE). Weight files of Hugging
 * Face's Qwen2MoeForCausalLM and Qwen3MoeForCausalLM load in both directions. */
#include "moe.h"

static const sl_option options[] = {DECODER_OPTIONS, MOE_OPTIONS("0"), SL_OPTIMIZER_OPTIONS, {0}};

static sl_status build(sl_graph *g, const sl_args *args) {
  return moe_build(g, args, "qwen-moe", moe_qwen);
}

SL_MODEL_NAMED(qwen_moe, "qwen-moe", "Qwen's mixture-of-experts models", options, build);
