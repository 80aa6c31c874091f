#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that random --exact runs have the same certificate on random grids.

    certificates.py [--seed S] [--count N] [--only N] [--jobs J] [--models NAME,...] [--modules DIR] [--all]

A case is a model of odd sizes (batches of 2 to 9 rows, 3 or 5 experts, 20 or 33 positions) with one of its losses:
cross entropy, with the losses of experts, pairs of answers, rollouts, or those of a module exported from PyTorch. It
trains two steps on one device; each grid then recomputes its certificate: devices of all axes, microbatches, pieces,
stages, schedules, sharding, recomputation, and levels of the processor. An equal certificate or a refusal by --exact
passes. Other numbers, a crash and a hang fail, and are printed as the two commands.

DIR has folders of modules, as the archives of tests/reference/pytorch hold them.
"""
import argparse
import collections
import concurrent.futures
import glob
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

BIN = os.path.abspath(os.path.join(os.environ.get("SLUICE_BUILD", "build/release"), "bin", "actorrun"))
GRIDS = 3
FAMILIES = ["gpt", "llama", "mixtral", "qwen-moe", "gpt-oss", "deepseek", "qwen3-next", "mamba2", "hybrid"]
MIXTURES = {"mixtral", "qwen-moe", "gpt-oss", "deepseek", "qwen3-next"}
STATES = {"mamba2", "hybrid", "qwen3-next"}


def text_of(path, seed=7):
    rng = random.Random(seed)
    words = ["river", "stone\n", "and", "a", "mill", "turns", "slowly.\n", "under", "it", "x"]
    with open(path, "w", encoding="ascii") as file:
        file.write(" ".join(rng.choice(words) for _ in range(3000)))


def pairs_of(path):
    rng = random.Random(8)
    words = ["river", "stone", "and", "a", "mill", "turns", "slowly", "under", "it"]
    with open(path, "w", encoding="ascii") as file:
        for _ in range(40):
            said = [" ".join(rng.choice(words) for _ in range(rng.randrange(1, 4))) for _ in range(3)]
            file.write('{"prompt": "%s", "chosen": "%s", "rejected": "%s"}\n' % tuple(said))


class Draw:
    def __init__(self, seed, number, models, modules):
        self.rng = random.Random(f"{seed}:{number}")
        self.models, self.modules = models, modules

    def of(self, *choices):
        return self.rng.choice(choices)

    def often(self, share):
        return self.rng.random() < share

    # ---- what is learned ----

    def model(self):
        """Draws self.run, the options of the run, self.words, the model and its options, and self.rows."""
        self.run, self.leaf, self.kind, self.fixed = [], 0, "tokens", 0
        names = self.models or [*FAMILIES, "digits"]
        name = "module" if self.modules and not self.models and self.often(0.25) else self.of(*names)
        self.name = name
        if name == "module":
            return self.module()
        if name == "digits":
            self.rows, self.kind = self.of(2, 3, 5, 6, 7, 8, 9), "images"
            root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")
            self.words = [os.path.join(root, "digits.c"), "--data", os.path.join(root, "digits.u8"), "--batch", str(self.rows)]
            return None
        return self.family(name)

    def module(self):
        folder = self.of(*self.modules)
        files = sorted(glob.glob(os.path.join(folder, "*.pt2")))
        file = self.of(*files)
        alone = len(files) == 1
        prefix = "" if alone else os.path.basename(file)[:-4] + "."
        self.rows, self.kind, self.name = 4, "module", os.path.join(os.path.basename(folder), os.path.basename(file))
        self.words = [file]
        for path in sorted(glob.glob(os.path.join(folder, prefix + "*.npy"))):
            name = os.path.basename(path)[len(prefix):-4]
            if alone or "." not in name:
                self.words += ["--input", f"{name}={path}"]

    def family(self, name):
        heads = self.of(2, 3, 4, 6)
        self.heads, self.rows = heads, self.of(2, 3, 4, 5, 6, 7, 8, 9)
        context = self.of(20, 33, 20, 33, 32, 64, 96, 128)
        if context % 64 == 0 and self.often(0.6):
            self.leaf = 32
            self.run += ["--exact-leaf", "32"]
        layers = self.of(1, 2, 3)
        if name == "qwen3-next":
            layers = 4
        words = [name, "--layers", layers, "--width", heads * self.of(8, 10, 12) if name != "mamba2" else self.of(24, 32, 40),
                 "--context", context, "--batch", self.rows, "--lr", "1e-2", "--warmup", 0]
        if name != "mamba2":
            words += ["--heads", heads]
        words += getattr(self, "of_" + name.replace("-", "_"), lambda: [])()
        if name in ("llama", "mixtral", "qwen-moe", "hybrid", "gpt-oss"):
            words += ["--kv-heads", self.of(*[h for h in (1, 2, 3, 4, 6) if heads % h == 0])]
        if name in MIXTURES or (name == "hybrid" and self.often(0.3)):
            experts = self.of(2, 3, 4, 5)
            words += ["--experts", experts, "--top-k", self.of(1, 2)]
            if self.often(0.5):
                words += ["--expert-ffn", self.of(16, 24, 40)]
            self.experts = experts
            balance = self.of(0, 0, 0.01)
            words += ["--aux-loss", balance, "--z-loss", self.of(0, 0.001)]
            if balance:  # the balance is that of a microbatch
                self.fixed = self.of(*[m for m in range(1, self.rows + 1) if self.rows % m == 0])
        self.run += ["--optimizer", self.of("adamw", "adamw", "sgd", "lion", "muon")] if self.often(0.3) else []
        self.words = [str(w) for w in words]
        self.data_words = ["--data", "text.txt"]
        if name in ("gpt", "llama") and self.often(0.12):
            self.kind, self.data_words = "pairs", ["--preferences", "pairs.jsonl"]
            self.rows -= self.rows % 2
            self.words[self.words.index("--batch") + 1] = str(max(self.rows, 2))
        if self.kind == "tokens" and name in ("gpt", "llama", "gpt-oss", "deepseek") and self.often(0.12):
            self.kind, self.leaf = "rollouts", 0
            self.run = ["--rl", "grpo:group=%d" % (self.rows if self.rows % 2 else 2), "--prompts", "prompts.txt", "--reward", "length:9",
                        "--max-tokens", "7"]
            self.data_words = []
        if self.kind == "pairs":
            self.run += self.data_words
            self.data_words = []
        self.words += self.data_words

    def of_gpt(self):
        return []

    def of_llama(self):
        words = ["--ffn", self.of(24, 40, 48)]
        if self.often(0.3):
            words += ["--window", self.of(7, 12)]
        if self.often(0.3):
            words += ["--bias", self.of("qkv", "all")]
        if self.often(0.2):
            words += ["--qk-norm"]
        if self.often(0.2):
            words += ["--document-end", 32]
        return words

    def of_deepseek(self):
        return ["--latent", self.of(8, 12, 16), "--nope-dim", 8, "--rope-dim", 4, "--value-dim", self.of(8, 12), "--dense-layers", self.of(0, 1)]

    def of_mamba2(self):
        return ["--head-dim", 8, "--state", self.of(6, 8)]

    def of_qwen3_next(self):
        return ["--key-dim", 8, "--value-dim", 8, "--key-heads", 2, "--value-heads", 2]

    # ---- grids ----

    def grid(self):
        words, devices = [], 1
        m = self.fixed or self.of(*[m for m in range(1, self.rows + 1) if self.rows % m == 0])
        if self.fixed or self.often(0.6):
            words += ["--microbatches", m]
        else:
            m = 1
        rows = self.rows // m
        if self.often(0.6):
            devices = self.of(*[d for d in (2, 3, 4, 5) if d <= rows] or [1])
            words += ["--data-parallel", devices] if devices > 1 else []
        if self.kind != "images" and self.often(0.35):
            words += ["--tensor", self.of(2, 2, 3)]
        if getattr(self, "experts", 0) and devices > 1 and self.often(0.4):
            words += ["--expert-parallel", devices]
        if self.leaf and self.often(0.4):
            words += ["--sequence", 2] if self.often(0.5) else ["--pieces", 2]
        if self.often(0.35):
            words += ["--stages", 2, "--schedule", self.of("1f1b", "gpipe", "zb-h1", "zb-h2")]
        if self.often(0.3):
            words += ["--recompute", "full"]
        if devices > 1 and self.often(0.4):
            words += ["--shard", self.of("optimizer", "gradients", "parameters")]
        return [str(w) for w in words]


def refusal(said):
    line = said.strip().splitlines()[-1] if said.strip() else ""
    line = re.sub(r"\S+\.(py|c|pt2)(:\d+)*:? ?", "", line.replace("actorrun: ", ""))
    return re.sub(r"[0-9.]+", "N", re.sub(r"\b(h|b|layers?|blocks?)\.\d+\S*", "X", line))[:130]


class Judge:
    def __init__(self, work, levels):
        self.work, self.levels, self.lock = work, levels, threading.Lock()
        self.ends, self.reasons, self.failures = collections.Counter(), collections.Counter(), 0

    def run(self, folder, words, level):
        env = dict(os.environ, HOME=folder, TMPDIR=folder)
        if level:
            env["SLUICE_CPU_LEVEL"] = str(level)
        with subprocess.Popen([BIN, "--quiet", "--exact", "--watchdog", "20", *words], cwd=folder, env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as run:
            try:
                return run.communicate(timeout=180)[0], run.wait()
            except subprocess.TimeoutExpired:
                run.kill()
                return "timed out", 124

    def note(self, kind, why=""):
        with self.lock:
            self.ends[kind] += 1
            if kind == "refused":
                self.reasons[why] += 1

    def show(self, label, what, first, words, said):
        with self.lock:
            self.failures += 1
            print(f"\n{label}: {what}\n  actorrun --exact {shlex.join(first)}\n  actorrun --exact {shlex.join(words)}\n  "
                  + said.strip().replace("\n", "\n  ")[-600:], flush=True)

    def tell(self, seed):
        print(f"seed {seed}: " + ", ".join(f"{n} {kind}" for kind, n in self.ends.most_common()))
        for why, n in self.reasons.most_common():
            print(f"  {n:4} refused: {why}", flush=True)

    def judge(self, seed, number, draw, every):
        draw.model()
        folder = os.path.join(self.work, f"{seed}-{number}")
        os.mkdir(folder)
        for name in ("text.txt", "pairs.jsonl", "prompts.txt"):
            os.link(os.path.join(self.work, name), os.path.join(folder, name))
        one = ["--steps", "2", "--certify", "one.jsonl", *(["--microbatches", str(draw.fixed)] if draw.fixed else []),
               *draw.run, *draw.words]
        said, status = self.run(folder, one, 0)
        label = f"seed {seed}, number {number}"
        if status:
            kind = "refused" if status == 2 else "broken"
            self.note(kind, "one device: " + refusal(said))
            if every:
                print(label, kind, shlex.join(one), said[-300:], flush=True)
            if kind == "broken":
                self.show(label, f"status {status}", one, one, said)
        for _ in range(0 if status else GRIDS):
            words = ["--steps", "2", "--recheck", "one.jsonl", *draw.run, *draw.grid(), *draw.words]
            level = draw.of(*self.levels)
            said, status = self.run(folder, words, level)
            kind = "equal" if not status else "refused" if status == 2 and "differs" not in said and "differ" not in said else "other"
            if kind == "refused" and "cannot finish" in said:
                kind = "stuck"
            self.note(kind, refusal(said))
            if every:
                print(label, kind, shlex.join(words), refusal(said) if status else "", flush=True)
            if kind not in ("equal", "refused"):
                self.show(f"{label}, level {level}", kind, one, words, said)
        shutil.rmtree(folder, ignore_errors=True)


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--seed", type=int, default=int(os.environ.get("SLUICE_SEED") or 1))
    ask.add_argument("--count", type=int, default=30, help="number of models; each has three grids")
    ask.add_argument("--only", type=int)
    ask.add_argument("--jobs", "-j", type=int, default=2)
    ask.add_argument("--models", default="")
    ask.add_argument("--modules", default="")
    ask.add_argument("--levels", default="1,2,3")
    ask.add_argument("--all", action="store_true", help="prints every command and how it ended")
    how = ask.parse_args()
    print(f"seed {how.seed}, {how.count} models", flush=True)
    modules = sorted(glob.glob(os.path.join(os.path.abspath(how.modules), "*"))) if how.modules else []
    modules = [m for m in modules if glob.glob(os.path.join(m, "*.pt2"))]
    models = [m for m in how.models.split(",") if m]
    work = tempfile.mkdtemp(prefix="certificates")
    text_of(os.path.join(work, "text.txt"))
    pairs_of(os.path.join(work, "pairs.jsonl"))
    with open(os.path.join(work, "prompts.txt"), "w", encoding="ascii") as file:
        file.write("a mill\nthe stone\nriver\nunder it\nslowly\nturns\nx\n")
    judge = Judge(work, [int(x) for x in how.levels.split(",")])

    def stop(*_):
        judge.tell(how.seed)
        os._exit(judge.failures > 0)

    signal.signal(signal.SIGTERM, stop)
    numbers = range(how.count) if how.only is None else [how.only]
    try:
        with concurrent.futures.ThreadPoolExecutor(how.jobs) as pool:
            jobs = [pool.submit(judge.judge, how.seed, n, Draw(how.seed, n, models, modules), how.all) for n in numbers]
            for job in jobs:
                job.result()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    judge.tell(how.seed)
    sys.exit(judge.failures > 0)


if __name__ == "__main__":
    main()
