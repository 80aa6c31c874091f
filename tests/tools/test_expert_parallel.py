# SPDX-License-Identifier: Apache-2.0
"""--expert-parallel: a run with experts on two processes continues bit for bit after one of them is killed. From a
checkpoint with another number of devices per expert it continues up to rounding. On the virtual clock the bytes of
exchanged rows are exact. A run that receives more rows than it has room for ends with their number. Invalid settings
are rejected with an error that names them.

labels: outside
needs: zeromq
"""
import os
import shutil
import signal
import subprocess
import time

from tool import ACTORRUN, PATIENT, Report, Runs, near, read, same_bits, words

SMALL = " --layers 2 --width 32 --heads 4 --context 16 --batch 8 --data {reference}/text.txt "
run = Runs("mixtral" + SMALL + "--experts 8 --expert-ffn 16", "--microbatches 2")

# ---- checkpoints -----------------------------------------------------------------------------------------------
whole = run("--steps 6 --data-parallel 4 --expert-parallel 4").last(3)
# Experts with a grid of their own: over all four devices, two per tensor half, or all.
for grid, begun, resumed in (("--data-parallel 4", "--shard gradients", ""),
                             ("--data-parallel 2 --tensor 2", "", "--expert-tensor 1")):
    run(f"--steps 3 {grid} --expert-parallel 4 {begun} --checkpoint {len(grid)} --every 3")
    for experts in "421":
        shutil.copytree(str(len(grid)), grid + experts)
        near(whole, run(f"--steps 6 {grid} --expert-parallel {experts} {resumed} --resume "
                        f"--checkpoint '{grid}{experts}'"), 1e-6)
for n in "12":  # with one file or several, the weights are the same
    run(f"-n {n} --steps 2 --data-parallel 2 --expert-parallel 2 --save {n}.safetensors")
assert read("1.safetensors") == read("2.safetensors"), "two processes have other weights"


# A process is killed during training; the job continues from its last checkpoint.
def children(pid):
    return subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=True).stdout.split()


TWO = "-n 2 --steps 60 --data-parallel 2 --expert-parallel 2 "
with subprocess.Popen([ACTORRUN, *words(f"{PATIENT} --restarts 1 --microbatches 2 {TWO} --checkpoint k --every 5 "
                                        f"--report killed.json {run.model}")],
                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
    end = time.monotonic() + 60
    while not os.path.exists("k/latest") and time.monotonic() < end:
        time.sleep(0.05)
    os.kill(int(children(job.pid)[-1]), signal.SIGKILL)
    said, _ = job.communicate(timeout=100)
assert job.returncode == 0 and "killed by signal 9" in said, said
same_bits(Report.read("killed.json").last(5), run(TWO).last(5))

# ---- bytes -----------------------------------------------------------------------------------------------------
# 4 L M tokens k h 4 (EP-1)/EP, if all experts get the same number of rows.
for data, tensor, experts in ((4, 1, 2), (4, 1, 4), (2, 2, 4), (2, 4, 2), (4, 2, 8), (4, 2, 1)):
    for machine in ("", "--machine h100-sxm-80gb --layout data,tensor,expert,stage"):  # all are planned, or one for all
        got = run(f"--clock virtual --steps 2 --data-parallel {data} --tensor {tensor} --expert-parallel {experts} "
                  f"--expert-tensor 1 {machine}").moved("expert")
        assert got == 4 * 2 * 2 * 64 * 2 * 32 * 4 * (experts - 1) // experts, (data, tensor, experts, machine, got)

# ---- rejected settings -----------------------------------------------------------------------------------------
GRID, FOUR, EXPERTS = "--data-parallel 2 --tensor 2 ", "--data-parallel 4 ", "--expert-parallel "
ROOM, FEW = "rows come to device .* of the stage for its experts .* room for 32: --expert-rows", \
    "expert-parallel 4: .*grouped_linear.* has only 3 experts"
for text, options, model in (
        (ROOM, FOUR + EXPERTS + "4 --expert-rows 1", ""), (ROOM, GRID + EXPERTS + "4 --expert-rows 1", ""),
        ("expert-parallel 3: must divide the 4 devices of --data-parallel 2 and --tensor 2", GRID + EXPERTS + "3", ""),
        (FEW, GRID + EXPERTS + "4", "--experts 3"), (FEW, FOUR + EXPERTS + "4", "--experts 3"),
        ("expert-parallel 2: the tokens of h.*too few positions, and too few rows",
         FOUR + "--tensor 2 --expert-tensor 1 " + EXPERTS + "2", "--context 1"),
        ("expert-tensor 2: must be 1 .*--tensor .*4",
         "--data-parallel 2 --tensor 4 --expert-tensor 2 --expert-parallel 2", ""),
        ("expert-tensor 2: .*if --expert-parallel divides", GRID + "--expert-tensor 2 " + EXPERTS + "4", ""),
        ("expert-parallel 4: not with --parallel 4, which leaves the grid open", "--parallel 4 " + EXPERTS + "4", ""),
        ("expert-parallel 3: must divide --data-parallel 4", FOUR + EXPERTS + "3", ""),
        ("expert-rows 0.5: must be at least 1", FOUR + EXPERTS + "4 --expert-rows 0.5", ""),
        ("expert-rows 2: needs --expert-parallel", FOUR + "--expert-rows 2", ""),
        ("axis expert is missing", "--data-parallel 2 --layout data,stage " + EXPERTS + "2", ""),
        ("too few rows", "--data-parallel 8 " + EXPERTS + "2", "")):
    Runs(f"{run.model} {model}", "--microbatches 2 --steps 1").refused(text, options)
Runs("llama" + SMALL).refused("expert-parallel 2: the model has no experts", "--data-parallel 2 " + EXPERTS + "2")
