#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports small random decoders to be served, and writes PyTorch's greedy answers beside them.

    python3 pytorch_served.py --out DIR [--pack FILE] [NAME ...]

DIR/served/ gets NAME.pt2 and answers.json. An answer is computed token by token: the module runs on the tokens so far,
padded to the exported length, which causality hides from them. The figures have each answer's tokens and
log-probabilities. Modules that cannot be served have the text that names the call instead.
"""
import argparse
import json
import math
import os
import sys

import torch
import torch.nn.functional as F
import transformers
from torch import nn

from pytorch_export import pack, rewrite

WORDS, LENGTH, ANSWER = 61, 32, 6
NO_TOKENS = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)
IDS = torch.arange(LENGTH).remainder(WORDS)[None]


class Block(nn.Module):
    """A block of GPT-2, with packed projections. Attention is one call, or written out."""

    def __init__(self, width, heads, length, written):
        super().__init__()
        self.heads, self.written = heads, written
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.register_buffer("seen", torch.tril(torch.ones(length, length))[None, None])

    def forward(self, x):
        rows, time, width = x.shape
        q, k, v = (part.view(rows, time, self.heads, -1).transpose(1, 2)
                   for part in self.attn(self.ln_1(x)).split(width, dim=2))
        if self.written:
            scores = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
            scores = scores.masked_fill(self.seen[:, :, :time, :time] == 0, float("-inf"))
            y = F.softmax(scores, dim=-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(rows, time, width))
        return x + self.down(F.gelu(self.up(self.ln_2(x))))


class GPT(nn.Module):
    """Learned positions and a tied head. `results`: more than the logits."""

    def __init__(self, width=30, heads=5, written=False, results=False, blocks=2):
        super().__init__()
        self.results = results
        self.wte, self.wpe = nn.Embedding(WORDS, width), nn.Embedding(LENGTH + 8, width)
        self.h = nn.ModuleList(Block(width, heads, LENGTH, written) for _ in range(blocks))
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids):
        x = self.wte(ids)
        x = x + (self.wpe.weight[:ids.shape[1]] if self.results else self.wpe(torch.arange(ids.shape[1])))
        first = x
        for block in self.h:
            x = block(x)
        logits = self.head(self.ln_f(x))
        return (first, logits, x.mean()) if self.results else logits


class Pairs(nn.Module):
    """Angles of pairs, one key head for seven query heads, a window, and a cap of the logits."""

    def __init__(self, width=28, heads=7, dim=8, window=9):
        super().__init__()
        self.heads, self.dim = heads, dim
        self.emb = nn.Embedding(WORDS, width)
        self.q, self.k, self.v = nn.Linear(width, heads * dim), nn.Linear(width, dim), nn.Linear(width, dim)
        self.o, self.up, self.down = nn.Linear(heads * dim, width), nn.Linear(width, 40), nn.Linear(40, width)
        at = torch.arange(LENGTH)
        angles = at[:, None] * 1000.0 ** (-torch.arange(0, dim, 2) / dim)
        self.register_buffer("cosines", angles.cos())
        self.register_buffer("sines", angles.sin())
        self.register_buffer("seen", (at[:, None] >= at) & (at[:, None] - at < window))

    def turned(self, x):
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * self.cosines - b * self.sines, a * self.sines + b * self.cosines), -1).flatten(-2)

    def forward(self, ids):
        rows, time = ids.shape
        x = self.emb(ids)
        q = self.turned(self.q(x).view(rows, time, self.heads, self.dim).transpose(1, 2))
        k = self.turned(self.k(x).view(rows, time, 1, self.dim).transpose(1, 2)).expand(-1, self.heads, -1, -1)
        v = self.v(x).view(rows, time, 1, self.dim).transpose(1, 2).expand(-1, self.heads, -1, -1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.seen)
        x = x + self.o(y.transpose(1, 2).reshape(rows, time, -1))
        x = x + self.down(F.relu(self.up(x)) ** 2)
        return 20 * torch.tanh(F.linear(x, self.emb.weight) / 20)


class Encoder(nn.Module):
    """torch's own layers with a causal mask, positions first, on sinusoids."""

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.emb, self.out = nn.Embedding(WORDS, width), nn.Linear(width, WORDS)
        angles = torch.arange(LENGTH)[:, None] * 10000.0 ** (-torch.arange(0, width, 2) / width)
        self.register_buffer("places", torch.stack((angles.sin(), angles.cos()), -1).flatten(1))
        layer = nn.TransformerEncoderLayer(width, heads, 40, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids):
        x = (self.emb(ids) + self.places).transpose(0, 1)
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        return self.out(self.layers(x, mask=mask, is_causal=True).transpose(0, 1))


class Weights(nn.Module):
    """MultiheadAttention that returns its weights, and a table of positions as a parameter."""

    def __init__(self, width=35, heads=5):
        super().__init__()
        self.emb, self.out = nn.Embedding(WORDS, width), nn.Linear(width, WORDS)
        self.places = nn.Parameter(torch.randn(1, LENGTH + 8, width) / 9)
        self.norm, self.attn = nn.RMSNorm(width), nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, ids):
        x = self.emb(ids) + self.places[:, :ids.shape[1]]
        h = self.norm(x)
        hidden = torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool), 1)
        return self.out(x + self.attn(h, h, h, attn_mask=hidden, need_weights=True)[0])


