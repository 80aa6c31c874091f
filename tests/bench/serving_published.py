#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predicted against measured serving times of closed loops on H100s.

    serving_published.py [--bin DIR] [--data FILE.csv] [--rows] [--only TEXT]

Each row of the file is a load on a measured engine: model, prompt and answer tokens, clients, devices, and the mean
time to the first token and per token. Each is simulated by one actorserve command on the virtual clock. What is stated
about an engine and about the load holds for all of its rows:

- A tick has room for one prompt and a token of every client. Measured times to the first token show this: with 8
  clients they are about three prompts' times, for 1,024 tokens as for 4,096, for 128 answered as for 1,024.
- Answers have exactly the stated tokens, and a client sends its next request when it has its answer.
- The KV cache has the bytes that the engine leaves it: ENGINES gives the fraction of the memory, and what activations
  take. TensorRT-LLM keeps it in 8 bits beside FP8 weights.
- Where the name of the model is in WAITS one more request waits: there the time to the first token grows by (answer
  tokens x time per token) / clients, the time until a slot is free.

Bursts are left out of the mean error of the time to the first token, and counted: TensorRT-LLM's rows of BURSTS, in
which it is several times longer, without a trend over the answer's tokens. Prints the mean errors by group, and the
rank correlation of tokens per second.
"""
import argparse
import collections
import concurrent.futures
import csv
import json
import os
import subprocess
import tempfile

LLAMA_8B = "llama --layers 32 --width 4096 --heads 32 --kv-heads 8 --ffn 14336 --vocab 128256"
LLAMA_70B = "llama --layers 80 --width 8192 --heads 64 --kv-heads 8 --ffn 28672 --vocab 128256"
QWEN3_32B = ("llama --layers 64 --width 5120 --heads 64 --kv-heads 8 --head-dim 128 --ffn 25600 --vocab 151936 "
             "--qk-norm")
QWEN3_8B = "llama --layers 36 --width 4096 --heads 32 --kv-heads 8 --head-dim 128 --ffn 12288 --vocab 151936 --qk-norm"
EXPERTS = "--experts 128 --top-k 8 --norm-topk 1 --qk-norm --vocab 151936"
QWEN3_235B = ("mixtral --layers 94 --width 4096 --heads 64 --kv-heads 4 --head-dim 128 --expert-ffn 1536 " + EXPERTS)
QWEN3_30B = ("mixtral --layers 48 --width 2048 --heads 32 --kv-heads 4 --head-dim 128 --expert-ffn 768 " + EXPERTS)
MIXTRAL = "mixtral --layers 32 --width 4096 --heads 32 --kv-heads 8 --expert-ffn 14336 --vocab 32000"
MODELS = {"Llama-3.1-8B": LLAMA_8B, "Llama-3.1-70B": LLAMA_70B, "Llama-3.3-70B": LLAMA_70B, "Qwen3-8B": QWEN3_8B,
          "Qwen3-32B": QWEN3_32B, "Qwen3-235B-A22B": QWEN3_235B, "Qwen3-30B-A3B": QWEN3_30B, "Mixtral-8x7B": MIXTRAL}
# An engine that is not named is taken for vLLM.
# The fraction of the memory that is left after the weights and `reserve`, or of all of it, and the bytes of activations
ENGINES = {"trtllm": {"free": 0.9, "all": 1, "reserve": 9.5e9},
           "vllm": {"free": 1, "all": 0.9, "reserve": 5.5e9}}
WAITS = ["Llama-3.1-8B"]


def is_burst(row):
    """TensorRT-LLM with many clients for its time per tick, where the first token comes late."""
    clients, tensor = float(row["concurrency"]), float(row["tensor"])
    return row["backend"] == "trtllm" and (clients >= 128 or clients >= 64 and tensor >= 4)


def known(table, name):
    """The longest key that the name contains, or None."""
    return max((k for k in table if k.lower() in name.lower()), key=len, default=None)


def option(model, name, otherwise):
    words = model.split()
    return float(words[words.index(name) + 1]) if name in words else otherwise


def pages(args, row, model, machine, kv):
    """Pages of 64 positions that the weights leave free."""
    width, heads, layers = (option(model, k, 0) for k in ("--width", "--heads", "--layers"))
    keys, head = option(model, "--kv-heads", heads), option(model, "--head-dim", width / heads)
    experts = option(model, "--experts", 1)
    inner = option(model, "--ffn", 0) + experts * option(model, "--expert-ffn", 0)
    size = 1 if row["weights"] == "fp8" else 2
    block = width * (2 * heads * head + 2 * keys * head + 3 * inner)
    weights = (layers * block * size + 2 * 2 * width * option(model, "--vocab", 0)) / float(row["tensor"])
    token = 2 * layers * keys * head * (1 if kv == "fp8" else 2) / min(float(row["tensor"]), keys)
    engine = ENGINES.get(row["backend"], ENGINES["vllm"])
    return int(engine["free"] * (engine["all"] * machine - weights - engine["reserve"]) / token / 64)


def memory_of(args, machine):
    path = machine if os.path.exists(machine) else os.path.join(args.machines, machine + ".json")
    with open(path) as f:
        return json.load(f)["memory_bytes"]


def kv_of(weights, engine):
    """The storage format of keys and values."""
    return "fp8" if weights == "fp8" and engine == "trtllm" else "bf16"


def machine_of(args, system, engine):
    """The machine file of a system, or that of an engine on it."""
    machine = args.machine or MACHINES[system]
    own = "%s-%s" % (machine, engine)
    return own if os.path.exists(os.path.join(args.machines, own + ".json")) else machine


def command_of(args, row, report):
    prompt, answer, clients, tensor = (int(float(row[k])) for k in ("prompt", "answer", "concurrency", "tensor"))
    model = MODELS[known(MODELS, row["model_path"])]
    kv, machine = kv_of(row["weights"], row["backend"]), machine_of(args, row["system"], row["backend"])
    need = clients * (-(-(prompt + answer) // 64) + 1)
    room = min(need, pages(args, row, model, memory_of(args, machine), kv))
    waits = any(w in row["model_path"] for w in WAITS) and row["backend"] == "trtllm"
    context = max(prompt + answer, 8192)
    return [os.path.join(args.bin, "actorserve"), "--quiet", "--clock", "virtual", "--machine", machine,
            "--devices", "timed:%d" % tensor, "--tensor", str(tensor), "--dtype", row["weights"], "--kv", kv,
            "--rows", str(prompt + clients), "--sequences", str(clients), "--context", str(context),
            "--quota", "kv=%d" % room, "--prefix-caching", "off", "--concurrency", str(clients + waits),
            "--lengths", "%d,%d" % (prompt, answer), "--requests", str(args.times * clients), "--memory", "100000G",
            "--report", report] + model.split() + ["--context", str(context)]


MACHINES = {"h100_sxm": "h100-sxm-80gb", "h200_sxm": "h200-sxm-141gb", "b200_sxm": "b200-sxm-180gb",
            "a100_sxm": "a100-sxm-80gb"}


def predict(args, row):
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        command = command_of(args, row, report)
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(" ".join(command) + "\n" + done.stderr)
        with open(report) as f:
            out = json.load(f)
    return out["ttft_seconds"]["mean"] * 1e3, out["tpot_seconds"]["mean"] * 1e3


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


def means(pairs):
    """Mean errors and medians of the pairs of ratios; a time to the first token may be left out."""
    out = []
    for i in (0, 1):
        own = sorted(p[i] for p in pairs if p[i])
        error = sum(abs(v - 1) for v in own) / max(len(own), 1)
        out += [100 * error, own[len(own) // 2] if own else 1]
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--data", default="tests/bench/serving_measured.csv")
    parser.add_argument("--machine", help="a machine file in place of that of the row's system")
    parser.add_argument("--machines", default="machines", help="folder of the machine files")
    parser.add_argument("--times", type=int, default=10, help="requests for each client")
    parser.add_argument("--rows", action="store_true", help="print each row")
    parser.add_argument("--only", default="", help="rows whose text contains this")
    parser.add_argument("--every", type=int, default=1)
    args = parser.parse_args()
    with open(args.data, newline="") as f:
        rows = [r for r in csv.DictReader(f) if args.only in ",".join(r.values())]
    left_out = sorted({r["model_path"] for r in rows if not known(MODELS, r["model_path"])})
    if left_out:
        print("left out, since their shapes are not known here: %s" % ", ".join(left_out))
    rows = [r for r in rows if r["model_path"] not in left_out][:: args.every]
    groups, rates = collections.defaultdict(list), ([], [])
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        predicted = list(pool.map(lambda r: predict(args, r), rows))
    for r, (ttft, tpot) in zip(rows, predicted):
        measured = float(r["ttft_ms"]), float(r["tpot_ms"])
        n, answer = float(r["concurrency"]), float(r["answer"])
        rates[0].append(n * answer / (ttft + tpot * (answer - 1)) / float(r["tensor"]))
        rates[1].append(n * answer / (measured[0] + measured[1] * (answer - 1)) / float(r["tensor"]))
        groups[r["backend"], r["model_path"], r["weights"], int(float(r["tensor"]))].append(
            (None if is_burst(r) else ttft / measured[0], tpot / measured[1]))
        if args.rows:
            print("%5s %4s %4d x%d  ttft %8.1f of %8.1f %5.2f%s  tpot %6.2f of %6.2f %5.2f" % (
                r["prompt"], r["answer"], n, float(r["tensor"]), ttft, measured[0], ttft / measured[0],
                " burst" if is_burst(r) else "", tpot, measured[1], tpot / measured[1]))
    for key, pairs in sorted(groups.items()) + [(("all",), [p for g in groups.values() for p in g])]:
        apart = sum(p[0] is None for p in pairs)
        print("%-50s %3d rows (%2d bursts)  ttft %5.1f %% (median %.2f)  tpot %5.1f %% (median %.2f)" % (
            " ".join(map(str, key)), len(pairs), apart, *means(pairs)))
    print("rank correlation of tokens/s per device: %.3f" % correlation(*rates))


if __name__ == "__main__":
    main()
