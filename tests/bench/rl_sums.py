#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reinforcement learning on sums: a small GPT learns texts like 17+25=042, then from its own rollouts (GRPO, exact match).

Prints, for each seed, the accuracy of greedy answers to held-out sums before and after GRPO. Also prints the mean reward
of the first and last ten steps, and the seconds per step. Half of the pairs of two-digit numbers are held out."""
import argparse
import csv
import json
import pathlib
import random
import subprocess
import tempfile
import time


def numbers(seed):
    draw = random.Random(seed)
    pairs = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    draw.shuffle(pairs)
    return pairs[: len(pairs) // 2], pairs[len(pairs) // 2:], draw


def write_prompts(path, pairs):
    with open(path, "w") as f:
        for a, b in pairs:
            f.write(json.dumps({"prompt": f"{a}+{b}=", "answer": f"{a + b:03d}"}) + "\n")


class Run:
    def __init__(self, options, folder, seed):
        self.options, self.folder, self.seed = options, folder, seed
        self.model = ["gpt", "--layers", "2", "--width", "96", "--heads", "4", "--vocab", "128", "--context", "10"]

    def actorrun(self, *words):
        subprocess.run([self.options.actorrun, "--quiet", "--seed", str(self.seed), *words], check=True, cwd=self.folder)

    def learn(self, steps, *rl, init, save, batch, lr):
        self.actorrun("--steps", str(steps), "--init", init, "--save", save, *rl, *self.model, "--batch", str(batch),
                      "--lr", str(lr), "--warmup", "0")

    def right(self, weights):
        """Returns the accuracy of greedy answers on 512 held-out sums."""
        count = 512
        self.actorrun("--steps", "1", "--init", weights, "--rl", "grpo:group=2", "--prompts", "held.jsonl", "--reward",
                      "exact", "--max-tokens", "4", "--stop", "\\n", "--temperature", "0", "--log", "held.csv",
                      *self.model, "--batch", str(2 * count), "--lr", "1e-9")
        return float(next(csv.DictReader(open(self.folder / "held.csv")))["reward"])


def one_seed(options, seed):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        known, held, draw = numbers(seed)
        with open(folder / "sums.txt", "w") as f:
            for _ in range(16):
                draw.shuffle(known)
                for a, b in known:
                    f.write(f"{a}+{b}={a + b:03d}\n")
        write_prompts(folder / "known.jsonl", known)
        write_prompts(folder / "held.jsonl", held[:512])
        run = Run(options, folder, seed)
        run.actorrun("--steps", str(options.before), "--save", "base.safetensors", *run.model, "--data", "sums.txt",
                     "--batch", "128", "--lr", "3e-3", "--warmup", "20")
        before = run.right("base.safetensors")
        begin = time.monotonic()
        run.learn(options.steps, "--rl", "grpo:group=8,kl=0.001", "--prompts", "known.jsonl", "--reward", "exact",
                  "--max-tokens", "4", "--stop", "\\n", "--shuffle", "1", "--log", "rl.csv",
                  init="base.safetensors", save="tuned.safetensors", batch=256, lr=options.lr)
        seconds = (time.monotonic() - begin) / options.steps
        rewards = [float(row["reward"]) for row in csv.DictReader(open(folder / "rl.csv"))]
        after = run.right("tuned.safetensors")
        print(f"seed {seed}: held out {before:.3f} -> {after:.3f}, rewards {sum(rewards[:10]) / 10:.3f} -> "
              f"{sum(rewards[-10:]) / 10:.3f}, {seconds:.2f} s a step", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actorrun", required=True)
    parser.add_argument("--before", type=int, default=600, help="steps on the text")
    parser.add_argument("--steps", type=int, default=200, help="steps of GRPO")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("seeds", type=int, nargs="*", default=[1, 2, 3])
    options = parser.parse_args()
    options.actorrun = pathlib.Path(options.actorrun).resolve()
    for seed in options.seeds:
        one_seed(options, seed)


main()
