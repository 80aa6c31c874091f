#!/usr/bin/env python3
"""Trains a Hugging Face folder in PyTorch as `actorrun --init DIR` does, and prints the losses.

    python3 finetune.py DIR TEXT [--context T] [--batch B] [--steps N] [--lr X] [--tokenizer FILE]

Data in order, no warm-up or decay, AdamW (0.9, 0.95) with decay 0.1 on matrices, gradients clipped
at 1. Compare with

    actorrun --init DIR --steps N llama --data TEXT --context T --batch B --lr X --min-lr X --warmup 0
"""
import argparse
import os

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM


def tokens_of(args):
    path = args.tokenizer or os.path.join(args.dir, "tokenizer.json")
    with open(args.text, "rb") as file:
        text = file.read()
    if not os.path.exists(path):
        return np.frombuffer(text, np.uint8).astype(np.int64)
    return np.array(Tokenizer.from_file(path).encode(text.decode()).ids)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dir")
    parser.add_argument("text")
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--tokenizer")
    parser.add_argument("--double", action="store_true", help="compute in fp64")
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(args.dir, dtype=torch.float64 if args.double else torch.float32).eval()
    stream, T = tokens_of(args), args.context
    whole = (len(stream) - 1) // T
    params = list(model.parameters())
    optimizer = torch.optim.AdamW([dict(params=[p for p in params if p.ndim >= 2], weight_decay=0.1),
                                   dict(params=[p for p in params if p.ndim < 2], weight_decay=0.0)],
                                  lr=args.lr, betas=(0.9, 0.95), eps=1e-8, foreach=False)
    for step in range(args.steps):
        starts = [(i % whole) * T for i in range(step * args.batch, (step + 1) * args.batch)]
        rows = torch.tensor(np.stack([stream[a:a + T + 1] for a in starts]))
        logits = model(input_ids=rows[:, :-1]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        norm = torch.sqrt(sum(p.grad.double().pow(2).sum() for p in params))
        scale = min(1.0, 1.0 / (norm.item() + 1e-6))
        for p in params:
            p.grad.mul_(scale)
        optimizer.step()
        print(f"{step} {loss.item():.9g} {norm.item():.9g}", flush=True)


if __name__ == "__main__":
    main()
