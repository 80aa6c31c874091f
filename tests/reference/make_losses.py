# SPDX-License-Identifier: Apache-2.0
"""Writes losses.txt: results of PyTorch's cross_entropy with ignored targets, smoothing and weights.

    pip install torch
    make_losses.py > losses.txt

Each line is a case: name, rows, classes, the ignored target, smoothing, the number of weights; then the
weights, logits, targets, the loss, and its gradient with respect to the logits. Computed in double
precision from values that fit in floats. tests/graph/test_losses.c reads it.
"""
import torch

torch.manual_seed(11)
ROWS, CLASSES = 6, 17


def coarse(t):
    return torch.round(t * 64).double() / 64


def case(name, ignore=-100, smoothing=0.0, weighted=False, ignored=(), scale=2.0):
    logits = coarse(torch.randn(ROWS, CLASSES) * scale).requires_grad_()
    targets = torch.randint(1, CLASSES, (ROWS,))
    targets[list(ignored)] = ignore
    weight = coarse(torch.rand(CLASSES) + 0.25) if weighted else None
    loss = torch.nn.functional.cross_entropy(logits, targets, weight, ignore_index=ignore,
                                             label_smoothing=smoothing)
    loss.backward()
    weights = [] if weight is None else weight.tolist()
    print(name, ROWS, CLASSES, ignore, smoothing, len(weights), *map(repr, weights),
          *map(repr, logits.flatten().tolist()), *targets.tolist(),
          "{:.10g}".format(loss.item()), *map("{:.8g}".format, logits.grad.flatten().tolist()))


print("# made by make_losses.py with PyTorch", torch.__version__)
case("plain")
case("ignored", ignored=[1, 4])
case("padding", ignore=0, ignored=[0, 1, 5])
case("class", ignore=7, ignored=[3])
case("smoothed", smoothing=0.125)
case("smoothed-ignored", smoothing=0.125, ignored=[0, 5])
case("uniform", smoothing=1.0)
case("weighted", weighted=True)
case("weighted-ignored", weighted=True, ignored=[2])
case("all", smoothing=0.25, weighted=True, ignored=[1, 2], ignore=3)
case("one", ignored=[0, 1, 2, 3, 4], weighted=True, smoothing=0.375)
case("sharp", scale=30.0, smoothing=0.125, weighted=True)
