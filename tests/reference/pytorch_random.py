#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares random programs in Sluice with PyTorch: the loss and all gradients.

    SLUICE_PREFIX=... PYTHONPATH=... python3 pytorch_random.py [--seed N] [--count N] [--microbatches M] [--pack FILE]

A program is a few random lines over all calls that Sluice knows: shapes, types, arguments, views, writes, broadcasts,
constants. Lines that PyTorch refuses are left out. A program on which the two differ is made as short as possible and
printed. The exit status is 1 if there is one. With --pack, --count programs that Sluice accepts are added to FILE, in the
form of pytorch_odd.py; the tests use pytorch/random.tar.gz, which has programs of several seeds.
"""
import argparse
import collections
import gc
import json
import math
import os
import random
import re
import subprocess
import sys
import tarfile
import tempfile
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch._export.serde import serialize

T = torch
B = 4  # rows of a batch
START = ("x", "h", "p", "y", "ids", "m")


class Module(torch.nn.Module):
    def __init__(self, lines):
        super().__init__()
        torch.manual_seed(1)
        self.line = torch.nn.Linear(6, 6)
        self.more = torch.nn.Parameter(torch.randn(5, 6) * 0.7)
        self.register_buffer("weights", (torch.arange(512) * 0.7 + 1).cos())
        self.text = "\n".join(lines)
        self.code = compile(self.text, "random_program", "exec")

    def forward(self, x, y, ids):
        names = dict(x=x, h=self.line(x), p=self.more, y=y, ids=ids, m=y > 0, T=torch, F=F, torch=torch, inf=math.inf, nan=math.nan)
        exec(self.code, names)
        loss = names["h"].square().mean() * 0.1
        for name in sorted(n for n in names if re.fullmatch(r"[a-z]\d*", n)):
            v = names[name]
            if not isinstance(v, torch.Tensor) or not v.numel() or name in "xym":
                continue
            each = v.shape[1:] if v.dim() and v.shape[0] == B else v.shape
            count = max(math.prod(each), 1)
            weights = self.weights[:count] if count > 1 else 1.0
            weights = weights.view(each) if len(each) > 1 and count > 1 else weights
            loss = loss + (v.to(loss.dtype) * weights).mean()
        return loss


# ---- lines -----------------------------------------------------------------------------------------------------------

# Each line is made from a template: {f} a float tensor, {i} of whole numbers, {b} of bools, {v} any, {g} a float tensor
# of the shape of the first one or broadcasting with it, {d} a dim, {n} a small whole number, {c} a float number,
# {k} a positive one, {o} a flag, {t} a type, {r} a reduction.
ONE = ("abs cos sin tan erf erfc exp exp2 expm1 sigmoid tanh sinh cosh asinh acosh atanh atan asin acos log log1p log2 log10 sqrt "
       "rsqrt reciprocal square neg relu floor ceil round trunc frac sign sgn isnan isinf isfinite logit absolute negative "
       "logical_not fix nan_to_num clone detach positive").split()
ACTIVATIONS = "hardswish hardsigmoid mish elu celu selu softplus silu gelu softsign tanhshrink logsigmoid softshrink hardshrink relu6 hardtanh leaky_relu".split()
TWO = ("add sub mul div maximum minimum fmax fmin lt le gt ge eq ne remainder fmod floor_divide logical_and logical_or logical_xor "
       "logaddexp pow atan2 rsub hypot multiply true_divide subtract xlogy").split()
INTS = "add sub mul remainder fmod floor_divide bitwise_and bitwise_or bitwise_xor maximum minimum lt eq ge".split()
REDUCE = "sum mean amax amin logsumexp std var prod argmax argmin all any max min cumsum cumprod softmax log_softmax sort argsort median".split()
TEMPLATES = (
    [f"T.{n}({{f}})" for n in ONE] + [f"T.{n}({{f}}.abs() + 0.2)" for n in ("log", "sqrt", "rsqrt", "log2", "log10", "reciprocal", "log1p")]
    + [f"F.{n}({{f}})" for n in ACTIVATIONS] + [f"T.{n}({{f}}, {{g}})" for n in TWO] + [f"T.{n}({{f}}, {{c}})" for n in TWO if n not in ("maximum", "minimum", "fmax", "fmin", "logaddexp", "logical_and", "logical_or", "logical_xor", "atan2", "hypot")]
    + [f"T.{n}({{i}}, {{i}})" for n in INTS] + [f"T.{n}({{i}}, {{n}})" for n in INTS if n not in ("maximum", "minimum")]
    + [f"T.{n}({{b}}, {{b}})" for n in ("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "add", "mul", "eq")]
    + [f"T.{n}({{f}}, {{d}})" for n in REDUCE] + [f"T.{n}({{f}})" for n in ("sum", "mean", "amax", "amin", "max", "min", "std", "var", "argmax", "prod", "all", "any", "norm")]
    + [f"T.{n}({{f}}, {{d}}, keepdim={{o}})" for n in ("sum", "mean", "amax", "argmax", "logsumexp", "var", "std", "all", "prod")]
    + [f"T.{n}({{i}}, {{d}})" for n in ("sum", "amax", "cumsum", "argmax", "prod", "any")] + [f"T.{n}({{b}}, {{d}})" for n in ("sum", "any", "all", "cumsum")]
    + [f"F.{n}({{f}}, {{g}}, reduction={{r}})" for n in ("l1_loss", "mse_loss", "smooth_l1_loss", "huber_loss")]
    + [f"{{f}}.{n}" for n in ("T", "mT", "t()", "unsqueeze({d})", "unsqueeze(-1)", "squeeze()", "squeeze({d})", "flatten()", "flatten(1)", "flatten({d})", "ravel()", "contiguous()",
                              "transpose(0, 1)", "transpose(-1, -2)", "swapaxes(0, -1)", "movedim(0, -1)", "permute(1, 0)", "permute(2, 0, 1)", "narrow({d}, 1, 2)", "select({d}, -1)", "select({d}, 1)",
                              "view(-1)", "view(2, -1)", "reshape(3, -1)", "unflatten(-1, (2, -1))", "expand(2, -1, -1)", "repeat(2, 1)", "tile(2)", "repeat_interleave(2, {d})", "unfold(-1, 2, {n})",
                              "roll({n}, {d})", "flip({d})", "flip(0, 1)", "tril()", "triu({n})", "diff(dim={d})", "diagonal()", "unbind({d})[1]", "chunk(2, {d})[-1]", "split(2, {d})[-1]", "split([1, 3, 2], -1)[1]",
                              "tensor_split(3, {d})[1]", "tensor_split([1, 3], {d})[1]", "view_as({g})", "reshape_as({g})", "expand_as({g})", "to(T.float64)", "to(T.int64)", "to(T.bool)", "to(T.int32)", "half()", "double()", "long()", "bool()", "int()", "to(T.uint8)", "to(T.int8)", "type_as(ids)",
                              "clamp({c}, {c})", "clamp(min={c})", "clamp(max={c})", "clamp_min({c})", "clamp({g}, {g})", "topk(2, {d})[0]", "topk(2, {d}, largest=False)[1]", "sort({d}, descending={o})[0]", "sort({d})[1]",
                              "masked_fill({b}, {c})", "pow({n})", "pow({c})", "norm(dim={d})", "norm(1, {d})", "norm({c}, {d})", "square().sum({d})", "std({d}, unbiased={o})", "var({d}, correction={n})", "sum({d}, dtype=T.float64)",
                              "mean((0, -1))", "sum((0, 1), keepdim={o})", "gather(-1, {i}.clamp(0, 2))", "index_select({d}, T.tensor([0, 2, 1, 1]))", "take_along_dim({i}.clamp(0, 2), -1)",
                              "scatter_add(-1, T.tensor([[0, 1, 2, 1]] * 4), {g}.abs())", "scatter(-1, T.tensor([[0, 1, 2, 1]] * 4), {c})", "index_add(0, T.tensor([0, 2, 1, 1]), {g})", "index_fill(0, T.tensor([0, 2]), {c})",
                              "cumsum({d})", "logcumsumexp({d})", "max({d})[0]", "min({d})[0]", "max({d})[1]", "median({d})[0]", "kthvalue(2, {d})[0]", "dot({g})", "outer({g})", "softmax({d}, dtype=T.float64)",
                              "add({g}, alpha={n})", "sub({g}, alpha={c})", "div({g}, rounding_mode='floor')", "div({c}, rounding_mode='trunc')", "lerp({g}, {c})", "addcmul({g}, {g}, value={c})", "addcdiv({g}, {g}.abs() + 0.5, value={c})")]
    + ["{f}[{n}]", "{f}[:, 1:]", "{f}[..., -1]", "{f}[:, ::2]", "{f}[-2:]", "{f}[:, None]", "{f}[..., [0, 2, 1]]", "{f}[T.tensor([2, 0, -1])]", "{f}[{b}]", "{f}[:, T.tensor([0, 1]), None]", "{f}[{i}.clamp(0, 2)]",
       "T.where({b}, {f}, {g})", "T.where({f} > {c}, {f}, {c})", "T.where({f} == 0, 0.0, {f})", "T.cat([{f}, {g}], {d})", "T.stack([{f}, {g}], {d})", "T.hstack([{f}, {g}])", "T.broadcast_tensors({f}, {g})[0]",
       "{f} @ {g}.mT", "T.matmul({f}, {f}.mT)", "T.einsum('ij,kj->ik', {f}, {g})", "T.einsum('ij->ji', {f})", "T.einsum('ij,ij->i', {f}, {g})", "F.linear({f}, p)", "F.linear({f}, p, p[:, 0])", "T.addmm({f}, {f}, {f}, beta={c}, alpha={c})", "T.bmm({f}, {f}.mT)", "T.mv({f}, {f}[0])",
       "F.layer_norm({f}, ({f}.shape[-1],))", "F.rms_norm({f}, ({f}.shape[-1],), eps={k})", "F.layer_norm(h, (6,), p[0], p[1], {k})", "F.group_norm({f}, 2, eps={k})", "F.normalize({f}, dim={d})", "F.normalize({f}, p=1, dim={d})", "F.cosine_similarity({f}, {g}, {d})", "F.pairwise_distance({f}, {g})", "F.pairwise_distance({f}, {g}, p=1)", "T.cdist(h, p)",
       "F.softplus({f}, beta={k}, threshold={c})", "F.elu({f}, {c})", "F.celu({f}, {k})", "F.leaky_relu({f}, {c})", "F.hardtanh({f}, -0.5, {k})", "F.threshold({f}, {c}, {c})", "F.gelu({f}, approximate='tanh')", "F.glu({f}, -1)", "F.prelu(h, p[:, 0][:1])", "F.softshrink({f}, {k})", "F.hardshrink({f}, {k})", "F.logsigmoid({f})", "F.dropout({f}, 0.0)", "F.dropout({f}, 0.5, False)",
       "F.pad({f}, (1, {n}))", "F.pad({f}, (1, 0, 0, 2), value={c})", "F.pad({f}, (-1, 1))", "F.pad({f}[None], (1, 1), mode='reflect')", "F.pad({f}[None], (2, 1), mode='replicate')", "F.pad({f}[None], (1, 2), mode='circular')",
       "F.one_hot({i}.clamp(0, 4), 5)", "F.embedding({i}.clamp(0, 4), p)", "F.embedding({i}.clamp(0, 4), p, padding_idx=1)", "F.embedding({i}.clamp(0, 4), p, max_norm={k})", "F.embedding({i}.clamp(0, 4), p, scale_grad_by_freq=True)", "F.embedding_bag({i}.clamp(0, 4), p, mode='sum')", "p[{i}.clamp(0, 4)]", "p[{i}.clamp(-5, -1)]",
       "F.cross_entropy({f}, {i}[:, 0].clamp(0, 2), reduction={r})", "F.cross_entropy({f}, {i}[:, 0].clamp(0, 2), label_smoothing=0.2, reduction={r})", "F.cross_entropy({f}, {i}[:, 0].clamp(0, 2), ignore_index=1, reduction={r})", "F.cross_entropy(h, {f}.softmax(-1), reduction={r})", "F.cross_entropy(h, ids[:, 0].clamp(0, 5), weight=p[0].detach().abs())", "F.nll_loss({f}.log_softmax(-1), {i}[:, 0].clamp(0, 2), reduction={r})",
       "F.binary_cross_entropy({f}.sigmoid(), {g}.sigmoid().detach(), reduction={r})", "F.binary_cross_entropy({b}.float() * p[0, 0].sigmoid(), {b}.float())", "F.binary_cross_entropy_with_logits({f}, {g}.sigmoid().detach(), reduction={r})", "F.binary_cross_entropy_with_logits(h * 90, m.float(), pos_weight=p[0].detach().abs())", "F.kl_div({f}.log_softmax(-1), {g}.softmax(-1), reduction={r})", "F.kl_div({f}.log_softmax(-1), {g}.log_softmax(-1), log_target=True)", "F.soft_margin_loss({f}, {g}.sign().detach())", "F.hinge_embedding_loss({f}, {g}.sign().detach(), {k})", "F.poisson_nll_loss({f}, {g}.abs().detach(), log_input={o}, full={o})", "F.margin_ranking_loss({f}, {g}, {g}.sign().detach(), {k})", "F.triplet_margin_loss({f}, {g}, p[0] + {f}, margin={k}, swap={o})", "F.cosine_embedding_loss(h, y, ids[:, 0].sign() * 2 - 1, {c})", "F.gaussian_nll_loss({f}, {g}.detach(), {f}.abs() + 0.1)",
       "F.scaled_dot_product_attention(h[None], y[None], h[None])", "F.scaled_dot_product_attention(h[None, None], h[None, None], y[None, None], is_causal=True)", "F.scaled_dot_product_attention(h[None, None], h[None, None], y[None, None], attn_mask=T.ones(4, 4).tril().bool(), scale={k})", "F.scaled_dot_product_attention(h[None, None], h[None, None], y[None, None], attn_mask={f}[:, :1])", "F.scaled_dot_product_attention(h[None, None], h[None, None], h[None, None], attn_mask=m[:, :1] & m[:, :1].T)",
       "F.avg_pool1d({f}[None], 2, {n} + 1)", "F.max_pool1d({f}[None], 2)", "F.max_pool2d({f}[None], 2, 1)", "F.avg_pool2d({f}[None], 2, 1, 1, count_include_pad={o})", "F.avg_pool2d({f}[None], 2, 1, divisor_override=3)", "F.adaptive_avg_pool1d({f}[None], 3)", "F.adaptive_max_pool1d({f}[None], 2)", "F.interpolate({f}[None], scale_factor=2)", "F.interpolate({f}[None], size=5, mode='linear', align_corners={o})", "F.interpolate({f}[None, None], size=(5, 7), mode='bilinear', align_corners={o})", "F.interpolate({f}[None, None], size=(3, 7), mode='bilinear', antialias=True)", "F.conv1d(h[:, None], p[:, None, :3], padding={n}, dilation={n} + 1)", "F.conv1d(h[:, None], p[:, None, :3], p[:, 0], stride=2)", "F.conv2d(h[None, None], p[:, :4].reshape(5, 1, 2, 2), padding=1)", "F.conv_transpose1d(h[:, None], p[None, :, :3], stride=2)", "F.unfold({f}[None, None], 2, padding=1)", "F.batch_norm(h, None, None, training=True, eps={k})", "F.instance_norm({f}[None])", "F.local_response_norm(h[:, :, None], 2)",
       "T.arange({n} + 2) * {f}[..., :1]", "T.linspace(-1, {k}, 6) * h", "T.eye(6)[{n}] + h", "T.full((6,), {c}) * h", "T.zeros_like({f}) + {c}", "T.ones_like({f}, dtype=T.int64)", "T.full_like({f}, {c})", "{f}.new_zeros(2, 3)", "{f}.new_full((3,), {c})", "T.tensor([{c}, {c}, {k}]) * h[:, :3]", "T.meshgrid(T.arange(3), T.arange(2), indexing='ij')[0]", "T.tril_indices(3, 3)[0]", "T.tensor({n}) * {f}", "{f} * {n}", "{n} - {f}", "{c} / ({f}.abs() + 0.5)", "{c} ** {f}", "{n} // ({i} + 1)", "{i} // {n}", "{i} % {n}", "{i} / {n}", "{i} * {c}", "{i} << 1", "~{i}", "~{b}", "-{i}", "{i}.float() ** 2", "{b} * {f}", "{b}.float().mean()", "{i}.bool()", "{i} & 1", "{i} | {i}", "{i} ^ {i}", "{b} & {b}", "{b} ^ {b}", "{i}.to({t})", "{b}.to({t})", "{f}.to({t})", "({i} * 9).to(T.uint8)", "({i} * 70).to(T.int8)", "{i}.float().mean(0)", "{i}.clamp(1, 3)", "{i} == {n}", "{i} > {i}", "T.where({i} > 1, {i}, -{i})", "{i}.cumsum(-1)", "{i}.abs()", "{i}.sum()", "{i}.max()", "{i}[:, 1:] * 3", "{b}.sum()", "{b}.any()", "({i} * 4099 * 4099) % 1000", "(({i} + 16777216) - 16777216)", "T.bincount({i}.flatten().clamp(0, 3), minlength=4)", "T.histc({f}, 4, -1, 1)"]
)
WRITES = ([f"{{f}}.{n}" for n in ("mul_({c})", "add_({g})", "sub_({g}, alpha={c})", "relu_()", "clamp_(-0.5, {k})", "zero_()", "fill_({c})", "copy_({g})", "neg_()", "abs_()", "exp_()", "sigmoid_()", "tanh_()", "masked_fill_({b}, {c})", "div_({c})", "pow_(2)", "square_()", "lerp_({g}, {c})", "addcmul_({g}, {g})", "floor_()", "remainder_({k})", "clamp_min_({c})", "sqrt_()", "index_fill_(0, T.tensor([0, 2]), {c})", "index_add_(0, T.tensor([0, 2, 1, 1]), {g})", "scatter_add_(-1, T.tensor([[0, 1, 2, 1]] * 4), {g})", "unsqueeze_(0)", "t_()", "squeeze_()", "masked_scatter_({b}, {g})", "index_copy_(0, T.tensor([0, 2, 1, 3]), {g})", "fill_diagonal_({c})", "tril_()", "logical_not_()", "gt_({c})", "eq_({g})")]
          + ["{f}[{n}] = {c}", "{f}[:, 1:] = {c}", "{f}[:, 0] = {g}[..., 0]", "{f}[..., ::2] *= {c}", "{f}[{b}] = {c}", "{f}[T.tensor([0, 2])] = {c}", "{f} += {g}", "{f} *= {c}", "{f}[1:] -= 1", "{i}.add_({n})", "{i}[:, 0] = {n}", "{b} &= {b}", "{b}[0] = True", "{i} += {i}", "{b}.logical_not_()", "{f}[-1].mul_({g}[0])", "{i}.clamp_(0, 2)", "{f}.view(-1)[{n}] += {c}", "{f}.T[0].add_({c})", "{f}.flatten()[2:].mul_({c})"])


class Maker:
    """Makes the lines of a program."""

    def __init__(self, seed, templates=None):
        self.rng, self.lines = random.Random(seed), []
        self.templates = templates
        self.inputs = inputs_of(seed)
        self.names = dict(T=torch, F=F, torch=torch, inf=math.inf, nan=math.nan, **{n: t.clone() for n, t in self.inputs.items()})
        module = Module([])
        self.names.update(h=module.line(self.inputs["x"]), p=module.more, m=self.names["y"] > 0)

    def of_kind(self, kind):
        kinds = {"f": lambda d: d.is_floating_point, "i": lambda d: not d.is_floating_point and d != torch.bool, "b": lambda d: d == torch.bool, "v": lambda d: True}
        return [n for n, v in self.names.items() if isinstance(v, torch.Tensor) and kinds[kind](v.dtype) and n != "x"]

    def fill(self, template):
        rng, first = self.rng, []

        def one(match):
            kind = match[1]
            if kind in "fibv":
                names = self.of_kind(kind)
                name = names[-1] if rng.random() < 0.4 else rng.choice(names)
                first.append(name)
                return name
            if kind == "g":
                like = self.names[first[0]].shape if first else ()
                near = [n for n in self.of_kind("f") if self.names[n].shape == like] if rng.random() < 0.7 else self.of_kind("f")
                return rng.choice(near or self.of_kind("f"))
            if kind == "d":
                dims = max(self.names[first[0]].dim(), 1) if first else 2
                return str(rng.randrange(-dims, dims))
            if kind == "n":
                return str(rng.choice((0, 1, 1, 2, 2, 3)))
            return {"c": lambda: rng.choice(("0.0", "0.5", "-0.7", "1.5", "2.0", "3.0", "-1.0")), "k": lambda: rng.choice(("0.3", "1e-3", "1.0", "2.0")),
                    "o": lambda: rng.choice(("True", "False")), "r": lambda: rng.choice(("'mean'", "'sum'", "'none'")),
                    "t": lambda: rng.choice(("T.float32", "T.int64", "T.bool", "T.int32", "T.uint8", "T.float16"))}[kind]()
        return re.sub(r"\{(\w)\}", one, template)

    def add(self, template):
        """Tries a line, and keeps it if PyTorch can compute it."""
        try:
            text = self.fill(template)
        except IndexError:
            return False
        write = template in WRITES
        line = text if write else "v%d = %s" % (len(self.lines), text)
        names = dict(self.names)
        try:
            exec(line, names)
        except Exception:
            return False
        made = [v for n, v in names.items() if isinstance(v, torch.Tensor)]
        if any(not v.numel() or v.numel() > 400 or v.dim() > 5 or v.is_complex() for v in made):
            return False
        if not write and not isinstance(names["v%d" % len(self.lines)], torch.Tensor):
            return False
        self.names = names
        self.lines.append(line)
        return True

    def program(self):
        for _ in range(self.rng.choice((1, 2, 3, 3, 4, 5))):
            for _ in range(8):
                pool = WRITES if self.rng.random() < 0.2 else TEMPLATES
                pool = [t for t in pool if self.templates is None or t in self.templates]
                if pool and self.add(self.rng.choice(pool)):
                    break
        return self.lines


def inputs_of(seed):
    torch.manual_seed(seed)
    x, y = torch.randn(B, 6), torch.randn(B, 6)
    if seed % 3 == 0:
        y = (y * 2).round() / 2  # ties, zeros, whole numbers
    if seed % 7 == 0:
        x[0] = 0
    return dict(x=x, y=y, ids=torch.randint(0, 6, (B, 3)))


# ---- comparison ------------------------------------------------------------------------------------------------------


def in_pytorch(lines, inputs, double=False, microbatches=1):
    module = Module(lines)
    if double:
        module = module.double()
    total = 0.0
    for part in range(microbatches):
        given = {n: t.chunk(microbatches)[part].clone() for n, t in inputs.items()}
        if double:
            given = {n: t.double() if t.is_floating_point() else t for n, t in given.items()}
        loss = module(*given.values()) / microbatches
        loss.backward()
        total += float(loss)
    return total, {n: (p.grad if p.grad is not None else torch.zeros_like(p)).double().numpy() for n, p in module.named_parameters()}


def exported(lines, inputs, path):
    module = Module(lines).train()
    torch.export.save(torch.export.export(module, tuple(t.clone() for t in inputs.values()), strict=False), path)


def close(got, want, exact, scale, rounding=3e-5):
    """Returns whether numbers agree, given PyTorch's own numbers in f32 and in f64."""
    got, want, exact = (np.asarray(v, np.float64) for v in (got, want, exact))
    if got.shape != want.shape:
        return False
    odd = ~np.isfinite(want)
    if odd.any() and not np.array_equal(np.isnan(got[odd]), np.isnan(want[odd])):
        return False
    allowed = rounding * scale + 20 * np.abs(want - exact)
    return bool((np.abs(got - want)[~odd] <= allowed[~odd]).all())


