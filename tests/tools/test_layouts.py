#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Blocks of one model have different layouts, which the search chooses: rows where activations are large, tensors where
weights are. Losses are those of one device, with the same bits on stages, and bytes moved and memory are those planned.

labels: numbers
"""
import re

from tool import ACTORRUN, Runs, ends, near, parse, same_bits

MODEL = ("{source}/tests/bench/pyramid.c --width 32 --heads 2 --levels 3 --depth 1 --deep 1 --context 64 --window 16 --batch 8 "
         "--data {reference}/text.txt")
run = Runs(MODEL, "--steps 4 --microbatches 2")


def used(options):
    """Returns the memory of each device and the bytes that a step moves, by purpose."""
    ends(0, ACTORRUN, f"--quiet --steps 2 --microbatches 2 --report r.json {options} {MODEL}")
    report = parse("r.json")
    return [d["peak_bytes"]["total"] for d in report["devices"]], report["runtime"]["moved_bytes_per_step"]


shown = ends(0, ACTORRUN, f"--dry-run --show-sbp --microbatches 2 --parallel 4 {MODEL}").stdout
assert re.search(r"linear\.\d +S0 B -> S0", shown) and re.search(r"linear\.\d +B S0 -> S2", shown), shown

for grid in ("--parallel 4", "--data-parallel 2 --tensor 2"):
    near(run(), run(grid), 1e-6)
    same_bits(run(grid), run(grid + " --stages 2"))
    assert used(grid) == used(grid + " --clock virtual"), grid
