#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports a tiny module for each ATen call, with PyTorch's results, like pytorch_odd.py.

    python3 pytorch_calls.py --out DIR [--pack FILE] [NAME ...]

Writes DIR/calls/NAME.pt2, NAME.x.npy and losses.json: the loss and all gradients. The tests use pytorch/calls.tar.gz.
A module computes h, a linear map of x, then f(h, parameters), and a loss with different weights for the elements.
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

T = torch
IMAGE, SEQUENCE, TABLE = (3, 2, 4, 4), (3, 2, 6), (3, 6)
CASES = {}  # name: shape of h, function of h and the parameters, shapes of the parameters


def case(name, f, shape=TABLE, params=()):
    CASES[name.replace(".", "_")] = (shape, f, params)


def positive(h):
    return h.abs() + 0.2


def between(h):
    return T.sigmoid(h) * 0.8 + 0.1


# functions of one argument
for name in ("abs cos sin tan erf erfc exp exp2 expm1 sigmoid tanh sinh cosh asinh square neg relu floor ceil round trunc "
             "frac sign log_softmax_1 softmax_1").split():
    if name[-2:] == "_1":
        case(name, lambda h, f=getattr(T, name[:-2]): f(h, 1))
    else:
        case(name, lambda h, f=getattr(T, name): f(h) + 0.1 * h)
for name in "log log1p log2 log10 sqrt rsqrt reciprocal".split():
    case(name, lambda h, f=getattr(T, name): f(positive(h)))
case("acosh", lambda h: T.acosh(positive(h) + 1))
case("atanh", lambda h: T.atanh(between(h)))
case("logit", lambda h: T.logit(between(h)) + T.logit(T.sigmoid(3 * h), eps=0.1))
case("pow", lambda h: positive(h) ** 1.5 + 2.0 ** h + h ** 3 + positive(h) ** h)
case("masks", lambda h: h * T.isnan(h) + h * T.isinf(h / 0.0) + h * T.isfinite(h) + h * ((h > 0) ^ (h > 0.3)))
for name in ("hardswish hardsigmoid mish elu celu selu softplus silu gelu softsign tanhshrink logsigmoid softshrink hardshrink "
             "relu6 hardtanh leaky_relu").split():
    case(name, lambda h, f=getattr(F, name): f(2 * h))
