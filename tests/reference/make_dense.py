#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes hf_gemma3/, hf_olmo2/, hf_phi3/ and hf_qwen3/: small dense models as save_pretrained writes them, with the losses
of finetune.py on text.txt (losses.txt: step, loss, gradient norm) and greedy answers of transformers (greedy.txt: the
tokens of a prompt, then a line with the 50 tokens that follow). gguf/NAME.gguf has the same weights, written by ggml's
package.

    pip install torch transformers safetensors gguf numpy
    python3 make_dense.py [--out DIR] [NAME...]

hf_gemma3: windows of 7 in every other layer, with separate RoPE frequencies, scaled RoPE in the other layers, soft-capped
logits; older.json has the keys of older files, with losses in older.txt. hf_olmo2: norms after both halves of a block.
hf_phi3: packed weights, a window of 11. hf_qwen3: heads wider than width / heads, norms of queries and keys.
Answers have no near ties: another summation order gives the same tokens.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from transformers import (AutoModelForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, Olmo2Config, Olmo2ForCausalLM,
                          Phi3Config, Phi3ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

from make_pretrained import write_folder
from make_reference import HERE, seeded_weights

COMMON = dict(vocab_size=256, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None, eos_token_id=None, pad_token_id=None)
# name: (model, its config, the first seed to try)
MODELS = {
    "olmo2": (Olmo2ForCausalLM, Olmo2Config(
        **COMMON, rms_norm_eps=1e-6, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 5e5}), 6100),
    "phi3": (Phi3ForCausalLM, Phi3Config(
        **COMMON, rms_norm_eps=1e-5, tie_word_embeddings=False, sliding_window=11), 6200),
    "gemma3": (Gemma3ForCausalLM, Gemma3TextConfig(
        **{**COMMON, "num_hidden_layers": 4}, head_dim=16, query_pre_attn_scalar=16, sliding_window=7, final_logit_softcapping=4.0,
        layer_types=["sliding_attention", "full_attention"] * 2,
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}), 6300),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(
        **COMMON, head_dim=16, rms_norm_eps=1e-6, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6}), 6000),
}
PROMPT, ANSWER, NEAR, DIFFERENT = b"The lake", 50, 1e-3, 12


def answer(model):
    """Returns the prompt's tokens and the greedy answer in fp32, or None if it has near ties or too few distinct tokens."""
    prompt = torch.tensor([list(PROMPT)])
    with torch.no_grad():
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=ANSWER,
                             return_dict_in_generate=True, output_logits=True)
    best = torch.cat(out.logits).topk(2).values
    tokens = out.sequences[0].tolist()
    good = (best[:, 0] - best[:, 1]).min() > NEAR and len(set(tokens[len(PROMPT):])) >= DIFFERENT
    return tokens if good else None


def seed_of(kind, config, first, weights=seeded_weights):
    """Returns the first seed whose weights have an answer, and that answer."""
    for seed in range(first, first + 1000):
        model = kind(config).eval()
        weights(model, seed)
        tokens = answer(model.to(torch.bfloat16).to(torch.float32))
        if tokens:
            return seed, tokens
    raise SystemExit(f"{config.model_type}: no seed has an answer")


def write_keys(out, architecture, config):
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    out.add_block_count(config.num_hidden_layers)
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_rope_freq_base(rope["rope_theta"])
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_vocab_size(config.vocab_size)
    if getattr(config, "sliding_window", None):
        out.add_sliding_window(config.sliding_window)
    if architecture == "gemma3":
        out.add_uint32("gemma3.attention.sliding_window_pattern", config.layer_types.index("full_attention") + 1)
        out.add_float32("gemma3.rope.freq_base_swa", config.rope_parameters["sliding_attention"]["rope_theta"])
        out.add_final_logit_softcapping(config.final_logit_softcapping)
        out.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        out.add_rope_scaling_factor(rope["factor"])
    if getattr(config, "head_dim", None):
        out.add_key_length(config.head_dim)
        out.add_value_length(config.head_dim)


def write_gguf(path, architecture, folder):
    """Writes the folder as llama.cpp's converter does: names from ggml's table, matrices in bf16, vectors in f32."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    out = gguf.GGUFWriter(path, architecture)
    write_keys(out, architecture, model.config)
    kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(kinds[architecture], model.config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        values = tensor.numpy()
        if architecture == "gemma3" and name.endswith("norm.weight"):
            values = values + 1
        kind = Type.F32 if values.ndim < 2 else Type.BF16
        out.add_tensor(names.get_name(name, (".weight", ".bias")), gguf.quants.quantize(np.ascontiguousarray(values), kind), raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def write_older(folder):
    """Writes older.json with the keys of files before transformers 5, and the losses of the same weights."""
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    for key in "rope_parameters", "layer_types", "final_logit_softcapping":
        del config[key]
    config.update(rope_theta=5e5, rope_local_base_freq=2e4, rope_scaling={"rope_type": "linear", "factor": 4.0},
                  sliding_window_pattern=3, query_pre_attn_scalar=24)
    with open(os.path.join(folder, "older.json"), "w") as file:
        json.dump(config, file, indent=1)
        file.write("\n")
    with tempfile.TemporaryDirectory() as copy:
        shutil.copy(os.path.join(folder, "model.safetensors"), copy)
        shutil.copy(os.path.join(folder, "older.json"), os.path.join(copy, "config.json"))
        run = [sys.executable, os.path.join(HERE, "finetune.py"), copy, os.path.join(HERE, "text.txt"),
               "--context", "32", "--batch", "4", "--steps", "5", "--lr", "1e-3"]
        losses = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    with open(os.path.join(folder, "older.txt"), "w") as file:
        file.write(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=HERE)
    parser.add_argument("names", nargs="*", default=list(MODELS), metavar="NAME")
    args = parser.parse_args()
    for name in args.names:
        kind, config, first = MODELS[name]
        seed, tokens = seed_of(kind, config, first)
        folder, path = os.path.join(args.out, "hf_" + name), os.path.join(args.out, "gguf", name + ".gguf")
        write_folder(folder, kind(config), seed, torch.bfloat16, "1GB", 5)
        with open(os.path.join(folder, "greedy.txt"), "w") as file:
            for part in tokens[:len(PROMPT)], tokens[len(PROMPT):]:
                file.write(" ".join(map(str, part)) + "\n")
        write_gguf(path, name, folder)
        if name == "gemma3":
            write_older(folder)


if __name__ == "__main__":
    main()
