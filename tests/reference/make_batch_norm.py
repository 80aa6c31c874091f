# SPDX-License-Identifier: Apache-2.0
"""Writes batch_norm_init.safetensors and, for 1 and 4 microbatches, batch_norm_M.safetensors and the
losses in batch_norm.txt: 6 steps of the model of tests/models/batch_norm.c in PyTorch.

    pip install torch safetensors
    make_batch_norm.py
"""
import torch
from safetensors.torch import save_file

BATCH, CHANNELS, WIDTH, MIDDLE, OUT, STEPS = 16, 2, 7, 4, 5, 6


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(CHANNELS, MIDDLE, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm1d(MIDDLE)
        self.fc = torch.nn.Linear(MIDDLE * WIDTH, OUT, bias=False)
        self.bn2 = torch.nn.BatchNorm1d(OUT, eps=1e-2, momentum=0.3)

    def forward(self, x):
        return self.bn2(self.fc(self.bn1(self.conv(x)).relu().flatten(1)))


def numbers(first, salt, *dims):
    n = 1
    for d in dims:
        n *= d
    at = torch.arange(first * n // dims[0], first * n // dims[0] + n, dtype=torch.int64)
    return (((at * 7919 + salt * 104729 + at * at * 31) % 257 - 128).float() / 64).view(dims)


def state(model):
    return {k: v.float().contiguous() for k, v in model.state_dict().items()}


def loss_of(model, first, rows):
    x, t = numbers(first, 1, rows, CHANNELS, WIDTH), numbers(first, 2, rows, OUT)
    return torch.nn.functional.mse_loss(model(x), t)


torch.manual_seed(11)
start = Model()
save_file(state(start), "batch_norm_init.safetensors")
with open("batch_norm.txt", "w") as f:
    for m in (1, 4):
        model = Model()
        model.load_state_dict(start.state_dict())
        decayed = [p for p in model.parameters() if p.ndim > 1]
        others = [p for p in model.parameters() if p.ndim < 2]
        sgd = torch.optim.SGD([{"params": decayed, "weight_decay": 0.01}, {"params": others}], lr=0.1)
        rows, losses = BATCH // m, []
        for step in range(STEPS):
            sgd.zero_grad()
            loss = 0.0
            for i in range(m):
                part = loss_of(model, step * BATCH + i * rows, rows) / m
                part.backward()
                loss += part.item()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 2)
            sgd.step()
            losses.append(loss)
            f.write("%d step %d loss %.9g norm %.9g\n" % (m, step, loss, norm))
        save_file(state(model), "batch_norm_%d.safetensors" % m)
        model.eval()
        with torch.no_grad():
            held = sum(loss_of(model, 1000 + i * rows, rows).item() for i in range(2)) / 2
        f.write("%d eval %.9g\n" % (m, held))
