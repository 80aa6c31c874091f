# SPDX-License-Identifier: Apache-2.0
"""Bit routers of a Mixtral in planes, in PyTorch: trains them, and computes the loss with the widths that they choose.

Experts are in nested planes of A to B bits (docs/serving.md). A bit router of each expert, [B - A + 1, width], reads a
token's row, and the largest of its logits is the width. Only bit routers are trained:

    loss = CE(p, q) + alpha / layers * sum of p_k b_k

p are the next-token probabilities of the quantized model, q those of the original, and p_k that of width b_k, in the
mean over rows of experts. In training a row's result is the mean of those of all widths, weighted by p_k; a width
takes at most its capacity of the rows, those with the largest p_k. PyTorch and transformers compute everything else.

    bit_routers.py FOLDER A B OUT.safetensors TEXT [--alpha X] [--steps N] [--capacity .3,.4,.3]
    bit_routers.py

FOLDER is a Mixtral that actorrun saved. OUT gets its tensors and the bit routers. Without arguments the script writes
bit_routers.json: the log-probabilities of the model of bit_routers_model.py, which test_bit_routers.py reads."""
import argparse
import json
import pathlib
import sys
import tempfile
import types

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)  # the matrices are small
GROUP = 128


def values(w, base, width):
    """The numbers that the first base, base + 1 ... width planes of a matrix stand for."""
    n, k = w.shape
    padded = torch.nn.functional.pad(w, (0, -k % GROUP))
    groups = padded.reshape(n, -1, GROUP)
    there = torch.nn.functional.pad(torch.ones(n, k), (0, -k % GROUP)).reshape(n, -1, GROUP).bool()
    most = groups.masked_fill(~there, -torch.inf).amax(-1, keepdim=True)
    least = groups.masked_fill(~there, torch.inf).amin(-1, keepdim=True)
    top = float(2 ** base - 1)
    even = most == least
    s = torch.where(even, most.abs(), (most - least) / top)
    z = torch.where(even, (most < 0).float(), torch.round(-least / s.clamp_min(1e-38)))
    q = torch.where(s > 0, torch.round(groups / s.clamp_min(1e-38) + z).clamp(0, top), torch.zeros_like(groups))
    value, all_values = (q - z) * s, []
    for bits in range(base, width + 1):
        if bits > base:
            rest = groups - value
            mean = (rest.abs() * there).double().sum(-1, keepdim=True) / there.sum(-1, keepdim=True)
            value = value + mean.float() * torch.where(rest >= 0, 1.0, -1.0)
        all_values.append(value.reshape(n, -1)[:, :k].contiguous())
    return all_values


