#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints optimizers.txt: steps of PyTorch's optimizers on a few numbers, for test_kernels_optimizers.

    python make_optimizers.py >optimizers.txt      (needs torch)

Each case is a block: `case NAME key=value ...`, then per step the gradient and, after a bar, the
parameter after the step, in C's %a format. PyTorch has no Lion; this script computes its step in
f64 as in the paper (Chen et al., arXiv 2302.06675, Algorithm 2).
"""
import math
import random

import torch

STEPS, SIZE = 6, 5


def lion(p, m, g, lr, beta1, beta2, decay):
    for i in range(SIZE):
        to = beta1 * m[i] + (1 - beta1) * g[i]
        p[i] -= lr * (math.copysign(1, to) * (to != 0) + decay * p[i])
        m[i] = beta2 * m[i] + (1 - beta2) * g[i]


class Lion:
    def __init__(self, params, lr, beta1, beta2, weight_decay):
        self.p, self.m = params[0], [0.0] * SIZE
        self.settings = lr, beta1, beta2, weight_decay

    def step(self):
        values = self.p.detach().tolist()
        lion(values, self.m, self.p.grad.tolist(), *self.settings)
        with torch.no_grad():
            self.p.copy_(torch.tensor(values, dtype=self.p.dtype))


def f32(x):
    return torch.tensor(x, dtype=torch.float32).item()


def adam(kind):
    return lambda params, lr, beta1, beta2, eps, weight_decay: kind(
        params, lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay, foreach=False)


def sgd(params, lr, weight_decay, momentum=0.0, nesterov=0):
    return torch.optim.SGD(params, lr=lr, momentum=momentum, weight_decay=weight_decay,
                           nesterov=bool(nesterov), foreach=False)


CASES = [
    ("adamw", adam(torch.optim.AdamW),
     dict(lr=0.01, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1)),
    ("adam", adam(torch.optim.Adam),
     dict(lr=0.01, beta1=0.8, beta2=0.99, eps=1e-6, weight_decay=0.0)),
    ("adam", adam(torch.optim.Adam),
     dict(lr=0.01, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.3)),
    ("sgd", sgd, dict(lr=0.1, weight_decay=0.0)),
    ("sgd", sgd, dict(lr=0.1, weight_decay=0.2, momentum=0.9)),
    ("sgd", sgd, dict(lr=0.1, weight_decay=0.1, momentum=0.8, nesterov=1)),
    ("lion", Lion, dict(lr=0.003, beta1=0.9, beta2=0.99, weight_decay=0.5)),
]

random.seed(7)
for name, make, settings in CASES:
    settings = {k: v if k == "nesterov" else f32(v) for k, v in settings.items()}
    p = torch.tensor([random.gauss(0, 1) for _ in range(SIZE)], dtype=torch.float64)
    p = p.float().double().requires_grad_()
    print("case", name, *(f"{k}={float(v).hex()}" for k, v in settings.items()))
    print("from", *(x.hex() for x in p.tolist()))
    optimizer = make([p], **settings)
    for _ in range(STEPS):
        g = [f32(random.gauss(0, 1)) for _ in range(SIZE)]
        p.grad = torch.tensor(g, dtype=torch.float64)
        optimizer.step()
        print("step", *(x.hex() for x in g), "|", *(x.hex() for x in p.tolist()))
