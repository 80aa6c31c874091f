#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the training speed of PyTorch on the CPU, for comparison with Sluice.

The model is a GPT-2 (learned positions, biases, tanh GELU, tied embeddings) with
scaled_dot_product_attention, AdamW and a global gradient clip. The batch is not split into
microbatches; tokens are random, without dropout. A step is forward, backward, clip, update.

    bench_torch.py                        sweep threads, compile and dtype
    bench_torch.py --threads 2 --compile on --dtype fp32     one case

Every case runs in its own process. Prints `case<TAB>value<TAB>unit` lines: tokens/s of the median
step, tokens/s of the fastest step, processor time of all threads per token, peak resident memory
(including compilation), and how much of it importing torch takes.
"""
import argparse
import os
import resource
import subprocess
import sys
import time

# By default glibc returns freed blocks to the kernel and page-faults them in again in
# every step. PyTorch's tuning guide replaces the allocator for the same reason.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "-1",
               "MALLOC_TOP_PAD_": "67108864"}


def options():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dtype", choices=["fp32", "bf16"], action="append",
                   help="bf16 is autocast with fp32 weights; default: both")
    p.add_argument("--threads", type=int, action="append", help="default: 1 and every core")
    p.add_argument("--compile", choices=["off", "on", "max"], action="append",
                   help="torch.compile; max is max-autotune; default: off and on")
    p.add_argument("--optimizer", choices=["fused", "foreach"], default="fused")
    p.add_argument("--malloc", choices=["keep", "default"], default="keep",
                   help="keep: freed memory stays with the process")
    p.add_argument("--repeat", type=int, default=1, help="sweeps, one after the other")
    p.add_argument("--steps", type=int, default=8, help="timed steps")
    p.add_argument("--warmup", type=int, default=3, help="steps before them")
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--width", type=int, default=384)
    p.add_argument("--heads", type=int, default=6)
    p.add_argument("--context", type=int, default=256)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--vocab", type=int, default=256)
    p.add_argument("--clip", type=float, default=1.0, help="gradient norm; 0: no clipping")
    p.add_argument("--case", action="store_true", help=argparse.SUPPRESS)
    return p.parse_args()


def run_case(o):
    import torch
    from torch_model import GPT

    dtype, threads, compiled = o.dtype[0], o.threads[0], o.compile[0]
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    model = GPT(o)
    params = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [dict(params=[p for p in params if p.ndim >= 2], weight_decay=0.1),
         dict(params=[p for p in params if p.ndim < 2], weight_decay=0.0)],
        lr=1e-3, betas=(0.9, 0.95), **{o.optimizer: True})
    step_model = model
    if compiled != "off":
        step_model = torch.compile(model, mode="max-autotune" if compiled == "max" else None)
    text = torch.randint(o.vocab, (o.batch, o.context + 1))
    tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    seconds, used, loss = [], [], None
    for _ in range(o.warmup + o.steps):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            loss = step_model(tokens, targets)
        loss.backward()
        if o.clip > 0:
            torch.nn.utils.clip_grad_norm_(params, o.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - begin)
        used.append(time.process_time() - begin_cpu)
    timed, used = sorted(seconds[o.warmup:]), sorted(used[o.warmup:])
    work = o.batch * o.context
    mode = {"off": "eager", "on": "compile", "max": "compile-max"}[compiled]
    case = f"torch.{dtype}.t{threads}.{mode}.{o.optimizer}"
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for name, value, unit in (
            ("median", f"{work / timed[len(timed) // 2]:.0f}", "tokens/s"),
            ("best", f"{work / timed[0]:.0f}", "tokens/s"),
            ("cpu", f"{used[len(used) // 2] / work * 1e6:.1f}", "us/token"),
            ("peak_rss", f"{rss:.0f}", "MiB"),
            ("import_rss", f"{base:.0f}", "MiB"),
            ("loss", f"{loss.item():.4f}", "nats")):
        print(f"{case}.{name}\t{value}\t{unit}", flush=True)


def main():
    o = options()
    if o.case:
        run_case(o)
        return 0
    cores = len(os.sched_getaffinity(0))
    environment = dict(os.environ, **(KEEP_MEMORY if o.malloc == "keep" else {}))
    shared = [f"--{k}={getattr(o, k)}" for k in ("optimizer", "steps", "warmup", "layers", "width",
                                                 "heads", "context", "batch", "vocab", "clip")]
    status = 0
    for _ in range(o.repeat):
        for dtype in o.dtype or ["fp32", "bf16"]:
            for threads in o.threads or sorted({1, cores}):
                for compiled in o.compile or ["off", "on"]:
                    child = [sys.executable, os.path.abspath(__file__), "--case", *shared,
                             "--dtype", dtype, "--threads", str(threads), "--compile", compiled]
                    status |= subprocess.run(child, env=environment, check=False).returncode != 0
    return status


if __name__ == "__main__":
    sys.exit(main())
