# SPDX-License-Identifier: Apache-2.0
"""--exact: all CPU levels with fused multiply-add give the same numbers: losses, parameters and optimizer state of a
GPT with each optimizer, a LLaMA, a Mixtral, a convolutional net, and LLaMAs whose frozen weights are in blocks.

labels: outside
"""
from tool import ACTORRUN, ends, read

SHAPE = " --layers 2 --width 56 --heads 4 --context 48 --batch 4 --data {reference}/text.txt"
KINDS = "q4_0", "q8_0", "q4_k", "bf16"
WIDE = "llama --layers 1 --width 256 --heads 4 --ffn 512 --context 24 --batch 3 --data {reference}/text.txt"
for kind in KINDS:
    ends(0, ACTORRUN, f"--quiet --steps 0 --save {kind}.gguf:{kind} {WIDE}")
CASES = ("gpt" + SHAPE, "llama --kv-heads 2 --window 40" + SHAPE, "mixtral" + SHAPE,
         *(f"--optimizer {rule} gpt" + SHAPE for rule in ("adamw", "adam", "sgd", "lion", "muon")),
         *(f"--init {kind}.gguf --frozen stored --lora mlp.*=2 {WIDE}" for kind in KINDS),
         "{source}/examples/digits.c --data {source}/examples/digits.u8 --batch 8")
for case in CASES:
    certificates = set()
    for level in "1234":  # or the best one that the CPU has
        ends(0, ACTORRUN, f"--quiet --exact --steps 3 --certify c {case}", SLUICE_CPU_LEVEL=level)
        certificates.add(read("c"))
    assert len(certificates) == 1, f"{case}: levels have other numbers"
