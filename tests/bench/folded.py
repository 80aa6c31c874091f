#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares expert parallelism over all devices with expert parallelism over data-parallel devices only.

    SLUICE_BUILD=build/release tests/bench/folded.py [--blocks L] [--devices N] [NAME...]

Each model has the width, attention and experts of a published model, and L blocks. A step has 16
sequences of 4,096 tokens in bf16, on N modelled H100s in hosts of eight. Tensor parallelism has size
T = 1 to 8, data parallelism D = N/T, with one, two or four microbatches. Two grids are compared among
those that fit into 80 GB: the fastest whose EP divides D, with the cheapest tensor sharding of experts
(no --expert-tensor), and the fastest whose EP divides D T (--expert-tensor 1). Prints both and their
ratio for each T, because attention may need a larger one, and for the best T.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

CONTEXT, BATCH = 4096, 16
HERE = os.path.dirname(os.path.abspath(__file__))
# model, width, heads, key/value heads, head width, experts, experts per token, inner width of an expert
MODELS = {"mixtral-8x22b": ("mixtral", 6144, 48, 8, 128, 8, 2, 16384),
          "mixtral-8x7b": ("mixtral", 4096, 32, 8, 128, 8, 2, 14336),
          "qwen2-57b-a14b": ("qwen-moe", 3584, 28, 4, 128, 64, 8, 2560),
          "qwen3-235b-a22b": ("qwen-moe", 4096, 64, 4, 128, 128, 8, 1536),
          "qwen3-30b-a3b": ("qwen-moe", 2048, 32, 4, 128, 128, 8, 768)}


def divisors(n, most):
    return [d for d in range(1, min(n, most) + 1) if n % d == 0]


def predict(model, blocks, folder, grid):
    """Returns (seconds of a step, GiB per device, grid), or None if the grid is impossible or does not fit."""
    name, width, heads, kv_heads, head, experts, top, inner = model
    report = folder + "/report.json"
    words = [os.environ["SLUICE_BUILD"] + "/bin/actorrun", "--quiet", "--clock", "virtual", "--machine", "h100-sxm-80gb",
             "--dtype", "bf16", "--steps", "2", "--shard", "optimizer", "--recompute", "selective", "--report", report,
             *grid, name, "--data", folder + "/tokens.u16", "--vocab", "32000", "--layers", str(blocks), "--width",
             str(width), "--heads", str(heads), "--kv-heads", str(kv_heads), "--head-dim", str(head), "--context",
             str(CONTEXT), "--batch", str(BATCH), "--experts", str(experts), "--top-k", str(top), "--expert-ffn", str(inner)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode in (2, 3):
        return None
    done.check_returncode()
    with open(report) as file:
        r = json.load(file)
    return r["predicted"]["step_seconds"], max(d["peak_bytes"]["total"] for d in r["devices"]) / 2**30, grid


def best_of(model, blocks, folder, devices, tensor, folded):
    data, best = devices // tensor, None
    for experts in divisors(devices if folded else data, model[5]):
        for microbatches in (1, 2, 4):
            if data * microbatches > BATCH or (folded and experts * tensor == 1):
                continue
            grid = ["--data-parallel", str(data), "--tensor", str(tensor), "--expert-parallel", str(experts),
                    "--microbatches", str(microbatches), *(["--expert-tensor", "1"] if folded else [])]
            made = predict(model, blocks, folder, grid)
            if made and (not best or made[0] < best[0]):
                best = made
    return best


def show(made):
    if not made:
        return "none fits"
    words = dict(zip(made[2][::2], made[2][1::2]))
    return (f"{1e3 * made[0]:.1f} ms, EP {words['--expert-parallel']}, M {words['--microbatches']}, {made[1]:.0f} GiB")


def compare(name, blocks, devices, folder):
    best = {}
    for tensor in (1, 2, 4, 8):
        if devices // tensor > BATCH:
            continue
        both = [best_of(MODELS[name], blocks, folder, devices, tensor, folded) for folded in (False, True)]
        ratio = f"{both[0][0] / both[1][0]:.2f}" if all(both) else ""
        print(f"{name:16} T {tensor}  EP | D: {show(both[0]):40} EP | D T: {show(both[1]):40} {ratio}", flush=True)
        for folded in (False, True):
            if both[folded] and (folded not in best or both[folded][0] < best[folded][0]):
                best[folded] = both[folded]
    if len(best) == 2:
        print(f"{name:16} best  {1e3 * best[False][0]:.1f} ms / {1e3 * best[True][0]:.1f} ms = {best[False][0] / best[True][0]:.2f}", flush=True)


def main():
    words, blocks, devices = sys.argv[1:], 4, 32
    while words and words[0].startswith("--"):
        blocks, devices = (int(words[1]), devices) if words[0] == "--blocks" else (blocks, int(words[1]))
        words = words[2:]
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/tokens.u16", "wb") as file:
            file.write(struct.pack(f"<{CONTEXT + 1}H", *(i % 32000 for i in range(CONTEXT + 1))))
        for name in words or MODELS:
            compare(name, blocks, devices, folder)


if __name__ == "__main__":
    main()
