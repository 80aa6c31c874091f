#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares predicted step times with measured ones on this machine.

    SLUICE_BUILD=build/release tests/bench/truth.py [--machine FILE] [--rounds N] [--steps N]
                                                    [--under 'chrt -f 50'] [--under-two COMMAND] [CASE...]

Takes 5 minutes. --under gives a command that starts the runs, --under-two one for runs of two processes.
The latter must not set a real-time priority: a computing device would then keep the core from the
thread that receives messages. Without --machine the script measures the machine first (actortune
machine, 90 s). No case is a model used in that measurement: widths, depths, contexts, microbatches,
schedules and numbers of devices differ.

A machine file describes an idle machine, but a shared host is idle only for moments. Steps are
therefore short, and the cases take turns for --rounds rounds. Only quiet steps are compared, by their
median: those at most 1.5 % longer than the fastest step of the case. A case counts if it has at least
five quiet steps from at least two rounds. The column `all steps` shows how far the median of all steps
is above that of the quiet ones. No result is scaled. Exits with 1 if a case that counts is more than
3 % off, if memory differs by a byte, or if no case counts.
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import tempfile

GPT, LLAMA = ["gpt", "--vocab", "256"], ["llama", "--vocab", "256"]
CASES = {  # name: devices, options, model
    "gpt-192": (1, ["--microbatches", "2"], [*GPT, "--layers", "3", "--width", "192", "--heads", "6", "--context", "96", "--batch", "8"]),
    "gpt-320": (1, ["--microbatches", "3"], [*GPT, "--layers", "2", "--width", "320", "--heads", "5", "--context", "192", "--batch", "3"]),
    "gpt-768": (1, ["--microbatches", "2"], [*GPT, "--layers", "1", "--width", "768", "--heads", "12", "--context", "128", "--batch", "2"]),
    "gpt-long": (1, ["--microbatches", "2"], [*GPT, "--layers", "1", "--width", "256", "--heads", "4", "--context", "768", "--batch", "2"]),
    "gpt-recomputed": (1, ["--microbatches", "4", "--recompute", "full"], [*GPT, "--layers", "2", "--width", "256", "--heads", "4", "--context", "160", "--batch", "4"]),
    "llama-384": (1, ["--microbatches", "2"], [*LLAMA, "--layers", "2", "--width", "384", "--heads", "6", "--context", "160", "--batch", "2"]),
    "llama-640": (1, ["--microbatches", "3"], [*LLAMA, "--layers", "1", "--width", "640", "--heads", "10", "--kv-heads", "5", "--context", "96", "--batch", "3"]),
    "llama-vocabulary": (1, ["--microbatches", "2"], ["llama", "--vocab", "6000", "--layers", "2", "--width", "256", "--heads", "4", "--context", "96", "--batch", "4"]),
    "gpt-1f1b": (2, ["--stages", "2", "--microbatches", "8"], [*GPT, "--layers", "4", "--width", "224", "--heads", "7", "--context", "96", "--batch", "8"]),
    "gpt-zb-h1": (2, ["--stages", "2", "--microbatches", "8", "--schedule", "zb-h1"], [*GPT, "--layers", "4", "--width", "352", "--heads", "11", "--context", "64", "--batch", "8"]),
    "llama-interleaved": (2, ["--stages", "2", "--microbatches", "8", "--schedule", "interleaved", "--chunks", "2"], [*LLAMA, "--layers", "8", "--width", "192", "--heads", "4", "--context", "80", "--batch", "8"]),
    "gpt-data": (2, ["--data-parallel", "2", "--microbatches", "4"], [*GPT, "--layers", "2", "--width", "320", "--heads", "5", "--context", "128", "--batch", "8"]),
    "llama-sharded": (2, ["--data-parallel", "2", "--shard", "optimizer", "--microbatches", "2"], [*LLAMA, "--layers", "2", "--width", "448", "--heads", "7", "--context", "128", "--batch", "4"]),
    "gpt-pieces": (2, ["--stages", "2", "--microbatches", "4", "--pieces", "2"], [*GPT, "--layers", "2", "--width", "320", "--heads", "5", "--context", "256", "--batch", "4"]),
}
PROCESSES = {"gpt-1f1b-n2": "gpt-1f1b", "gpt-data-n2": "gpt-data"}  # cases that run over two processes
QUIET, ENOUGH, MOST_OFF = 1.015, 5, 3