def compare(lines, inputs, folder, microbatches=1):
    """Returns "right", "left out", "refused: ..." or "WRONG: ..."."""
    from sluice import agreement, errors
    try:
        want, gradients = in_pytorch(lines, inputs, microbatches=microbatches)
        exact, exact_gradients = in_pytorch(lines, inputs, True, microbatches)
    except Exception:
        return "left out"
    if not math.isfinite(want) or abs(want) > 1e6 or not abs(want - exact) <= 1e-3 * max(abs(want), 1):
        return "left out"
    path = os.path.join(folder, "program.pt2")
    try:
        exported(lines, inputs, path)
    except Exception:
        return "left out"
    try:
        got, found = agreement.measure(path, {n: t.numpy() for n, t in inputs.items()}, B, microbatches)
    except errors.Error as error:
        return "refused: %s" % str(error).replace(path, "").split(": ", 1)[-1]
    rounding = 2e-3 if re.search(r"half\(\)|float16", "\n".join(lines)) else 3e-5  # gradients of f16 are rounded to f16 in PyTorch
    if not close(got, want, exact, max(abs(want), 1), rounding):
        return "WRONG: loss %.7g, PyTorch %.7g" % (got, want)
    for name, gradient in gradients.items():
        if name in found and not close(found[name], gradient, exact_gradients[name], max(np.abs(np.nan_to_num(gradient)).max(), 1e-2), rounding):
            at = np.unravel_index(np.nanargmax(np.nan_to_num(np.abs(found[name] - gradient), nan=1e30)), gradient.shape)
            return "WRONG: gradient of %s%s %.7g, PyTorch %.7g" % (name, list(map(int, at)), found[name][at], gradient[at])
        if name not in found and np.abs(gradient).max() > 0:
            return "WRONG: no parameter %s" % name
    return "right"


