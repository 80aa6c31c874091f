#!/usr/bin/env python3
"""Step times of this machine, predicted and measured.

    SLUICE_BUILD=build/release tests/bench/truth.py [--machine FILE] [--rounds N] [--steps N] [CASE...] # 5 minutes

Without --machine the machine is measured first (actortune machine, 90 s). None of the cases is a model
that it measures: widths, depths, contexts, microbatches, schedules and numbers of devices are others. Each
case is run --rounds times; of each run counts the median over its steps after the second, of these the
fastest. `spread` is how far the slowest run is from it: where that is more than 1.5 %, something else
was running, and the case does not count. Ends with 1 if a case that counts is more than 3 % off, or none counts.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

GPT, LLAMA = ["gpt", "--vocab", "256"], ["llama", "--vocab", "256"]
CASES = {  # name: devices, options, model
    "gpt-192": (1, ["--microbatches", "2"], [*GPT, "--layers", "3", "--width", "192", "--heads", "6", "--context", "96", "--batch", "16"]),
    "gpt-320": (1, ["--microbatches", "4"], [*GPT, "--layers", "2", "--width", "320", "--heads", "5", "--context", "192", "--batch", "16"]),
    "gpt-768": (1, ["--microbatches", "2"], [*GPT, "--layers", "2", "--width", "768", "--heads", "12", "--context", "128", "--batch", "8"]),
    "gpt-long": (1, ["--microbatches", "2"], [*GPT, "--layers", "2", "--width", "256", "--heads", "4", "--context", "768", "--batch", "4"]),
    "gpt-recomputed": (1, ["--microbatches", "4", "--recompute", "full"], [*GPT, "--layers", "4", "--width", "256", "--heads", "4", "--context", "160", "--batch", "16"]),
    "llama-384": (1, ["--microbatches", "2"], [*LLAMA, "--layers", "2", "--width", "384", "--heads", "6", "--context", "160", "--batch", "8"]),
    "llama-640": (1, ["--microbatches", "4"], [*LLAMA, "--layers", "2", "--width", "640", "--heads", "10", "--kv-heads", "5", "--context", "96", "--batch", "16"]),
    "llama-vocabulary": (1, ["--microbatches", "2"], ["llama", "--vocab", "6000", "--layers", "2", "--width", "256", "--heads", "4", "--context", "96", "--batch", "8"]),
    "gpt-1f1b": (2, ["--stages", "2", "--microbatches", "12"], [*GPT, "--layers", "6", "--width", "288", "--heads", "6", "--context", "128", "--batch", "48"]),
    "gpt-zb-h1": (2, ["--stages", "2", "--microbatches", "8", "--schedule", "zb-h1"], [*GPT, "--layers", "4", "--width", "352", "--heads", "11", "--context", "128", "--batch", "32"]),
    "llama-interleaved": (2, ["--stages", "2", "--microbatches", "8", "--schedule", "interleaved", "--chunks", "2"], [*LLAMA, "--layers", "8", "--width", "256", "--heads", "4", "--context", "144", "--batch", "32"]),
    "gpt-data": (2, ["--data-parallel", "2", "--microbatches", "4"], [*GPT, "--layers", "3", "--width", "320", "--heads", "5", "--context", "128", "--batch", "32"]),
    "llama-sharded": (2, ["--data-parallel", "2", "--shard", "optimizer", "--microbatches", "4"], [*LLAMA, "--layers", "3", "--width", "448", "--heads", "7", "--context", "128", "--batch", "16"]),
    "gpt-pieces": (2, ["--stages", "2", "--microbatches", "8", "--pieces", "2"], [*GPT, "--layers", "4", "--width", "320", "--heads", "5", "--context", "256", "--batch", "16"]),
}
MOST_SPREAD, MOST_OFF = 1.5, 3


def run(words):
    with tempfile.TemporaryDirectory() as folder:
        report = folder + "/report.json"
        subprocess.run([os.environ["SLUICE_BUILD"] + "/bin/actorrun", "--quiet", "--report", report, *words],
                       check=True, stdout=subprocess.DEVNULL)
        with open(report) as file:
            return json.load(file)


def memory(report):
    return [d["peak_bytes"]["total"] for d in report["devices"]]


def show(name, machine, text, rounds, steps):
    devices, options, model = CASES[name]
    predicted = run(["--devices", f"timed:{devices}", "--clock", "virtual", "--machine", machine, "--memory", "1T",
                     "--steps", "3", *options, *model])
    reports = [run(["--devices", f"cpu:{devices}x1", "--steps", str(steps), *options, *model, "--data", text])
               for _ in range(rounds)]
    times = [statistics.median(step["seconds"] for step in report["steps"][2:]) for report in reports]
    took, said = min(times), predicted["predicted"]["step_seconds"]
    spread, off = 100 * (max(times) / took - 1), 100 * (said / took - 1)
    exact = memory(predicted) == memory(reports[0])
    print(f"| {name} | {1e3 * said:.1f} ms | {1e3 * took:.1f} ms | {off:+.1f} % | {spread:.1f} % |"
          f" {'same' if exact else 'DIFFERS'} |", flush=True)
    if not exact:
        print(f"memory: {memory(predicted)} against {memory(reports[0])}")
    return (off if spread <= MOST_SPREAD else None), exact


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--machine")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("cases", nargs="*")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = folder + "/text"
        with open(text, "wb") as file:
            file.write(bytes(i * i * 31 % 97 + 32 for i in range(1 << 18)))
        machine = given.machine
        if not machine:
            machine = folder + "/box.json"
            subprocess.run([os.environ["SLUICE_BUILD"] + "/bin/actortune", "machine", "-o", machine], check=True)
        print("| case | predicted | measured | off | spread | memory |\n| --- | --- | --- | --- | --- | --- |", flush=True)
        seen = [show(name, machine, text, given.rounds, given.steps) for name in given.cases or CASES]
    quiet = [abs(off) for off, _ in seen if off is not None]
    worst = max(quiet, default=float("inf"))
    print(f"\n{len(quiet)} of {len(seen)} cases were quiet; at most {worst:.1f} % off")
    raise SystemExit(worst > MOST_OFF or not all(exact for _, exact in seen))


main()
