#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An exported T5, an encoder of four layers and a decoder of four that reads its last values, on up to eight stages
(tests/reference/pytorch_export.py). Ten steps have PyTorch's losses, and the same bits on any number of stages and
processes and with any schedule. Stages hold each parameter once, and move the bytes that the plan predicts.
labels: numbers outside
needs: libzip zeromq
"""
import json
import tarfile

from tool import SOURCE, Runs, read, same_bits

with tarfile.open(SOURCE + "/tests/reference/pytorch/t5.tar.gz") as archive:
    archive.extractall(".")
figures = json.loads(read("t5/figures.json"))
run = Runs("t5/model.pt2 --input ids=t5/ids.npy --input labels=t5/labels.npy",
           "--steps 10 --microbatches 2 --lr 1e-3 --min-lr 1e-3 --warmup 0 --weight-decay 0 --clip 0")
one = run()
assert all(abs(x / y - 1) < 1e-6 for x, y in zip(one.losses, figures["losses_of_halves"])), (one.losses, figures)

(alone,) = one.whole["devices"]
for stages, options in ((2, ""), (4, "--schedule 1f1b"), (8, "--schedule gpipe"), (8, "--schedule gpipe --recompute full")):
    report = run(f"--stages {stages} {options}")
    same_bits(one, report)
    for use in ("parameters", "optimizer"):
        assert sum(d["peak_bytes"][use] for d in report.whole["devices"]) == alone["peak_bytes"][use], (report.call, use)
    moved = report.moved("pipeline")
    assert moved == report.whole["predicted"]["moved_bytes_per_step"]["pipeline"], (report.call, moved)
    # Values cross each boundary within the encoder and the decoder, and from the encoder to each stage of the decoder,
    # forward and, as gradients, back: 4 rows of 16 or 10 positions of 32 numbers of 4 bytes.
    assert moved >= 2 * 4 * 32 * 4 * ((stages // 2 - 1) * (16 + 10) + stages // 2 * 16), (report.call, moved)
same_bits(one, run("--stages 8 --schedule zb-h1 -n 2"))