def guarded(lines, inputs, folder, microbatches):
    """Compares in a child, which may crash."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(write, compare(lines, inputs, folder, microbatches).encode()[:4000])
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    status = os.waitpid(child, 0)[1]
    return said or "WRONG: ended with status %d" % status


def shorten(lines, inputs, folder, microbatches):
    """Removes lines as long as the two differ."""
    said, going = guarded(lines, inputs, folder, microbatches), True
    while going:
        going = False
        for i in reversed(range(len(lines))):
            name = re.match(r"(v\d+) = ", lines[i])
            rest = lines[:i] + lines[i + 1:]
            options = [rest] if not name or not any(re.search(r"\b%s\b" % name[1], s) for s in rest) else [
                [re.sub(r"\b%s\b" % name[1], other, s) for s in rest] for other in ("h", "y", "ids", "m")]
            for option in options:
                now = guarded(option, inputs, folder, microbatches)
                if now.startswith("WRONG"):
                    lines, said, going = option, now, True
                    break
    return lines, said


def work(options):
    gc.freeze()
    serialize.canonicalize = lambda program, *_: program  # Sluice needs no sorted file, and sorting takes a third of the time
    folder = tempfile.mkdtemp()
    for number in range(options.begin, options.begin + options.count):
        maker = Maker(options.seed * 1000003 + number)
        if options.singles:
            templates = TEMPLATES + WRITES
            maker.add(templates[number % len(templates)])
        else:
            maker.program()
        print(json.dumps(dict(number=number, lines=maker.lines)), flush=True)
        said = compare(maker.lines, maker.inputs, folder, options.microbatches)
        if said.startswith("WRONG"):
            maker.lines, said = shorten(maker.lines, maker.inputs, folder, options.microbatches)
        print(json.dumps(dict(number=number, said=said, lines=maker.lines)), flush=True)


# ---- recorded programs -----------------------------------------------------------------------------------------------


def recorded(lines, inputs, folder, name):
    """Writes a program and its inputs, and returns PyTorch's figures, or None if rounding could matter on another machine."""
    from pytorch_export import rewrite
    want, gradients = in_pytorch(lines, inputs)
    exact, exact_gradients = in_pytorch(lines, inputs, True)
    if not abs(want - exact) <= 1e-6 * max(abs(want), 0.1):
        return None
    for n, gradient in gradients.items():
        if not np.abs(gradient - exact_gradients[n]).max() <= 3e-6 * np.abs(gradient).max():
            return None
    exported(lines, inputs, os.path.join(folder, "raw.pt2"))
    rewrite(os.path.join(folder, "raw.pt2"), os.path.join(folder, name + ".pt2"), bare=True)
    for n, tensor in inputs.items():
        np.save(os.path.join(folder, f"{name}.{n}.npy"), tensor.numpy())
    return dict(lines=lines, loss=want, gradients={n: [float(f"{v:.7g}") for v in g.reshape(-1)] for n, g in gradients.items() if g.any()})


