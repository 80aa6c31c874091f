# SPDX-License-Identifier: Apache-2.0
"""Writes masks.txt: results and gradients of PyTorch's scaled_dot_product_attention with windows,
padding and documents, in double precision.

    pip install torch
    make_masks.py > masks.txt

A case is a line `case HEADS KV_HEADS FULL WINDOW B T D`, with WINDOW 0 for none, then one line per array,
a word and its values: `ids` [B, T], as attention takes them (all 0: like none), `q`, `k`, `v`, `o`, `do`,
`dq`, `dk` and `dv` [B, T, heads * D]. Queries without visible keys give 0 and take no gradient, unlike in
PyTorch. tests/kernels/test_masks.c reads it.
"""
import torch

torch.manual_seed(11)

WHOLE = [[0] * 6]
CASES = [  # heads, key heads, full, window, ids
    (1, 1, False, 0, WHOLE), (2, 1, False, 3, WHOLE), (1, 1, True, 2, WHOLE), (1, 1, False, 1, WHOLE),
    (2, 2, False, 0, [[0, 0, 1, 1, 1, 2]]), (2, 1, False, 2, [[0, 0, 0, 1, 1, 1]]),
    (1, 1, True, 0, [[0, 0, 0, 0, -1, -1], [-1, 0, 0, -1, 0, 0]]),
    (1, 1, True, 3, [[4, 4, 1, 1, 4, 4]]), (1, 1, True, 0, [[-1] * 6]),
]
D = 2


def seen(full, window, ids):
    i, j = torch.arange(ids.shape[1])[:, None], torch.arange(ids.shape[1])[None]
    near = (i - j).abs() < (window or 1 << 30)
    if not full:
        near &= j <= i
    return near & (ids[:, :, None] == ids[:, None]) & (ids >= 0)[:, None]  # [B, T, T]


def heads_of(x, heads):
    return x.unflatten(2, (heads, D)).transpose(1, 2)


for heads, kv_heads, full, window, ids in CASES:
    ids = torch.tensor(ids)
    B, T = ids.shape
    draw = lambda n: (torch.rand(B, T, n * D) * 2 - 1).double().requires_grad_()
    q, k, v = draw(heads), draw(kv_heads), draw(kv_heads)
    mask = seen(full, window, ids)
    blind = ~mask.any(2)
    o = torch.nn.functional.scaled_dot_product_attention(
        heads_of(q, heads), heads_of(k, kv_heads), heads_of(v, kv_heads),
        attn_mask=(mask | blind[:, :, None])[:, None], enable_gqa=True)
    o = o.transpose(1, 2).flatten(2) * ~blind[:, :, None]
    do = torch.rand_like(o) - 0.5
    do = do.float().double()
    o.backward(do)
    print("case", heads, kv_heads, int(full), window, B, T, D)
    print("ids", *ids.flatten().tolist())
    for word, x in zip("q k v o do dq dk dv".split(), (q, k, v, o, do, q.grad, k.grad, v.grad)):
        print(word, *(f"{n:.8g}" for n in x.flatten().tolist()))
