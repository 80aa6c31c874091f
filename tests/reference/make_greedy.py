#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes greedy.json: greedy continuations of random prompts by transformers, in fp32, with the small folders here.

    python3 make_greedy.py [FOLDER ...]

A line is one prompt: the folder, the prompt's tokens, the 50 tokens that generate() appends, their log-probabilities,
and the margin of each over the second best token. Folders that are not named keep their lines.
"""
import json
import os
import sys

import torch
from transformers import AutoModelForCausalLM

from make_reference import HERE

FOLDERS = ["hf_mixtral", "hf_qwen2_moe", "hf_qwen3_moe", "hf_qwen3_next", "hf_qwen3_next_dense"]
PROMPTS, MOST, ANSWER = 12, 12, 50
FILE = os.path.join(HERE, "greedy.json")


def lines_of(folder):
    model = AutoModelForCausalLM.from_pretrained(os.path.join(HERE, folder), dtype=torch.float32).eval()
    draw = torch.Generator().manual_seed(len(folder))
    for _ in range(PROMPTS):
        n = int(torch.randint(1, MOST + 1, (1,), generator=draw))
        prompt = torch.randint(0, model.config.vocab_size, (1, n), generator=draw)
        with torch.inference_mode():
            said = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=ANSWER,
                                  output_logits=True, return_dict_in_generate=True, pad_token_id=0)
        best = torch.log_softmax(torch.cat(said.logits).double(), -1).topk(2)
        answer = said.sequences[0, n:].tolist()
        assert answer == best.indices[:, 0].tolist() and len(answer) == ANSWER
        yield {"folder": folder, "prompt": prompt[0].tolist(), "answer": answer,
               "logprobs": [round(x, 6) for x in best.values[:, 0].tolist()],
               "gaps": [round(x, 6) for x in (best.values[:, 0] - best.values[:, 1]).tolist()]}


def main():
    torch.set_num_threads(1)
    wanted, kept = sys.argv[1:] or FOLDERS, []
    if os.path.exists(FILE):
        with open(FILE) as file:
            kept = [line for line in map(json.loads, file) if line["folder"] not in wanted]
    lines = kept + [line for folder in wanted for line in lines_of(folder)]
    with open(FILE, "w", encoding="ascii") as out:
        for line in lines:
            json.dump(line, out, separators=(",", ":"))
            out.write("\n")


if __name__ == "__main__":
    main()
