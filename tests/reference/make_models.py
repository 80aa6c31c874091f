#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes models/TYPE.json: a small random model of a family as transformers computes it.

    pip install torch transformers safetensors numpy
    python3 make_models.py [--out DIR] [--folders DIR] [TYPE...]

A file holds config.json as save_pretrained writes it, the names, shapes and ranges of the tensors
(model_folder.py makes their values), losses and gradient norms of five steps of finetune.py on
text.txt, and a prompt with 40 greedy tokens. --folders keeps the folders that transformers wrote.
MODELS is the list: a family is added by its type and the keys that make it small. A second model of
a family gives its model_type.
"""
import argparse
import json
import os
import shutil
import tempfile

import numpy as np
import torch
import transformers
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM

import finetune
from model_folder import write_weights
from make_reference import HERE

COMMON = dict(vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
              max_position_embeddings=128, bos_token_id=None, eos_token_id=None, pad_token_id=None, tie_word_embeddings=False)
MOE = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12, linear_value_head_dim=8, head_dim=16)
MAMBA = dict(mamba_n_heads=8, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=16, mamba_expand=2)
GRANITE = dict(embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.5, attention_multiplier=0.1)
GEMMA4 = dict(model_type="gemma4_text", head_dim=8, global_head_dim=16, sliding_window=7, num_hidden_layers=5,
              layer_types=["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"])
SINKS = dict(sliding_window=7)
# With few heads many scores are 0, and ties have no order.
INDEXED = dict(num_key_value_heads=4, moe_intermediate_size=24, n_routed_experts=8, n_group=2, topk_group=1, num_experts_per_tok=2,
               first_k_dense_replace=1, q_lora_rank=20, kv_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=10, v_head_dim=12,
               index_topk=9, index_head_dim=12, index_n_heads=16, routed_scaling_factor=1.5)
# type: the keys besides COMMON
MODELS = {
    "qwen3_5_text": DELTA,
    "qwen3_5_moe_text": {**DELTA, **MOE, "shared_expert_intermediate_size": 20},
    "kimi_linear": dict(num_experts=8, num_experts_per_token=2, num_key_value_heads=4, moe_intermediate_size=24, num_expert_group=2,
                        topk_group=1, kv_lora_rank=20, qk_rope_head_dim=6, qk_nope_head_dim=10, v_head_dim=12, linear_head_dim=12,
                        linear_num_heads=2, routed_scaling_factor=1.5,
                        layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"]),
    "deepseek_v32": INDEXED,
    "glm_moe_dsa": {**INDEXED, "index_topk": 7, "indexer_types": ["full", "shared", "full", "shared"], "n_group": 1},
    "olmo3": SINKS,
    "smollm3": dict(head_dim=8),
    "granite": GRANITE,
    "granitemoe": {**GRANITE, "num_local_experts": 4, "num_experts_per_tok": 2},
    "granitemoeshared": {**GRANITE, "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 20},
    "granitemoehybrid": {**GRANITE, **MAMBA, "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 20,
                         "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"]},
    "lfm2": dict(layer_types=["conv", "conv", "full_attention", "conv"], block_auto_adjust_ff_dim=True, block_multiple_of=8),
    "lfm2_moe": {**MOE, "num_dense_layers": 1, "layer_types": ["conv", "full_attention", "conv", "full_attention"],
                 "routed_scaling_factor": 1.5},
    "glm": dict(head_dim=8, pad_token_id=0),
    "glm4": dict(head_dim=8, pad_token_id=0),
    "glm4_moe": dict(num_experts_per_tok=2, moe_intermediate_size=24, n_routed_experts=8, n_group=2, topk_group=1, first_k_dense_replace=1,
                     use_qk_norm=True, head_dim=8, attention_bias=True, routed_scaling_factor=1.5, num_mtp_layers=0),
    "minimax_m2": dict(num_local_experts=4, num_experts_per_tok=2, head_dim=8,
                       rope_parameters={"rope_type": "default", "rope_theta": 50000.0, "partial_rotary_factor": 0.5}),
    "nemotron_h": dict(layer_types=["linear_attention", "moe", "full_attention", "mlp", "linear_attention", "moe"], num_hidden_layers=6,
                       head_dim=8, ssm_state_size=16, mamba_num_heads=8, mamba_head_dim=8, n_groups=2, n_routed_experts=8,
                       moe_intermediate_size=24, moe_shared_expert_intermediate_size=20, moe_latent_size=16, num_experts_per_tok=2,
                       n_group=2, topk_group=1, routed_scaling_factor=1.5),
    "nemotron": dict(head_dim=8, partial_rotary_factor=0.5),
    "gemma": dict(head_dim=8),
    "gemma2": dict(head_dim=8, sliding_window=7, query_pre_attn_scalar=16, attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
    "vaultgemma": dict(head_dim=8, sliding_window=7, query_pre_attn_scalar=16, attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
    "hyperclovax": dict(embedding_multiplier=3.0, logits_scaling=0.5, residual_multiplier=0.5, attention_multiplier=0.1),
    "youtu": dict(num_key_value_heads=4, q_lora_rank=20, kv_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=10, v_head_dim=12),
    "solar_open": dict(num_experts_per_tok=2, moe_intermediate_size=24, n_routed_experts=8, n_group=2, topk_group=1, head_dim=8,
                       attention_bias=True, routed_scaling_factor=1.5),
    "ministral": dict(head_dim=8, sliding_window=7, layer_types=["sliding_attention", "full_attention"] * 2),
    "ministral3": dict(head_dim=8),
    "olmo": dict(clip_qkv=None),
    "olmoe": dict(num_experts=4, num_experts_per_tok=2),
    "flex_olmo": dict(num_experts=4, num_experts_per_tok=2),
    "exaone4": dict(sliding_window=7, sliding_window_pattern=4, head_dim=8),
    "cohere": dict(logit_scale=0.5),
    "cohere2": dict(logit_scale=0.5, sliding_window=7, head_dim=8),
    "starcoder2": dict(use_bias=True),
    "stablelm": dict(use_qkv_bias=True, use_parallel_residual=False),
    "arcee": dict(head_dim=8),
    "hunyuan_v1_dense": dict(head_dim=8),
    "ernie4_5": dict(head_dim=8, use_bias=True),
    "ernie4_5_moe": dict(head_dim=8, moe_num_experts=4, moe_k=2, moe_intermediate_size=24, moe_num_shared_experts=1,
                         moe_layer_start_index=1),
    "seed_oss": dict(head_dim=8),
    "dots1": dict(head_dim=8, num_experts_per_tok=2, moe_intermediate_size=24, n_routed_experts=8, n_group=2, topk_group=1,
                  first_k_dense_replace=1, n_shared_experts=1, routed_scaling_factor=1.5, sliding_window=None),
    "helium": dict(head_dim=8),
    "phi3_short": dict(model_type="phi3", original_max_position_embeddings=64, max_position_embeddings=64,
                       rope_parameters=dict(rope_type="longrope", short_factor=[1.0, 1.1, 1.2, 1.5], long_factor=[1.5, 2.0, 4.0, 8.0])),
    "phi3_long": dict(model_type="phi3", original_max_position_embeddings=8, rope_parameters=dict(
        rope_type="longrope", partial_rotary_factor=0.75, short_factor=[1.0, 1.1, 1.2], long_factor=[1.5, 4.0, 9.0])),
    "gemma4_text": dict(GEMMA4, num_kv_shared_layers=2, use_double_wide_mlp=True, hidden_size_per_layer_input=12,
                        vocab_size_per_layer_input=256, final_logit_softcapping=3.0),
    "gemma4_mixture": dict(GEMMA4, attention_k_eq_v=True, num_global_key_value_heads=1, enable_moe_block=True, num_experts=4,
                           top_k_experts=2, moe_intermediate_size=24, hidden_size_per_layer_input=0, attention_bias=True,
                           rope_parameters={"full_attention": dict(rope_type="proportional", partial_rotary_factor=0.5, rope_theta=1e5),
                                            "sliding_attention": dict(rope_type="default", rope_theta=1e3)}),
    "apertus": {},
    "phimoe": dict(num_local_experts=4, num_experts_per_tok=2),
    "bitnet": {},
}


def ranges(path):
    """Returns {tensor: [shape, center, scale]} of a file: values are center + scale u, u in -1..1."""
    out = {}
    with safe_open(path, "numpy") as file:
        for name in sorted(file.keys()):
            value = file.get_tensor(name).astype(np.float64)
            wide = value.ndim > 1 and not name.endswith("conv1d.weight") and not name.endswith("conv.conv.weight")
            scale = 1.2 / np.sqrt(value.shape[-1]) if wide else 0.3
            if "embed" in name or "lm_head" in name:
                scale = 0.5
            out[name] = [list(value.shape), 0 if wide else float(round(value.mean())), round(float(scale), 4)]
    return out


def greedy(model, prompt, count):
    """Returns greedy tokens, and the smallest difference between the two largest logits."""
    tokens, least = list(prompt), np.inf
    with torch.no_grad():
        for _ in range(count):
            best = model(input_ids=torch.tensor([tokens])).logits[0, -1].double().topk(2)
            least = min(least, (best.values[0] - best.values[1]).item())
            tokens.append(best.indices[0].item())
    return tokens[len(prompt):], least


def make(name, folder):
    keys = {**COMMON, **MODELS[name]}
    config = AutoConfig.for_model(keys.pop("model_type", name), **keys)
    AutoModelForCausalLM.from_config(config).float().save_pretrained(folder)
    for extra in os.listdir(folder):
        if extra not in ("config.json", "model.safetensors"):
            os.remove(os.path.join(folder, extra))
    weights = os.path.join(folder, "model.safetensors")
    tensors = ranges(weights)
    write_weights(weights, tensors)
    stream = finetune.tokens_of(folder, os.path.join(HERE, "text.txt"))
    args = argparse.Namespace(context=32, batch=4, steps=5, lr=1e-3)
    steps = [[loss, norm] for _, _, loss, norm in finetune.train(finetune.load(folder), stream, None, args)]
    model, report = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"], report
    prompt = [84, 104, 101, 32, 99, 97, 116, 32, 115, 97, 116]
    tokens, least = greedy(model.eval(), prompt, 40)
    print(f"{name}: {sum(int(np.prod(t[0])) for t in tensors.values())} numbers, margin {least:.2g}, {len(set(tokens))} tokens", flush=True)
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    return {"torch": torch.__version__, "transformers": transformers.__version__, "config": config, "tensors": tensors, "steps": steps,
            "prompt": prompt, "answer": tokens}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=os.path.join(HERE, "models"))
    parser.add_argument("--folders")
    parser.add_argument("names", nargs="*", metavar="TYPE")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    for name in args.names or MODELS:
        with tempfile.TemporaryDirectory() as folder:
            made = make(name, folder)
            if args.folders:
                shutil.copytree(folder, os.path.join(args.folders, name), dirs_exist_ok=True)
        with open(os.path.join(args.out, name + ".json"), "w") as file:
            json.dump(made, file)
            file.write("\n")


if __name__ == "__main__":
    main()
