#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes images.txt: convolutions and poolings with their gradients, from PyTorch in double precision.

    python3 make_images.py > images.txt

Each line is one array: the case; "y", or "d" and the index of the input whose gradient it is; and the
values. Inputs are value(index of the input, i) and the gradient of y is value(9, i), as in
tests/kernels/test_images.c.
"""
import math

import torch
import torch.nn.functional as F


def value(which, shape):
    n = math.prod(shape)
    numbers = [((i * 7919 + which * 104729 + 31) % 2003) / 1001.5 - 1 for i in range(n)]
    return torch.tensor(numbers, dtype=torch.float32).double().reshape(shape)


CASES = [
    ("conv", [(2, 3, 5, 4), (4, 3, 3, 2), (4,)], lambda x, w, b: F.conv2d(x, w, b)),
    ("conv_strided", [(2, 2, 7, 6), (3, 2, 3, 3), (3,)],
     lambda x, w, b: F.conv2d(x, w, b, stride=(2, 3), padding=(1, 2), dilation=(2, 1))),
    ("conv_groups", [(1, 4, 4, 5), (6, 2, 3, 3)],
     lambda x, w: F.conv2d(x, w, padding=1, groups=2)),
    ("conv_along", [(2, 3, 11), (4, 3, 3), (4,)],
     lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1, dilation=2)),
    ("max_pool", [(2, 2, 7, 5)], lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 1))),
    ("max_pool_along", [(2, 2, 9)], lambda x: F.max_pool1d(x, 3, 2, 1)),
    ("mean_pool", [(2, 2, 7, 5)], lambda x: F.avg_pool2d(x, (3, 2), (2, 1), (1, 1))),
    ("mean_pool_global", [(2, 3, 4, 5)], lambda x: F.adaptive_avg_pool2d(x, 1)),
]


def show(case, what, tensor):
    print(case, what, " ".join(f"{v:.9g}" for v in tensor.reshape(-1).tolist()))


def main():
    print(f"# torch={torch.__version__}")
    for case, shapes, run in CASES:
        inputs = [value(i, shape).requires_grad_() for i, shape in enumerate(shapes)]
        y = run(*inputs)
        y.backward(value(9, y.shape))
        show(case, "y", y.detach())
        for i, x in enumerate(inputs):
            show(case, f"d{i}", x.grad)


if __name__ == "__main__":
    main()