case("elu_alpha", lambda h: F.elu(h, 0.7) + F.celu(h, 1.3) + F.leaky_relu(h, 0.3) + F.softplus(h))
case("threshold", lambda h: F.threshold(h, 0.2, 1.5) + F.hardtanh(h, -0.4, 0.6))
case("gelu_tanh", lambda h: F.gelu(h, approximate="tanh"))
case("prelu", lambda h, w: F.prelu(h, w), IMAGE, ((2,),))
case("prelu_one", lambda h, w: F.prelu(h, w), TABLE, ((1,),))
case("glu", lambda h: F.glu(h, 1))
# functions of two arguments
case("remainder", lambda h: T.remainder(h, 0.7) + T.fmod(h, 0.7) + h % positive(h + 0.3))
case("logaddexp", lambda h, w: T.logaddexp(h, w), TABLE, (TABLE,))
case("addcmul", lambda h, w: T.addcmul(h, h, w, value=0.5) + T.addcdiv(h, w, positive(h), value=2), TABLE, (TABLE,))
case("lerp", lambda h, w: T.lerp(h, w, 0.3) + T.lerp(h, w, T.sigmoid(h)), TABLE, (TABLE,))
case("clamp", lambda h, w: T.clamp(h, -0.3, 0.4) + T.clamp(h, w, w + 0.5) + h.clamp_min(0.1) + h.clamp_max(w), TABLE, (TABLE,))
case("maximum", lambda h, w: T.maximum(h, w) + T.fmin(h, 2 * w) + T.min(h, w), TABLE, (TABLE,))
case("names", lambda h, w: T.multiply(h, w) + T.divide(h, 3) + T.subtract(h, w) + T.true_divide(w, 7), TABLE, (TABLE,))
case("div_floor", lambda h: T.div(h.detach(), 0.3, rounding_mode="floor") + h.detach() // 0.2 + h)
case("where", lambda h, w: T.where(h > 0, w, 2.0) + h.masked_fill(h > 0.5, 0.25), TABLE, (TABLE,))
case("in_place", lambda h: (h * 1.0).mul_(2).add_(1).sub_(0.5).abs_().clamp_(0.1, 3).neg_().mul_(h) + h)
# shapes
case("swapaxes", lambda h: T.swapaxes(h, 1, 2) * 2, SEQUENCE)
case("movedim", lambda h: T.movedim(h, 1, 3) * 2, IMAGE)
case("movedim_two", lambda h: T.movedim(h, (1, 2), (2, 1)), IMAGE)
case("narrow", lambda h: T.narrow(h, 1, 2, 3))
case("tile", lambda h: T.tile(h, (2,)) + h.repeat(1, 2))
case("splits", lambda h: T.cat([p * (i + 1) for i, p in enumerate(T.tensor_split(h, 4, 1) + h.split([2, 4], 1) + h.chunk(2, 1))], 1))
case("stacks", lambda h: T.hstack([h, h * 2]) + T.concat([h, -h], 1) + T.stack([h, h.exp()], 1).flatten(1))
case("view_as", lambda h, w: h.view_as(w) * w, TABLE, ((3, 2, 3),))
case("unfold", lambda h: h.unfold(1, 3, 2))
case("steps", lambda h: h[:, ::4] + h[:, 1::3] + T.flip(h, [1])[:, :2])
case("roll", lambda h: T.roll(h, 2, 1) * h)
case("index_pairs", lambda h: h[:, T.tensor([0, 1, 1]), T.tensor([5, 0, -1])], SEQUENCE)
case("index_grid", lambda h: h[:, T.tensor([[0], [1]]), T.tensor([[2, 3]])], SEQUENCE)
case("take_along_dim", lambda h: T.take_along_dim(h, h.argsort(1), 1) + h.gather(1, T.tensor([[0, 5, 5, 1, 2, 3]] * 3)))
case("sort", lambda h: h.sort(1)[0] + h.sort(1, descending=True)[0] * 2 + h.topk(6, 1, largest=False)[0])
case("scatter_add", lambda h: T.zeros(3, 6).scatter_add(1, T.tensor([[0, 0, 3, 3, 5, 1]] * 3), h) + h.scatter_add(1, T.tensor([[1, 1, 2, 2, 3, 3]] * 3), h))
case("index_add", lambda h: h.index_add(1, T.tensor([0, 0, 4, 2, 2, 1]), h) + T.zeros(3, 6).index_add_(1, T.tensor([5, 0, 4, 2, 2, 1]), h))
NAMES = T.tensor([[0, 0, 3, 3, 5, 1], [1, 2, 3, 4, 5, 0], [4, 4, 4, 4, 4, 4]])
case("scatter", lambda h: h.scatter(1, NAMES[1:2].expand(3, -1), h.exp()) + h.scatter(1, NAMES, 0.5) + T.ones(3, 6).scatter_(1, NAMES, T.full((3, 6), 2.0)) * h)
case("scatter_reduce", lambda h: h.scatter_reduce(1, NAMES, h.exp(), "sum") + h.scatter_reduce(1, NAMES, h.exp(), "sum", include_self=False)
     + h.scatter_reduce(1, NAMES, h.exp(), "mean") + h.scatter_reduce(1, NAMES, h.exp(), "mean", include_self=False) + T.ones(3, 6).scatter_reduce(1, NAMES, h, "mean"))
BAGS = T.tensor([[0, 5, 2, 0], [1, 0, 3, 3], [0, 0, 0, 0]])
case("embedding_bag", lambda h, w: F.embedding_bag(BAGS, w, mode="sum", per_sample_weights=h[:, :4].contiguous()) + F.embedding_bag(BAGS, w, mode="sum", padding_idx=0)
     + F.embedding_bag(BAGS, w, mode="mean") + F.embedding_bag(BAGS, w, mode="mean", padding_idx=0) * h, TABLE, ((7, 6),))
case("embedding_bag_max", lambda h, w: F.embedding_bag(BAGS, w, mode="max") + F.embedding_bag(BAGS, w, mode="max", padding_idx=0) * h, TABLE, ((7, 6),))
case("weight_norm", lambda h, v, g: F.linear(h, T._weight_norm(v, g, 0)) + F.linear(h, T._weight_norm(v, g.mT, 1)) + F.linear(h, T._weight_norm(v, g[0, 0], -1)), TABLE, ((6, 6), (6, 1)))
VOLUME = (3, 2, 3, 4, 5)
case("conv3d", lambda h, w, b, g: F.conv3d(h, w, b, stride=(1, 2, 1), padding=(1, 0, 2), dilation=(2, 1, 2)).mean(1)[:, :, :1, :5]
     + F.conv3d(h, g, groups=2, stride=(2, 1, 1)).sum((1, 2))[:, None, :1, :3].repeat(1, 1, 1, 2)[..., :5], VOLUME, ((4, 2, 2, 3, 2), (4,), (4, 1, 2, 2, 3)))
case("triangle", lambda h: T.tril(h, 1) + T.triu(h, -1) * 2)
# constants
case("constants", lambda h: h * (T.linspace(-1, 1, 6) + T.triu_indices(3, 3)[0].float() + T.tril_indices(3, 3)[1] + T.arange(6).float().atan()
                                 + T.meshgrid(T.arange(2), T.arange(6), indexing="ij")[1][0] + T.eye(6)[2] + (T.arange(6) % 4)
                                 + T.arange(6).float().log1p().ceil() + T.full((6,), 2.0).expm1() + T.arange(6).bitwise_and(T.tensor(3))))
# along dims
case("logsumexp", lambda h: T.logsumexp(h, 1) + h.logsumexp(1, keepdim=True).sum(1))
case("variances", lambda h: h.std(1) + h.var(1, unbiased=False) + T.var_mean(h, 1)[0] * T.var_mean(h, 1, correction=0)[1] + h.std() + T.std_mean(h, 1)[1])
case("extremes", lambda h: h.amax(1) + h.min(1)[0] * 2 + h.max() + h.amin() + (h * (h.argmin(1, keepdim=True) + h.argmax(1, keepdim=True))).sum(1))
case("norms", lambda h: T.linalg.vector_norm(h, dim=1) + h.norm(1, dim=1) + T.norm(h) + F.normalize(h, dim=1).sum(1))
case("any", lambda h: h * (h > 0).any(1, keepdim=True) + h * (h > -9).all(1, keepdim=True))
case("cumsum", lambda h: h.cumsum(1))
# products
case("outer", lambda h, w: T.outer(h[0], w) + T.mv(w.outer(w), h[1]) + T.dot(w, h[2]), TABLE, ((6,),))
case("baddbmm", lambda h, w: T.baddbmm(w, h, h.transpose(1, 2), beta=0.5, alpha=2), SEQUENCE, ((3, 2, 2),))
case("addmm", lambda h, w: T.addmm(w, h, h.t() @ h, beta=0.5, alpha=2), TABLE, (TABLE,))
# norms
case("instance_norm", lambda h, w, b: F.instance_norm(h, weight=w, bias=b) + F.instance_norm(h * 2), IMAGE, ((2,), (2,)))
case("native_norms", lambda h, w: T.native_layer_norm(h, [4], w, None, 1e-5)[0] + T.native_group_norm(h, None, None, 3, 2, 16, 2, 1e-5)[0], IMAGE, ((4,),))
case("layer_norm_two", lambda h, w: F.layer_norm(h, [4, 4], w), IMAGE, ((4, 4),))
case("rms_norm", lambda h, w: F.rms_norm(h, [6], w, 1e-5), TABLE, ((6,),))
# images
case("conv_transpose2d", lambda h, w, b: F.conv_transpose2d(h, w, b, stride=2, padding=1, output_padding=1), IMAGE, ((2, 3, 3, 3), (3,)))
case("conv_transpose2d_groups", lambda h, w: F.conv_transpose2d(h, w, groups=2, dilation=(2, 1), stride=(1, 3)), IMAGE, ((2, 2, 2, 3),))
case("conv_transpose1d", lambda h, w: F.conv_transpose1d(h, w, stride=3, padding=1), SEQUENCE, ((2, 2, 4),))
case("conv2d_same", lambda h, w: F.conv2d(h, w, padding="same", dilation=(1, 2)), IMAGE, ((2, 2, 3, 3),))
for mode, more in (("bilinear", {}), ("bilinear", dict(align_corners=True)), ("bicubic", {}), ("nearest", {})):
    case(f"interpolate_{mode}{len(more)}", lambda h, mode=mode, more=more:
         F.interpolate(h, size=(7, 6), mode=mode, **more).sum((2, 3)) + F.interpolate(h, scale_factor=1.5, mode=mode, **more)[:, :, 1, 2], IMAGE)
case("interpolate_linear", lambda h: F.interpolate(h, scale_factor=2, mode="linear") * T.arange(12), SEQUENCE)
case("interpolate_nearest_1d", lambda h: F.interpolate(h, scale_factor=2) * T.arange(12), SEQUENCE)
case("avg_pool", lambda h: F.avg_pool2d(h, 3, 2, 1).sum((2, 3)) + F.avg_pool2d(h, 3, 2, 1, count_include_pad=False)[:, :, 0, 1]
     + F.avg_pool2d(h, (3, 2), 2, ceil_mode=True)[:, :, 1, 0] + F.avg_pool2d(h, 3, 2, 1, ceil_mode=True)[:, :, 1, 1], IMAGE)
case("avg_pool1d", lambda h: F.avg_pool1d(h, 3, 2, 1, count_include_pad=False) + F.avg_pool1d(h, 3, 2, 1), SEQUENCE)
case("max_pool", lambda h: F.max_pool2d(h, 3, 2, 1) + F.max_pool2d(h, 2) + F.max_pool2d(h, 3, 2, ceil_mode=True)[:, :, :1, :1] * 2, IMAGE)
case("max_pool1d", lambda h: F.max_pool1d(h, 2) + F.max_pool1d(h, 3, 2, 1), SEQUENCE)
case("adaptive", lambda h: F.adaptive_avg_pool2d(h, (3, 2)).sum((2, 3)) + F.adaptive_avg_pool2d(h, (2, 1))[:, :, 0, 0] + F.adaptive_max_pool2d(h, 2)[:, :, 1, 0]
     + F.adaptive_avg_pool1d(h.flatten(2), 5)[:, :, 3], IMAGE)
case("pads", lambda h: F.pad(h, (1, 2, 2, 1), mode="reflect") + F.pad(h, (1, 2, 2, 1), mode="replicate") + F.pad(h, (1, 2, 2, 1), mode="circular")
     + F.pad(h, (1, 2, 2, 1), value=0.5), IMAGE)
case("pads_1d", lambda h: F.pad(h, (2, 1), mode="reflect") * F.pad(h, (2, 1), mode="replicate"), SEQUENCE)
case("im2col", lambda h: F.unfold(h, (2, 3), dilation=(1, 1), padding=1, stride=(2, 1)), IMAGE)
case("pixels", lambda h: F.pixel_unshuffle(h, 2) + F.channel_shuffle(F.pixel_unshuffle(F.pixel_shuffle(F.pixel_unshuffle(h, 2), 2), 2), 2), IMAGE)
# attention with three dims
case("attention_causal", lambda h: F.scaled_dot_product_attention(h[:, None], h[:, None] * 2, h[:, None], is_causal=True), (3, 5, 4))
# losses, each with several reductions
EACH = dict(l1_loss={}, mse_loss={}, smooth_l1_loss=dict(beta=0.5), huber_loss=dict(delta=0.4))
for name, more in EACH.items():
    for reduction in ("mean", "sum", "none"):
        case(f"{name}_{reduction}", lambda h, w, f=getattr(F, name), more=more, reduction=reduction: f(h, w, reduction=reduction, **more), TABLE, (TABLE,))
case("bce", lambda h, w: F.binary_cross_entropy(between(h), T.sigmoid(w).detach()), TABLE, (TABLE,))
case("bce_weight", lambda h, w: F.binary_cross_entropy(between(h), T.sigmoid(w).detach(), weight=w.detach().abs(), reduction="sum"), TABLE, (TABLE,))
case("bce_logits", lambda h, w: F.binary_cross_entropy_with_logits(h, T.sigmoid(w).detach(), reduction="none"), TABLE, (TABLE,))
case("bce_logits_weights", lambda h, w: F.binary_cross_entropy_with_logits(h, (w > 0).float(), weight=w.detach().abs(), pos_weight=T.arange(6) / 3), TABLE, (TABLE,))
case("kl_div", lambda h, w: F.kl_div(h.log_softmax(1), w.softmax(1), reduction="batchmean") + F.kl_div(h.log_softmax(1), w.log_softmax(1), log_target=True), TABLE, (TABLE,))
case("soft_margin", lambda h, w: F.soft_margin_loss(h, w.sign().detach()) + F.hinge_embedding_loss(h, w.sign().detach(), 0.3), TABLE, (TABLE,))
case("poisson_nll", lambda h, w: F.poisson_nll_loss(h, w.abs().detach()) + F.poisson_nll_loss(positive(h), w.abs().detach(), log_input=False), TABLE, (TABLE,))
case("cosines", lambda h, w: F.cosine_similarity(h, w, 1) + F.cosine_embedding_loss(h, w, T.tensor([1.0, -1.0, 1.0]), 0.1) + F.pairwise_distance(h, w), TABLE, (TABLE,))
case("margins", lambda h, w: F.margin_ranking_loss(h, w, w.sign().detach(), 0.2) + F.triplet_margin_loss(h, w, w * 2 + h, margin=0.4), TABLE, (TABLE,))
LABELS = T.tensor([1, -100, 5])
case("cross_entropy_sum", lambda h: F.cross_entropy(h, T.tensor([1, 2, 5]), reduction="sum"))
case("cross_entropy_none", lambda h: F.cross_entropy(h, T.tensor([1, 2, 5]), reduction="none"))
case("cross_entropy_ignored", lambda h: F.cross_entropy(h, LABELS) + F.cross_entropy(h, LABELS, label_smoothing=0.1))
case("cross_entropy_weight", lambda h: F.cross_entropy(h, LABELS, weight=T.arange(6) / 4 + 0.5))
case("cross_entropy_soft", lambda h, w: F.cross_entropy(h, w.softmax(1), label_smoothing=0.1), TABLE, (TABLE,))
case("cross_entropy_image", lambda h: F.cross_entropy(h, T.arange(48).view(3, 4, 4) % 2, reduction="none"), IMAGE)
case("nll_loss", lambda h: F.nll_loss(h, LABELS) + F.nll_loss(h.log_softmax(1), LABELS, weight=T.arange(6) / 4 + 0.5, reduction="sum"))


class Case(torch.nn.Module):
    def __init__(self, shape, f, params):
        super().__init__()
        size = int(np.prod(shape[1:]))
        self.line = torch.nn.Linear(4, size)
        self.more = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(p) * 0.7) for p in params])
        self.shape, self.f = shape, f

    def forward(self, x):
        y = self.f(self.line(x).view(self.shape), *self.more)
        return (y * (torch.arange(y.numel()).view(y.shape) % 7 - 2.5)).sum() / 4


def make(name, folder):
    torch.manual_seed(5)
    module = Case(*CASES[name]).train()
    inputs = dict(x=torch.randn(CASES[name][0][0], 4))
    program = torch.export.export(module, tuple(inputs.values()), strict=False)
    raw = os.path.join(folder, "raw.pt2")
    torch.export.save(program, raw)
    rewrite(raw, os.path.join(folder, name + ".pt2"))
    np.save(os.path.join(folder, f"{name}.x.npy"), inputs["x"].numpy())
    known = numbers(module, inputs)
    calls = sorted({str(n.target) for n in program.graph.nodes if n.op == "call_function"})
    known["gradients"] = {n: [float(f"{v:.7g}") for v in g] for n, g in known["gradients"].items()}
    return dict(calls=calls, loss=known["loss"], gradients=known["gradients"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--pack", metavar="FILE")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = os.path.join(options.out, "calls")
    os.makedirs(folder, exist_ok=True)
    found = {name: make(name, folder) for name in options.names or CASES}
    with open(os.path.join(folder, "losses.json"), "w") as file:
        json.dump(found, file, separators=(",", ":"))
    if options.pack:
        pack(folder, options.pack)


if __name__ == "__main__":
    sys.exit(main())
