#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports tiny modules that use a call at an edge, with PyTorch's results, like pytorch_calls.py.

    python3 pytorch_edges.py --out DIR [--pack FILE] [NAME ...]

Edges are arguments other than the defaults, integers that f32 does not hold, masks of other types, and numbers at which
functions have no slope. Writes DIR/edges/NAME.pt2, NAME.INPUT.npy and losses.json; the tests use pytorch/edges.tar.gz.
A module computes h, a linear map of x [4, 6] that is exactly 0 in row 1, then f(h, inputs).
"""
import argparse
import json
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

from pytorch_export import pack, rewrite

T = torch
CASES = {}  # name: function of h and the inputs, the inputs, the refusal expected


def case(name, f, refused=None, **inputs):
    CASES[name] = (f, inputs, refused)


# arguments
case("softplus", lambda h: F.softplus(h, beta=3) + F.softplus(h, threshold=0.5) + F.softplus(h * 2, 2, 1))
case("index_add", lambda h: T.zeros(3, 6).index_add(0, T.tensor([0, 2, 2, 0]), h, alpha=2))
case("rsub", lambda h: T.rsub(h, h.exp(), alpha=3) + T.rsub(h, 2, alpha=3) + T.sub(h, h.exp(), alpha=2))
case("sum_type", lambda h: h * (h * 2).detach().sum(1, keepdim=True, dtype=T.int64))
case("scalar_tensor", lambda h: h * T.scalar_tensor(3.0))
case("interpolate", lambda h: F.interpolate(h[:, None], scale_factor=2.3))
case("rotated_twice", lambda h: T.add(h * T.ones(6), h.neg(), alpha=2))
case("embedding_freq", lambda h, ids: h + F.embedding(ids, h.T @ h, scale_grad_by_freq=True).sum(1),
     "argument scale_grad_by_freq must have its default, False", ids=T.tensor([[0, 1], [2, 2], [5, 1], [0, 3]]))
case("rms_norm_two", lambda h: F.rms_norm(h, (4, 6)), "norms over several dims are not supported")
case("max_pool_dilation", lambda h: F.max_pool1d(h[:, None], 2, 1, 0, 2), "dilation is not supported")


class Case(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.line = torch.nn.Linear(6, 6, bias=False)
        self.f = f

    def forward(self, x, **inputs):
        y = self.f(self.line(x), *inputs.values())
        return (y * (torch.arange(y.numel()).view(y.shape) % 7 - 2.5)).sum() / 4


def make(name, folder):
    torch.manual_seed(11)
    f, more, refused = CASES[name]
    module = Case(f).train()
    inputs = dict(x=torch.randn(4, 6) * T.tensor([[1.0], [0], [1], [1]]), **more)
    program = torch.export.export(module, (inputs["x"],), more, strict=False)
    raw = os.path.join(folder, "raw.pt2")
    torch.export.save(program, raw)
    rewrite(raw, os.path.join(folder, name + ".pt2"))
    for key, value in inputs.items():
        np.save(os.path.join(folder, f"{name}.{key}.npy"), value.numpy())
    if refused:
        return dict(refused=refused)
    loss = module(inputs["x"], **more)
    loss.backward()
    return dict(loss=loss.item(), gradients={n: [float(f"{v:.7g}") for v in p.grad.double().reshape(-1).tolist()]
                                             for n, p in module.named_parameters()})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--pack", metavar="FILE")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = os.path.join(options.out, "edges")
    os.makedirs(folder, exist_ok=True)
    found = {name: make(name, folder) for name in options.names or CASES}
    with open(os.path.join(folder, "losses.json"), "w") as file:
        json.dump(found, file, separators=(",", ":"))
    if options.pack:
        pack(folder, options.pack)


if __name__ == "__main__":
    sys.exit(main())