def unpacked(archive, out):
    """Returns the figures of the programs that an archive has, after unpacking it into a folder."""
    if not os.path.exists(archive):
        os.makedirs(os.path.join(out, "random"))
        return {}
    with tarfile.open(archive) as tar:
        tar.extractall(out, filter="data")
    with open(os.path.join(out, "random", "losses.json")) as file:
        return json.load(file)


def calls_of(lines):
    return set(re.findall(r"(?:[.~^&|@%/<>*+-]|\[)+ ?[a-z_]*\(?", "\n".join(lines)))


def record(options):
    """Packs the first programs that have PyTorch's figures in Sluice. Each has a call that none before it has."""
    from pytorch_export import pack
    out, number = tempfile.mkdtemp(), options.begin
    found, folder = unpacked(options.pack, out), os.path.join(out, "random")
    known = {c for program in found.values() for c in calls_of(program["lines"])}
    wanted = len(found) + options.count
    while len(found) < wanted:
        maker, name = Maker(options.seed * 1000003 + number), "s%dp%d" % (options.seed, number)
        maker.program()
        if calls_of(maker.lines) - known and guarded(maker.lines, maker.inputs, out, 1) == "right":
            figures = recorded(maker.lines, maker.inputs, folder, name)
            if figures:
                found[name] = figures
                known |= calls_of(maker.lines)
                print("%s: %s" % (name, "; ".join(maker.lines)), flush=True)
        number += 1
    with open(os.path.join(folder, "losses.json"), "w") as file:
        json.dump(found, file, separators=(",", ":"))
    pack(folder, options.pack)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--begin", type=int, default=0)
    parser.add_argument("--microbatches", type=int, default=1)
    parser.add_argument("--singles", action="store_true", help="programs of one line, template by template")
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--pack", metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    if options.worker:
        return work(options)
    if options.pack:
        return record(options)
    tally, wrong, refused = collections.Counter(), {}, collections.Counter()
    number, end = options.begin, options.begin + options.count
    while number < end:
        child = subprocess.Popen([sys.executable, __file__, "--worker", "--seed", str(options.seed), "--begin", str(number), "--count", str(end - number),
                                  "--microbatches", str(options.microbatches)] + ["--singles"] * options.singles, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        lines = []
        for row in child.stdout:
            said = json.loads(row)
            number, lines = said["number"], said["lines"]
            if "said" in said:
                tally[said["said"].split(":")[0]] += 1
                if said["said"].startswith("refused"):
                    refused[re.sub(r"[\d.]+", "0", said["said"])[:110]] += 1
                if said["said"].startswith("WRONG") and "; ".join(lines) not in wrong:
                    wrong["; ".join(lines)] = (number, said["said"])
                    print("%d\t%s\t%s" % (number, "; ".join(lines), said["said"]), flush=True)
                number += 1
        if child.wait():
            tally["WRONG"] += 1
            wrong["; ".join(lines)] = (number, "WRONG: ended with status %d" % child.returncode)
            print("%d\t%s\t%s" % (number, "; ".join(lines), wrong["; ".join(lines)][1]), flush=True)
            number += 1
    for text, times in refused.most_common(25):
        print("%6d %s" % (times, text))
    print("seed %d: %s" % (options.seed, dict(tally)))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
