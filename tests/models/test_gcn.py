#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A graph network over stages, chunk by chunk: it learns from the neighbours, every process layout and schedule gives the
same losses, and each vertex crosses each stage boundary once per direction. Trained in chunks, with embeddings and
gradients of the step before, it is about as accurate as trained on the whole graph, which may come from a file.
labels: numbers outside
needs: zeromq
"""
import random

from tool import Runs, same_bits, write

GCN = "{source}/examples/gcn.c"


def accuracy(model, options):
    """Returns the accuracy on unlabelled vertices at the last evaluation. The first one's records are empty."""
    return Runs(model, "--steps 40 --eval-every 20")(options).whole["evaluations"][-1]["metrics"]["accuracy"]


assert accuracy(GCN, "") > .9 and accuracy(GCN + " --edges 0", "") < .5 and accuracy(GCN, "--pieces 8") > .7

run = Runs(GCN, "--steps 6")
for options in ("--stages 2 --schedule zb-h1", "--stages 2 --piece-order layers", "--stages 3 --schedule seq1f1b",
                "--stages 2 --recompute full"):
    same_bits(run("--pieces 8"), run("--pieces 8 " + options))
for stages in (2, 4):
    report = run(f"--pieces 8 --stages {stages} -n {stages}")
    same_bits(run("--pieces 8"), report)
    # 2000 vertices of 32 values of 4 bytes, and the labels for the last stage
    assert report.moved("pipeline") == 2 * (stages - 1) * 2000 * 32 * 4 + 2000 * 4, report.call
run.refused("a batch of 1 rows cannot be cut into 2 equal microbatches", "--microbatches 2")

# Four groups of 40 vertices, in a file: each vertex has six edges to its group and one elsewhere.
draw = random.Random(1)
write("graph", "".join(
    f"{i // 40} {' '.join(str(v) for v in [*draw.sample(range(i // 40 * 40, i // 40 * 40 + 40), 6), draw.randrange(160)])}\n"
    for i in range(160)))
model = GCN + " --graph graph --features 16 --lr 0.003"
found = {}
for pieces in (1, 4, 8):
    Runs(model, "--steps 200 --lr-schedule cosine:decay-steps=200")(f"--pieces {pieces} --save w.safetensors")
    whole = Runs(model, "--steps 1 --init w.safetensors --eval-every 1")("--lr 0")
    found[pieces] = whole.whole["evaluations"][-1]["metrics"]["accuracy"]
assert found[1] > .85 and min(found.values()) > found[1] - .06, found

for text, why in (("", "needs two vertices"), ("0\n", "needs two vertices"), ("0 1\nx 0\n", ":2: must be CLASS VERTEX"),
                  ("0 1\n1 2\n", ":2: no vertex 2; there are 2"), ("0 1\n1 -1\n", ":2: must be CLASS"),
                  ("0 1\n5000\n", ":2: must be CLASS"), ("0 1\0\n1 0\n", ":1: must be CLASS")):
    write("bad", text)
    Runs(GCN + " --graph bad").refused("graph bad.*" + why, "--steps 1")
Runs(GCN + " --graph nowhere").refused("graph nowhere: cannot be opened", "--steps 1")
