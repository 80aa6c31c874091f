#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes hf_gpt_oss/ and hf_deepseek_v3/: small decoders as save_pretrained writes them, with the losses of
finetune.py on text.txt (losses.txt) and greedy answers of transformers (greedy.txt), like make_dense.py.
hf_gpt_oss/blocks.safetensors has all weights, those of experts in MXFP4 blocks; blocks.txt has its losses.

    pip install torch transformers safetensors gguf numpy
    python3 make_decoders.py [--out DIR] [NAME...]

hf_gpt_oss: attention sinks, windows of 7 in every other layer, biases, experts with clamped gates, YaRN RoPE scaling
without truncation. hf_deepseek_v3: latent attention, a dense layer before layers with grouped experts, a shared expert,
RoPE on neighbouring pairs.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, GptOssConfig, GptOssForCausalLM

from make_dense import PROMPT, seed_of
from make_pretrained import write_folder
from make_reference import HERE, seeded_weights

COMMON = dict(vocab_size=256, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, bos_token_id=None, eos_token_id=None,
              pad_token_id=None)
# name: (model, its config, the first seed to try)
MODELS = {
    "gpt_oss": (GptOssForCausalLM, GptOssConfig(
        **COMMON, num_hidden_layers=4, intermediate_size=32, head_dim=16, num_local_experts=4, num_experts_per_tok=2,
        sliding_window=7, swiglu_limit=1.5, max_position_embeddings=128, tie_word_embeddings=False,
        rope_parameters={"rope_type": "yarn", "rope_theta": 15000.0, "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
                         "truncate": False, "original_max_position_embeddings": 16}), 7000),
    "deepseek_v3": (DeepseekV3ForCausalLM, DeepseekV3Config(
        **{**COMMON, "num_key_value_heads": 4}, num_hidden_layers=3, intermediate_size=48, moe_intermediate_size=24, n_routed_experts=8,
        n_shared_experts=1, num_experts_per_tok=3, n_group=4, topk_group=2, first_k_dense_replace=1, routed_scaling_factor=2.5,
        norm_topk_prob=True, q_lora_rank=20, kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10,
        max_position_embeddings=128, tie_word_embeddings=False, rms_norm_eps=1e-6, num_mtp_layers=0,
        rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                         "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 16}), 7100),
}
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def to_blocks(weight):
    """Returns MXFP4 blocks and scales of a weight [n, in, out], and the dequantized weight."""
    rows = np.ascontiguousarray(weight.transpose(0, 2, 1)).astype(np.float32)  # [n, out, in]
    n, out, width = rows.shape
    groups = rows.reshape(n, out, width // 32, 32)
    scales = np.clip(np.floor(np.log2(np.abs(groups).max(-1) + 1e-30)) - 2, -127, 127)
    near = np.abs(groups[..., None] / 2.0 ** scales[..., None, None] - FP4).argmin(-1).astype(np.uint8)
    values = (FP4[near] * 2.0 ** scales[..., None]).astype(np.float32).reshape(n, out, width)
    blocks = near[..., 0::2] | near[..., 1::2] << 4
    return blocks, (scales + 127).astype(np.uint8), np.ascontiguousarray(values.transpose(0, 2, 1))


def losses_of(folder):
    run = [sys.executable, os.path.join(HERE, "finetune.py"), folder, os.path.join(HERE, "text.txt"),
           "--context", "32", "--batch", "4", "--steps", "5", "--lr", "1e-3"]
    return subprocess.run(run, capture_output=True, text=True, check=True).stdout


def write_blocks(folder):
    """Writes blocks.safetensors with experts in MXFP4 blocks, and the losses of the weights as transformers unpacks them."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    packed, plain = {}, {}
    for name, tensor in load_file(os.path.join(folder, "model.safetensors")).items():
        plain[name] = packed[name] = tensor.float().numpy()
        if name.endswith("_proj") and ".experts." in name:
            del packed[name]
            blocks, scales, plain[name] = to_blocks(tensor.float().numpy())
            packed[name + "_blocks"], packed[name + "_scales"] = blocks, scales
            theirs = convert_moe_packed_tensors(torch.from_numpy(blocks), torch.from_numpy(scales), dtype=torch.float32)
            assert torch.equal(theirs, torch.from_numpy(plain[name])), name
    save_file(packed, os.path.join(folder, "blocks.safetensors"))
    with tempfile.TemporaryDirectory() as copy:
        shutil.copy(os.path.join(folder, "config.json"), copy)
        save_file(plain, os.path.join(copy, "model.safetensors"), metadata={"format": "pt"})
        with open(os.path.join(folder, "blocks.txt"), "w") as file:
            file.write(losses_of(copy))


def weights(model, seed):
    """Seeds the weights, and bias corrections that change the choice of experts."""
    seeded_weights(model, seed)
    rng = np.random.Generator(np.random.PCG64(seed))
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(torch.from_numpy(0.2 * rng.standard_normal(tuple(buffer.shape)).astype(np.float32)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=HERE)
    parser.add_argument("names", nargs="*", default=list(MODELS), metavar="NAME")
    args = parser.parse_args()
    for name in args.names:
        kind, config, first = MODELS[name]
        seed, tokens = seed_of(kind, config, first, weights)
        folder = os.path.join(args.out, "hf_" + name)
        write_folder(folder, kind(config), seed, torch.bfloat16, "1GB", 5, weights)
        with open(os.path.join(folder, "greedy.txt"), "w") as file:
            for part in tokens[:len(PROMPT)], tokens[len(PROMPT):]:
                file.write(" ".join(map(str, part)) + "\n")
        if name == "gpt_oss":
            write_blocks(folder)
        print(name, seed, flush=True)


if __name__ == "__main__":
    main()
