#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""On-policy distillation: a small GPT learns sums like 17+25=042 from a larger one, which was trained on a text of sums.

Prints, for each seed, the KL divergence of the student's answers from the teacher, and the accuracy of teacher and student
on held-out sums; also the same for a student that distills the teacher on the text (--data) instead of its own samples."""
import argparse
import csv
import json
import pathlib
import random
import subprocess
import tempfile
import time

MODEL = ["--vocab", "128", "--context", "10"]
TEACHER = ["gpt", "--layers", "3", "--width", "96", "--heads", "4", *MODEL]
STUDENT = ["gpt", "--layers", "2", "--width", "64", "--heads", "4", *MODEL, "--warmup", "20"]
ANSWERS = ["--max-tokens", "4", "--stop", "\\n", "--reward", "exact"]


def write_prompts(path, pairs):
    with open(path, "w") as f:
        for a, b in pairs:
            f.write(json.dumps({"prompt": f"{a}+{b}=", "answer": f"{a + b:03d}"}) + "\n")


def one_seed(options, seed, folder):
    draw = random.Random(seed)
    pairs = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    draw.shuffle(pairs)
    known, held = pairs[: len(pairs) // 2], pairs[len(pairs) // 2:][:512]
    with open(folder / "sums.txt", "w") as f:
        for _ in range(16):
            draw.shuffle(known)
            for a, b in known:
                f.write(f"{a}+{b}={a + b:03d}\n")
    write_prompts(folder / "known.jsonl", known)
    write_prompts(folder / "held.jsonl", held)

    def actorrun(*words):
        subprocess.run([options.actorrun, "--quiet", "--seed", str(seed), *words], check=True, cwd=folder)

    def last(*words):
        """Returns the logged figures of one step on the held-out prompts, with a negligible learning rate."""
        actorrun("--steps", "1", "--prompts", "held.jsonl", *ANSWERS, "--log", "held.csv", *words, "--batch", "512",
                 "--lr", "1e-9", "--warmup", "0")
        return {name: float(x) for name, x in next(csv.DictReader(open(folder / "held.csv"))).items() if x}

    def held_out(weights):
        own = ["--rl", "distill", "--teacher", "teacher", "--distill", "kl:top=0"]
        right = last("--temperature", "0", *own, "--init", weights, *STUDENT)["reward"]
        sampled = last(*own, "--init", weights, *STUDENT)
        return sampled["kl"], sampled["reward"], right

    actorrun("--steps", str(options.before), "--save", "teacher/", *TEACHER, "--data", "sums.txt", "--batch", "128", "--lr",
             "3e-3", "--warmup", "20")
    teacher = last("--temperature", "0", "--rl", "distill", "--teacher", "teacher", "--init", "teacher", *TEACHER)["reward"]
    learn = ["--batch", "128", "--lr", "3e-3"]
    actorrun("--steps", str(options.begin), "--save", "begun/", *STUDENT, "--data", "sums.txt", *learn)
    begin = time.monotonic()
    actorrun("--steps", str(options.steps), "--init", "begun", "--save", "own/", "--rl", "distill", "--teacher", "teacher",
             "--distill", "kl:top=16", "--prompts", "known.jsonl", "--shuffle", "1", "--log", "own.csv", *ANSWERS, *STUDENT,
             *learn)
    seconds = (time.monotonic() - begin) / options.steps
    actorrun("--steps", str(options.steps), "--init", "begun", "--save", "text/", "--teacher", "teacher", "--distill",
             "kl:top=16", *STUDENT, "--data", "sums.txt", *learn)
    loss = [float(row["loss"]) for row in csv.DictReader(open(folder / "own.csv"))]
    print(f"seed {seed}: teacher {teacher:.3f}; loss {loss[0]:.3f} -> {sum(loss[-10:]) / 10:.4f}, {seconds:.2f} s a step")
    for name in "begun", "own", "text":
        kl, sampled, right = held_out(name)
        print(f"  {name:5}  kl {kl:.4f}  sampled {sampled:.3f}  likeliest {right:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actorrun", required=True)
    parser.add_argument("--before", type=int, default=900, help="steps of the teacher on the text")
    parser.add_argument("--begin", type=int, default=100, help="steps of the student on the text")
    parser.add_argument("--steps", type=int, default=300, help="steps of distillation")
    parser.add_argument("seeds", type=int, nargs="*", default=[1, 2, 3])
    options = parser.parse_args()
    options.actorrun = pathlib.Path(options.actorrun).resolve()
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as name:
            one_seed(options, seed, pathlib.Path(name))


main()
