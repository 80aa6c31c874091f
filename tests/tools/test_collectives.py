# SPDX-License-Identifier: Apache-2.0
"""Collectives of 2 to 8 emulated GPUs, in one process and in several: losses have the bits of sums and joins of parts,
and equal those of a CPU except for the last bits. Parts of unequal size are broadcast and summed member by member, and
parts along one dim become parts along another by an all-to-all. The calls are issued in an order that cannot deadlock. A
process that is killed, stalls, or whose NCCL fails in such a call ends the job, with its name.

labels: outside
needs: zeromq
"""
import os
import re
import subprocess
import time

from tool import BUILD, EMULATED, PATIENT, Runs, near, need_emulated, same_bits, words

need_emulated()
MODEL = ("gpt --layers 1 --width 8 --heads 4 --context 8 --vocab 257 --batch 24 --lr 1e-3 "
         "--data {reference}/tokens.u16")
run = Runs(MODEL, "--microbatches 2 --steps 2", EMULATED)


def kinds_of(folder):
    """Checks the recorded calls. Returns their kinds."""
    paths = [os.path.join(folder, name) for name in os.listdir(folder)]
    checked = subprocess.run([BUILD + "/tests/nccl_order", *paths], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    lines = [line.split("\t") for path in paths for line in open(path, encoding="utf-8")]
    return {line[3] for line in lines}


def collects(gpus, processes, options, *kinds, **environment):
    """Runs with collectives, which have to be of these kinds, and in parts."""
    folder = f"record.{gpus}.{processes}.{len(os.listdir())}"
    os.mkdir(folder)
    options = f"--devices cuda -n {processes} {options}"
    environment.update(SLUICE_EMULATED_GPUS=str(gpus))
    one = run(options, SLUICE_EMULATED_RECORD=os.path.abspath(folder), SLUICE_EMULATED_SEED=str(gpus + processes),
              **environment)
    seen = kinds_of(folder)
    assert seen == set(kinds), f"{options}: {seen}"
    same_bits(one, run(options + " --nccl channels", **environment))
    near(one, run(), 1e-5)
    return one


heads = "--sequence-attention heads --sequence "
collects(2, 2, heads + "2", "reduce", "swap")
collects(3, 1, "--data-parallel 3 --shard parameters", "reduce", "broadcast", "part", SLUICE_EMULATED_GUARD="1")
collects(4, 2, heads + "2 --data-parallel 2 --shard optimizer", "reduce", "swap", "scatter", "gather", "part",
         "broadcast")
collects(8, 1, "--data-parallel 8 --shard gradients", "reduce", "scatter", "gather", "part", "broadcast")
collects(8, 4, heads + "4 --data-parallel 2 --jitter 50", "reduce", "swap")


def fault(where, message, gpus, options):
    """The run has to fail soon, with this message. A busy machine may take a multiple of the second of patience."""
    begin = time.monotonic()
    ended = subprocess.run([EMULATED, *words(f"--quiet {PATIENT} --microbatches 2 --steps 2 --devices cuda {options} "
                                             + MODEL)], capture_output=True, text=True, check=False,
                           env={**os.environ, "SLUICE_EMULATED_FAULT": where, "SLUICE_EMULATED_GPUS": str(gpus),
                                "SLUICE_NCCL_SECONDS": "1"})
    assert ended.returncode == 1, f"{where}: status {ended.returncode}: {ended.stderr}"
    assert re.search(message, ended.stderr), f"{where}: no '{message}' in: {ended.stderr}"
    assert time.monotonic() - begin < 60, f"{where} took {time.monotonic() - begin:.0f} s"


GROUP = r"NCCL among cuda:0 \(process 0\), .*cuda:{} \(process {}\), at GPU .: {}"
fault("1:stall@4", GROUP.format(1, 1, "another member has not come for 1 s"), 2, "-n 2 " + heads + "2")
fault("2:stall@9", GROUP.format(2, 2, "another member has not come for 1 s"), 3,
      "-n 3 --data-parallel 3 --shard parameters")
fault("3:kill@6", "process 3 was killed", 8, "-n 4 --data-parallel 2 " + heads + "4")
fault("1:error@5", GROUP.format(3, 1, ".*remote error"), 4, "-n 2 --data-parallel 4 --shard parameters")
