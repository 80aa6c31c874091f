#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes hf_mixtral/, hf_qwen2_moe/, hf_qwen3_moe/, hf_qwen3_next/ and hf_qwen3_next_dense/: small mixtures of experts
as save_pretrained writes them, and the losses of finetune.py on text.txt in ten steps (losses.txt: step, loss,
gradient norm).

    python3 make_experts.py [--out DIR] [NAME...]

hf_mixtral: 4 experts, 2 per token, normalized probabilities. hf_qwen2_moe: 6 experts, 3 per token, not
normalized, with a shared expert and biases on q, k and v, in several shards. hf_qwen3_moe: 8 experts, 2 per
token, heads wider than width / heads, norms of queries and keys. hf_qwen3_next: alternating recurrent states
and softmax attention, experts in all layers but one. hf_qwen3_next_dense: no experts, a tied classifier,
scaled RoPE, biases, and as many key heads as value heads. The last two are in fp32, with five steps.
"""
import argparse
import os

import torch
from transformers import (MixtralConfig, MixtralForCausalLM, Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen3MoeConfig,
                          Qwen3MoeForCausalLM, Qwen3NextConfig, Qwen3NextForCausalLM)

from make_pretrained import write_folder
from make_reference import HERE, seeded_weights

COMMON = dict(vocab_size=256, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
              bos_token_id=None, eos_token_id=None, pad_token_id=None, max_position_embeddings=64,
              rms_norm_eps=1e-6, tie_word_embeddings=False, output_router_logits=False)
MODELS = {
    "hf_mixtral": (MixtralForCausalLM, MixtralConfig(
        **COMMON, intermediate_size=40, num_local_experts=4, num_experts_per_tok=2), "1GB"),
    "hf_qwen2_moe": (Qwen2MoeForCausalLM, Qwen2MoeConfig(
        **COMMON, intermediate_size=64, moe_intermediate_size=24, shared_expert_intermediate_size=40,
        num_experts=6, num_experts_per_tok=3, norm_topk_prob=False), "60KB"),
    "hf_qwen3_moe": (Qwen3MoeForCausalLM, Qwen3MoeConfig(
        **COMMON, head_dim=16, intermediate_size=64, moe_intermediate_size=24, num_experts=8,
        num_experts_per_tok=2, norm_topk_prob=True), "1GB"),
    "hf_qwen3_next": (Qwen3NextForCausalLM, Qwen3NextConfig(
        **{**COMMON, "num_hidden_layers": 4}, head_dim=16, intermediate_size=48, moe_intermediate_size=24,
        shared_expert_intermediate_size=40, num_experts=6, num_experts_per_tok=3, norm_topk_prob=True,
        mlp_only_layers=[1], full_attention_interval=2, linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=12, linear_value_head_dim=8, partial_rotary_factor=0.5), "100KB"),
    "hf_qwen3_next_dense": (Qwen3NextForCausalLM, Qwen3NextConfig(
        **{**COMMON, "tie_word_embeddings": True}, head_dim=24, intermediate_size=48, num_experts=0,
        layer_types=["linear_attention", "full_attention"], attention_bias=True, linear_num_key_heads=3,
        linear_num_value_heads=3, linear_key_head_dim=8, linear_value_head_dim=16, linear_conv_kernel_dim=3,
        rope_parameters={"rope_type": "yarn", "rope_theta": 50000.0, "factor": 4.0,
                         "original_max_position_embeddings": 16, "partial_rotary_factor": 0.25}), "1GB"),
}
# Folders in fp32 with five steps; with these seeds the fp32 losses and norms equal those of fp64 within 3e-7.
SINGLE = {"hf_qwen3_next": 69, "hf_qwen3_next_dense": 44}


def weights_around_0(model, seed):
    """Like seeded_weights, but with parameters of "1 + parameter" gains around 0. Keys of states are near their
    queries, because a norm would magnify the rounding of an output near 0."""
    seeded_weights(model, seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("norm.weight") and "linear_attn" not in name:
                p.sub_(1)
            heads, dim = model.config.linear_num_key_heads, model.config.linear_key_head_dim
            if "in_proj_qkvz" in name:
                rows = p.view(heads, -1, p.shape[1])
                rows[:, dim:2 * dim].mul_(0.3).add_(rows[:, :dim])
            if "conv1d" in name:
                p[heads * dim:2 * heads * dim].mul_(0.3).add_(p[:heads * dim])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=HERE)
    parser.add_argument("names", nargs="*", default=list(MODELS), metavar="NAME")
    args = parser.parse_args()
    for seed, (name, (kind, config, shard)) in enumerate(MODELS.items()):
        if name in args.names:
            folder = os.path.join(args.out, name)
            if name in SINGLE:
                write_folder(folder, kind(config), SINGLE[name], torch.float32, shard, 5, weights_around_0)
            else:
                write_folder(folder, kind(config), 40 + seed, torch.bfloat16, shard, 10)


if __name__ == "__main__":
    main()