class Logits(nn.Module):
    """The logits of a model of transformers, whose parameters are no initial ones."""

    def __init__(self, config):
        super().__init__()
        self.model = getattr(transformers, type(config).__name__.replace("TextConfig", "Config").replace(
            "Config", "ForCausalLM"))(config)
        with torch.no_grad():
            for p in self.parameters():
                p += torch.randn_like(p) / 20

    def forward(self, ids):
        return self.model(input_ids=ids, use_cache=False).logits


class Loss(nn.Module):
    """A loss with dropout, as it is exported for training."""

    def __init__(self):
        super().__init__()
        self.model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=WORDS, n_layer=2, n_embd=28, n_head=7, n_positions=LENGTH, use_cache=False, **NO_TOKENS))

    def forward(self, ids, labels):
        return self.model(input_ids=ids, labels=labels).loss


class Scored(nn.Module):
    """A loss of the logits of a small decoder, or several results. `outcome`: of the module, ids and labels."""

    def __init__(self, outcome, width=8):
        super().__init__()
        self.emb, self.h = nn.Embedding(WORDS, width), nn.ModuleList([nn.LayerNorm(width)])
        self.head, self.other = nn.Linear(width, WORDS, bias=False), nn.Linear(width, WORDS)
        self.outcome = outcome

    def hidden(self, ids):
        x = self.emb(ids)
        return self.h[0](x + F.scaled_dot_product_attention(*[x[:, None]] * 3, is_causal=True)[:, 0])

    def logits(self, ids):
        return 3 * torch.tanh(self.head(self.hidden(ids)) / 9)

    def forward(self, ids, labels):
        return self.outcome(self, ids, labels)


