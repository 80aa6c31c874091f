#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a GPT-2 in PyTorch over several processes, on Gloo. It runs as a pipeline
(torch.distributed.pipelining with 1F1B, or with its zero-bubble schedule of two chunks per rank in a V)
or data-parallel (DistributedDataParallel). A step is forward, backward, global gradient clip, AdamW.
Prints tokens per second of the median step.

    torch_ranks.py pipeline --ranks 4 --microbatches 8
    torch_ranks.py zero --ranks 4 --microbatches 8
    torch_ranks.py data --ranks 2

The classifier is not tied to the embedding, because stages cannot share a weight.
"""
import argparse
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

from torch_model import Block


def options():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("way", choices=["pipeline", "zero", "data"])
    for name, value in (("ranks", 2), ("microbatches", 8), ("steps", 6), ("warmup", 2), ("layers", 8),
                        ("width", 256), ("heads", 8), ("context", 128), ("batch", 16),
                        ("vocab", 256)):
        p.add_argument("--" + name, type=int, default=value)
    return p.parse_args()


class Part(nn.Module):
    """The blocks of one of `parts` stages; the first stage also has the embeddings, the last the head."""

    def __init__(self, o, part, parts):
        super().__init__()
        self.first, self.last = part == 0, part == parts - 1
        if self.first:
            self.wte, self.wpe = nn.Embedding(o.vocab, o.width), nn.Embedding(o.context, o.width)
        of = range(part * o.layers // parts, (part + 1) * o.layers // parts)
        self.blocks = nn.ModuleList(Block(o) for _ in of)
        if self.last:
            self.ln_f, self.head = nn.LayerNorm(o.width), nn.Linear(o.width, o.vocab, bias=False)
        for p in self.parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, x):  # [B, T] tokens or [B, T, C]
        if self.first:
            x = self.wte(x) + self.wpe.weight[:x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x)) if self.last else x


def stages_of(o, rank):
    """Returns the indices of the rank's stages; with two stages per rank they form a V."""
    return [rank, 2 * o.ranks - 1 - rank] if o.way == "zero" else [rank]


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def pipeline_pass(o, rank, parts, tokens, targets):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleZBVZeroBubble
    n = o.ranks * len(parts)
    stages = [PipelineStage(part, s, n, torch.device("cpu"))
              for part, s in zip(parts, stages_of(o, rank))]
    if o.way == "zero":
        schedule = ScheduleZBVZeroBubble(stages, o.microbatches, loss_fn=loss_of)
    else:
        schedule = Schedule1F1B(stages[0], o.microbatches, loss_fn=loss_of)
    first = [tokens] if any(s.is_first for s in stages) else []
    last = {"target": targets, "losses": []} if any(s.is_last for s in stages) else {}
    return lambda: schedule.step(*first, **last)


def data_pass(o, rank, parts, tokens, targets):
    ddp = nn.parallel.DistributedDataParallel(parts[0], gradient_as_bucket_view=True)
    own = slice(rank * o.batch // o.ranks, (rank + 1) * o.batch // o.ranks)
    return lambda: loss_of(ddp(tokens[own]), targets[own]).backward()


def clip(params, shared):
    """Clips by the global gradient norm, summed over the ranks if each holds only part of the gradients."""
    norm = torch.stack([p.grad.norm() for p in params]).square().sum()
    if shared:
        dist.all_reduce(norm)
    factor = torch.clamp(1.0 / (norm.sqrt() + 1e-6), max=1.0)
    torch._foreach_mul_([p.grad for p in params], factor)


def run_rank(rank, o, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // o.ranks))
    torch.set_flush_denormal(True)
    dist.init_process_group("gloo", rank=rank, world_size=o.ranks)
    piped = o.way != "data"
    torch.manual_seed(1)
    chunks = 2 if o.way == "zero" else 1
    parts = [Part(o, s, o.ranks * chunks) for s in stages_of(o, rank)] if piped else [Part(o, 0, 1)]
    params = [p for part in parts for p in part.parameters()]
    optimizer = torch.optim.AdamW(params, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    text = torch.randint(o.vocab, (o.batch, o.context + 1))
    tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    run = (pipeline_pass if piped else data_pass)(o, rank, parts, tokens, targets)
    seconds = []
    for _ in range(o.warmup + o.steps):
        begin = time.perf_counter()
        run()
        clip(params, piped)
        optimizer.step()
        optimizer.zero_grad(set_to_none=piped)
        dist.barrier()
        seconds.append(time.perf_counter() - begin)
    if rank == 0:
        print(f"{o.batch * o.context / statistics.median(seconds[o.warmup:]):.1f}", flush=True)
    dist.destroy_process_group()


def main():
    o = options()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(run_rank, (o, port), nprocs=o.ranks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
