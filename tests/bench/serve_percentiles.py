#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the error of latency percentiles predicted on the virtual clock, against real runs with the same requests.

    serve_percentiles.py --actorserve build/release/bin/actorserve [--rounds 2] [--seconds 25] FILE.gguf [OPTIONS of actorserve]

Each round measures tick times (--measure) and then plays each load in real time (--arrivals). For each
percentile the script prints the real value of each round ("real") and the largest over the smallest of
them ("apart"). Then it prints the ratio of the predicted to the real value, as a median over the rounds:
"measured" predicts from ticks measured earlier in the same round, "own ticks" from the ticks of the real
run itself, so that the machine cannot change in between. Request rates are fractions of the machine's
capacity, which is measured first.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

# load as a fraction of the machine's capacity, range of prompt tokens, range of answer tokens
LOADS = {"light": (0.25, (5, 120), (5, 60)), "busy": (0.6, (5, 120), (5, 60)), "long prompts": (0.4, (5, 600), (5, 40))}
PERCENTILES = [(kind, p) for kind in ("ttft", "tpot") for p in ("p50", "p90", "p99")]


def arrivals(path, load, seconds, ticks):
    share, prompts, answers = load
    draw = random.Random(1)
    row = dict(zip(ticks["rows"], ticks["seconds"]))
    prompt, answer = ticks["seconds"][-1] / ticks["rows"][-1], row[4.0] / 4
    rate = share / (prompt * sum(prompts) / 2 + answer * sum(answers) / 2)
    at = 0
    with open(path, "w") as out:
        while at < seconds:
            request = {"time": round(at, 4), "prompt": draw.randint(*prompts), "answer": draw.randint(*answers)}
            print(json.dumps(request), file=out)
            at += draw.expovariate(rate)


class Bench:
    def __init__(self, options, folder):
        self.words = [options.actorserve, "--quiet"]
        self.model = [options.file, *options.more]
        self.folder = folder

    def run(self, *words):
        subprocess.run([*self.words, *words, *self.model], check=True)

    def path(self, *names):
        return os.path.join(self.folder, ".".join(str(n).replace(" ", "-") for n in names))

    def measure(self, number):
        path = self.path("ticks", number, "json")
        self.run("--measure", path)
        return path

    def play(self, load, report, *words):
        self.run("--arrivals", self.path(load, "jsonl"), "--report", report, *words)
        with open(report) as f:
            told = json.load(f)
        return [told[kind + "_seconds"][p] for kind, p in PERCENTILES]

    def predict(self, load, ticks):
        """Predicts without --devices, which names real devices: the virtual clock needs timed ones."""
        words = self.model
        if "--devices" in words:
            at = words.index("--devices")
            self.model = words[:at] + words[at + 2:]
        told = self.play(load, self.path("virtual.json"), "--clock", "virtual", "--tick", ticks)
        self.model = words
        return told


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actorserve", required=True)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("file")
    parser.add_argument("more", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        real, measured, own = ({load: [] for load in LOADS} for _ in range(3))
        for number in range(options.rounds):
            ticks = bench.measure(number)
            if not number:
                with open(ticks) as f:
                    corners = json.load(f)["tick_corners"]
                for load, what in LOADS.items():
                    arrivals(bench.path(load, "jsonl"), what, options.seconds, corners)
            for load in LOADS:
                report = bench.path("real", load, number, "json")
                real[load].append(bench.play(load, report))
                measured[load].append(bench.predict(load, ticks))
                own[load].append(bench.predict(load, report))
        for load in LOADS:
            with open(bench.path(load, "jsonl")) as f:
                print(f"{load}: {len(f.readlines())} requests")
            print(f"{'':10}{'real, ms':>{10 * options.rounds}}{'apart':>8}{'measured':>10}{'own ticks':>11}")
            for i, (kind, p) in enumerate(PERCENTILES):
                took = [r[i] for r in real[load]]
                ratio = [statistics.median(m[i] / r[i] for m, r in zip(x[load], real[load])) for x in (measured, own)]
                print(f"{kind} {p:5}" + "".join(f"{1e3 * t:10.1f}" for t in took) +
                      f"{max(took) / min(took):8.2f}{ratio[0]:10.2f}{ratio[1]:11.2f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