def cross_entropy(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def shifted_loss(logits, ids):
    return F.nll_loss(logits[:, :-1].log_softmax(-1).transpose(1, 2), ids[:, 1:]) + logits.logsumexp(-1).mean() / 9


class Simple(nn.Module):
    """An embedding and a head, around something that looks at other positions."""

    def __init__(self, between):
        super().__init__()
        self.emb, self.out, self.conv = nn.Embedding(WORDS, 16), nn.Linear(16, WORDS), nn.Conv1d(16, 16, 3)
        self.between = between

    def forward(self, ids):
        return self.out(self.between(self, self.emb(ids), ids))


def decoder(kind, **more):
    return Logits(getattr(transformers, kind)(**(dict(
        vocab_size=WORDS, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=3, head_dim=8, max_position_embeddings=64, **NO_TOKENS) | more)))


LLAMA3 = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
SERVED = {
    "gpt_written": lambda: GPT(width=27, heads=3, written=True),
    "gpt_results": lambda: GPT(results=True, blocks=1),
    "gpt_rows": GPT,
    "pairs": Pairs,
    "encoder": Encoder,
    "weights": Weights,
    "llama3": lambda: decoder("LlamaConfig", num_attention_heads=3, num_key_value_heads=1, rope_parameters=LLAMA3),
    "qwen2": lambda: decoder("Qwen2Config", num_hidden_layers=1),
    "gemma2": lambda: decoder("Gemma2Config", sliding_window=8),
    "phi": lambda: decoder("PhiConfig", num_hidden_layers=1, num_key_value_heads=6, partial_rotary_factor=0.5),
    "mixtral": lambda: decoder("MixtralConfig", num_hidden_layers=1, num_local_experts=4, num_experts_per_tok=2),
    "loss": Loss,
    "loss_cap": lambda: Scored(lambda s, ids, labels: cross_entropy(s.logits(ids), labels)),
    "loss_logs": lambda: Scored(lambda s, ids, labels: shifted_loss(s.logits(ids), ids)),
    "named": lambda: Scored(lambda s, ids, labels: dict(draft=s.other(s.hidden(ids)), logits=s.logits(ids))),
}
SCORED = {
    "loss_heads": (lambda s, ids, labels: cross_entropy(s.logits(ids), labels)
                   + cross_entropy(s.other(s.hidden(ids)), labels), "its loss is computed from several logits, mul"),
    "loss_distilled": (lambda s, ids, labels: cross_entropy(s.logits(ids), labels)
                       + (s.other(s.hidden(ids)) - s.logits(ids)).square().mean(), "from several logits, mul"),
    "loss_square": (lambda s, ids, labels: (s.logits(ids) - F.one_hot(labels, WORDS)).square().mean(),
                    "must return logits [rows, 32, tokens] of all positions, or a cross entropy of such"),
    "loss_late": (lambda s, ids, labels: cross_entropy(s.logits(ids)[:, 1:] * 2, labels[:, 1:]),
                  "export a module that returns the logits"),
    "loss_cut": (lambda s, ids, labels: cross_entropy(s.logits(ids[:, :-1]), ids[:, 1:]),
                 "aten.slice.Tensor (slice_1) at pytorch_served.py:LINE cuts the tokens before they are looked up"),
    "two": (lambda s, ids, labels: (s.logits(ids), s.other(s.hidden(ids))), "several results may be its logits: mul"),
}
REFUSED = {
    "mean": (lambda s, x, ids: x + x.mean(1, keepdim=True),
             "aten.mean.dim (mean) at pytorch_served.py:LINE: it combines positions"),
    "sum": (lambda s, x, ids: x.cumsum(1), "aten.cumsum.default (cumsum) at pytorch_served.py:LINE: it combines"),
    "last": (lambda s, x, ids: x[:, -1:], "must return logits [rows, 32, tokens] of all positions"),
    "mirror": (lambda s, x, ids: x + x.flip(1), "aten.flip.default (flip) at pytorch_served.py:LINE: "),
    "conv": (lambda s, x, ids: s.conv(F.pad(x.transpose(1, 2), (2, 0))).transpose(1, 2), "aten.pad.default (pad) at "),
    "later": (lambda s, x, ids: F.scaled_dot_product_attention(*[x[:, None]] * 3)[:, 0], "attend to later positions"),
    "rows": (lambda s, x, ids: x + x.flip(0), "(flip) at pytorch_served.py:LINE: it may combine rows"),
    "rows_roll": (lambda s, x, ids: x * x.roll(1, 0), "(roll) at pytorch_served.py:LINE: it may combine rows"),
    "length": (lambda s, x, ids: x / ids.shape[1] ** 0.5,
               "aten.div.Tensor (div) at pytorch_served.py:LINE: it computes with the number of positions"),
    "length_end": (lambda s, x, ids: x * torch.arange(ids.shape[1]).flip(0)[:, None],
                   "aten.flip.default (flip) at pytorch_served.py:LINE: its constants depend on the number of"),
    "bias": (lambda s, x, ids: torch.softmax(x @ x.transpose(1, 2) - torch.arange(LENGTH).float(), -1) @ x,
             "aten.matmul.default (matmul) at pytorch_served.py:LINE: it multiplies positions by each other"),
}


def logits_of(module, ids):
    if isinstance(module, Loss):
        return module.model(input_ids=ids).logits
    if isinstance(module, Scored):
        return module.logits(ids)
    results = module(ids)
    return results[1] if isinstance(results, tuple) else results


def answer(module, prompt):
    tokens, logprobs = list(prompt), []
    for _ in range(ANSWER):
        ids = torch.zeros(1, LENGTH, dtype=torch.long)
        ids[0, :len(tokens)] = torch.tensor(tokens)
        row = torch.log_softmax(logits_of(module, ids)[0, len(tokens) - 1].double(), -1)
        tokens.append(int(row.argmax()))
        logprobs.append(float(row.max()))
    return dict(prompt=list(prompt), tokens=tokens[len(prompt):], logprobs=logprobs)


def export(module, name, folder):
    """Exports with one row, with several, or with symbolic numbers of rows and positions."""
    rows = dict(gpt_rows=3, gpt_results=3, loss=4, loss_cap=2, rows=3, rows_roll=3, length=2, length_end=2)
    ids = IDS.expand(rows.get(name, 1), -1).clone()
    both = {0: torch.export.Dim("rows", min=1, max=64), 1: torch.export.Dim("length", min=2, max=LENGTH)}
    dims = (both,) if name in ("gpt_rows", "length", "length_end") else None
    args = (ids, ids) if isinstance(module, (Loss, Scored)) else (ids,)
    program = torch.export.export(module, args, strict=False, dynamic_shapes=dims)
    raw = os.path.join(folder, "raw.pt2")
    torch.export.save(program, raw)
    rewrite(raw, os.path.join(folder, name + ".pt2"))


def make(name, folder):
    torch.manual_seed(7)
    if name in SCORED:
        export(Scored(SCORED[name][0]).eval(), name, folder)
        return dict(refused=SCORED[name][1].split("LINE"))
    if name in REFUSED:
        export(Simple(REFUSED[name][0]).eval(), name, folder)
        return dict(refused=REFUSED[name][1].split("LINE"))
    module = SERVED[name]()
    export(module.train() if name == "loss" else module.eval(), name, folder)
    module.eval()
    generator = torch.Generator().manual_seed(11)
    prompts = [torch.randint(WORDS, (n,), generator=generator).tolist() for n in (1, 7, 25)]
    prompts.append(prompts[2][:20] + [3])  # shares a prefix
    with torch.no_grad():
        return dict(answers=[answer(module, p) for p in prompts])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--pack", metavar="FILE")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = os.path.join(options.out, "served")
    os.makedirs(folder, exist_ok=True)
    found = {name: make(name, folder) for name in options.names or [*SERVED, *SCORED, *REFUSED]}
    with open(os.path.join(folder, "answers.json"), "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
    if options.pack:
        pack(folder, options.pack)


if __name__ == "__main__":
    sys.exit(main())
