#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes prompt_blocks.txt: attention of prompts to chosen pages of keys, in chunks, computed score by score in f64.

    python3 make_prompt_blocks.py > prompt_blocks.txt

Each line has the positions of a chunk, the fraction of pages, positions, query heads, key heads, head width, a position,
and the output there. Number n of the concatenated queries, keys and values is 2654435761 n mod 2^32, as a number from -1
to 1; queries are 4 times as large. Cases in which a page is chosen by less than 1e-5 of the weights are refused.
"""
import math

import numpy as np

PAGE = 64
CASES = [(128, .3, 700, 2, 1, 16), (64, .5, 330, 4, 2, 8), (256, .2, 1030, 2, 2, 32)]


def inputs(T, H, KV, D):
    sizes = [T * H * D, T * KV * D, T * KV * D]
    n = np.arange(sum(sizes), dtype=np.uint64)
    x = (n * np.uint64(2654435761) % np.uint64(1 << 32)).astype(np.float64) / 2.0**31 - 1
    q, k, v = np.split(x.astype(np.float32).astype(np.float64), np.cumsum(sizes)[:-1])
    return 4 * q.reshape(T, H, D), k.reshape(T, KV, D), v.reshape(T, KV, D)


def weights(q, k, i):
    """Returns the softmax weights of query i over the keys up to i."""
    scores = k[:i + 1] @ q[i] / math.sqrt(q.shape[1])
    e = np.exp(scores - scores.max())
    return e / e.sum()


def chosen_pages(q, k, begin, size, share):
    """Returns the pages of each block of queries of the chunk at `begin`."""
    pages = (begin + size) // PAGE
    column, near = np.zeros(pages), np.zeros(pages + 1)
    for i in range(begin + size - PAGE, begin + size):
        for j, p in enumerate(weights(q, k, i)):
            apart, rest = divmod(i - j, PAGE)
            column[j // PAGE] += p
            near[apart] += p * (1 - rest / PAGE)
            near[apart + 1] += p * rest / PAGE
    out = {}
    for own in range(begin // PAGE, pages):
        count = min(max(math.ceil(share * (own + 1) - 1e-6), 2), own + 1)
        rank = sorted(range(1, own), key=lambda n: (-max(column[n], near[own - n]), -n))
        others = max(count - 2, 0)
        if 0 < others < len(rank):
            least, next_ = (max(column[n], near[own - n]) for n in rank[others - 1:others + 1])
            assert least - next_ > 1e-5 * PAGE, (begin, own, least, next_)
        out[own] = {0, own, *rank[:others]} if count <= own else set(range(own + 1))
    return out


def output(q, k, v, i, pages):
    keys = [j for j in range(i + 1) if pages is None or j // PAGE in pages]
    scores = k[keys] @ q[i] / math.sqrt(q.shape[1])
    e = np.exp(scores - scores.max())
    return e @ v[keys] / e.sum()


def main():
    for size, share, T, H, KV, D in CASES:
        q, k, v = inputs(T, H, KV, D)
        for i in sorted({1, size - 1, size + 70 if size > 70 else size + 3, T // 2, (T - 1) // size * size - 1,
                         (T - 1) // size * size, T - 1}):
            out = []
            for h in range(H):
                kv, begin = h // (H // KV), i // size * size
                pages = None
                if begin + size < T:
                    pages = chosen_pages(q[:, h], k[:, kv], begin, size, share)[i // PAGE]
                out += list(output(q[:, h], k[:, kv], v[:, kv], i, pages))
            print(size, f"{share:g}", T, H, KV, D, i, *("%.9g" % x for x in out))


if __name__ == "__main__":
    main()
