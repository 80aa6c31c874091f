#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares training of ResNet-18, exported from transformers, with PyTorch: 8 images of 224 x 224, fp32, AdamW and
gradient clipping. Both take turns, pair by pair. Prints the median step of each pair, its processor time, and the
medians of the ratios.

    bench_image.py [--pairs N] [--steps N] [--compile] [--channels-last]

actorrun is taken from $SLUICE_BUILD (build/release). Needs PyTorch and transformers. SLUICE_CPU_LEVEL,
ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA limit both as usual."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = transformers.ResNetForImageClassification(transformers.ResNetConfig(
            hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic", num_labels=1000))

    def forward(self, pixels, labels):
        return F.cross_entropy(self.model(pixels).logits, labels)


def sluice(folder, steps):
    build = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build/release"))
    report = folder / "report.json"
    subprocess.run(
        [build / "bin/actorrun", "--quiet", "--steps", str(steps + 1), "--report", report, folder / "model.pt2",
         "--input", f"pixels={folder}/inputs.safetensors:pixels",
         "--input", f"labels={folder}/inputs.safetensors:labels"], check=True)
    done = json.loads(report.read_text())["steps"][1:]
    return (statistics.median(s["seconds"] for s in done), statistics.median(s["cpu_seconds"] for s in done))


def pytorch(module, inputs, steps):
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)
    times = []
    for _ in range(steps + 2):
        start = time.perf_counter(), time.process_time()
        optimizer.zero_grad()
        module(*inputs).backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    return tuple(statistics.median(t) for t in zip(*times[2:]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--channels-last", action="store_true", help="of PyTorch's tensors")
    args = parser.parse_args()
    from safetensors.torch import save_file
    torch.manual_seed(1)
    module = Classifier().train()
    inputs = torch.randn(8, 3, 224, 224), torch.randint(0, 1000, (8,))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        torch.export.save(torch.export.export(module, inputs), folder / "model.pt2")
        save_file({"pixels": inputs[0], "labels": inputs[1].int()}, folder / "inputs.safetensors")
        if args.channels_last:
            module = module.to(memory_format=torch.channels_last)
        if args.compile:
            module = torch.compile(module)
        ratios = []
        for _ in range(args.pairs):
            ours, theirs = sluice(folder, args.steps), pytorch(module, inputs, args.steps)
            ratios.append([t / o for o, t in zip(ours, theirs)])
            print("sluice {:.0f} ms, processor {:.0f}; torch {:.0f} ms, processor {:.0f}".format(
                *(1e3 * x for x in ours + theirs)), flush=True)
        print("ratio {:.2f}, processor time {:.2f}".format(*(statistics.median(r) for r in zip(*ratios))))


if __name__ == "__main__":
    sys.exit(main())
