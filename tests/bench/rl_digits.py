#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reinforcement learning with images: examples/which_digit.c learns from examples, then from its own rollouts (GRPO, exact
match).

Prints, for each seed, the accuracy on questions about held-out images before and after GRPO, with greedy and with sampled
answers, and the seconds that both parts took."""
import argparse
import csv
import pathlib
import subprocess
import sys
import tempfile
import time

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


class Run:
    def __init__(self, options, folder, seed):
        self.options, self.folder, self.seed = options, folder, seed

    def actorrun(self, steps, *words):
        begin = time.monotonic()
        subprocess.run([self.options.actorrun, "--quiet", "--seed", str(self.seed), "--steps", str(steps), *words],
                       check=True, cwd=self.folder)
        return time.monotonic() - begin

    def rl(self, steps, weights, prompts, group, words, model):
        return self.actorrun(steps, "--init", weights, "--rl", group, "--prompts", prompts, "--reward", "exact", "--stop",
                             "\\n", "--max-tokens", "2", "--log", "log.csv", *words, str(EXAMPLES / "which_digit.c"),
                             "--frames", "frames.npy", *model)

    def right(self, weights, temperature):
        """Returns the accuracy on the 256 held-out questions."""
        self.rl(1, weights, "held_out.jsonl", "grpo:group=2", ["--temperature", temperature], ["--batch", "512", "--lr",
                                                                                            "1e-9"])
        return float(next(csv.DictReader(open(self.folder / "log.csv")))["reward"])

    def rights(self, weights):
        return f"{self.right(weights, '0'):.3f} ({self.right(weights, '1'):.3f} sampled)"


def one_seed(options, seed):
    with tempfile.TemporaryDirectory() as name:
        run = Run(options, pathlib.Path(name), seed)
        subprocess.run([sys.executable, str(EXAMPLES / "make_which_digit.py"), name], check=True)
        first = run.actorrun(options.before, "--save", "first.safetensors", str(EXAMPLES / "which_digit.c"), "--data",
                             "tokens.npy", "--frames", "frames.npy")
        before = run.rights("first.safetensors")
        second = run.rl(options.steps, "first.safetensors", "prompts.jsonl", "grpo:group=8,kl=0.01",
                        ["--save", "tuned.safetensors"], ["--batch", "128"])
        print(f"seed {seed}: held out {before} -> {run.rights('tuned.safetensors')}, {first:.1f} + {second:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actorrun", required=True)
    parser.add_argument("--before", type=int, default=150, help="steps on examples")
    parser.add_argument("--steps", type=int, default=100, help="steps of GRPO")
    parser.add_argument("seeds", type=int, nargs="*", default=[1, 2, 3])
    options = parser.parse_args()
    options.actorrun = pathlib.Path(options.actorrun).resolve()
    for seed in options.seeds:
        one_seed(options, seed)


main()
