#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares ticks of a real actorserve with those that `actortune machine` predicts.

    serving_real.py [--bin DIR] [--machine FILE] [--seconds 60] FILE.gguf [option...]

Each mix of MIXES is a closed loop: clients, tokens of a prompt and of an answer. It runs once with the model, on all
cores, and once on the virtual clock of the machine file, which is measured first if the file does not exist. Prints
seconds per tick and per token, predicted and real, and the mean error. Nothing else should run meanwhile. --only
measure, real or virtual runs one part; results of the real part are kept beside the machine file.
"""
import argparse
import json
import os
import subprocess

MIXES = [(1, 32, 64), (1, 200, 16), (1, 500, 8), (2, 64, 48), (4, 64, 32), (4, 300, 8), (8, 64, 24), (8, 200, 16),
         (16, 32, 24), (16, 100, 12)]


def run(args, mix, virtual):
    clients, prompt, answer = mix
    report = "%s.%s-%d-%d-%d.json" % (args.machine, "virtual" if virtual else "real", *mix)
    command = [os.path.join(args.bin, "actorserve"), "--quiet", "--concurrency", str(clients), "--lengths",
               "%d,%d" % (prompt, answer), "--requests", str(max(args.least, 2 * clients)), "--context", "1024",
               "--quota", "kv=256", "--prefix-caching", "off", "--report", report]
    if virtual:
        command += ["--clock", "virtual", "--machine", args.machine, "--devices", "timed:1"]
    subprocess.run(command + args.option + [args.file], check=True, stdout=subprocess.DEVNULL)
    return report


def read(path):
    with open(path) as f:
        r = json.load(f)
    return r["seconds"] / r["ticks"], r["tpot_seconds"]["mean"], r["ttft_seconds"]["mean"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--machine", default="here.json", help="machine file of one device with all cores")
    parser.add_argument("--seconds", type=float, default=60, help="for measuring the machine")
    parser.add_argument("--least", type=int, default=4, help="requests of a mix, at least")
    parser.add_argument("--mixes", default="0:10", help="of the list, A:B")
    parser.add_argument("--only", choices=["measure", "real", "virtual"])
    parser.add_argument("file")
    parser.add_argument("option", nargs="*", help="of actorserve")
    args = parser.parse_args()
    begin, end = (int(x) for x in args.mixes.split(":"))
    if args.only == "measure" or not args.only and not os.path.exists(args.machine):
        subprocess.run([os.path.join(args.bin, "actortune"), "machine", "--devices", "cpu:1x%d" % len(
            os.sched_getaffinity(0)), "--seconds", str(args.seconds), "-o", args.machine], check=True)
    if args.only in (None, "real"):
        for mix in MIXES[begin:end]:
            run(args, mix, False)
    if args.only not in (None, "virtual"):
        return
    errors = []
    for mix in MIXES[begin:end]:
        real = "%s.real-%d-%d-%d.json" % (args.machine, *mix)
        pairs = list(zip(read(run(args, mix, True)), read(real)))
        errors.append([abs(p / r - 1) for p, r in pairs])
        print("%2d clients, %3d + %2d tokens" % mix + "".join(
            "  %s %7.2f of %7.2f ms (%+5.1f %%)" % (name, 1e3 * p, 1e3 * r, 100 * (p / r - 1))
            for name, (p, r) in zip(("tick", "token", "first"), pairs)))
    print("mean error: tick %.1f %%, time per token %.1f %%, time to first token %.1f %%" % tuple(
        100 * sum(e) / len(e) for e in zip(*errors)))


if __name__ == "__main__":
    main()
