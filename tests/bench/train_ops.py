#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Table of where a training step's time goes, op by op, beside PyTorch's own profile.

    tests/bench/train_ops.py [--steps 4] [--rounds 3] [--data FILE]

The model is that of bench_train.sh, in fp32 on all cores. Sluice's times are the `ops` of its report, PyTorch's
are torch.profiler's self time of each op on the main thread, eager. Both run by turns; a figure is the median over
the rounds, in microseconds a token. Sluice is in $SLUICE_BUILD (build/release).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CLASSES = ("products", "attention", "norms", "activations", "loss", "optimizer", "clipping", "rest")
SLUICE = {
    "products": ("linear", "linear_b", "linear_w", "bias_w", "pack"),
    "attention": ("attention_packed", "attention_packed_b"),
    "norms": ("layernorm", "layernorm_b", "layernorm_w"),
    "activations": ("gelu", "gelu_b"),
    "loss": ("cross_entropy", "cross_entropy_b"),
    "optimizer": ("adamw",),
    "clipping": ("sumsq", "clip"),
}
TORCH = {
    "products": ("addmm", "mm", "bmm", "matmul", "sum"),
    "attention": ("flash_attention",),
    "norms": ("layer_norm",),
    "activations": ("gelu",),
    "loss": ("log_softmax", "nll_loss"),
    "optimizer": ("adamw", "Optimizer"),
    "clipping": ("foreach", "norm", "clamp"),
}


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--width", type=int, default=384)
    p.add_argument("--heads", type=int, default=6)
    p.add_argument("--context", type=int, default=256)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--vocab", type=int, default=256)
    p.add_argument("--profile", action="store_true", help=argparse.SUPPRESS)
    return p.parse_args()


def class_of(table, found):
    return next((kind for kind, names in table.items() if found(names)), "rest")


def sizes(o):
    names = ("layers", "width", "heads", "context", "batch", "vocab")
    return [word for name in names for word in (f"--{name}", str(getattr(o, name)))]


def sluice(o, folder):
    report = os.path.join(folder, "report")
    build = os.environ.get("SLUICE_BUILD", os.path.join(HERE, "../../build/release"))
    subprocess.run([os.path.join(build, "bin/actorrun"), "--quiet", "--steps", str(o.steps + 1), "--report", report,
                    "gpt", *sizes(o), "--data", os.path.join(folder, "text")], check=True)
    with open(report, encoding="utf-8") as f:
        ops = json.load(f)["ops"]
    sums = dict.fromkeys(CLASSES, 0)
    for op in ops:
        sums[class_of(SLUICE, lambda names: op["op"] in names)] += op["seconds"] * op["calls_per_step"]
    return sums


def profile(o):
    import torch
    from torch_model import GPT
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    model = GPT(o)
    params = list(model.parameters())
    optimizer = torch.optim.AdamW(params, lr=1e-3, betas=(0.9, 0.95), fused=True)
    text = torch.randint(o.vocab, (o.batch, o.context + 1))
    tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()

    def step():
        model(tokens, targets).backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as p:
        for _ in range(o.steps):
            step()
    sums = dict.fromkeys(CLASSES, 0)
    for e in p.key_averages():
        sums[class_of(TORCH, lambda names: any(n in e.key for n in names))] += e.self_cpu_time_total * 1e-6 / o.steps
    print(json.dumps(sums))


def torch_in_turn(o):
    from bench_torch import KEEP_MEMORY
    child = [sys.executable, os.path.abspath(__file__), "--profile", "--steps", str(o.steps), *sizes(o)]
    return json.loads(subprocess.run(child, env=dict(os.environ, **KEEP_MEMORY), check=True, stdout=subprocess.PIPE,
                                     stderr=subprocess.DEVNULL).stdout)


def main():
    o = options()
    if o.profile:
        profile(o)
        return
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "text"), "wb") as f:
            f.write(os.urandom(1000000).hex().encode())
        for _ in range(o.rounds):
            rounds.append((sluice(o, folder), torch_in_turn(o)))
    work = o.batch * o.context * 1e-6
    medians = [{k: statistics.median(r[who][k] for r in rounds) / work for k in CLASSES} for who in (0, 1)]
    print("| class | Sluice, us a token | PyTorch, eager | ratio |\n| --- | --- | --- | --- |")
    for k in (*CLASSES, "all"):
        ours, theirs = (sum(m.values()) if k == "all" else m[k] for m in medians)
        print(f"| {k} | {ours:.1f} | {theirs:.1f} | {theirs / ours:.2f} |")


if __name__ == "__main__":
    main()
