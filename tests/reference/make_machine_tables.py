#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs measured times of single calls into a table file of machines/ (docs/tuning.md).

    make_machine_tables.py --data FOLDER --gpu h100 --part products-bf16 -o machines/h100-sxm-80gb.products-bf16.json

Parts are products by type, and calls: attention and exchanges, whose activations have 16 bits with any weights.

FOLDER has the CSV files that AIConfigurator measured, in microseconds (github.com/ai-dynamo/aiconfigurator, 095f58a,
Apache-2.0; TensorRT-LLM 1.3.0rc10 and 1.0.0, NCCL 2.29.2 and 2.27.3): GPU_gemm.csv, GPU_attention_decode.csv,
GPU_attention_prompt.csv, GPU_nccl.csv and GPU_allreduce_custom.csv.

Products are kept at fewer row counts, and every n and k. Missing points take the time of the nearest point with the
same n and k, scaled by the longer of arithmetic and traffic.

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
    """Times over one axis, interpolated on logarithms and extended by a bound."""

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
        return math.exp((1 - share) * math.log(self.y[i]) + share * math.log(self.y[i + 1]))


# ---- products ------------------------------------------------------------------------------------


def product_bound(peak, dtype, m, n, k):
    size = 1 if dtype == "fp8" else 2
    return max(2 * m * n * k / peak[dtype], (n * k * size + m * k * size + 2 * m * n) / peak["bytes"])


def products(folder, gpu, dtype):
    name = {"bf16": "bfloat16", "fp8": "fp8"}[dtype]
    peak, lines = PEAK[gpu], {}
    for r in read(folder, gpu + "_gemm.csv"):
        if r["gemm_dtype"] == name:
            key = int(r["n"]), int(r["k"])
            lines.setdefault(key, {})[int(r["m"])] = float(r["us"]) * 1e-6
    ns, ks = sorted({n for n, _ in lines}), sorted({k for _, k in lines})

    def at(m, n, k):
        if (n, k) in lines:
            return Line(lines[n, k]).at(m, lambda x: product_bound(peak, dtype, x, n, k))
        known = max(lines, key=lambda nk: -abs(math.log(nk[0] / n)) - abs(math.log(nk[1] / k)))
        scale = product_bound(peak, dtype, m, n, k) / product_bound(peak, dtype, m, *known)
        return Line(lines[known]).at(m, lambda x: product_bound(peak, dtype, x, *known)) * scale

    seconds = [rounded(at(m, n, k)) for m in ROWS for n in ns for k in ks]
    return {"m": ROWS, "n": ns, "k": ks, "seconds": seconds}


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
    parser.add_argument("--part", required=True, choices=["products-bf16", "products-fp8", "calls"])
    parser.add_argument("-o", required=True)
    args = parser.parse_args()
    doc = {"name": "%s, %s" % (args.gpu.upper(), args.part),
           "source": "measured by AIConfigurator (github.com/ai-dynamo/aiconfigurator, 095f58a, Apache-2.0) and packed "
                     "by tests/reference/make_machine_tables.py"}
    if args.part == "calls":
        doc["curves"] = {"attention_served": answers(args.data, args.gpu),
                         "attention_served.prompt": prompts(args.data, args.gpu)}
        for op in ("packed", "sinks"):
            doc["curves"]["attention_%s_served" % op] = "attention_served"
            doc["curves"]["attention_%s_served.prompt" % op] = "attention_served.prompt"
        doc["exchange"] = {"host": exchanges(args.data, args.gpu)}
    else:
        doc["curves"] = {"linear_served": products(args.data, args.gpu, args.part.split("-")[1])}
    with open(args.o, "w") as f:
        f.write("{\n" + ",\n".join('"%s": %s' % (k, json.dumps(v, separators=(",", ":"))) for k, v in doc.items()))
        f.write("\n}\n")


if __name__ == "__main__":
    main()
