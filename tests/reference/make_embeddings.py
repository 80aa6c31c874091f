# SPDX-License-Identifier: Apache-2.0
"""Computes embeddings with transformers: make_embeddings.py > embeddings.json

For each folder and prompt: the mean and the last of the final hidden states, each normalized to length 1."""
import json
import pathlib

import torch
import transformers

HERE = pathlib.Path(__file__).parent
PROMPTS = [[1, 2, 3, 4, 5], [7], [(7 * i + i * i) % 60 for i in range(21)]]


def vector(x):
    return [float("%.9g" % v) for v in (x / x.norm()).double().tolist()]


found = {}
for folder in ("hf_llama", "hf_qwen3"):
    model = transformers.AutoModelForCausalLM.from_pretrained(HERE / folder, dtype=torch.float32).eval()
    found[folder] = []
    for prompt in PROMPTS:
        with torch.no_grad():
            states = model.model(torch.tensor([prompt])).last_hidden_state[0]
        found[folder].append({"prompt": prompt, "mean": vector(states.mean(0)), "last": vector(states[-1])})
print(json.dumps(found))
