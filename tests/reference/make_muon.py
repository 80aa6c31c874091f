#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints muon.txt: steps of torch.optim.Muon on a few matrices, for test_kernels_muon.

    python make_muon.py >muon.txt      (needs torch 2.9 or later)

Each case is a block: `case ROWS COLUMNS key=value ...`, the parameter, then per step the gradient
and, after a bar, the parameter after the step, in C's %a format. PyTorch rounds the direction to
bf16, which leaves two digits; here the same code runs in f64.
"""
import random

import torch

torch.bfloat16 = torch.float64

STEPS = 3
CASES = [(2, 2, dict(lr=0.1, momentum=0.95, weight_decay=0.0)),
         (3, 7, dict(lr=0.02, momentum=0.95, weight_decay=0.1)),
         (9, 4, dict(lr=0.05, momentum=0.9, weight_decay=0.3)),
         (1, 5, dict(lr=0.02, momentum=0.8, weight_decay=0.0)),
         (6, 1, dict(lr=0.02, momentum=0.95, weight_decay=0.1))]


def f32(x):
    return torch.tensor(x, dtype=torch.float32).item()


def draw(rows, columns):
    return torch.tensor([[f32(random.gauss(0, 1)) for _ in range(columns)] for _ in range(rows)],
                        dtype=torch.float64)


def words(matrix):
    return " ".join(x.hex() for x in matrix.detach().flatten().tolist())


random.seed(11)
for rows, columns, settings in CASES:
    settings = {k: f32(v) for k, v in settings.items()}
    p = draw(rows, columns).requires_grad_()
    print("case", rows, columns, *(f"{k}={v.hex()}" for k, v in settings.items()))
    print("from", words(p))
    optimizer = torch.optim.Muon([p], nesterov=True, **settings)
    for step in range(STEPS):
        g = torch.zeros_like(p) if rows == 9 and step == 1 else draw(rows, columns)
        p.grad = g.clone()
        optimizer.step()
        print("step", words(g), "|", words(p))