class Mixture:
    """The experts of a layer at each width, and their bit routers."""

    def __init__(self, tensors, layer, experts, k, base, width):
        name = f"model.layers.{layer}.block_sparse_moe."
        self.gate, self.k, self.bits = tensors[name + "gate.weight"], k, torch.arange(base, width + 1).float()
        self.experts = [[values(tensors[f"{name}experts.{e}.{w}.weight"], base, width) for w in ("w1", "w3", "w2")]
                        for e in range(experts)]
        self.whole = [[tensors[f"{name}experts.{e}.{w}.weight"] for w in ("w1", "w3", "w2")] for e in range(experts)]
        shape = (experts, len(self.bits), self.gate.shape[1])
        given = [tensors.get(f"{name}experts.{e}.bits.weight") for e in range(experts)]
        self.router = torch.stack(given) if given[0] is not None else 0.02 * torch.randn(shape)
        self.name, self.mode, self.capacity = name, "whole", None

    def limit(self, p):
        """Leaves each width only its capacity of rows."""
        if not self.capacity:
            return p
        kept = torch.zeros_like(p)
        for v, share in enumerate(self.capacity):
            n = max(1, round(share * len(p)))
            rows = p[:, v].topk(min(n, len(p))).indices
            kept[rows, v] = 1
        left = p * kept
        return torch.where(left.sum(-1, keepdim=True) > 0, left / left.sum(-1, keepdim=True).clamp_min(1e-30), p)

    def __call__(self, x):
        flat = x.reshape(-1, x.shape[-1])
        weights, ids = torch.softmax(flat @ self.gate.T, -1).topk(self.k, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        out, self.expected, self.chosen, self.margin = torch.zeros_like(flat), [], [], torch.inf
        for e, widths in enumerate(self.experts):
            rows, place = (ids == e).nonzero(as_tuple=True)
            if not len(rows):
                continue
            h = flat[rows]
            ffn = lambda w: (torch.nn.functional.silu(h @ w[0].T) * (h @ w[1].T)) @ w[2].T
            if self.mode == "whole":
                y = ffn(self.whole[e])
            else:
                logits = h @ self.router[e].T
                p = torch.softmax(logits, -1)
                self.expected.append(p @ self.bits)
                if self.mode == "soft":
                    p = self.limit(p)
                else:
                    best = logits.topk(2, -1).values
                    self.margin = min(self.margin, (best[:, 0] - best[:, 1]).min().item())
                    p = torch.nn.functional.one_hot(logits.argmax(-1), len(self.bits)).float()
                self.chosen.append(p @ self.bits)
                y = sum(p[:, v:v + 1] * ffn([w[v] for w in widths]) for v in range(len(self.bits)))
            out = out.index_add(0, rows, y * weights[rows, place, None])
        return out.reshape(x.shape)


class Model:
    def __init__(self, folder, base, width, tensors=None):
        self.hf = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        self.hf.requires_grad_(False)
        files = sorted(pathlib.Path(folder).glob("*.safetensors"))
        self.tensors = tensors or {name: t for file in files for name, t in load_file(file).items()}
        c = self.hf.config
        self.mixtures = [Mixture(self.tensors, i, c.num_local_experts, c.num_experts_per_tok, base, width)
                         for i in range(c.num_hidden_layers)]
        for layer, mixture in zip(self.hf.model.layers, self.mixtures):
            block = layer.block_sparse_moe if hasattr(layer, "block_sparse_moe") else layer.mlp
            pair = hasattr(layer, "block_sparse_moe")
            block.forward = types.MethodType(
                lambda self, x, m=mixture, pair=pair: (m(x), torch.zeros(x.shape[0] * x.shape[1], 1)) if pair else m(x),
                block)

    def logits(self, ids, mode):
        for mixture in self.mixtures:
            mixture.mode = mode
        return self.hf(ids).logits

    def loss(self, ids, mode):
        """Mean loss of the next tokens, and the mean bits of rows of experts."""
        with torch.no_grad():
            logits = self.logits(ids, mode)
            loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).item()
            bits = 32.0 if mode == "whole" else torch.cat([torch.cat(m.chosen) for m in self.mixtures]).mean().item()
        return loss, bits

    def train(self, text, alpha, steps, capacity=None, rows=4, context=96, lr=1e-2, seed=1):
        random = torch.Generator().manual_seed(seed)
        for mixture in self.mixtures:
            mixture.capacity = capacity
            mixture.router.requires_grad_(True)
        optimizer = torch.optim.Adam([m.router for m in self.mixtures], lr=lr)
        for step in range(steps):
            at = torch.randint(len(text) - context, (rows,), generator=random)
            ids = torch.stack([text[i:i + context] for i in at])
            with torch.no_grad():
                q = torch.softmax(self.logits(ids, "whole"), -1)
            p = torch.log_softmax(self.logits(ids, "soft"), -1)
            expected = torch.stack([torch.cat(m.expected).mean() for m in self.mixtures]).sum()
            loss = -(q * p).sum(-1).mean() + alpha / len(self.mixtures) * expected
            optimizer.zero_grad()
            loss.backward()
            for group in optimizer.param_groups:
                group["lr"] = lr * (1 - step / steps)
            optimizer.step()
        for mixture in self.mixtures:
            mixture.router.requires_grad_(False)
            mixture.capacity = None

    def save(self, path):
        tensors = dict(self.tensors)
        for mixture in self.mixtures:
            for e, router in enumerate(mixture.router):
                tensors[f"{mixture.name}experts.{e}.bits.weight"] = router.detach().clone().contiguous()
        save_file({name: t.contiguous() for name, t in tensors.items()}, path)


def write_reference():
    import bit_routers_model

    with tempfile.TemporaryDirectory() as folder:
        bit_routers_model.write(folder)
        model, answers = Model(folder, 2, 4), []
        for prompt in bit_routers_model.PROMPTS:
            ids = torch.tensor(list(prompt.encode()))
            with torch.no_grad():
                p = torch.log_softmax(model.logits(ids[None], "hard")[0, :-1].double(), -1)
            answers.append([round(x, 6) for x in p.gather(-1, ids[1:, None])[:, 0].tolist()])
            chosen = torch.cat([torch.cat(m.chosen) for m in model.mixtures])
            print(prompt, torch.bincount(chosen.long() - 2, minlength=3).tolist(), "rows of each width; least margin",
                  min(m.margin for m in model.mixtures))
    pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps({"logprobs": answers}) + "\n")


def bytes_of(path):
    return torch.tensor(list(pathlib.Path(path).read_bytes()))


def main():
    if len(sys.argv) == 1:
        write_reference()
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("base", type=int)
    parser.add_argument("width", type=int)
    parser.add_argument("out")
    parser.add_argument("text")
    parser.add_argument("--alpha", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--capacity", default="")
    options = parser.parse_args()
    torch.manual_seed(1)
    model = Model(options.folder, options.base, options.width)
    text = bytes_of(options.text)
    capacity = [float(share) for share in options.capacity.split(",")] if options.capacity else None
    model.train(text, options.alpha, options.steps, capacity)
    model.save(options.out)
    print("loss %.4f, %.3f bits" % model.loss(text[:96][None], "hard"))


if __name__ == "__main__":
    main()