def run(words, under=()):
    with tempfile.TemporaryDirectory() as folder:
        report = folder + "/report.json"
        subprocess.run([*under, os.environ["SLUICE_BUILD"] + "/bin/actorrun", "--quiet", "--report", report, *words],
                       check=True, stdout=subprocess.DEVNULL)
        with open(report) as file:
            return json.load(file)


def memory(report):
    return [d["peak_bytes"]["total"] for d in report["devices"]]


def predict(name, machine, reports):
    """Predicts on the virtual clock. For a job of several processes, takes the prediction of the real run."""
    if name in PROCESSES:
        return reports[0]
    devices, options, model = CASES[name]
    return run(["--devices", f"timed:{devices}", "--clock", "virtual", "--machine", machine, "--memory", "1T",
                "--steps", "3", *options, *model])


def measure(name, machine, given, text):
    devices, options, model = CASES[PROCESSES.get(name, name)]
    words = ["--devices", f"cpu:{devices}x1", "--steps", str(given.steps), *options]
    if name in PROCESSES:
        return run(["-n", "2", "--machine", machine, *words, *model, "--data", text], given.under_two)
    return run([*words, *model, "--data", text], given.under)


def quiet_steps(rounds):
    """Returns the times of the quiet steps, and the number of rounds that have any."""
    fastest = min(min(times) for times in rounds)
    quiet = [[t for t in times if t <= QUIET * fastest] for times in rounds]
    return sum(quiet, []), sum(bool(times) for times in quiet)


def show(name, predicted, reports):
    rounds = [[step["seconds"] for step in report["steps"][2:]] for report in reports]
    quiet, seen = quiet_steps(rounds)
    took, said, every = statistics.median(quiet), predicted["predicted"]["step_seconds"], sum(rounds, [])
    counts = len(quiet) >= ENOUGH and seen >= 2
    off, exact = 100 * (said / took - 1), memory(predicted) == memory(reports[0])
    print(f"| {name} | {1e3 * said:.1f} ms | {1e3 * took:.1f} ms | {off:+.1f} % | {len(quiet)} of {len(every)} |"
          f" {100 * (statistics.median(every) / took - 1):+.1f} % | {'same' if exact else 'DIFFERS'} |", flush=True)
    if not exact:
        print(f"memory: {memory(predicted)} against {memory(reports[0])}")
    return (off if counts else None), exact


def measure_machine(folder, under):
    path = folder + "/box.json"
    subprocess.run([*under, os.environ["SLUICE_BUILD"] + "/bin/actortune", "machine", "-o", path], check=True)
    return path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--machine")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--under", type=shlex.split, default=[])
    parser.add_argument("--under-two", type=shlex.split, default=[])
    parser.add_argument("cases", nargs="*")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = folder + "/text"
        with open(text, "wb") as file:
            file.write(bytes(i * i * 31 % 97 + 32 for i in range(1 << 18)))
        machine = given.machine or measure_machine(folder, given.under)
        names = given.cases or [*CASES, *PROCESSES]
        reports = {name: [] for name in names}
        for _ in range(given.rounds):
            for name in names:
                reports[name].append(measure(name, machine, given, text))
        print("| case | predicted | measured | off | quiet steps | all steps | memory |\n" + "| --- " * 7 + "|", flush=True)
        seen = [show(name, predict(name, machine, reports[name]), reports[name]) for name in names]
    counted = [abs(off) for off, _ in seen if off is not None]
    worst = max(counted, default=float("inf"))
    print(f"\n{len(counted)} of {len(seen)} cases count; at most {worst:.1f} % off")
    raise SystemExit(worst > MOST_OFF or not all(exact for _, exact in seen))


main()
