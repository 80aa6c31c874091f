#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes hf_mixtral/, hf_qwen2_moe/ and hf_qwen3_moe/: small mixtures of experts as save_pretrained writes
them, and the losses that finetune.py has with them on text.txt in ten steps (losses.txt: step, loss,
gradient norm).

    python3 make_experts.py [--out DIR]

hf_mixtral: 4 experts, 2 of them for a token, probabilities divided by their sum. hf_qwen2_moe: 6 and
3, not divided, with an expert for all tokens and biases on q, k and v, in several shards.
hf_qwen3_moe: 8 and 2, heads wider than width / heads, norms of queries and keys.
"""
import argparse
import os

import torch
from transformers import (MixtralConfig, MixtralForCausalLM, Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen3MoeConfig,
                          Qwen3MoeForCausalLM)

from make_pretrained import write_folder
from make_reference import HERE

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
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=HERE)
    out = parser.parse_args().out
    for seed, (name, (kind, config, shard)) in enumerate(MODELS.items()):
        write_folder(os.path.join(out, name), kind(config), 40 + seed, torch.bfloat16, shard, 10)


if __name__ == "__main__":
    main()
