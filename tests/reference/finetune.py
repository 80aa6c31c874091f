#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a Hugging Face folder in PyTorch as `actorrun --init DIR` does, and prints the losses.

    python3 finetune.py DIR TEXT [--context T] [--batch B] [--steps N] [--lr X] [--tokenizer FILE]
                        [--eval TEXT --eval-every N] [--adapter DIR]

Data in order, no warm-up or decay of the rate, AdamW (0.9, 0.95) with weight decay 0.1 on matrices,
gradients clipped at 1. Prints one line per step (number, loss, gradient norm) and one per evaluation
("eval", steps done, loss). Compare with

    actorrun --init DIR --steps N llama --data TEXT --context T --batch B --lr X --min-lr X --warmup 0

compare_finetune.py does this.
"""
import argparse
import os

import numpy as np
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM


def tokens_of(folder, path, tokenizer=None):
    """Returns the tokens of a .u32 file, or those of a text: by the tokenizer, or bytes if there is none."""
    if path.endswith(".u32"):
        return np.fromfile(path, "<u4").astype(np.int64)
    tokenizer = tokenizer or os.path.join(folder, "tokenizer.json")
    with open(path, "rb") as file:
        text = file.read()
    if not os.path.exists(tokenizer):
        return np.frombuffer(text, np.uint8).astype(np.int64)
    from tokenizers import Tokenizer
    return np.array(Tokenizer.from_file(tokenizer).encode(text.decode()).ids)


def load(folder, double=False, adapter=None):
    """Returns the model. With a PEFT adapter, only the adapter is trained."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64 if double else torch.float32)
    if adapter:
        from peft import PeftModel
        model = PeftModel.from_pretrained(model, adapter, is_trainable=True)
    return model.eval()


def loss_of(model, stream, context, first, count):
    """Returns the mean loss of `count` sequences from number `first` on."""
    whole = (len(stream) - 1) // context
    starts = [(i % whole) * context for i in range(first, first + count)]
    rows = torch.tensor(np.stack([stream[a:a + context + 1] for a in starts]))
    logits = model(input_ids=rows[:, :-1]).logits
    return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def evaluate(model, stream, args):
    """Returns the mean loss of whole batches from the start, at most as many as training takes per evaluation."""
    batches = min(args.eval_every, (len(stream) - 1) // args.context // args.batch)
    with torch.no_grad():
        return sum(loss_of(model, stream, args.context, i * args.batch, args.batch).item()
                   for i in range(batches)) / batches


def train(model, stream, held_out, args):
    """Trains, and yields ("step", number, loss, norm) and ("eval", steps, loss)."""
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW([dict(params=[p for p in params if p.ndim >= 2], weight_decay=0.1),
                                   dict(params=[p for p in params if p.ndim < 2], weight_decay=0.0)],
                                  lr=args.lr, betas=(0.9, 0.95), eps=1e-8, foreach=False)
    for step in range(args.steps):
        loss = loss_of(model, stream, args.context, step * args.batch, args.batch)
        optimizer.zero_grad()
        loss.backward()
        used = [p for p in params if p.grad is not None]
        norm = torch.sqrt(sum(p.grad.double().pow(2).sum() for p in used))
        scale = min(1.0, 1.0 / (norm.item() + 1e-6))
        for p in used:
            p.grad.mul_(scale)
        optimizer.step()
        yield "step", step, loss.item(), norm.item()
        if held_out is not None and (step + 1) % args.eval_every == 0:
            yield "eval", step + 1, evaluate(model, held_out, args)


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("dir")
    parser.add_argument("text")
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--tokenizer")
    parser.add_argument("--eval")
    parser.add_argument("--eval-every", type=int, default=1)
    return parser


def main():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--adapter")
    parser.add_argument("--double", action="store_true", help="compute in fp64")
    args = parser.parse_args()
    torch.set_num_threads(1)
    stream = tokens_of(args.dir, args.text, args.tokenizer)
    held_out = tokens_of(args.dir, args.eval, args.tokenizer) if args.eval else None
    for kind, number, *values in train(load(args.dir, args.double, args.adapter), stream, held_out, args):
        print("eval " * (kind == "eval") + " ".join([str(number)] + [f"{x:.9g}" for x in values]), flush=True)


if __name__ == "__main__":
    main()
