#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes dual_chunk.txt: outputs of dual chunk attention (An et al., arXiv 2402.17463), computed score by score.

    python3 make_dual_chunk.py > dual_chunk.txt

Each line has chunk_size, local_size, the original context (0 if none), theta, positions, query heads, key heads, head
width, a position, and the output at that position. Queries, keys and values are sines: value n of their concatenation is
sin(0.37 n + 1 / (n + 1)) in f32.
"""
import numpy as np

CASES = [
    (96, 32, 0, 100.0, 250, 2, 1, 8),
    (200, 72, 60, 10000.0, 400, 1, 1, 16),
    (320, 256, 40, 500.0, 330, 4, 2, 4),  # the local part is longer than a chunk
    (4096, 1024, 0, 10000.0, 90, 2, 2, 8),  # all in one chunk
]


def turned(x, position, theta):
    """Rotates x [D] to a position: the pair j, j + D/2 turns by position theta^(-2j/D)."""
    half = len(x) // 2
    angle = position * theta ** (-np.arange(half) / half)
    a, b = x[:half], x[half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)])


def query_position(i, j, size, local):
    chunk = size - local
    between = i // chunk - j // chunk
    if between == 0:
        return i % chunk
    return min(i % chunk + chunk, size) if between == 1 else min(2 * chunk - 1, size)


def sharpness(i, original):
    return max(0.1 * np.log((i + 1) / original) + 1, 1) if original else 1.0


def outputs(size, local, original, theta, T, H, KV, D, i):
    sizes = [T * H * D, T * KV * D, T * KV * D]
    n = np.arange(sum(sizes), dtype=np.float64)
    of = np.split(np.sin(0.37 * n + 1 / (n + 1)).astype(np.float32).astype(np.float64), np.cumsum(sizes)[:-1])
    q, k, v = of[0].reshape(T, H, D), of[1].reshape(T, KV, D), of[2].reshape(T, KV, D)
    out = []
    for h in range(H):
        kv = h // (H // KV)
        scores = np.array([np.dot(turned(q[i, h], query_position(i, j, size, local), theta),
                                  turned(k[j, kv], j % (size - local), theta)) for j in range(i + 1)])
        weights = np.exp((scores * sharpness(i, original)) / np.sqrt(D))
        out += list(weights @ v[:i + 1, kv] / weights.sum())
    return out


def main():
    for case in CASES:
        T = case[4]
        for i in sorted({0, 5, T // 4, T // 3, T // 2, 2 * T // 3, T - 30, T - 1}):
            print(*("%g" % x for x in case), i, *("%.9g" % x for x in outputs(*case, i)))


if __name__ == "__main__":
    main()
