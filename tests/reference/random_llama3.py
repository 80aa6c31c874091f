#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a small LLaMA 3 with random weights, with the original vocabulary of 128,256 tokens and RoPE
scaling, in bf16 and several files; and random tokens to train and to evaluate on.

    python3 random_llama3.py DIR     writes DIR/model, DIR/train.u32, DIR/eval.u32
"""
import os
import sys

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = LlamaConfig(
    vocab_size=128256, hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=8,
    num_key_value_heads=2, max_position_embeddings=131072, rms_norm_eps=1e-5, tie_word_embeddings=False,
    bos_token_id=128000, eos_token_id=128001,
    rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                     "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})


def main():
    out = sys.argv[1]
    torch.manual_seed(5)
    LlamaForCausalLM(CONFIG).to(torch.bfloat16).save_pretrained(os.path.join(out, "model"), max_shard_size="20MB")
    for seed, name in enumerate(("train", "eval")):
        tokens = np.random.default_rng(seed + 1).integers(0, CONFIG.vocab_size, 20000).astype("<u4")
        tokens.tofile(os.path.join(out, name + ".u32"))


if __name__ == "__main__":
    main()
