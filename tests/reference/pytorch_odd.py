#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports tiny modules that are unusual in one way each, like pytorch_export.py.

    python3 pytorch_odd.py --out DIR [--pack FILE]

Writes DIR/odd/NAME.pt2 for each module, NAME.INPUT.npy for its inputs, and losses.json: what is unusual about each, its
inputs and calls, and, if it has a loss, the loss, all gradients, and the buffers after the step. With --pack, FILE
contains all of it; the tests use pytorch/odd.tar.gz.
"""
import argparse
import json
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

from pytorch_export import pack, rewrite

KINDS = {}  # name: the module's class, what is unusual


def odd(what):
    def keep(cls):
        KINDS[cls.__name__] = (cls, what)
        return cls
    return keep


class Base(torch.nn.Module):
    """A linear layer and a mean square loss; inputs x[4,6] and y[4,3]."""

    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(6, 3)

    def inputs(self):
        return dict(x=torch.randn(4, 6), y=torch.randn(4, 3))

    def forward(self, x, y):
        return F.mse_loss(self.line(x), y)


@odd("nothing")
class plain(Base):
    pass


@odd("parameters, inputs and loss of float64")
class float64(Base):
    def __init__(self):
        super().__init__()
        self.double()

    def inputs(self):
        return {n: t.double() for n, t in super().inputs().items()}


@odd("parameters of bfloat16")
class bfloat16(Base):
    def __init__(self):
        super().__init__()
        self.bfloat16()

    def forward(self, x, y):
        return F.mse_loss(self.line(x.bfloat16()).float(), y)


@odd("a complex tensor inside")
class complex_inside(Base):
    def forward(self, x, y):
        turned = torch.view_as_complex(x.view(4, 3, 2)) * torch.polar(torch.ones(3), torch.arange(3.0))
        return F.mse_loss(self.line(torch.view_as_real(turned).flatten(1)), y)


@odd("calls that few know, one of them twice")
class unknown_calls(Base):
    def forward(self, x, y):
        h = torch.special.bessel_j0(torch.special.bessel_j0(self.line(x)))
        return F.mse_loss(torch.fft.rfft(h).abs().sum(1, keepdim=True).expand(4, 3), y)


@odd("one parameter under two names")
class tied(Base):
    def __init__(self):
        super().__init__()
        self.other = torch.nn.Linear(6, 3)
        self.other.weight = self.line.weight

    def forward(self, x, y):
        return F.mse_loss(self.line(x) * self.other(x), y)


@odd("buffers that are pieces of one storage, one of them transposed")
class pieces(Base):
    def __init__(self):
        super().__init__()
        whole = torch.randn(3, 12)
        self.register_buffer("whole", whole)
        self.register_buffer("right", whole[:, 6:])
        self.register_buffer("turned", whole[:, 6:].t())

    def forward(self, x, y):
        return F.mse_loss(self.line(x) + x @ self.turned + x @ self.whole[:, :6].t() * self.right.sum(), y)


@odd("a parameter stored transposed")
class strided(Base):
    def __init__(self):
        super().__init__()
        self.line.weight = torch.nn.Parameter(torch.randn(6, 3).t())


@odd("a parameter that is frozen, one that nothing reads")
class frozen(Base):
    def __init__(self):
        super().__init__()
        self.line.bias.requires_grad_(False)
        self.idle = torch.nn.Parameter(torch.randn(2))


@odd("a constant made in forward")
class constant(Base):
    def forward(self, x, y):
        return F.mse_loss(self.line(x) * torch.tensor([1.0, 2.0, 4.0]), y)


@odd("a region without gradients, which is a graph in the graph")
class no_grad(Base):
    def forward(self, x, y):
        with torch.no_grad():
            scale = self.line(x).abs().mean() + 1
        return F.mse_loss(self.line(x) / scale, y)


@odd("a choice by data between two graphs")
class choice(Base):
    def forward(self, x, y):
        h = torch.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (x,))
        return F.mse_loss(self.line(h), y)


@odd("a module called twice")
class twice(Base):
    def __init__(self):
        super().__init__()
        self.square = torch.nn.Linear(6, 6)

    def forward(self, x, y):
        return F.mse_loss(self.line(self.square(torch.tanh(self.square(x)))), y)


@odd("inputs in a dictionary, with a number and a None")
class nested(Base):
    def inputs(self):
        return dict(batch=dict(super().inputs()), factor=2.0, mask=None)

    def forward(self, batch, factor, mask):
        return F.mse_loss(self.line(batch["x"]) * factor, batch["y"])


@odd("the output of the model beside the loss")
class two_outputs(Base):
    def forward(self, x, y):
        h = self.line(x)
        return F.mse_loss(h, y), h


@odd("no loss: an output of several numbers")
class no_loss(Base):
    def forward(self, x, y):
        return self.line(x) + y


@odd("a buffer of whole numbers that each step counts up")
class counter(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("average", torch.zeros(3))

    def forward(self, x, y):
        h = self.line(x)
        self.steps.add_(1)
        self.average.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
        return F.mse_loss(h - self.average, y)


@odd("writes through views of views, read by the old name")
class views(Base):
    def forward(self, x, y):
        h = torch.zeros(4, 3)
        middle = h[1:3]
        middle[:, 0] = self.line(x)[1:3, 1]
        h[0].copy_(x[0, :3])
        row = h.view(12)
        row[3:5] += 1
        return F.mse_loss(h + self.line(x), y) + middle.sum()


@odd("token numbers beyond 32 bits")
class wide_numbers(Base):
    def inputs(self):
        return dict(x=torch.randn(4, 6), ids=torch.tensor([0, 1, 2 ** 40, 3]), y=torch.randn(4, 3))

    def forward(self, x, ids, y):
        return F.mse_loss(self.line(x) * (ids % 5).unsqueeze(1), y)


@odd("a batch of any size times a length of any size, with arithmetic on sizes")
class sizes(Base):
    dynamic = dict(x={0: torch.export.Dim("batch", min=2), 1: torch.export.Dim("length", min=2, max=100)},
                   y={0: torch.export.Dim("batch", min=2)})

    def inputs(self):
        return dict(x=torch.randn(4, 5, 6), y=torch.randn(4, 3))

    def forward(self, x, y):
        b, t, c = x.shape
        flat = x.reshape(b * t, c)
        return F.mse_loss(self.line(flat).view(b, t, 3).sum(1) / (2 * t + 1), y)


@odd("the number of rows divides the loss; run in two microbatches")
class rows_as_number(Base):
    dynamic = dict(x={0: torch.export.Dim("batch", min=2)}, y={0: torch.export.Dim("batch", min=2)})
    microbatches = 2

    def inputs(self):
        return dict(x=torch.randn(4, 6), y=torch.randn(4, 3))

    def forward(self, x, y):
        off = self.line(x) - y
        return (off * off).sum() / (3 * x.shape[0]) + off.abs().sum() / x.shape[0]


@odd("numbers of the weights are missing, as when it was exported from fake tensors")
class without_weights(Base):
    pass


def leaves(value, name):
    """Returns the tensors of an input by name; dictionary keys are appended to it."""
    if isinstance(value, dict):
        return {n: t for k, v in value.items() for n, t in leaves(v, f"{name}_{k}").items()}
    return {name: value} if isinstance(value, torch.Tensor) else {}


def numbers(module, inputs):
    """Returns the loss, the gradients, and the buffers after the step, if the module has a loss."""
    out = module(*inputs.values())
    loss = out[0] if isinstance(out, tuple) else out
    if loss.numel() != 1:
        return {}
    loss.backward()
    return dict(loss=loss.item(), gradients={n: p.grad.double().reshape(-1).tolist()
                                             for n, p in module.named_parameters() if p.grad is not None},
                buffers={n: b.double().reshape(-1).tolist() for n, b in module.named_buffers()})


def make(name, folder):
    cls, what = KINDS[name]
    torch.manual_seed(3)
    module = cls().train()
    inputs = module.inputs()
    tensors = {n: t for key, value in inputs.items() for n, t in leaves(value, key).items()}
    exported = module
    if name == "without_weights":
        from torch._subclasses.fake_tensor import FakeTensorMode
        mode = FakeTensorMode()
        with mode:
            exported = cls().train()
        args = tuple(mode.from_tensor(t) for t in inputs.values())
    else:
        args = tuple(inputs.values())
    program = torch.export.export(exported, args, strict=False, dynamic_shapes=getattr(cls, "dynamic", None))
    raw = os.path.join(folder, "raw.pt2")
    torch.export.save(program, raw)
    rewrite(raw, os.path.join(folder, name + ".pt2"))
    for key, tensor in tensors.items():
        np.save(os.path.join(folder, f"{name}.{key}.npy"), tensor.numpy())
    figures = {} if name == "without_weights" else numbers(module, inputs)
    calls = sorted({str(n.target) for n in program.graph.nodes if n.op == "call_function"})
    return dict(what=what, inputs=list(tensors), calls=calls, microbatches=getattr(cls, "microbatches", 1)) | figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--pack", metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = os.path.join(options.out, "odd")
    os.makedirs(folder, exist_ok=True)
    found = {name: make(name, folder) for name in KINDS}
    with open(os.path.join(folder, "losses.json"), "w") as file:
        json.dump(found, file, indent=1)
    if options.pack:
        pack(folder, options.pack)


if __name__ == "__main__":
    sys.exit(main())
