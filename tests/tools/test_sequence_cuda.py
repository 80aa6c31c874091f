# SPDX-License-Identifier: Apache-2.0
"""Sequences in a ring of emulated GPUs. Losses equal those of the CPU except for the last bits: chunk by chunk, in
pieces, without peer access, and of devices that have both ends of a sequence. Two processes give the same bits.

labels: outside
needs: zeromq
"""
from tool import EMULATED, Runs, near, need_emulated, same_bits

need_emulated()
run = Runs("llama --layers 1 --width 8 --heads 2 --kv-heads 1 --ffn 8 --vocab 257 --context 13 --batch 1 "
           "--data {reference}/text.txt", "--microbatches 1 --steps 2", EMULATED)


def ring(options, **environment):
    return run("--devices cuda --sequence 2 --sequence-attention ring " + options, SLUICE_EMULATED_GPUS="2",
               **environment)


near(run(), ring("--recompute full"), 1e-5)
near(run(), ring("--pieces 2"), 1e-5)
same_bits(ring("--pieces 2"), ring("--pieces 2 --recompute full -n 2"))
near(run(), ring("--sequence-layout contiguous", SLUICE_EMULATED_PEERS="0", SLUICE_EMULATED_GUARD="1"), 1e-5)

# Positions of two chunks, in a table and as angles; in an evaluation the last step of the ring hands on no logarithms.
for model in ("gpt", "llama"):
    small = Runs(model + " --layers 1 --width 8 --heads 2 --vocab 257 --context 16 --batch 1 --data {reference}/text.txt",
                 "--microbatches 1 --steps 2 --eval {reference}/text.txt --eval-every 1 --eval-rows 4", EMULATED)
    near(small(), small("--devices cuda --sequence 2 --sequence-layout zigzag", SLUICE_EMULATED_GPUS="2"), 1e-5)
