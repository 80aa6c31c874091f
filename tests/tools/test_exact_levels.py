# SPDX-License-Identifier: Apache-2.0
"""--exact: all CPU levels with fused multiply-add give the same numbers: losses, parameters and optimizer state of a
GPT with each optimizer, a LLaMA, a Mixtral and a convolutional net.

labels: outside
"""
from tool import ACTORRUN, ends, read

SHAPE = " --layers 2 --width 56 --heads 4 --context 48 --batch 4 --data {reference}/text.txt"
CASES = ("gpt" + SHAPE, "llama --kv-heads 2 --window 40" + SHAPE, "mixtral" + SHAPE,
         *(f"--optimizer {rule} gpt" + SHAPE for rule in ("adamw", "adam", "sgd", "lion", "muon")),
         "{source}/examples/digits.c --data {source}/examples/digits.u8 --batch 8")
for case in CASES:
    certificates = set()
    for level in "1234":  # or the best one that the CPU has
        ends(0, ACTORRUN, f"--quiet --exact --steps 3 --certify c {case}", SLUICE_CPU_LEVEL=level)
        certificates.add(read("c"))
    assert len(certificates) == 1, f"{case}: levels have other numbers"
