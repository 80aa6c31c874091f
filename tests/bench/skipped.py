#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Perplexity of a llama of which a part of the blocks is left out, trained with paths that skip blocks and without.

    skipped.py --bin build/release/bin [--steps 1000] [--layers 8] [--width 96] [--seeds 1] [SKIP...]

Each block is a stage, and paths, drawn by the seed, skip the share SKIP of all visits of blocks (--paths; SkipPipe, arXiv
2502.19913). The model trains on nine tenths of the bytes of docs/. Perplexities are those of the rest, after training,
with all blocks and with every fourth or second one left out, all with the same weights.
"""
import argparse
import glob
import json
import math
import os
import pathlib
import random
import re
import subprocess
import tempfile

MICROBATCHES, CONTEXT = 8, 128
LEFT_OUT = {"all": 0, "3/4": 4, "1/2": 2}  # every so many blocks


def write_paths(path, blocks, skip, seed):
    """Writes paths from embedding to head, which skip each block equally often."""
    draw = random.Random(seed)
    out = [set(draw.sample(range(MICROBATCHES), round(skip * MICROBATCHES))) for _ in range(blocks)]
    with open(path, "w") as file:
        for i in range(MICROBATCHES):
            print(f"{i}: 0", *(s + 1 for s in range(blocks) if i not in out[s]), blocks + 1, file=file)


def leave_out(path, out, blocks, every):
    """Copies weights without every so many blocks, from the first quarter or half of them on; returns those left."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    kept = [i for i in range(blocks) if not every or i % every != every // 2]
    place = {block: i for i, block in enumerate(kept)}
    names, parts, at = {}, [], 0
    for name, row in header.items():
        block = re.search(r"(?<=layers\.)\d+(?=\.)", name)
        if name == "__metadata__" or (block and int(block.group()) not in place):
            continue
        if block:
            name = name[:block.start()] + str(place[int(block.group())]) + name[block.end():]
        parts.append(data[slice(*row["data_offsets"])])
        names[name] = dict(row, data_offsets=[at, at + len(parts[-1])])
        at += len(parts[-1])
    text = json.dumps(names).encode()
    text += b" " * (-len(text) % 8)
    with open(out, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(parts))
    return len(kept)


def run(o, folder, blocks, seed, *options):
    report = folder + "/report.json"
    subprocess.run([o.bin + "/actorrun", "--quiet", "--seed", str(seed), "--report", report, *options, "llama", "--layers",
                    str(blocks), "--width", str(o.width), "--heads", "4", "--context", str(CONTEXT), "--vocab", "256",
                    "--batch", str(2 * MICROBATCHES), "--data", folder + "/train.txt"], check=True)
    with open(report) as file:
        return json.load(file)


def perplexities(o, folder, skip, seed):
    weights, rest, found = folder + "/w.safetensors", folder + "/rest.safetensors", []
    paths = []
    if skip:
        write_paths(folder + "/paths", o.layers, skip, seed)
        paths = ["--paths", folder + "/paths"]
    run(o, folder, o.layers, seed, "--steps", str(o.steps), "--lr-schedule", f"cosine:decay-steps={o.steps},warmup=50", "--lr",
        "2e-3", "--devices", f"cpu:{o.layers + 2}x1", "--stages", str(o.layers + 2), "--microbatches", str(MICROBATCHES), *paths,
        "--save", weights)
    for every in LEFT_OUT.values():
        blocks = leave_out(weights, rest, o.layers, every)
        report = run(o, folder, blocks, seed, "--devices", "cpu:1x1", "--steps", "1", "--lr", "0", "--warmup", "0", "--init",
                     rest, "--eval", folder + "/held_out.txt", "--eval-every", "1")
        found.append(math.exp(report["evaluations"][-1]["loss"]))
    return found


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--bin", required=True, help="folder of actorrun")
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--layers", type=int, default=8)
    options.add_argument("--width", type=int, default=96)
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("skips", type=float, nargs="*", metavar="SKIP", default=[0, .25])
    o = options.parse_args()
    o.bin = os.path.abspath(o.bin)
    os.chdir(pathlib.Path(__file__).parents[2])
    text = b"".join(pathlib.Path(f).read_bytes() for f in sorted(glob.glob("docs/*.md")))
    cut = len(text) * 9 // 10
    print(f"| seed | skipped in training | {' | '.join(LEFT_OUT)} | longer |\n| --- | --- |" + " --- |" * (len(LEFT_OUT) + 1),
          flush=True)
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder + "/train.txt").write_bytes(text[:cut])
        pathlib.Path(folder + "/held_out.txt").write_bytes(text[cut:])
        for seed in range(1, o.seeds + 1):
            for skip in o.skips:
                found = perplexities(o, folder, skip, seed)
                print(f"| {seed} | {skip:g} | {' | '.join(f'{x:.3f}' for x in found)} | "
                      f"{' and '.join(f'{100 * (x / found[0] - 1):+.1f} %' for x in found[1:])} |", flush=True)


main()
