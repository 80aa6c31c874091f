#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports tiny modules whose batch dim moves, with PyTorch's results for several microbatches, like pytorch_odd.py.

    python3 pytorch_rows.py --out DIR [--pack FILE]

Writes DIR/rows/NAME.pt2, its inputs and losses.json. The tests use pytorch/rows.tar.gz. The batch has six rows, as many
as positions and features, so lengths do not tell them apart. A case is a module on a plan: microbatches, or devices that
share the rows. A case that Sluice refuses has a part of the message.
"""
import argparse
import json
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from pytorch_export import pack, rewrite

ROWS, POSITIONS, FEATURES = 6, 6, 6


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.line = nn.MultiheadAttention(FEATURES, 2, batch_first=True), nn.Linear(FEATURES, FEATURES)

    def forward(self, x, y):
        return F.mse_loss(self.line(self.attention(x, x, x, need_weights=False)[0]), y)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(FEATURES, 2, 7, dropout=0.0)

    def forward(self, x, y):
        return F.mse_loss(self.layer(x.transpose(0, 1)).transpose(0, 1), y)


class Merged(nn.Module):
    """Positions and rows are merged, with the rows inside."""

    def __init__(self):
        super().__init__()
        self.line, self.norm = nn.Linear(FEATURES, FEATURES), nn.LayerNorm(FEATURES)

    def forward(self, x, y):
        h = x.transpose(0, 1).reshape(POSITIONS * x.shape[0], FEATURES)
        h = self.norm(F.gelu(self.line(h)) + h).view(POSITIONS, x.shape[0], FEATURES).cumsum(0)
        return F.mse_loss(h.reshape(-1, FEATURES), y.transpose(0, 1).reshape(-1, FEATURES))


class Line(nn.Module):
    def __init__(self, loss):
        super().__init__()
        self.line, self.loss = nn.Linear(FEATURES, FEATURES), loss

    def forward(self, x, y):
        return self.loss(self.line(x), x, y)


class Expanded(nn.Module):
    """A parameter for each position is expanded to the rows, and merged with them."""

    def __init__(self):
        super().__init__()
        self.token, self.line = nn.Parameter(torch.randn(POSITIONS, 1, FEATURES)), nn.Linear(FEATURES, FEATURES)

    def forward(self, x, y):
        h = self.line(self.token.expand(POSITIONS, x.shape[0], FEATURES).reshape(-1, FEATURES))
        return F.mse_loss(h.view(POSITIONS, x.shape[0], FEATURES).transpose(0, 1) * x, y)


class Recurrent(nn.Module):
    """Layers that go through the positions, and what their last states are used for."""

    def __init__(self, kind, first=True, **options):
        super().__init__()
        self.layers, self.first = kind(FEATURES, 5, batch_first=first, **options), first
        self.out = nn.Linear((options.get("proj_size") or 5) * (1 + options.get("bidirectional", False)), FEATURES)
        self.start = nn.Parameter(torch.randn(1, 1, 5)) if kind is nn.RNN else None

    def forward(self, x, y):
        x = x if self.first else x.transpose(0, 1)
        if isinstance(self.layers, nn.RNN):
            h, last = self.layers(x, self.start.expand(-1, y.shape[0], -1).contiguous())
        else:
            h, last = self.layers(x)
        h = self.out(h) if self.first else self.out(h).transpose(0, 1)
        states = last if isinstance(last, tuple) else (last, last.square())
        return F.mse_loss(h, y) + states[0][-1].sin().mean() + states[1][0].cos().mean()


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru, self.rnn = nn.LSTMCell(FEATURES, 5), nn.GRUCell(5, 4), nn.RNNCell(4, FEATURES, nonlinearity="relu")

    def forward(self, x, y):
        states, h, out = None, None, None
        for t in range(3):
            states = self.lstm(x[:, t], states)
            h = self.gru(states[0], h)
            out = self.rnn(h, out)
        return F.mse_loss(out, y[:, 0]) + states[1].square().mean()


def squares(h, x, y):
    return ((h - y) ** 2).sum()


MAY = "may be the 6 rows of the exported batch, and meets a sum over rows"
MODULES = {  # name: module, whether the batch dim is symbolic
    "attention": (Attention, False), "layer": (Layer, False), "merged": (Merged, False), "expanded": (Expanded, False),
    "expanded_symbol": (Expanded, True),
    "divided": (lambda: Line(lambda h, x, y: squares(h, x, y) / x.shape[0]), False),
    "divided_symbol": (lambda: Line(lambda h, x, y: squares(h, x, y) / x.shape[0]), True),
    "times_symbol": (lambda: Line(lambda h, x, y: squares(h, x, y) * (1.0 / x.shape[0])), True),
    "counted_symbol": (lambda: Line(lambda h, x, y: squares(h, x, y) / torch.ones(x.shape[0]).sum()), True),
    "before": (lambda: Line(lambda h, x, y: ((h - y) ** 2 / y.numel()).sum()), False),
    "batchmean": (lambda: Line(lambda h, x, y: F.kl_div(h.log_softmax(-1), y.softmax(-1), reduction="batchmean")), False),
    "lstm": (lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True), False),
    "lstm_symbol": (lambda: Recurrent(nn.LSTM, first=False, proj_size=3, bias=False), True),
    "gru": (lambda: Recurrent(nn.GRU, first=False, num_layers=2, bidirectional=True), False),
    "gru_symbol": (lambda: Recurrent(nn.GRU), True), "rnn": (lambda: Recurrent(nn.RNN), False),
    "cells": (Cells, False), "cells_symbol": (Cells, True),
    "picked": (lambda: Line(lambda h, x, y: 0 + F.mse_loss(h[torch.arange(x.shape[0]), 0], y[:, 0])), False),
    "some": (lambda: Line(lambda h, x, y: h[torch.tensor([0, 5, 2])].square().mean()), False),
    "some_selected": (lambda: Line(lambda h, x, y: h.index_select(0, torch.tensor([0, 5, 2])).square().mean()), False),
    "flipped": (lambda: Line(lambda h, x, y: F.mse_loss(h.flip(0), y)), False),
    "differs": (lambda: Line(lambda h, x, y: squares(h * torch.arange(6.).view(6, 1, 1), x, y)), False),
}
CASES = [  # module, plan, a part of the message or None
    *((name, plan, None) for name in ("attention", "layer", "merged")
      for plan in (dict(microbatches=2), dict(microbatches=6), dict(data=3))),
    ("expanded", dict(), None),
    ("expanded", dict(microbatches=2), "dim 1, of 6, may be the rows of the exported batch, or not"),
    ("expanded_symbol", dict(microbatches=3), None),
    ("divided", dict(data=2), None), ("divided", dict(microbatches=2), MAY),
    ("divided", dict(microbatches=2, rows_in_constants="yes"), None),
    ("divided_symbol", dict(microbatches=2), None), ("times_symbol", dict(microbatches=3), None),
    ("counted_symbol", dict(microbatches=2), None),
    ("before", dict(microbatches=2), MAY), ("batchmean", dict(microbatches=2), MAY),
    ("batchmean", dict(microbatches=3, rows_in_constants="yes"), None),
    ("lstm", dict(), None), ("lstm", dict(microbatches=2), None), ("lstm", dict(data=3), None), ("lstm_symbol", dict(microbatches=3), None),
    ("gru", dict(), None), ("gru", dict(microbatches=3), None), ("gru_symbol", dict(data=2), None), ("rnn", dict(microbatches=2), None),
    ("cells", dict(microbatches=2), None), ("cells_symbol", dict(data=3), None),
    ("picked", dict(microbatches=2), None), ("picked", dict(data=3), None), ("some", dict(), None),
    ("some", dict(microbatches=2), "it takes some rows of a batch"), ("some_selected", dict(microbatches=3), "it takes some rows of a batch"),
    ("flipped", dict(), None), ("flipped", dict(microbatches=2), "it moves or mixes the rows of a batch, of which a microbatch has 3 of 6; use one microbatch"),
    ("differs", dict(), None), ("differs", dict(microbatches=2), "a constant differs by row"),
]


def numbers(module, inputs, microbatches):
    """The mean over microbatches of the losses and gradients."""
    loss = sum(module(*part) for part in zip(*(t.chunk(microbatches) for t in inputs.values()))) / microbatches
    loss.backward()
    return dict(loss=loss.item(), gradients={n: p.grad.flatten().tolist() for n, p in module.named_parameters()})


def export(name, module, inputs, folder):
    rows = torch.export.Dim("rows")
    symbols = tuple({0: rows} for _ in inputs) if MODULES[name][1] else None
    program = torch.export.export(module, tuple(inputs.values()), dynamic_shapes=symbols, strict=False)
    raw = os.path.join(folder, "raw.pt2")
    torch.export.save(program, raw)
    rewrite(raw, os.path.join(folder, name + ".pt2"))
    os.remove(raw)
    for key, tensor in inputs.items():
        np.save(os.path.join(folder, f"{name}.{key}.npy"), tensor.numpy())


def make(name, plan, message, folder):
    torch.manual_seed(3)
    module = MODULES[name][0]().train()
    inputs = {key: torch.randn(ROWS, POSITIONS, FEATURES) for key in ("x", "y")}
    if not os.path.exists(os.path.join(folder, name + ".pt2")):
        export(name, module, inputs, folder)
    known = {"refused": message} if message else numbers(module, inputs, plan.get("microbatches", 1))
    return dict(file=name, inputs=list(inputs)) | plan | known


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--pack", metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = os.path.join(options.out, "rows")
    os.makedirs(folder, exist_ok=True)
    found = {}
    for name, plan, message in CASES:
        words = [name] + [f"{key}_{value}" for key, value in plan.items()]
        found["_".join(words)] = make(name, plan, message, folder)
    with open(os.path.join(folder, "losses.json"), "w") as file:
        json.dump(found, file, separators=(",", ":"))
    if options.pack:
        pack(folder, options.pack)


if __name__ == "__main__":
    sys.exit(main())
