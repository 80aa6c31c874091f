#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs measured times of single calls into a table file of machines/ (docs/tuning.md).

    make_machine_tables.py --data FOLDER --gpu h100 --part products-bf16 -o machines/h100-sxm-80gb.products-bf16.json

Parts are products by type; calls, attention whose activations have 16 bits with any weights; exchanges; and steps, which
says that products of training take the times of served ones.

FOLDER has the CSV files that AIConfigurator measured, in microseconds (github.com/ai-dynamo/aiconfigurator, 095f58a,
Apache-2.0; TensorRT-LLM 1.3.0rc10 and 1.0.0, NCCL 2.29.2 and 2.27.3): GPU_gemm.csv, GPU_attention_decode.csv,
GPU_attention_prompt.csv, GPU_nccl.csv, GPU_allreduce_custom.csv and GPU_moe.csv.

Products are kept at fewer row counts, and every n and k. A missing n and k takes the mean of those around it, each
weighted by its nearness and scaled by FLOOR and the longer of arithmetic and traffic. --check packs a half of the measured
points, or of the measured n and k, and prints the error at the others.

Products in FP8 were measured with the launches of a host: the smallest takes 12.4 us, where one in bf16 takes 2.6. The
difference is taken off, down to the longer of arithmetic and traffic, because an engine captures a tick as a graph.
And they were measured one at a time: SUSTAINED says how much longer a product takes, at its full rate, on a GPU that
computes without pause. It was chosen on one measured row of an engine (Qwen3 32B, 2,048 tokens, 128 answered, 64
clients).

Products of experts are a curve over the bytes and flops of a call and the experts of a device. A measured call is three
of them (gate, up and down, with what is between), so each has a third of its time. Points of the grid take the mean of
the measured points around them as above. Calls of one rank count, of at most eight slices, with tokens spread by a
power law (exponent 1.01), without those that take a quarter longer than a call of more tokens. Experts were measured in
bf16; FP8 reads half the bytes for as many weights and computes twice as fast, which is an assumption.

Attention of answers: times of grouped heads imply up to 5.8 TB/s of a memory of 3.35 TB/s if keys and values have
16 bits, and 3.1 TB/s for as many key heads as query heads. So the grouped rows had 8 bits a number, and their
positions count half here; rows of equal heads had 16. Beyond the measured positions, times grow with the traffic of
answers and with the arithmetic of prompts.

