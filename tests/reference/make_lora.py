#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes lora_gpt2/ and lora_llama/: adapters as PEFT saves them, and their losses in PyTorch.

    python3 make_lora.py [--out DIR]            (needs the packages of make_reference.py, and peft)
    python3 make_lora.py --check ADAPTER gpt2   prints PEFT's losses with an adapter saved by Sluice

The models are hf_gpt2 and hf_llama of this folder. Their adapters start with seeded values, without
zeros. losses.txt has the loss of each AdamW step in fp64, with the settings of make_reference.py.
"""
import argparse
import os
import sys

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from make_reference import (HERE, MODELS, TRAIN, TrueDouble, build, f32, loss_of, lr_at, rows_of)

STEPS = 8
CASES = {
    "gpt2": dict(r=4, lora_alpha=8, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True,
                 rank_pattern={"h.1.attn.c_attn": 2}, alpha_pattern={"h.1.attn.c_attn": 6}),
    "llama": dict(r=3, lora_alpha=6, target_modules=["q_proj", "v_proj", "down_proj"],
                  use_rslora=True),
}


def stream_of():
    return np.fromfile(os.path.join(HERE, "tokens.u16"), "<u2")


def adapted(name):
    config = LoraConfig(task_type="CAUSAL_LM", bias="none", lora_dropout=0.0, **CASES[name])
    model = get_peft_model(build("hf_" + name), config)
    rng = np.random.Generator(np.random.PCG64(21))
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.copy_(torch.from_numpy(0.2 * rng.standard_normal(tuple(p.shape))))
    return model


def step_loss(model, name, step, micro=None):
    o = TRAIN
    tokens, targets = rows_of(stream_of(), MODELS["hf_" + name]["context"], step * o["batch"],
                              o["batch"])
    return loss_of(model, tokens, targets)[0]


def train(name):
    """Returns the losses of all steps, and the loss after the last step."""
    o, model, losses = TRAIN, adapted(name).double(), []
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, betas=(f32(o["beta1"]), f32(o["beta2"])),
                                  eps=f32(o["adam_eps"]), weight_decay=f32(o["weight_decay"]),
                                  foreach=False)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = step_loss(model, name, step)
        loss.backward()
        losses.append(loss.item())
        norm = torch.sqrt(sum(p.grad.pow(2).sum() for p in params)).item()
        scale = min(1.0, f32(o["clip"]) / (norm + 1e-6))
        for p in params:
            p.grad.mul_(scale)
        for group in optimizer.param_groups:
            group["lr"] = lr_at(o, step)
        optimizer.step()
    return losses + [step_loss(model, name, STEPS).item()]


def write(name, out):
    folder = os.path.join(out, "lora_" + name)
    adapted(name).save_pretrained(folder)
    readme = os.path.join(folder, "README.md")
    if os.path.exists(readme):
        os.remove(readme)  # PEFT's unfilled model card template
    os.chmod(os.path.join(folder, "adapter_model.safetensors"), 0o644)
    with TrueDouble():
        losses = train(name)
    with open(os.path.join(folder, "losses.txt"), "w") as f:
        f.writelines(f"{i} {loss:.15g}\n" for i, loss in enumerate(losses))
    print(name, *(f"{loss:.6f}" for loss in losses))


def check(folder, name):
    model = PeftModel.from_pretrained(build("hf_" + name), folder).double()
    with TrueDouble(), torch.no_grad():
        print(f"{step_loss(model, name, STEPS).item():.15g}")
        print(f"{step_loss(model.merge_and_unload(), name, STEPS).item():.15g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=HERE)
    parser.add_argument("--check", nargs=2, metavar=("ADAPTER", "MODEL"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.check:
        check(*args.check)
        return 0
    for name in CASES:
        write(name, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
