# SPDX-License-Identifier: Apache-2.0
"""Trains an unmodified PyTorch module on two stages: pytorch_module.py [STEPS]."""
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import sluice.torch


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x + self.down(F.gelu(self.up(self.norm(x))))
        return out


class Spiral(nn.Module):
    """Classifies which of three arms of a spiral a point lies on."""

    def __init__(self, width: int = 32, layers: int = 6) -> None:
        super().__init__()
        self.into, self.head = nn.Linear(2, width), nn.Linear(width, 3)
        self.blocks = nn.ModuleList([Block(width) for _ in range(layers)])

    def logits(self, points: torch.Tensor) -> torch.Tensor:
        x = self.into(points)
        for block in self.blocks:
            x = block(x)
        out: torch.Tensor = self.head(x)
        return out

    def forward(self, points: torch.Tensor, arm: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.logits(points), arm)  # the loss


torch.manual_seed(0)
arm = torch.arange(3072) % 3
radius = torch.rand(3072)
angle = 4 * radius + 2.1 * arm + 0.15 * torch.randn(3072)
points = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
loader = DataLoader(TensorDataset(points, arm), batch_size=64, shuffle=True, drop_last=True)

module = Spiral()
run = sluice.torch.Run(module, next(iter(loader)), stages=2, microbatches=4, schedule="zb-h1", lr=2e-3, trace_records=100000)
print(run)
print(run.plan.stages)
for step in run.train(loader, steps=int((sys.argv + ["300"])[1]))[::50]:
    print("step %3d, loss %.3f" % (step.step, step.loss))

module.load_state_dict(run.state_dict())
right = (module.logits(points).argmax(1) == arm).float().mean().item()
print("right: %.1f %%, loss %.3f (the run's: %.3f)" % (100 * right, module(points, arm).item(), run.evaluate((points, arm))["loss"]))
print(run.trace().show())
