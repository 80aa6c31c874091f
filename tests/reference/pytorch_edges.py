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

# integers and masks
IDS = T.tensor([[0, 5, 2, 0, 7], [1, 0, 3, 3, 2], [6, 6, 0, 1, 49], [9, 8, 110, 55, 4]])
TIMES = T.tensor([1700000123, 1712345678, 1799999999, 1609459199])
case("masks", lambda h, ids: h * ids.bool().sum(1, keepdim=True) + h * (~ids.bool()).float().sum(1, keepdim=True)
     + h * (ids.bool().long().cumsum(1) - 1).sum(1, keepdim=True) + h * (ids.bool() == (ids > 2)).sum(1, keepdim=True), ids=IDS)
case("logical", lambda h, ids: h * (T.logical_and(ids, ids + 1) | T.logical_not(ids - 5)).sum(1, keepdim=True)
     + h * T.logical_xor(h.detach(), h.detach() * 0), ids=IDS)
case("bits", lambda h, ids: h * ((ids & 6) + (ids | 3) - (ids ^ 5) + ~ids + (ids << 2) + (ids >> 1)).sum(1, keepdim=True) / 50, ids=IDS)
case("any_all", lambda h, ids: h * (ids > 2).any(1, keepdim=True) + h * ids.all(1, keepdim=True) + h * (h > 0).all(1, keepdim=True), ids=IDS)
case("times", lambda h, t: h * ((t % 86400) // 3600)[:, None] / 9 + h * ((t - t.min()) % 1000)[:, None] / 1e3 + h * (t == 1799999999)[:, None]
     + h * T.where(t > 1700000123, t - 1700000000, 5)[:, None] / 1e8, t=TIMES)
case("hash", lambda h, ids: h + F.embedding((ids * 1000003 + 7) % 6, h.T @ h).sum(1), ids=IDS)
case("narrow", lambda h, u, ids: h * (u - 200).float() / 99 + h * ids.to(T.int8).sum(1, keepdim=True) / 99, u=T.tensor([[1], [250], [4], [6]], dtype=T.uint8),
     ids=IDS * 3)
case("quotients", lambda h, ids: h * (T.div(ids, 55, rounding_mode="floor") + T.div(1 - ids, 3, rounding_mode="trunc") + (3 - ids) // 4
                                      + (3 - ids) % 5 + T.fmod(3 - ids, 5)).sum(1, keepdim=True) / 9, ids=IDS)
case("negative_index", lambda h, ids: h + h[:, ids[0] % 6 - 3][:, :1], ids=IDS)
case("sorted_integers", lambda h, t: h * t.sort()[1][:, None] + h[t.argsort()], t=T.tensor([5, 3, 9, 1]))
case("extremes", lambda h, ids: h * (ids.amax(1) - ids.amin(1) + ids.clamp(2, 50).prod(1) % 7)[:, None] / 9, ids=IDS % 13)
case("too_large", lambda h, t: h * (t * 3)[:, None], "which does not fit 32 bits", t=TIMES)
# numbers without a slope: row 1 of h is 0
case("norms", lambda h: h.norm(dim=1) + F.normalize(h, dim=1).sum(1) + h.std(1) + F.pairwise_distance(h, h.flip(0), eps=0.0))
case("cosines", lambda h: F.cosine_similarity(h, h.exp(), 1) + F.cosine_embedding_loss(h, h.exp(), T.tensor([1.0, -1, 1, -1]), reduction="none"))
case("entropy", lambda h: F.binary_cross_entropy(T.sigmoid(200 * h), (h > 0).float(), reduction="none"))
case("opposed_entropy", lambda h: F.binary_cross_entropy(T.sigmoid(h + T.tensor([-2.0, 1, 3, 20, -20, 24])), (h < 0).float(), reduction="none"))
case("powers", lambda h: h ** 3.0 + T.pow(h, 0) + (h - 1) ** 5 + T.pow(h - 3, T.arange(6) % 4) + T.pow(-2.0, (h * 0 + 3).detach()) * h)
case("at_bounds", lambda h: F.relu6(h) + F.hardsigmoid(h * 9) + F.hardswish(h * 9) + F.hardtanh(h, 0, 0.3) + F.elu(h * 1e-4) * 1e4 + F.leaky_relu(h))
case("small", lambda h: T.log1p(h * 1e-5) * 1e5 + T.expm1(h * 1e-5) * 1e5 + T.sinh(h * 1e-5) * 1e5 + T.atanh(h * 1e-5) * 1e5 + T.asinh(h * 1e-5) * 1e5)
case("angles", lambda h: T.atan2(h, h.flip(1)) + T.atan(h) + T.asin(h.tanh() * 0.9) + T.acos(h.tanh() * 0.9) + T.hypot(h, h.flip(1) + 3))
case("nan_beside", lambda h: T.fmax(h, T.full((4, 6), float("nan"))) + T.fmin(h, h.flip(0)))
case("infinite", lambda h: T.logsumexp(T.where(T.arange(6) > 2, h, float("-inf")), 1) + T.logaddexp(h, h).sum(1))
case("no_key", lambda h, ids: F.scaled_dot_product_attention(h[:, None, None], h.view(1, 1, 4, 6), h.view(1, 1, 4, 6), attn_mask=(ids > 5)[:, None, None, :4]), ids=IDS)
case("no_key_added", lambda h, ids: F.scaled_dot_product_attention(h[:, None, None], h.view(1, 1, 4, 6), h.view(1, 1, 4, 6),
                                                                   attn_mask=T.where(ids > 5, 0.0, float("-inf"))[:, None, None, :4]), ids=IDS)

case("products", lambda h: h.prod(1) + h.cumprod(1)[:, 3] + (h + 1).prod(1, keepdim=True).sum(1) + T.cumprod(h - 0.5, 1).sum(1))
case("ties", lambda h: T.relu(h).amax(1) + T.relu(h).amin(1, keepdim=True).sum(1) + T.relu(h).max() + h.max(1)[0])

case("clamps", lambda h: h.clamp(0, 0.3) + h.clamp_min(0) + h.clamp_max(0) + T.fmax(h, h * 0) + T.div(h * 0 + 0.5, 0.1, rounding_mode="trunc"))
case("crossed_bounds", lambda h: h.clamp(0.2, -0.2) + h * T.arange(6.0).clamp(4, 2) + F.hardtanh(h))
case("saturated", lambda h: h + F.silu(h * 0 - 1e30) * 1e8 + F.gelu(h.detach() * 0 - 1e30, approximate="tanh") * 1e8)


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
