#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports tiny modules that write in place, through views and otherwise, with PyTorch's results, like pytorch_odd.py.

    python3 pytorch_writes.py --out DIR [--pack FILE]

Writes DIR/writes/NAME.pt2, its inputs and losses.json. The tests use pytorch/writes.tar.gz. A module computes h, a
linear map of x, writes into it, and compares it with y. A case that Sluice refuses has a part of the message.
"""
import argparse
import json
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

from pytorch_export import pack, rewrite
from pytorch_odd import numbers

CASES = {}  # name: function of h and y, a part of the message or None
VIEW, SHARE = "writes into a view that is made by aten.%s", "writes into a tensor that may share elements with the result of aten.%s"


def case(message=None):
    def keep(f):
        CASES[f.__name__] = (f, message)
        return f
    return keep


def one(name, f, message=None):
    f.__name__ = name
    case(message)(f)


one("narrow", lambda h, y: h.narrow(1, 2, 1).zero_())
one("slice", lambda h, y: h[:, 1:].mul_(2))
one("last", lambda h, y: h[-2:, -1].mul_(3))
one("flatten", lambda h, y: h.flatten().mul_(2))
one("ravel", lambda h, y: h.ravel().mul_(2))
one("reshape", lambda h, y: h.reshape(2, 6).mul_(2))
one("reshape_as", lambda h, y: h.reshape_as(y).mul_(2))
one("view_as", lambda h, y: h.view_as(y).mul_(2))
one("squeeze", lambda h, y: h.unsqueeze(0).squeeze().mul_(2))
one("squeeze_dims", lambda h, y: h.view(4, 1, 3).squeeze((1,)).mul_(2))
one("unflatten", lambda h, y: h.unflatten(1, (3, 1)).mul_(2))
one("numpy_T", lambda h, y: h.T.mul_(2))
one("mT", lambda h, y: h.mT.relu_())
one("swapaxes", lambda h, y: h.swapaxes(0, 1).mul_(torch.arange(12.).view(3, 4)))
one("transpose", lambda h, y: h.view(2, 2, 3).transpose(0, 2).mul_(torch.arange(12.).view(3, 2, 2)))
one("permute", lambda h, y: h.view(2, 2, 3).permute(2, 0, 1).mul_(torch.arange(12.).view(3, 2, 2)))
one("movedim", lambda h, y: h.view(2, 2, 3).movedim((0, 2), (2, 0)).mul_(torch.arange(12.).view(3, 2, 2)))
one("tensor_split", lambda h, y: h.tensor_split([1], 1)[1].mul_(2))
one("chain", lambda h, y: (h[:, 1:].T[0].mul_(3), h.view(2, 2, 3).permute(2, 0, 1)[1].add_(1)))
one("aliases", lambda h, y: (lambda a, b: (a.mul_(2), b.add_(1), a[0].add_(5)))(h.view(12), h[1:]))
one("copies", lambda h, y: (h.T.contiguous().mul_(2), h.to(torch.float64).mul_(2), F.dropout(h * 1, 0.5, training=False).mul_(2)))
one("same", lambda h, y: (h.contiguous().mul_(2), h.to(torch.float32).add_(1), F.dropout(h, 0.0).mul_(2)))
one("mask", lambda h, y: h.masked_fill_(y > 0, 0.3).clamp_(-.5, .5))
one("rows", lambda h, y: (h[:, 0].copy_(y[:, 1]), h.__setitem__(1, h[0])))
one("turned", lambda h, y: (lambda z: (z.t_(), h.add_(z.t())))(y.clone()))
one("detached", lambda h, y: (lambda z: (z.detach().mul_(2), h.add_(z)))(y.clone()))


@case()
def operators(h, y):
    m = h > 0
    part = m[:, 1:]
    part &= (y[:, 1:] > 0)
    h.mul_(m)


@case()
def without_gradients(h, y):
    k = y * 1.0
    with torch.no_grad():
        k.mul_(2)
    h.add_(k)


@case("aten.mul_.Tensor at pytorch_writes.py:118 writes without a gradient into a tensor that has one, which is not supported; write out of place")
def under_no_grad(h, y):
    with torch.no_grad():
        h.mul_(2)
    h.add_(y)


@case("may write into its arguments")
def into_out(h, y):
    z = torch.zeros(4, 3)
    torch.mul(y, 2, out=z)
    h.add_(z)


one("through_detach", lambda h, y: (h[1:].detach().mul_(2), h.add_(y)), "writes without a gradient into a tensor that has one")
one("logical", lambda h, y: h.view(2, 6).logical_not_(), "writes without a gradient into a tensor that has one")
one("diagonal", lambda h, y: h.diagonal().fill_(-1.), VIEW % "diagonal.default")
one("unfold", lambda h, y: h.unfold(1, 2, 1).mul_(2), VIEW % "unfold.default")
one("expand", lambda h, y: (lambda z: (z.expand(4, 3).add_(h), h.mul_(z)))(torch.zeros(4, 3)), VIEW % "expand.default")
one("broadcast", lambda h, y: torch.broadcast_tensors(h, torch.ones(4, 1))[0].mul_(2), SHARE % "broadcast_tensors.default")
one("broadcast_before", lambda h, y: (torch.broadcast_tensors(h, torch.ones(4, 1)), h.mul_(2)), SHARE % "broadcast_tensors.default")
one("einsum", lambda h, y: torch.einsum("ij->ji", h).mul_(2), SHARE % "einsum.default")
one("as_strided", lambda h, y: h.as_strided((4, 2), (3, 1)).mul_(2), SHARE % "as_strided.default")
one("reshape_turned", lambda h, y: h.T.reshape(4, 3).mul_(2), SHARE % "reshape.default")
one("another_type", lambda h, y: h.view(torch.float32).mul_(2), SHARE % "view.dtype")
one("foreach", lambda h, y: (lambda z: (torch._foreach_mul_([z], [2.0]), h.mul_(z)))(torch.ones(4, 3)), "may write into its arguments")
one("shape_of_view", lambda h, y: (lambda z: (z[0].unsqueeze_(0).mul_(2), h.add_(z)))(y.clone()), "changes the shape of a tensor that has views")


class Case(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.line, self.f = torch.nn.Linear(6, 3), f

    def forward(self, x, y):
        h = self.line(x)
        self.f(h, y)
        return F.mse_loss(h, y)


class Parameter(Case):
    def forward(self, x, y):
        with torch.no_grad():
            self.line.weight.clamp_(-0.1, 0.1)
        return F.mse_loss(self.line(x), y)


one("parameter", lambda h, y: None, "writes into parameter line.weight")


def make(name, folder):
    torch.manual_seed(3)
    f, message = CASES[name]
    module = (Parameter if name == "parameter" else Case)(f).train()
    inputs = dict(x=torch.randn(4, 6), y=torch.randn(4, 3))
    program = torch.export.export(module, tuple(t.clone() for t in inputs.values()), strict=False)
    raw = os.path.join(folder, "raw.pt2")
    torch.export.save(program, raw)
    rewrite(raw, os.path.join(folder, name + ".pt2"))
    for key, tensor in inputs.items():
        np.save(os.path.join(folder, f"{name}.{key}.npy"), tensor.numpy())
    known = {"refused": message} if message else numbers(module, {n: t.clone() for n, t in inputs.items()})
    return dict(inputs=list(inputs)) | known


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--pack", metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = os.path.join(options.out, "writes")
    os.makedirs(folder, exist_ok=True)
    found = {name: make(name, folder) for name in CASES}
    with open(os.path.join(folder, "losses.json"), "w") as file:
        json.dump(found, file, separators=(",", ":"))
    if options.pack:
        pack(folder, options.pack)


if __name__ == "__main__":
    sys.exit(main())
