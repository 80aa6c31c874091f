#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does `actortune serve --slo` choose what was measured to be the best?

    serving_choices.py [--bin DIR] [--data FILE.csv] [--rows] [--limits]

The rows of the file are closed loops on measured engines. A group has one model, one length of prompts and one of
answers. Its choices are the devices that share the model (--tensor), the type of weights, and the answers at a time
(--sequences; in the measured rows, the clients). Its questions are: which choice has the most tokens per second and
device, without a limit, and with limits on the mean time per token (LIMITS, and with --between one between each two
measured times, which often differ by a few percent)? One search for each type simulates all choices of a group, with
more clients than any choice has places; its table answers the questions of the group. With --limits each question is a
search of its own, with the limit in --slo, as a user would ask.

A question is answered well if the choice is, as measured, at most 3 % below the best choice within the limit, and at
most 3 % above the limit. A group is answered well if at least four fifths of its questions are.
"""
import argparse
import collections
import csv
import os
import subprocess

from serving_published import MODELS, known, kv_of, machine_of, memory_of, pages


def rate(prompt, answer, clients, tensor, ttft, tpot):
    return clients * answer / (ttft + tpot * (answer - 1)) * 1e3 / tensor


def search(args, key, choices, dtype, limit):
    """Returns {choice: (tokens per second and device, time per token)} of the servers that the search shows."""
    found = {}
    for tensor in sorted({c[1] for c in choices if c[0] == dtype}):
        found.update(search_devices(args, key, choices, dtype, tensor, limit))
    return found


def search_devices(args, key, choices, dtype, tensor, limit):
    """Searches the servers on `tensor` devices, with what serving_published.py states about their engine."""
    model, prompt, answer = key
    some = [c for c in choices if c[:2] == (dtype, tensor)]
    engine, system = choices[some[0]][2:]
    context = max(prompt + answer, 8192)
    sequences = sorted(c[2] for c in some)
    clients = max(sequences) + 1
    kv, machine = kv_of(dtype, engine), machine_of(args, system, engine)
    row = {"weights": dtype, "tensor": tensor, "backend": engine}
    need = clients * (-(-(prompt + answer) // 64) + 1)
    room = min(need, pages(args, row, MODELS[known(MODELS, model)], memory_of(args, machine), kv))
    command = [os.path.join(args.bin, "actortune"), "serve", "--machine", machine, "--devices",
               "timed:%d" % tensor, "--slo", "tpot@50=%gms" % limit, "--dtype", dtype, "--kv", kv,
               "--stages", "1", "--replicas", "1", "--prefill", "0", "--rows", str(prompt + clients),
               "--tensor", str(tensor), "--sequences", ",".join(map(str, sequences)),
               "--quota", "kv=%d" % room, "--memory", "100000G",
               "--concurrency", str(clients), "--lengths", "%d,%d" % (prompt, answer),
               "--requests", str(args.times * clients), "--points", "1000", "--exhaustive",
               *MODELS[known(MODELS, model)].split(), "--context", str(context)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 3:
        return {}
    if done.returncode:
        raise SystemExit(" ".join(command) + "\n" + done.stderr)
    found, head = {}, None
    for line in done.stdout.splitlines():
        words = line.split()
        if words[:2] == ["#", "tokens/s"]:
            head = line.replace("per device", "per-device").split()
        elif not words and found:
            break
        elif head and words and words[0].isdigit():
            cells = dict(zip(head, merge(words)))
            choice = dtype, tensor, int(cells.get("sequences", sequences[0]))
            found[choice] = float(cells["per-device"]), cells["tpot@50"]
    return {c: (v[0], seconds(v[1])) for c, v in found.items()}


def merge(words):
    """Joins numbers with their units."""
    out = []
    for w in words:
        if out and w in ("s", "ms", "us", "J", "mJ", "KiB", "MiB", "GiB", "TiB", "B"):
            out[-1] += " " + w
        else:
            out.append(w)
    return out


def seconds(text):
    number, *unit = text.split()
    return float(number) * {"ms": 1, "us": 1e-3, "s": 1e3}[unit[0] if unit else "s"]


def best(table, limit):
    fine = {c: v for c, v in table.items() if v[1] <= limit}
    return max(fine, key=lambda c: fine[c][0]) if fine else None


LIMITS = [5, 7.5, 10, 15, 20, 30, 40, 50, 75, 100]  # ms
NEAR = 1.03


def questions(args, measured):
    """Returns the limits that leave some choices, but not all."""
    times = sorted({v[1] for v in measured.values()})
    between = [(a * b) ** 0.5 for a, b in zip(times, times[1:])]
    return [1e6] + [x for x in (between if args.between else LIMITS) if times[0] <= x < times[-1]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--data", default="tests/bench/serving_measured.csv")
    parser.add_argument("--machine", help="a machine file in place of that of the row's system")
    parser.add_argument("--machines", default="machines", help="folder of the machine files")
    parser.add_argument("--types", default="bf16,fp8")
    parser.add_argument("--times", type=int, default=4, help="requests for each client")
    parser.add_argument("--rows", action="store_true", help="print each question")
    parser.add_argument("--between", action="store_true", help="limits between all measured times")
    parser.add_argument("--limits", action="store_true", help="a search for each question")
    parser.add_argument("--only", default="", help="groups whose text contains this")
    args = parser.parse_args()
    groups = collections.defaultdict(dict)
    with open(args.data, newline="") as f:
        for r in csv.DictReader(f):
            prompt, answer, clients, tensor = (int(float(r[k])) for k in ("prompt", "answer", "concurrency", "tensor"))
            ttft, tpot = float(r["ttft_ms"]), float(r["tpot_ms"])
            if r["weights"] in args.types.split(","):
                groups[r["model_path"], prompt, answer][r["weights"], tensor, clients] = (
                    rate(prompt, answer, clients, tensor, ttft, tpot), tpot, r["backend"], r["system"])
    well, asked, best_ones, total, free = 0, 0, 0, 0, 0
    for key, measured in sorted(groups.items()):
        if len(measured) < 2 or args.only not in str(key):
            continue
        types = sorted({c[0] for c in measured})
        table = {}
        for t in types:
            table.update(search(args, key, measured, t, 1e6))
        good = 0
        for limit in questions(args, measured):
            ask = table
            if args.limits and limit < 1e6:
                ask = {}
                for t in types:
                    ask.update(search(args, key, measured, t, limit))
            ask = {c: v for c, v in ask.items() if c in measured}
            is_best, chosen = best(measured, limit), best(ask, limit)
            fine = (chosen is None) == (is_best is None)
            if chosen and is_best:
                fine = measured[chosen][1] <= NEAR * limit and NEAR * measured[chosen][0] >= measured[is_best][0]
            good += fine
            free += fine and limit == 1e6
            if args.rows:
                print("  tpot <= %8.2f ms: measured best %s, chosen %s%s" % (limit, is_best, chosen,
                                                                            "" if fine else "  <--"))
        n = len(questions(args, measured))
        print("%-36s %5d %5d  %2d choices  %2d of %2d questions" % (key[0], key[1], key[2], len(measured), good, n),
              flush=True)
        well, asked, best_ones, total = well + good, asked + n, best_ones + (good >= 0.8 * n), total + 1
    print("without a limit: %d of %d groups; with limits too: %d of %d questions (%.0f %%), %d groups (%.0f %%)" % (
        free, total, well, asked, 100 * well / asked, best_ones, 100 * best_ones / total))


if __name__ == "__main__":
    main()
