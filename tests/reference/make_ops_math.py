# SPDX-License-Identifier: Apache-2.0
"""Writes ops_math.txt: PyTorch's results and gradients of the arithmetic ops.

    pip install torch
    make_ops_math.py > ops_math.txt

A case is a line `case NAME` and one line per array: `in` for each input, `out`, `dy` (the gradient of
the output), and `grad` for each input. A line has dims, a colon, and values in C's %a format.
tests/graph/test_torch_math.c has a model for each name.
"""
import re

import torch

torch.manual_seed(7)


def draw(*dims, low=-1.5, high=1.5):
    return (low + (high - low) * torch.rand(dims)).requires_grad_()


x = lambda **k: draw(2, 3, 5, **k)
CASES = {
    "silu": (torch.nn.functional.silu, x()),
    "sigmoid": (torch.sigmoid, x()),
    "exp": (torch.exp, x()),
    "log": (torch.log, x(low=0.1)),
    "sqrt": (torch.sqrt, x(low=0.1)),
    "rsqrt": (torch.rsqrt, x(low=0.1)),
    "abs": (torch.abs, x()),
    "clamp": (lambda a: torch.clamp(a, -0.5, 0.75), x()),
    "neg": (torch.neg, x()),
    "scale": (lambda a: a * -2.5, x()),
    "add_constant": (lambda a: a + 0.75, x()),
    "add": (torch.add, x(), draw(5)),
    "sub": (torch.sub, draw(3, 1), x()),
    "mul": (torch.mul, x(), draw(2, 1, 5)),
    "div": (torch.div, x(), draw(3, 5, low=0.5)),
    "maximum": (torch.maximum, x(), draw(3, 1)),
    "minimum": (torch.minimum, x(), draw(1)),
    "where": (lambda a, b: torch.where(a < b, a, 2 * b), x(), draw(5)),
    "sum": (lambda a: a.sum((0, 2)), x()),
    "mean": (lambda a: a.mean(1, keepdim=True), x()),
    "max": (lambda a: a.max(1).values, x()),
    "softmax": (lambda a: a.softmax(-1), x()),
    "softmax_1": (lambda a: a.softmax(1), x()),
    "log_softmax": (lambda a: a.log_softmax(-1), x()),
    "matmul": (torch.matmul, draw(2, 1, 3, 4), draw(3, 4, 5)),
    "matmul_t": (lambda a, b: a.transpose(-1, -2) @ b.transpose(-1, -2), draw(2, 4, 3), draw(2, 5, 4)),
    "gelu_erf": (torch.nn.functional.gelu, x(low=-6, high=6)),
    "erf": (torch.erf, x()),
    "sin": (torch.sin, x(low=-9, high=9)),
    "cos": (torch.cos, x(low=-9, high=9)),
    "softplus": (torch.nn.functional.softplus, x(low=-30, high=30)),
    "floor": (lambda a: torch.floor(a) + a, x(low=-5, high=5)),
    "detach": (lambda a: a.detach() * a, x()),
}


def number(v):
    return re.sub(r"\.?0*p", "p", float(v).hex())


def line(word, t):
    print(word, *t.shape, ":", *map(number, t.detach().flatten()))


for name, (fn, *inputs) in CASES.items():
    out = fn(*inputs)
    dy = torch.rand(out.shape) - 0.5
    out.backward(dy)
    print("case", name)
    for t in inputs:
        line("in", t)
    line("out", out)
    line("dy", dy)
    for t in inputs:
        line("grad", t.grad)
