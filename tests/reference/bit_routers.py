# SPDX-License-Identifier: Apache-2.0
"""Bit routers of a Mixtral in planes, in PyTorch: the losses of their training, and the widths that they choose.

Experts are in nested planes of A to B bits (docs/serving.md). A bit router of each expert, [B - A + 1, width], reads a
token's row, and the largest of its logits is the width. Only bit routers are trained:

    loss = CE(q, p) + alpha / layers * sum of p_k b_k

p are the next-token probabilities of the quantized model, q those of the original, and p_k that of width b_k, in the
mean over rows of experts. A row's result is that of its width, with the gradient of a mean of all widths weighted by
p_k. A width takes at most its capacity of an expert's rows; rows and widths are paired in falling order of p_k. PyTorch
and transformers compute everything else.

The script writes bit_routers.json, which test_bit_routers.py reads: for the model of bit_routers_model.py its
log-probabilities, and the losses and mean bits of some steps on text.txt."""
import json
import math
import pathlib
import tempfile
import types

import torch
from safetensors.torch import load_file
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

    def choose(self, p):
        """The width of each row of an expert, one-hot."""
        if not self.capacity:
            return torch.nn.functional.one_hot(p.argmax(-1), p.shape[-1]).float()
        room = [math.ceil(round(share * 1e6) * len(p) / 1e6) for share in self.capacity]
        chosen = torch.zeros_like(p)
        for _, row, v in sorted((-p[row, v].item(), row, v) for row in range(len(p)) for v in range(p.shape[-1])):
            if room[v] and not chosen[row].any():
                room[v] -= 1
                chosen[row, v] = 1
        return chosen

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
                best = logits.topk(2, -1).values
                self.margin = min(self.margin, (best[:, 0] - best[:, 1]).min().item())
                hard = self.choose(p.detach())
                p = p + (hard - p).detach()
                self.chosen.append(p @ self.bits)
                y = sum(p[:, v:v + 1] * ffn([w[v] for w in widths]) for v in range(len(self.bits)))
            out = out.index_add(0, rows, y * weights[rows, place, None])
        return out.reshape(x.shape)


class Model:
    def __init__(self, folder, base, width):
        self.hf = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        self.hf.requires_grad_(False)
        files = sorted(pathlib.Path(folder).glob("*.safetensors"))
        self.tensors = {name: t for file in files for name, t in load_file(file).items()}
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

    def train(self, text, alpha, capacity, steps, rows, context, lr):
        """Yields the loss and the mean bits of each step."""
        for mixture in self.mixtures:
            mixture.capacity = capacity
            mixture.router.requires_grad_(True)
        optimizer = torch.optim.AdamW([m.router for m in self.mixtures], lr=lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
        for step in range(steps):
            ids = text[step * rows * context:(step + 1) * rows * context].reshape(rows, context)
            with torch.no_grad():
                q = torch.softmax(self.logits(ids, "whole"), -1)
            p = torch.log_softmax(self.logits(ids, "planes"), -1)
            expected = torch.stack([torch.cat(m.expected).mean() for m in self.mixtures]).sum()
            bits = torch.stack([torch.cat(m.chosen).mean() for m in self.mixtures]).mean().item()
            loss = -(q * p).sum(-1).mean() + alpha / len(self.mixtures) * expected
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss.item(), bits


def write_reference():
    import bit_routers_model

    with tempfile.TemporaryDirectory() as folder:
        bit_routers_model.write(folder)
        model, answers = Model(folder, 2, 4), []
        for prompt in bit_routers_model.PROMPTS:
            ids = torch.tensor(list(prompt.encode()))
            with torch.no_grad():
                p = torch.log_softmax(model.logits(ids[None], "planes")[0, :-1].double(), -1)
            answers.append([round(x, 6) for x in p.gather(-1, ids[1:, None])[:, 0].tolist()])
            chosen = torch.cat([torch.cat(m.chosen) for m in model.mixtures])
            print(prompt, torch.bincount(chosen.long() - 2, minlength=3).tolist(), "rows of each width; least margin",
                  min(m.margin for m in model.mixtures))
        trained = []
        text = torch.tensor(list(pathlib.Path(__file__).with_name("text.txt").read_bytes()))
        for run in bit_routers_model.RUNS:
            model = Model(folder, 2, 4)
            steps = list(model.train(text, run["alpha"], run["capacity"], **bit_routers_model.STEPS))
            trained.append([[round(loss, 7), round(bits, 6)] for loss, bits in steps])
            print(run, trained[-1], "least margin", min(m.margin for m in model.mixtures))
    found = {"logprobs": answers, "trained": trained}
    pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    write_reference()