Exchanges: the faster of NCCL's and the one-shot kernel. Sizes are of numbers with 16 bits.
"""
import argparse
import bisect
import csv
import json
import math
import os

PEAK = {"h100": {"bf16": 989e12, "fp8": 1979e12, "bytes": 3.35e12}, "a100": {"bf16": 312e12, "bytes": 2.039e12}}
LAUNCH = {"bf16": 0, "fp8": 9.8e-6}
FLOOR = {"bf16": 2e-6, "fp8": 1e-6}  # seconds of the smallest product, beside arithmetic and traffic
SUSTAINED = {"h100": {"bf16": 0.1, "fp8": 0.35}, "a100": {"bf16": 0}}
FUSED = ["rmsnorm", "layernorm"]  # engines compute a norm where they add to the residual
ROWS = [1, 4, 8, 16, 32, 64, 128, 192, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, 16384, 32768]
SEQUENCES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
POSITIONS = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 262144, 1048576]
PROMPTS = [16, 64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 32768, 131072, 1048576]
HEADS = [4, 8, 16, 32, 64]
KEY_HEADS = [1, 2, 4, 8, 16, 32]


def read(folder, name):
    with open(os.path.join(folder, name), newline="") as f:
        return list(csv.DictReader(f))


def rounded(seconds):
    return float("%.3g" % seconds)


class Line:
    """Times over one axis. Their ratio to a bound is interpolated on logarithms, and kept beyond the ends."""

    def __init__(self, points):
        self.x = sorted(points)
        self.y = [points[x] for x in self.x]

    def at(self, x, bound):
        if x <= self.x[0] or len(self.x) == 1:
            return self.y[0] * bound(x) / bound(self.x[0])
        if x >= self.x[-1]:
            return self.y[-1] * bound(x) / bound(self.x[-1])
        i = bisect.bisect_right(self.x, x) - 1
        share = math.log(x / self.x[i]) / math.log(self.x[i + 1] / self.x[i])
        low, high = (math.log(self.y[j] / bound(self.x[j])) for j in (i, i + 1))
        return bound(x) * math.exp((1 - share) * low + share * high)


# ---- products ------------------------------------------------------------------------------------


def product_bound(peak, dtype, m, n, k):
    size = 1 if dtype == "fp8" else 2
    return max(2 * m * n * k / peak[dtype], (n * k * size + m * k * size + 2 * m * n) / peak["bytes"])


def product_seconds(gpu, dtype, m, n, k, measured):
    """Seconds in an engine that captures its launches, and keeps the GPU busy."""
    captured = max(measured - LAUNCH[dtype], min(measured, product_bound(PEAK[gpu], dtype, m, n, k)))
    rate = 2 * m * n * k / captured / PEAK[gpu][dtype]
    return captured * (1 + SUSTAINED[gpu][dtype] * rate)


def products(folder, gpu, dtype, keeps=lambda m, n, k: True):
    name = {"bf16": "bfloat16", "fp8": "fp8"}[dtype]
    peak, lines = PEAK[gpu], {}
    for r in read(folder, gpu + "_gemm.csv"):
        if r["gemm_dtype"] == name and keeps(int(r["m"]), int(r["n"]), int(r["k"])):
            key = int(r["n"]), int(r["k"])
            m, measured = int(r["m"]), float(r["us"]) * 1e-6
            lines.setdefault(key, {})[m] = product_seconds(gpu, dtype, m, *key, measured)
    ns, ks = sorted({n for n, _ in lines}), sorted({k for _, k in lines})

    def bound(m, n, k):
        return FLOOR[dtype] + product_bound(peak, dtype, m, n, k)

    drawn = {nk: Line(line) for nk, line in lines.items()}

    def ratio(m, n, k):
        return drawn[n, k].at(m, lambda x: bound(x, n, k)) / bound(m, n, k)

    def at(m, n, k):
        if (n, k) in lines:
            return bound(m, n, k) * ratio(m, n, k)
        far = {nk: math.log(nk[0] / n) ** 2 + math.log(nk[1] / k) ** 2 for nk in drawn}
        around = sorted(far, key=far.get)[:4]
        mean = sum(math.log(ratio(m, *nk)) / far[nk] for nk in around) / sum(1 / far[nk] for nk in around)
        return bound(m, n, k) * math.exp(mean)

    seconds = [rounded(at(m, n, k)) for m in ROWS for n in ns for k in ks]
    return {"m": ROWS, "n": ns, "k": ks, "seconds": seconds}


def grid_at(curve, axes, x):
    """The value of a packed curve, as graph/cost/curve.c computes it."""
    corners = [(0, 1.0)]
    for axis, value in zip(axes, x):
        points = curve[axis]
        i = min(max(bisect.bisect_right(points, value) - 1, 0), len(points) - 2)
        share = math.log(value / points[i]) / math.log(points[i + 1] / points[i])
        corners = [(c * len(points) + i + high, w * (share if high else 1 - share))
                   for c, w in corners for high in (0, 1)]
    return math.exp(sum(w * math.log(curve["seconds"][c]) for c, w in corners))


def check_products(folder, gpu, dtype):
    """Packs one half of the points, then of the n and k, and prints the error at the other."""
    for what, part in (("points", lambda m, n, k: (m * 7919 + n * 104729 + k * 1299709) // 32),
                       ("n and k", lambda m, n, k: (n * 104729 + k * 1299709) // 32)):
        curve = products(folder, gpu, dtype, lambda *x: part(*x) % 31 % 2 == 0)
        name = {"bf16": "bfloat16", "fp8": "fp8"}[dtype]
        errors = []
        for r in read(folder, gpu + "_gemm.csv"):
            x = int(r["m"]), int(r["n"]), int(r["k"])
            if r["gemm_dtype"] == name and part(*x) % 31 % 2:
                seconds = product_seconds(gpu, dtype, *x, float(r["us"]) * 1e-6)
                errors.append(abs(grid_at(curve, "mnk", x) / seconds - 1))
        errors.sort()
        print("%s, half of the %s: median error %.1f %%, 90 %% within %.1f %%, of %d" % (
            dtype, what, 100 * errors[len(errors) // 2], 100 * errors[len(errors) * 9 // 10], len(errors)))


# ---- experts -------------------------------------------------------------------------------------

EXPERT_BYTES = [2.0 ** (15 + i * 1.25) for i in range(14)]
EXPERT_FLOPS = [2.0 ** (19 + i * 1.25) for i in range(20)]
EXPERT_COUNTS = [4, 8, 32, 64, 128, 256, 512]


def expert_calls(folder, gpu):
    """(bytes, flops, experts) of a third of each measured call, and its seconds."""
    lines = {}
    for r in read(folder, gpu + "_moe.csv"):
        tp, ep = int(r["moe_tp_size"]), int(r["moe_ep_size"])
        if r["distribution"] == "power_law_1.01" and ep == 1 and tp <= 8:
            key = tuple(int(r[k]) for k in ("num_experts", "topk", "hidden_size", "inter_size")) + (tp,)
            lines.setdefault(key, []).append((int(r["num_tokens"]), float(r["us"]) * 1e-6))
    for (experts, topk, width, inner, tp), line in lines.items():
        line.sort()
        for i, (tokens, seconds) in enumerate(line):
            rows, cut = tokens * topk, inner / tp
            if any(seconds > 1.25 * later for _, later in line[i + 1:]):
                continue
            read_experts = experts * (1 - (1 - 1 / experts) ** rows)
            yield (2 * (read_experts * width * cut + rows * (width + cut)), 2 * rows * width * cut, experts), seconds / 3


def expert_bound(peak, calls_bytes, flops):
    return 5e-6 + max(calls_bytes / (0.8 * peak["bytes"]), flops / (0.6 * peak["bf16"]))


def experts(folder, gpu, dtype):
    peak, known = PEAK[gpu], []
    for x, seconds in expert_calls(folder, gpu):
        known.append(([math.log(v) for v in x], math.log(seconds / expert_bound(peak, x[0], x[1]))))

    def at(x):
        place = [math.log(v) for v in x]
        around = sorted((sum((a - b) ** 2 for a, b in zip(place, p)), ratio) for p, ratio in known)[:6]
        weights = [1 / (d + 0.01) ** 1.5 for d, _ in around]
        ratio = sum(w * r for w, (_, r) in zip(weights, around)) / sum(weights)
        return expert_bound(peak, x[0], x[1]) * math.exp(ratio)

    faster = 2 if dtype == "fp8" else 1
    seconds = [rounded(at((b, f / faster, e))) for b in EXPERT_BYTES for f in EXPERT_FLOPS for e in EXPERT_COUNTS]
    return {"bytes": [rounded(b) for b in EXPERT_BYTES], "flops": [rounded(f) for f in EXPERT_FLOPS],
            "experts": EXPERT_COUNTS, "seconds": seconds}


def check_experts(folder, gpu):
    curve, errors = experts(folder, gpu, "bf16"), []
    for x, seconds in expert_calls(folder, gpu):
        errors.append(abs(grid_at(curve, ["bytes", "flops", "experts"], x) / seconds - 1))
    errors.sort()
    print("experts: median error %.1f %%, 90 %% within %.1f %%, of %d" % (
        100 * errors[len(errors) // 2], 100 * errors[len(errors) * 9 // 10], len(errors)))


# ---- attention -----------------------------------------------------------------------------------


def lines_of(rows, along, keys):
    lines = {}
    for r in rows:
        if r["head_dim"] == "128" and r["window_size"] == "0":
            key = tuple(int(r[k]) for k in keys)
            lines.setdefault(key, {})[int(r[along])] = float(r["us"]) * 1e-6
    return {k: Line(v) for k, v in lines.items()}


def nearest(lines, key):
    """The line with the next smaller values, and how much more work the key is."""
    best = min(lines, key=lambda k: sum(abs(math.log(a / b)) for a, b in zip(k, key)))
    return lines[best], best


def answers(folder, gpu):
    lines = lines_of(read(folder, gpu + "_attention_decode.csv"), "step",
                     ["batch_size", "num_heads", "num_key_value_heads"])
    fixed = 4e-6

    def at(b, p, h, g):
        line, (lb, lh, lg) = nearest(lines, (b, h, min(g, h)))
        whole = lg == lh
        steps = p if whole else 2 * p  # the positions that the row had, in its own numbers

        def bound(x):
            return fixed + x * (1 if whole else 0.5) * lb * lg * 512 / PEAK[gpu]["bytes"]

        def traffic(sequences, heads):
            return fixed + p * sequences * heads * 512 / PEAK[gpu]["bytes"]

        return line.at(steps, bound) * traffic(b, min(g, h)) / traffic(lb, lg)

    seconds = [rounded(at(b, p, h, g)) for b in SEQUENCES for p in POSITIONS for h in HEADS for g in KEY_HEADS]
    return {"sequences": SEQUENCES, "positions": POSITIONS, "heads": HEADS, "key_heads": KEY_HEADS, "seconds": seconds}


def prompts(folder, gpu):
    rows = [r for r in read(folder, gpu + "_attention_prompt.csv") if r["batch_size"] == "1"]
    lines = lines_of(rows, "isl", ["num_heads", "num_key_value_heads"])

    def at(p, h, g):
        line, (lh, _) = nearest(lines, (h, min(g, h)))
        return line.at(p, lambda x: 1e-5 + 2 * x * x * 128 * lh / PEAK[gpu]["bf16"]) * h / lh

    seconds = [rounded(at(p, h, g)) for p in PROMPTS for h in HEADS for g in KEY_HEADS]
    return {"positions": PROMPTS, "heads": HEADS, "key_heads": KEY_HEADS, "seconds": seconds}


# ---- exchanges -----------------------------------------------------------------------------------


def exchanges(folder, gpu):
    names = {"all-reduce": "all_reduce", "all-to-all": "alltoall"}  # a join takes half of an all-reduce
    nccl, best = {}, {}
    for r in read(folder, gpu + "_nccl.csv"):
        nccl[r["op_name"], int(r["num_gpus"]), int(r["message_size"])] = float(r["us"]) * 1e-6
    custom = os.path.join(folder, gpu + "_allreduce_custom.csv")
    if os.path.exists(custom):
        for r in read(folder, gpu + "_allreduce_custom.csv"):
            key = "all_reduce", int(r["num_gpus"]), int(r["message_size"])
            best[key] = float(r["us"]) * 1e-6
    tables = {}
    for ours, theirs in names.items():
        devices = sorted({k[1] for k in nccl if k[0] == theirs})
        sizes = sorted(set.intersection(*[{k[2] for k in nccl if k[:2] == (theirs, d)} for d in devices]))
        seconds = [rounded(min(nccl[theirs, d, s], best.get((theirs, d, s), 1e9))) for s in sizes for d in devices]
        tables[ours] = {"bytes": [2 * s for s in sizes], "devices": devices, "seconds": seconds}
    return tables


# ---- the file ------------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--gpu", required=True, choices=sorted(PEAK))
    parser.add_argument("--part", required=True, choices=["products-bf16", "products-fp8", "calls", "exchanges", "steps"])
    parser.add_argument("-o")
    parser.add_argument("--check", action="store_true", help="print errors of packing, and write no file")
    args = parser.parse_args()
    part, _, dtype = args.part.partition("-")
    has_experts = os.path.exists(os.path.join(args.data, args.gpu + "_moe.csv"))
    if args.check:
        check_products(args.data, args.gpu, dtype or "bf16")
        if has_experts:
            check_experts(args.data, args.gpu)
        return
    doc = {"name": "%s, %s" % (args.gpu.upper(), args.part),
           "source": "measured by AIConfigurator (github.com/ai-dynamo/aiconfigurator, 095f58a, Apache-2.0) and packed "
                     "by tests/reference/make_machine_tables.py"}
    if part == "calls":
        doc["curves"] = {"attention_served": answers(args.data, args.gpu),
                         "attention_served.prompt": prompts(args.data, args.gpu)}
        for op in ("packed", "sinks"):
            doc["curves"]["attention_%s_served" % op] = "attention_served"
            doc["curves"]["attention_%s_served.prompt" % op] = "attention_served.prompt"
        for op in FUSED:
            doc["curves"][op] = {"devices": [1], "seconds": [5e-7]}
    elif part == "exchanges":
        doc["exchange"] = {"host": exchanges(args.data, args.gpu)}
    elif part == "steps":
        doc["source"] = "products of training take the times of served ones"
        doc["curves"] = {op + pass_: op + "_served" for op in ["linear"] + ["grouped_linear"] * has_experts
                         for pass_ in ("", "_b", "_w")}
    else:
        doc["curves"] = {"linear_served": products(args.data, args.gpu, dtype)}
        if has_experts:
            doc["curves"]["grouped_linear_served"] = experts(args.data, args.gpu, dtype)
    with open(args.o, "w") as f:
        f.write("{\n" + ",\n".join('"%s": %s' % (k, json.dumps(v, separators=(",", ":"))) for k, v in doc.items()))
        f.write("\n}\n")


if __name__ == "__main__":
    main()
