#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predicted against measured serving times of closed loops on H100s.

    serving_published.py [--bin DIR] [--data FILE.csv] [--rows] [--only TEXT]

Each row of the file is a load on a measured engine: model, prompt and answer tokens, clients, devices, and the mean
time to the first token and per token. Each is simulated by one actorserve command on the virtual clock; no constant is
fitted by row. The engine has as many slots as the row has clients, and one more request waits: in the measured rows the
time to the first token grows by (answer tokens x time per token) / clients, the time until a slot is free. Answers vary
by a tenth, since otherwise prompts that arrive together come back together for ever. Prints the mean errors by group, and the rank correlation of tokens per second.
"""
import argparse
import collections
import csv
import json
import os
import subprocess
import tempfile

MODELS = {
    "meta-llama/Llama-3.1-8B-Instruct": "--layers 32 --width 4096 --heads 32 --kv-heads 8 --ffn 14336 --vocab 128256",
    "Qwen/Qwen3-32B": "--layers 64 --width 5120 --heads 64 --kv-heads 8 --head-dim 128 --ffn 25600 --vocab 151936 "
                      "--qk-norm",
}


def predict(args, row):
    prompt, answer, clients, tensor = (int(float(row[k])) for k in ("prompt", "answer", "concurrency", "tensor"))
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        context = max(prompt + answer, 8192)
        command = [os.path.join(args.bin, "actorserve"), "--quiet", "--clock", "virtual", "--machine", args.machine,
                   "--devices", "timed:%d" % tensor, "--tensor", str(tensor), "--dtype", row["weights"], "--kv", "bf16",
                   "--rows", "8192", "--sequences", str(max(clients, 1)), "--context", str(context),
                   "--quota", "kv=%d" % (clients * (-(-(prompt + answer) // 64) + 1)), "--prefix-caching", "off",
                   "--concurrency", str(clients + 1), "--lengths", "%d,%d,0.1" % (prompt, answer),
                   "--requests", str(args.times * clients), "--memory", "100000G", "--report", report,
                   "llama"] + MODELS[row["model_path"]].split() + ["--context", str(context)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(" ".join(command) + "\n" + done.stderr)
        with open(report) as f:
            out = json.load(f)
    return out["ttft_seconds"]["mean"] * 1e3, out["tpot_seconds"]["mean"] * 1e3, out["tokens_per_second"]


def ranks(values):
    order = sorted(range(len(values)), key=lambda i: values[i])
    out = [0] * len(values)
    for r, i in enumerate(order):
        out[i] = r
    return out


def correlation(x, y):
    n = len(x)
    rx, ry = ranks(x), ranks(y)
    mean = (n - 1) / 2
    top = sum((a - mean) * (b - mean) for a, b in zip(rx, ry))
    return top / sum((a - mean) ** 2 for a in rx)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--data", default="tests/bench/serving_measured.csv")
    parser.add_argument("--machine", default="h100-sxm-80gb")
    parser.add_argument("--times", type=int, default=10, help="requests for each client")
    parser.add_argument("--rows", action="store_true", help="print each row")
    parser.add_argument("--only", default="", help="rows whose text contains this")
    parser.add_argument("--every", type=int, default=1)
    args = parser.parse_args()
    with open(args.data, newline="") as f:
        rows = [r for r in csv.DictReader(f) if args.only in ",".join(r.values())]
    rows = rows[:: args.every]
    groups, rates = collections.defaultdict(list), ([], [])
    for r in rows:
        ttft, tpot, _ = predict(args, r)
        measured = float(r["ttft_ms"]), float(r["tpot_ms"])
        n, answer = float(r["concurrency"]), float(r["answer"])
        rates[0].append(n * answer / (ttft + tpot * (answer - 1)) / float(r["tensor"]))
        rates[1].append(n * answer / (measured[0] + measured[1] * (answer - 1)) / float(r["tensor"]))
        groups[r["backend"], r["model_path"], r["weights"], int(float(r["tensor"]))].append(
            (ttft / measured[0], tpot / measured[1]))
        if args.rows:
            print("%5s %4s %4s x%s  ttft %8.1f of %8.1f %5.2f  tpot %6.2f of %6.2f %5.2f" % (
                r["prompt"], r["answer"], int(n), int(float(r["tensor"])), ttft, measured[0], ttft / measured[0], tpot,
                measured[1], tpot / measured[1]), flush=True)
    for key, pairs in sorted(groups.items()) + [(("all",), [p for g in groups.values() for p in g])]:
        error = [sum(abs(p[i] - 1) for p in pairs) / len(pairs) for i in (0, 1)]
        middle = [sorted(p[i] for p in pairs)[len(pairs) // 2] for i in (0, 1)]
        print("%-60s %3d rows  ttft %5.1f %% (median %.2f)  tpot %5.1f %% (median %.2f)" % (
            " ".join(map(str, key)), len(pairs), 100 * error[0], middle[0], 100 * error[1], middle[1]))
    print("rank correlation of tokens/s per device: %.3f" % correlation(*rates))


if __name__ == "__main__":
    main()
