#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes hf_qwen2/, hf_llama3/, hf_mistral/ and hf_mamba2/: small models as save_pretrained writes them, and the losses of
finetune.py on text.txt (losses.txt: step, loss, gradient norm).

    python3 make_pretrained.py [--out DIR]

hf_qwen2: several shards, bf16, biases on q, k and v, a tied classifier, YaRN RoPE scaling.
hf_llama3: one file, fp16, heads wider than width / heads, llama3 RoPE scaling.
hf_mistral: one file, bf16, a window of 7 positions. hf_mamba2: two groups of heads.
"""
import argparse
import os
import subprocess
import sys

import torch
import transformers
from transformers import (LlamaConfig, LlamaForCausalLM, Mamba2Config, Mamba2ForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM)

from make_reference import HERE, seeded_weights

COMMON = dict(vocab_size=256, hidden_size=32, intermediate_size=88, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, bos_token_id=None, eos_token_id=None, pad_token_id=None)
MODELS = {
    "hf_qwen2": (Qwen2ForCausalLM, Qwen2Config(
        **COMMON, max_position_embeddings=64, rms_norm_eps=1e-6, tie_word_embeddings=True, use_sliding_window=False,
        rope_parameters={"rope_type": "yarn", "rope_theta": 50000.0, "factor": 4.0,
                         "original_max_position_embeddings": 16}), torch.bfloat16, "60KB"),
    "hf_llama3": (LlamaForCausalLM, LlamaConfig(
        **COMMON, head_dim=16, max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 16}), torch.float16, "1GB"),
    "hf_mistral": (MistralForCausalLM, MistralConfig(
        **COMMON, sliding_window=7, max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=False),
        torch.bfloat16, "1GB"),
    "hf_mamba2": (Mamba2ForCausalLM, Mamba2Config(
        vocab_size=256, hidden_size=32, num_hidden_layers=2, num_heads=4, head_dim=16, n_groups=2, state_size=8,
        chunk_size=16, bos_token_id=None, eos_token_id=None, pad_token_id=None), torch.float32, "1GB"),
}


def write_folder(folder, model, seed, dtype, shard, steps, weights=seeded_weights):
    """Writes the model with seeded weights by save_pretrained, and losses.txt of `steps` steps."""
    weights(model.eval(), seed)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    for extra in os.listdir(folder):
        if extra == "generation_config.json":
            os.remove(os.path.join(folder, extra))
        else:
            os.chmod(os.path.join(folder, extra), 0o644)
    run = [sys.executable, os.path.join(HERE, "finetune.py"), folder, os.path.join(HERE, "text.txt"),
           "--context", "32", "--batch", "4", "--steps", str(steps), "--lr", "1e-3"]
    losses = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    with open(os.path.join(folder, "losses.txt"), "w") as file:
        file.write(f"# torch={torch.__version__} transformers={transformers.__version__}\n{losses}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=HERE)
    out = parser.parse_args().out
    for seed, (name, (kind, config, dtype, shard)) in enumerate(MODELS.items()):
        write_folder(os.path.join(out, name), kind(config), 20 + seed, dtype, shard, 5)


if __name__ == "__main__":
    main()
