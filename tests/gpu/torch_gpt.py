#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPT-2 in PyTorch, trained as actorrun trains its gpt: bf16 autocast, torch.compile,
scaled_dot_product_attention, fused AdamW, clipping of the global gradient norm; the same
data order, microbatches and learning rates. For bench_train.

It trains in turns: each input line requests a number of steps. It answers each step with
`step<TAB>loss<TAB>seconds`, and the turn with the line `end`. On a GPU, seconds are measured between
events at the ends of steps, without waiting in between. Compiled code is kept, so only the first turn
compiles. Between turns all device memory is freed except weights and the optimizer's state.
"""
import argparse
import contextlib
import inspect
import json
import pathlib
import struct
import sys
import time

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))
from torch_model import GPT


def options():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--width", type=int, default=768)
    p.add_argument("--heads", type=int, default=12)
    p.add_argument("--context", type=int, default=1024)
    p.add_argument("--vocab", type=int, default=50257)
    p.add_argument("--batch", type=int, default=8, help="rows per step")
    p.add_argument("--microbatches", type=int, default=1)
    p.add_argument("--data", required=True, help="flat 16-bit tokens")
    p.add_argument("--init", help="safetensors with GPT-2's names; else random")
    p.add_argument("--lr", type=float, default=6e-4)
    p.add_argument("--warmup", type=int, default=20)
    p.add_argument("--weight-decay", type=float, default=0.1)
    p.add_argument("--clip", type=float, default=1.0)
    p.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    p.add_argument("--compile", choices=["all", "parts", "off"], default="all",
                   help="torch.compile, of the model as one or part by part")
    p.add_argument("--attention", choices=["default", "cudnn"], default="default",
                   help="what PyTorch takes by itself, or cuDNN's where it can")
    p.add_argument("--device", default="cuda")
    return p.parse_args()


# ---- weights with the names that GPT-2's files have ------------------------------------

NAMES = {"ln_1": "ln_1", "ln_2": "ln_2", "qkv": "attn.c_attn", "proj": "attn.c_proj",
         "up": "mlp.c_fc", "down": "mlp.c_proj"}


def stored_name(name):
    """Returns the name of a parameter in the file, and whether the file has it transposed."""
    if not name.startswith("blocks."):
        return f"transformer.{name}", False
    _, layer, part, kind = name.split(".")
    linear = not part.startswith("ln") and kind == "weight"
    return f"transformer.h.{layer}.{NAMES[part]}.{kind}", linear


def read_safetensors(path):
    """Returns arrays by name, f32 only."""
    with open(path, "rb") as f:
        length, = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(length))
    data = np.memmap(path, np.uint8, "r", offset=8 + length)
    header.pop("__metadata__", None)
    arrays = {}
    for name, entry in header.items():
        if entry["dtype"] != "F32":
            sys.exit(f"torch_gpt: {path}: {name} is {entry['dtype']}, not F32")
        begin, end = entry["data_offsets"]
        arrays[name] = data[begin:end].view("<f4").reshape(entry["shape"])
    return arrays


def load_weights(model, path):
    arrays = read_safetensors(path)
    with torch.no_grad():
        for name, p in model.named_parameters():
            name, transposed = stored_name(name)
            if name not in arrays:
                sys.exit(f"torch_gpt: {path} has no {name}")
            x = torch.from_numpy(np.array(arrays[name]))
            if name == "transformer.wte.weight":
                p = p[:len(x)]  # a padded vocabulary has more
            p.copy_(x.T if transposed else x)


def attention_of(name):
    """Returns the context in which to run the model."""
    if name == "default":
        return contextlib.nullcontext
    from torch.nn.attention import SDPBackend, sdpa_kernel
    if "set_priority" not in inspect.signature(sdpa_kernel).parameters:  # before 2.6
        return lambda: sdpa_kernel(SDPBackend.CUDNN_ATTENTION)
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]
    return lambda: sdpa_kernel(order, set_priority=True)


# ---- training --------------------------------------------------------------------

class Trainer:
    def __init__(self, o):
        torch.manual_seed(1)
        torch.set_float32_matmul_precision("high")
        self.o, self.step, self.on_gpu = o, 0, o.device.startswith("cuda")
        self.stream = torch.from_numpy(np.fromfile(o.data, "<u2").astype(np.int64))
        model = GPT(o)
        if o.init:
            load_weights(model, o.init)
        model.to(o.device)
        self.params = list(model.parameters())
        self.optimizer = torch.optim.AdamW(
            [dict(params=[p for p in self.params if p.ndim >= 2], weight_decay=o.weight_decay),
             dict(params=[p for p in self.params if p.ndim < 2], weight_decay=0.0)],
            betas=(0.9, 0.95), eps=1e-8, fused=True)
        self.attention = attention_of(o.attention)
        if o.compile == "parts":
            model.compile_parts()
        self.model = torch.compile(model) if o.compile == "all" else model

    def rows(self, first, count):
        """Returns sequences first .. first+count-1 of the endless, unshuffled order."""
        context = self.o.context
        whole = (len(self.stream) - 1) // context
        at = [i % whole * context for i in range(first, first + count)]
        both = torch.stack([self.stream[a:a + context + 1] for a in at])
        if self.on_gpu:
            both = both.pin_memory()
        both = both.to(self.o.device, non_blocking=True)
        return both[:, :-1].contiguous(), both[:, 1:].contiguous()

    def train_step(self):
        """Starts a step; returns its loss, which the device may still be computing."""
        o, total = self.o, 0
        each = o.batch // o.microbatches
        for j in range(o.microbatches):
            tokens, targets = self.rows(self.step * o.batch + j * each, each)
            with self.attention(), torch.autocast("cuda" if self.on_gpu else "cpu", torch.bfloat16,
                                                  enabled=o.dtype == "bf16"):
                loss = self.model(tokens, targets)
            (loss / o.microbatches).backward()
            total = total + loss.detach() / o.microbatches
        if o.clip > 0:
            torch.nn.utils.clip_grad_norm_(self.params, o.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = o.lr * min(1.0, (self.step + 1) / max(o.warmup, 1))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return total

    def turn(self, steps):
        losses, marks, first = [], [self.mark()], self.step
        for _ in range(steps):
            losses.append(self.train_step())
            marks.append(self.mark())
        if self.on_gpu:
            torch.cuda.synchronize()
        for i, loss in enumerate(losses):
            print(f"{first + i}\t{loss.item():.9g}\t{self.between(*marks[i:i + 2]):.9g}")
        if self.on_gpu:
            torch.cuda.empty_cache()
        print("end", flush=True)

    def mark(self):
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, a, b):
        return a.elapsed_time(b) * 1e-3 if self.on_gpu else b - a


def main():
    trainer = Trainer(options())
    for line in sys.stdin:
        trainer.turn(int(line))


if __name__ == "__main__":
    main()
