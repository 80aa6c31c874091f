# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts on emulated GPUs: losses equal those of the CPU except for the last bits. They have the same
bits on one GPU and on stages in two processes, also with experts on several GPUs.

labels: outside
needs: zeromq
"""
import os
import re

from tool import EMULATED, Runs, ends, near, need_emulated, same_bits

need_emulated()
os.environ["SLUICE_EMULATED_GPUS"] = "2"
MODEL = (" --layers 2 --width 16 --heads 2 --context 8 --batch 4 --lr 1e-3 --vocab 259 --experts 4 --expert-ffn 24 "
         "--data {reference}/tokens.u16 ")
GUARD = {"SLUICE_EMULATED_GUARD": "1"}
FAR = " --devices cuda -n 2 --stages 2 --schedule zb-h1 --jitter 100 "
run = Runs("mixtral" + MODEL, "--microbatches 2 --steps 2", EMULATED)
one = run("--devices cuda:0", **GUARD)
near(run(), one, 1e-5)
same_bits(one, run(FAR))
near(run(), run("--devices cuda:0 --dtype bf16"), 1e-3)

# Experts on two GPUs: in one process, where no kernel dereferences the other GPU's addresses, and in two processes, on
# two stages.
APART = "--data-parallel 2 --expert-parallel 2 "
parts = run("--devices cuda " + APART)
near(run(), parts, 1e-5)
same_bits(parts, run(FAR + APART, SLUICE_EMULATED_GPUS="4"))
near(run(), run("--devices cuda --dtype bf16 " + APART, **GUARD), 1e-3)
err = ends(1, EMULATED, f"--quiet --devices cuda {APART} --expert-rows 1.01 {run.model}").stderr
assert re.search(r"actor F[^ ]* on cuda:[01]: op h\.[01]/.*own_ids.*: [0-9]+ rows come to device [01] of the stage "
                 r".*--expert-rows [0-9.]+ would have been enough", err), err

run = Runs("qwen-moe" + MODEL + "--shared-ffn 16 --qk-norm --expert-capacity 1.25", run.options, EMULATED)
near(run(), run("--devices cuda --stages 2"), 1e-5)
tallies = run().whole["tallies"]
assert tallies and tallies == run("--devices cuda --stages 2").whole["tallies"], "other tokens are dropped"
