#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes index_loss.json: what trains the indexers of models/deepseek_v32.json and glm_moe_dsa.json, by PyTorch.

    pip install torch transformers safetensors numpy
    python3 make_index_loss.py

The loss of an indexer (arXiv 2512.02556) is the divergence of the softmax of its scores from the attention's
probabilities, summed over heads and divided by their sum, over the tokens that a token sees; here the mean over all
tokens. The model and its attention are those of transformers, with eager attention, which returns probabilities. The
scores are computed again, as transformers' indexer computes them without gradients, from inputs without gradients.
The cases: all parameters with the chosen tokens, and the warm-up, all tokens and the indexers alone. A step has the sum
of the losses, the cross entropy, and the gradients' norm.
"""
import argparse
import importlib
import json
import os
import tempfile

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

import finetune
from make_reference import HERE
from model_folder import write_folder


def scores_of(module, hidden, query, places):
    """Returns the scores [B, T, T] of an indexer."""
    functions = importlib.import_module(type(module).__module__)
    rotate = functions.apply_rotary_pos_emb if module.halves else functions.apply_rotary_pos_emb_interleave
    batch, length, rope = hidden.shape[0], hidden.shape[1], module.qk_rope_head_dim
    q = module.wq_b(query).view(batch, length, module.n_heads, module.head_dim)
    k = module.k_norm(module.wk(hidden)).unsqueeze(2)
    turned = rotate(q[..., :rope], k[..., :rope], *places, unsqueeze_dim=2)
    q, k = (torch.cat([x, y[..., rope:]], -1) for x, y in zip(turned, (q, k)))
    products = F.relu(torch.einsum("bthd,bsd->bths", q, k[:, :, 0])) * module.head_dim**-0.5
    return torch.einsum("bths,bth->bts", products, module.weights_proj(hidden) * module.n_heads**-0.5)


def watch(model, halves):
    """Lists, at each forward pass, the scores and choices of the indexers, and the probabilities of their blocks."""
    seen = []
    for layer in model.model.layers:
        attention = layer.self_attn
        if getattr(attention, "indexer", None) is None:
            continue
        attention.indexer.halves = halves

        def chosen(module, given, named, got, attention=attention):
            names = ("hidden_states", "q_resid", "position_embeddings")
            hidden, query, places = (named[n] if n in named else given[i] for i, n in enumerate(names))
            seen.append([attention, scores_of(module, hidden.detach(), query.detach(), places), got])

        def attended(module, _, got):
            next(row for row in seen if row[0] is module).append(got[1].detach())

        attention.indexer.register_forward_hook(chosen, with_kwargs=True)
        attention.register_forward_hook(attended)
    return seen


def divergence(scores, chosen, weights):
    """Returns the mean divergence over all tokens."""
    length = scores.shape[-1]
    sees = torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, chosen.long(), True)
    sees &= torch.ones(length, length, dtype=torch.bool).tril()
    target = weights.sum(1)
    target = target / target.sum(-1, keepdim=True)
    logs = scores.masked_fill(~sees, float("-inf")).log_softmax(-1)
    terms = target * (target.clamp_min(1e-45).log() - logs)
    return terms.masked_fill(~sees | (target == 0), 0).sum(-1).mean()


def steps_of(name, halves, warm):
    with tempfile.TemporaryDirectory() as folder:
        write_folder(os.path.join(HERE, "models", name + ".json"), folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        stream = finetune.tokens_of(folder, os.path.join(HERE, "text.txt"))
    for layer in model.model.layers if warm else ():
        if getattr(layer.self_attn, "indexer", None) is not None:
            layer.self_attn.indexer.index_topk = 1 << 20
    if warm:
        for key, param in model.named_parameters():
            param.requires_grad = ".indexer." in key
    seen, kept, plain = watch(model, halves), [], finetune.loss_of

    def loss_of(*args):
        seen.clear()
        loss = plain(*args)
        kept.append(loss.item())
        return loss + sum(divergence(scores, chosen, weights) for _, scores, chosen, weights in seen)

    finetune.loss_of = loss_of
    args = argparse.Namespace(context=32, batch=4, steps=3, lr=1e-3)
    steps = [[loss, kept[step], norm] for _, step, loss, norm in finetune.train(model, stream, None, args)]
    finetune.loss_of = plain
    print(name, "warm-up" if warm else "", steps, flush=True)
    return steps


def main():
    torch.set_num_threads(1)
    made = {name + ' warm-up' * warm: steps_of(name, name == "deepseek_v32", warm)
            for name in ("deepseek_v32", "glm_moe_dsa") for warm in (False, True)}
    with open(os.path.join(HERE, "index_loss.json"), "w") as file:
        json.dump(made, file)
        file.write("\n")


if __name__ == "__main__":
    main()
