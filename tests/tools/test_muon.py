# SPDX-License-Identifier: Apache-2.0
"""--optimizer muon: which parameters it updates and with which rates. The losses are the same over stages, grids,
shards and processes, when resumed, and in bf16. Bad settings are rejected.

labels: outside numbers
needs: zeromq
"""
import glob
import re

from tool import Runs, differ, near, same_bits, tensors

run = Runs("gpt --layers 2 --width 32 --heads 4 --context 16 --batch 8 --vocab 259 --data {reference}/tokens.u16",
           "--microbatches 2")
MUON = "--optimizer muon:lr=0.02,adamw-lr=1e-3 "

# ---- which parameters ------------------------------------------------------------------------------------------
whole = run(MUON + "--steps 3 --checkpoint c --every 3")
names = {name for path in glob.glob("c/step-3/*.safetensors") for name in tensors(path)}
params = {n for n in names if ":" not in n}
muon = {n[:-9] for n in names if n.endswith(":momentum")}
adamw = {n[:-2] for n in names if n.endswith(":m")}
assert adamw == {n[:-2] for n in names if n.endswith(":v")} and not muon & adamw and muon | adamw == params
assert muon == {n for n in params if re.search(r"h\.[01]\.(attn|mlp)\.c_(attn|proj|fc)\.weight", n)} and len(muon) == 8

# ---- rates and groups ------------------------------------------------------------------------------------------
alone = run(MUON + "--steps 3 --group *:optimizer=adamw")
near(alone, run("--steps 3 --optimizer adamw:lr=1e-3"), 1e-6)
some = run(MUON + "--steps 3 --group mlp:optimizer=adamw")
differ(alone, some)
for other in (some, run("--steps 3 --optimizer muon:lr=0.02,adamw-lr=2e-3"),
              run("--steps 3 --optimizer muon:lr=0.03,adamw-lr=1e-3"),
              run(MUON + "--steps 3 --group h.*.attn:lr-scale=0.5 --group wte:lr=1e-4,optimizer=muon")):
    differ(whole, other)

# ---- all grids -------------------------------------------------------------------------------------------------
whole = run(MUON + "--steps 6")
for how in ("--stages 2", "--stages 2 -n 2 --schedule zb-h1", "--data-parallel 2",
            "--data-parallel 2 --shard optimizer", "--data-parallel 2 --shard gradients",
            "--data-parallel 2 --shard parameters -n 2", "--tensor 2",
            "--tensor 2 --stages 2 -n 2", "--data-parallel 2 --tensor 2 --shard parameters",
            "--sequence 2 --shard optimizer"):
    near(whole, run(MUON + "--steps 6 " + how), 1e-6)
EXACT = MUON + "--steps 4 --exact "
for how in ("--data-parallel 2 --shard gradients", "--tensor 2 --stages 2"):
    same_bits(run(EXACT), run(EXACT + how))

# ---- resumed ---------------------------------------------------------------------------------------------------
begun = run(MUON + "--steps 3 --checkpoint d --every 3")
same_bits(whole, begun.then(run(MUON + "--steps 6 --checkpoint d --resume")))
begun = run(MUON + "--steps 3 --checkpoint e --every 3 --tensor 2 --data-parallel 2 --shard optimizer")
near(whole, begun.then(run(MUON + "--steps 6 --checkpoint e --resume --stages 2")), 1e-6)
run.refused("--optimizer is adamw, but", "--steps 9 --checkpoint e --resume --optimizer adamw")

# ---- rejected settings -----------------------------------------------------------------------------------------
for text, options in (
        ("muon supports Nesterov momentum only", "muon:nesterov=0"),
        ("group ln_1: muon updates matrices only, but ", "muon --group ln_1:optimizer=muon"),
        ("group h: optimizer lion: this run can use muon or adamw", "muon --group h:optimizer=lion"),
        ("group h: optimizer muon: this run can use adamw", "adamw --group h:optimizer=muon"),
        ("momentum must be in [0, 1)", "muon:momentum=1")):
    run.refused(text, "--steps 1 --optimizer " + options)
