#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes dual_chunk_losses.txt: losses of hf_qwen2 in PyTorch, trained as finetune.py does, in f64, with dual chunk attention
in place of its RoPE (step, loss, gradient norm).

    python3 make_dual_chunk_losses.py > dual_chunk_losses.txt

Attention rotates the product of a query and a key by their chunked distance (make_dual_chunk.py), with pairs as complex
numbers. test_huggingface.py uses the same config.json.
"""
import os

import torch
import transformers
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.models.qwen2 import modeling_qwen2

import finetune
from make_dual_chunk import query_position, sharpness
from make_reference import HERE

SIZE, LOCAL, ORIGINAL, THETA, CONTEXT = 80, 16, 70, 50000.0, 200


def pairs(x, heads, dim):
    """Returns x [B, T, heads dim] as complex numbers [B, heads, T, dim / 2]."""
    x = x.unflatten(-1, (heads, dim)).transpose(1, 2)
    return torch.complex(x[..., :dim // 2].contiguous(), x[..., dim // 2:].contiguous())


def forward(self, hidden_states, **_):
    heads, kv_heads, dim = self.config.num_attention_heads, self.config.num_key_value_heads, self.head_dim
    q, k = pairs(self.q_proj(hidden_states), heads, dim), pairs(self.k_proj(hidden_states), kv_heads, dim)
    v = self.v_proj(hidden_states).unflatten(-1, (kv_heads, dim)).transpose(1, 2)
    k, v = (x.repeat_interleave(heads // kv_heads, 1) for x in (k, v))
    T = hidden_states.shape[1]
    distance = torch.tensor([[query_position(i, j, SIZE, LOCAL) - j % (SIZE - LOCAL) for j in range(T)] for i in range(T)],
                            dtype=torch.float64)
    frequency = THETA ** (-torch.arange(dim // 2, dtype=torch.float64) / (dim // 2))
    turn = torch.polar(torch.ones(1, dtype=torch.float64), distance[..., None] * frequency)
    scores = torch.einsum("bhid,bhjd,ijd->bhij", q, k.conj(), turn).real / dim ** 0.5
    scores = scores * torch.tensor([sharpness(i, ORIGINAL) for i in range(T)], dtype=torch.float64)[:, None]
    scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), float("-inf"))
    return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)), None


def main():
    folder = os.path.join(HERE, "hf_qwen2")
    modeling_qwen2.Qwen2Attention.forward = forward
    config = Qwen2Config.from_pretrained(folder)
    config.rope_parameters = {"rope_type": "default", "rope_theta": THETA}
    model = Qwen2ForCausalLM.from_pretrained(folder, config=config, dtype=torch.float64).eval()
    args = finetune.arguments("").parse_args([folder, "text.txt", "--context", str(CONTEXT), "--batch", "4", "--lr", "1e-3"])
    print(f"# torch={torch.__version__} transformers={transformers.__version__}")
    for _, step, loss, norm in finetune.train(model, finetune.tokens_of(folder, os.path.join(HERE, "text.txt")), None, args):
        print(step, "%.9g" % loss, "%.9g" % norm)


if __name__ == "__main__":
    main()
