# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs change how a job's kernels are launched, not what they compute: losses have the same bits with and
without graphs, whichever slots rotate. The report gives the number of firings that ran as graphs, and the durations of
calls, which --profile reads.

labels: outside
"""
import json
import re

from tool import EMULATED, Runs, need_emulated, same_bits, write

need_emulated()
run = Runs("gpt --layers 1 --width 8 --heads 1 --context 4 --batch 8 --lr 1e-3 --warmup 3 "
           "--data {reference}/tokens.u16", "--microbatches 8 --steps 3", EMULATED)
CASES = (("--devices cuda", "1"), ("--devices cuda:0,0 --schedule zb-h1 --jitter 100", "1"),
         ("--devices cuda --data-parallel 2 --microbatches 2 --steps 4", "2"),
         ("--devices cuda --stages 2 --pieces 2 --schedule seq1f1b --microbatches 4", "1"))


def replayed(report):
    return sum(map(int, re.findall(r'"replayed_firings": ([0-9]+)', json.dumps(report.whole))))


for options, gpus in CASES:
    without, graphs = (run(options, SLUICE_CUDA_GRAPHS=on, SLUICE_EMULATED_GPUS=gpus) for on in "01")
    same_bits(without, graphs)
    assert len(graphs.bits) >= 3 and not replayed(without), "graphs that nobody wants"
    assert replayed(graphs) >= 5, f"{options}: only {replayed(graphs)} firings were graphs"
auto = run("--devices cuda", SLUICE_CUDA_GRAPHS="auto")
same_bits(auto, run("--devices cuda", SLUICE_CUDA_GRAPHS="1", SLUICE_EMULATED_GUARD="1"))

# The report has the durations of calls.
assert '"ops": [{' in json.dumps(auto.whole), "no call was timed"
write("auto.json", json.dumps(auto.whole))
profiled = run("--devices cuda --stages 2 --steps 1 --profile auto.json")
assert '"profile"' in json.dumps(profiled.whole), "--profile is not used"
