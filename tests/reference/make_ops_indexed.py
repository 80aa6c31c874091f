# SPDX-License-Identifier: Apache-2.0
"""Writes ops_indexed.txt: PyTorch's results and gradients of ops that index, repeat and normalize in
groups.

    pip install torch
    make_ops_indexed.py > ops_indexed.txt

The format is that of make_ops_math.py, with `ids` for each array of integers.
tests/graph/test_torch_math.c has a model for each name.
"""
import re

import torch
import torch.nn.functional as F

torch.manual_seed(11)


def draw(*dims):
    return (3 * torch.rand(dims) - 1.5).requires_grad_()


def ids(below, *dims):
    return torch.randint(below, dims)


def flipped(x, dim):
    return x.flip(dim).cumsum(dim).flip(dim)


CASES = {
    "gather": (lambda a, i: a.gather(1, i), draw(2, 5, 3), ids(5, 2, 4, 3)),
    "gather_rows": (lambda a, i: a[i[:, 0]], draw(6, 4), ids(6, 9, 1)),
    "scatter_add": (lambda a, b, i: a.scatter_add(2, i, b), draw(2, 3, 4), draw(2, 3, 7),
                    ids(4, 2, 3, 7)),
    "scatter_sum": (lambda a, i: torch.zeros(5, 4).index_add(0, i[:, 0], a), draw(8, 4),
                    ids(5, 8, 1)),
    "top_k": (lambda a: a.topk(3).values, draw(4, 8)),
    "top_k_1": (lambda a: a.topk(2, 1).values, draw(2, 5, 3)),
    "cumsum": (lambda a: a.cumsum(1), draw(2, 7, 3)),
    "cumsum_reverse": (lambda a: flipped(a, 2), draw(2, 3, 5)),
    "cumsum_exclusive": (lambda a: a.cumsum(0) - a, draw(6, 3)),
    "expand": (lambda a: a.expand(4, 3, 5), draw(3, 1)),
    "one_hot": (lambda a, i: F.one_hot(i, 6) * a, draw(3, 4, 6), ids(6, 3, 4)),
    "cast": (lambda a, i: i.float() * a, draw(3, 4), ids(100, 3, 4)),
    "group_norm": (lambda a, g, b: F.group_norm(a, 2, g, b), draw(3, 4, 2, 3), draw(4), draw(4)),
    "instance_norm": (lambda a, g, b: F.group_norm(a, 3, g, b, 0.1), draw(2, 3, 7), draw(3), draw(3)),
    "bag": (lambda t, i: F.embedding_bag(i, t, mode="sum"), draw(6, 4), ids(6, 5, 3)),
    "bag_mean": (lambda t, i: F.embedding_bag(i, t, mode="mean", padding_idx=2), draw(4, 3),
                 ids(4, 6, 3)),
    "bag_weights": (lambda t, w, i: F.embedding_bag(i, t, mode="sum", per_sample_weights=w,
                                                    padding_idx=1), draw(5, 3), draw(4, 3),
                    ids(5, 4, 3)),
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
        line("in" if t.is_floating_point() else "ids", t)
    line("out", out)
    line("dy", dy)
    for t in inputs:
        if t.is_floating_point():
            line("grad", t.grad)
