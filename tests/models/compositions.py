#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that random actorrun commands learn what one device learns.

    compositions.py [--seed S] [--count N] [--only N] [--jobs J] [--without WORD]... [--no-shrink] [--all]

A command is drawn from all options that must not change what is learned, over models of odd sizes. It trains
three steps. Losses and gradient norms are compared with those of the same model and microbatches on one device:
bit for bit where no axis splits a stage, else up to the order of sums. Every third command runs again under
jitter, with the same bits.

A refusal must say what is wrong. A crash, a hang, different numbers, or a stuck plan without a given quota or
order fails the test. A failure is printed with its seed and as a command without irrelevant options;
`--seed S --only N` repeats it. --without skips commands that contain that word.

OPTIONS says how each option is tested. An option missing there fails the test.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import random
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading

BIN = os.path.abspath(os.path.join(os.environ.get("SLUICE_BUILD", "build/release"), "bin", "actorrun"))
# Tolerance for sums in another order: f32 rounds by 6e-8, and some hundred summands of both signs lose two digits.
NEAR = 2e-5
STEPS = 3
SLOW = any(name in os.environ for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"))
TIMEOUT = 300 if SLOW else 180  # a plan that is searched for takes a minute on a busy machine
PASSES = ["1f1b", "gpipe", "eager-1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipev", "v-half", "v-min", "seq1f1b"]

# FREE: drawn; must not change what is learned. LEARNED: drawn, and passed to the run on one device too.
# EACH: part of every command. A text: why it is not drawn.
FREE, LEARNED, EACH = "free", "learned", "each"
OPTIONS = {
    "devices": FREE, "stages": FREE, "chunks": FREE, "placement": FREE, "data-parallel": FREE, "sequence": FREE,
    "sequence-attention": FREE, "sequence-states": FREE, "sequence-layout": FREE, "expert-parallel": FREE,
    "expert-tensor": FREE, "expert-rows": FREE, "tensor": FREE, "layout": FREE, "assign": FREE, "vocab-parallel": FREE,
    "vocab-barriers": FREE, "parallel": FREE, "shard": FREE, "sbp": FREE, "grain": FREE, "exchange": FREE,
    "boundary": FREE,
    "recompute": FREE, "ranges": FREE, "loop": LEARNED, "optimizer": LEARNED, "lr-schedule": LEARNED, "group": LEARNED, "freeze": LEARNED,
    "lora": LEARNED, "microbatches": LEARNED, "pieces": FREE, "cut": FREE, "piece-order": FREE, "schedule": FREE,
    "backward": FREE, "order": FREE, "paths": LEARNED, "skip": FREE, "swap": FREE, "quota": FREE, "home": FREE,
    "offload": FREE, "update": FREE, "host-memory": FREE, "disk": FREE, "memory": FREE, "machine": FREE,
    "seed": LEARNED, "activations": FREE, "steps": EACH, "shuffle": LEARNED, "eval": LEARNED, "eval-every": LEARNED,
    "best": FREE, "save": FREE, "save-paths": FREE, "save-adapter": FREE, "checkpoint": FREE, "every": FREE,
    "keep": FREE, "resume": FREE, "processes": FREE, "heartbeat-timeout": FREE, "log": EACH, "report": FREE,
    "trace": FREE, "plan": FREE, "workers": FREE, "jitter": FREE, "watchdog": EACH, "check-finite": FREE, "exact": FREE, "exact-leaf": FREE,
    **dict.fromkeys(("rl", "rollout-ahead", "prompts", "reward", "reward-seconds", "reward-failed", "max-tokens", "stop", "answers"),
                    "they are tried in test_tools_rl"),
    "logprobs": "it is tried in test_tools_exact_served",
    "planes": "it changes a file alone, or it is tried in test_tools_bit_routers",
    "quiet": EACH, "look-ahead": FREE, "clock": "nothing is computed on the virtual one",
    # options of models
    "data": LEARNED, "layers": LEARNED, "width": LEARNED, "heads": LEARNED, "context": LEARNED,
    "positions": LEARNED, "window": LEARNED, "document-end": LEARNED, "eps": LEARNED, "vocab": LEARNED,
    "attend-blocks": "it is tried in test_tools_blocks",
    **dict.fromkeys(("ahead", "ahead-weight", "ahead-names", "ahead-alone"), "it is tried in test_tools_models"),
    "batch": LEARNED, "lr": LEARNED, "min-lr": LEARNED, "warmup": LEARNED, "decay-steps": LEARNED,
    "weight-decay": LEARNED, "clip": LEARNED, "beta1": LEARNED, "beta2": LEARNED, "kv-heads": LEARNED,
    "head-dim": LEARNED, "theta": LEARNED, "rope": LEARNED, "bias": LEARNED, "tied": LEARNED, "ffn": LEARNED,
    **dict.fromkeys(("softmax-every", "side-by-side", "gates", "gate-rank", "sink-tokens", "spikes", "dense-blocks", "groups", "state",
                     "conv", "no-conv-bias", "key-heads", "value-heads", "key-dim", "value-dim", "swiglu-limit",
                     "latent", "nope-dim", "rope-dim", "value-dim", "query-rank", "rope-halves", "dense-layers", "expert-groups",
                     "top-groups", "routed-scale", "correction-rate", "through", "mixers", "feeds"), LEARNED),
    **dict.fromkeys(("names", "norm", "qk-norm-late", "gated-heads", "rope-pairs", "packed-qkv", "attention-factor", "score-cap", "sinks",
                     "function", "ungated", "packed-gates", "mlp-bias", "embedding-factor", "residual-factor", "logit-factor",
                     "logit-divisor", "router", "weight-eps", "packed-experts", "paired-experts", "expert-bias", "shared-gate", "expert-latent", "packed-delta",
                     "latent-value-dim", "index-heads", "index-dim", "index-tokens", "index-loss", "index-halves", "value-norm", "block-head-dims", "block-kv-heads", "block-inputs", "block-inputs-vocab", "block-factors", "state-heads", "state-head-dim", "state-groups", "conv-bias", "state-bias"),
                    "it is tried in test_tools_models"),
    "experts": LEARNED, "top-k": LEARNED, "expert-ffn": LEARNED, "shared-ffn": LEARNED, "norm-topk": LEARNED,
    "qk-norm": LEARNED, "qk-norm-whole": LEARNED, "norms": LEARNED, "plus-one": LEARNED,
    "packed": LEARNED, "gate": LEARNED, "scaled-embedding": LEARNED, "query-scalar": LEARNED, "full-every": LEARNED,
    "local-theta": LEARNED, "logit-cap": LEARNED, "aux-loss": LEARNED, "z-loss": LEARNED, "expert-capacity": LEARNED,
    # not drawn
    "nccl": "between GPUs", "routing": "of modelled devices", "expert-placement": "as routing", "expert-replicas": "as routing", "adapter": "values to begin with, as --init",
    "cost": "of modelled devices", "profile": "of modelled devices", "dtype": "bf16 rounds otherwise on each grid",
    "auto": "chooses what is learned too, such as microbatches", "patience": "ends a run",
    "epochs": "says how many steps there are", "eval-rows": "how many rows are evaluated",
    "init": "values to begin with: one device has the same", "init-new": "as init", "upcycle": "as init", "frozen": "it is tried in test_tools_frozen", "tokenizer": "of texts, before anything is run",
    "resume-with": "for what is learned otherwise", "restarts": "of jobs that fail", "rdzv-endpoint": "of hosts",
    "nnodes": "of hosts", "node-rank": "of hosts", "rdzv-id": "of hosts", "dry-run": "learns nothing",
    "print-after": "learns nothing", "certify": FREE, "recheck": "learns nothing", "show-sbp": "learns nothing", "show-placement": "learns nothing", "generate": "after what is learned",
    "prompt": "after what is learned", "chat": "after what is learned", "chat-system": "after what is learned",
    "chat-template": "of chats", "learn": "of chats", "long-chats": "of chats", "show-data": "learns nothing", "temperature": "after what is learned", "version": "", "help": "",
    "families": "learns nothing",
    **dict.fromkeys(("clips", "clip-order", "denoise", "first-frames", "frame-rate", "frame-wait", "guidance", "video"),
                    "it is tried in test_tools_clips"),
    "preferences": "it is tried in test_tools_preferences", "dpo": "as preferences",
    "teacher": "it is tried in test_tools_distill", "distill": "as teacher",
    "config": "options in a file", "print-config": "learns nothing",
}
# Options that change the losses: bits are compared only with a one-device run that has the same ones.
REORDERS = {"pieces", "cut"}
AXES = {"data-parallel", "sequence", "tensor", "expert-parallel", "parallel", "vocab-parallel"}


class Command:
    """Options by name, each with its values (None for a flag), a model with its options, and files by name."""

    def __init__(self, model):
        self.model, self.run, self.own, self.files = model, {}, {}, {}
        self.alone = ""  # the run that is on one device, of one that writes a checkpoint and one that resumes from it

    def copy(self):
        other = Command(self.model)
        other.alone = self.alone
        other.run, other.own, other.files = dict(self.run), dict(self.own), dict(self.files)
        return other

    def words(self):
        def said(options):
            for name, values in options.items():
                for value in values:
                    yield "--" + name
                    if value is not None:
                        yield str(value)
        return [*said(self.run), self.model, *said(self.own)]

    def has(self, *names):
        return any(name in self.run for name in names)

    def one(self, name, otherwise=1):
        return self.run[name][0] if name in self.run else otherwise


# ---- commands that failed before --------------------------------------------------------------

SOME = "0: 0 1 2/1: 0 2/2: 0 2/3: 0 1 2/4: 0 2/5: 0 2/"
FLAGS = {"side-by-side", "no-conv-bias", "rope-halves", "vocab-parallel", "swap", "exact", "check-finite", "resume", "tied", "qk-norm", "qk-norm-whole", "plus-one", "packed",
         "scaled-embedding"}
GPT = "gpt --data text.txt --layers 5 --width 24 --heads 4 --context 24 --batch 12"
MIXTRAL = "mixtral --data text.txt --layers 2 --width 24 --heads 4 --context 24 --batch 8 --experts 4 --expert-ffn 8"
GPT_OSS = "gpt-oss --data text.txt --layers 2 --width 16 --heads 2 --context 16 --batch 8 --experts 4 --expert-ffn 8 --window 8"
DEEPSEEK = ("deepseek --data tokens.u16 --vocab 37 --layers 2 --width 24 --heads 4 --context 12 --batch 8 --experts 5 --top-k 2 "
            "--expert-ffn 4 --correction-rate 0.05")
WEIGHTS = "./weights_through_ops.so --data text.txt --layers 2 --width 24 --heads 4 --context 24 --batch 12 --through"
HYBRID = "hybrid --data text.txt --layers 2 --width 24 --heads 4 --context 24 --batch 8"
CASES = [
    # stages pass on tensors in one layout, whichever stage follows
    (f"--microbatches 6 --stages 3 --paths paths --data-parallel 2 --tensor 2 {GPT}", SOME),
    (f"--microbatches 6 --stages 3 --paths paths --tensor 2 --sbp h.1/add.2=-,S1 {GPT}", SOME),
    # a weight's gradient, its update and its checkpoint have the same part, through whatever ops it is read
    *((f"--microbatches 2 --data-parallel 3 --shard {shard} --certify certificate --save values.safetensors {WEIGHTS} {seed}", "")
      for shard, seed in (("optimizer", 1), ("gradients", 4), ("parameters", 7))),
    (f"--microbatches 2 --sequence 2 --sequence-layout zigzag --shard optimizer {WEIGHTS} 2 --packed", ""),
    # an exchange of states that keeps a record is not recomputed, others are
    (f"--microbatches 2 --sequence 2 --sequence-states exchange --recompute whole {HYBRID}", ""),
    (f"--microbatches 2 --sequence 2 --sequence-states exchange --recompute whole --pieces 3 {HYBRID}", ""),
    # a record of f32 and f64 sums is not searched for numbers
    (f"--microbatches 2 --pieces 3 --check-finite {HYBRID}", ""),
    # the inputs' gradients do not wait for boxing that the weights' gradients need first
    ("--microbatches 4 --tensor 2 --sequence 2 --schedule zb-h1 gpt-oss --data text.txt --layers 2 --width 32 --heads 4 "
     "--kv-heads 4 --context 32 --batch 8 --experts 4 --expert-ffn 8", ""),
    # parameters with a part in another process are sent there as often as their reader's stage is visited
    (f"--microbatches 6 --processes 2 --stages 3 --paths paths --data-parallel 2 --shard parameters {GPT}", SOME),
    (f"--microbatches 6 --processes 2 --stages 3 --paths paths --sequence 3 {GPT}", SOME),
    (f"--microbatches 6 --processes 3 --stages 3 --paths paths --data-parallel 2 --shard parameters --schedule gpipe "
     f"--recompute full {GPT}", SOME),
    # tensors that evaluations gather once, and tensors that they gather in each tick
    (f"--microbatches 4 --sequence 2 --shard optimizer --eval text.txt --eval-every 1 {GPT} --document-end 32", ""),
    ("--microbatches 1 --sequence 4 --pieces 3 --shard gradients --eval text.txt --eval-every 1 llama --data text.txt "
     "--layers 1 --width 8 --heads 1 --context 36 --batch 3 --document-end 32", ""),
    # constants of an evaluation come in its steps
    (f"--microbatches 2 --data-parallel 2 --shard optimizer --eval tokens.u16 --eval-every 2 {DEEPSEEK}", ""),
    # experts at the mean load: their loads are whole numbers on any grid
    ("--microbatches 4 --data-parallel 4 deepseek --data tokens.u16 --vocab 37 --layers 2 --width 24 --heads 3 --context 12 "
     "--batch 20 --experts 5 --top-k 2 --expert-ffn 24 --correction-rate 0.01", ""),
    # a path leaves out the same blocks on every grid and every machine
    (f"--microbatches 6 --stages 3 --paths paths --tensor 3 {GPT} --vocab 4000", SOME),
    (f"--microbatches 6 --stages 3 --paths paths --data-parallel 2 --sequence 2 {GPT} --vocab 1500", SOME),
    (f"--microbatches 6 --stages 3 --paths paths --machine h100-sxm-80gb --tensor 2 {GPT} --vocab 1000", SOME),
    # the vocabulary's part of a backward pass does not begin with the stage's gradient
    (f"--microbatches 4 --stages 3 --vocab-parallel --vocab-barriers 1 --exchange inline --schedule zb-h1 {GPT}", ""),
    (f"--microbatches 4 --stages 2 --vocab-parallel --vocab-barriers 1 --exchange inline --schedule zb-v {GPT}", ""),
    (f"--microbatches 4 --stages 3 --vocab-parallel --vocab-barriers 1 --exchange inline --lora h.*.attn=2 {GPT}", ""),
    # the softmax over a device's part of the vocabulary stays with that part, the mean's gradient with its rows
    *((f"--microbatches 2 --stages {stages} --tensor {tensor} --vocab-parallel --vocab-barriers 1 gpt --data tokens.u16 "
       "--vocab 64 --layers 1 --width 40 --heads 5 --context 5 --batch 8", "")
      for stages, tensor in ((2, 3), (2, 4), (3, 5))),
    # quotas that a plan needs without being given
    ("--microbatches 5 --data-parallel 3 --tensor 3 --expert-parallel 3 --exchange inline --stages 4 --pieces 3 "
     "--home act=disk --offload activations=0.5 mixtral --data tokens.u16 --vocab 37 --layers 6 --width 24 --heads 4 "
     "--context 16 --batch 20 --experts 4 --top-k 1 --expert-ffn 5 --aux-loss 0", ""),
    ("--microbatches 2 --tensor 3 --sequence 2 --shard parameters --stages 2 --schedule auto --home act.b=disk qwen-moe "
     "--data tokens.u16 --vocab 65 --layers 2 --width 40 --heads 4 --context 5 --batch 12 --positions 12 --experts 3 "
     "--top-k 2 --expert-ffn 1 --shared-ffn 9 --norm-topk 0", ""),
    # repeated exchanges of data that another stage's backward pass reads first
    ("--microbatches 2 --tensor 2 --exchange inline --stages 4 --pieces 2 --schedule seq1f1b gpt --data tokens.u16 "
     "--vocab 64 --layers 2 --width 2 --heads 1 --context 16 --batch 16", ""),
    ("--microbatches 3 --tensor 2 --exchange inline --stages 4 --recompute full llama --data tokens.u16 --vocab 64 "
     "--layers 2 --width 32 --heads 4 --context 24 --batch 6", ""),
    ("--microbatches 1 --tensor 2 --sequence 2 --exchange inline --stages 3 --schedule zb-h1 gpt --data tokens.u16 "
     "--vocab 64 --layers 4 --width 12 --heads 3 --context 31 --batch 3", ""),
    # held-out data comes in pieces of every length
    (f"--microbatches 4 --pieces 5 --eval text.txt --eval-every 1 {GPT}", ""),
    # a machine only serves to choose devices: the computation does not use its links
    (f"--microbatches 4 --stages 2 --machine h100-sxm-80gb {GPT}", ""),
    (f"--microbatches 4 --stages 2 --machine a100-sxm-80gb --tensor 2 --data-parallel 2 {GPT}", ""),
    # the vocabulary on all stages, with a second loss
    (f"--microbatches 4 --vocab-parallel --stages 2 {MIXTRAL}", ""),
    (f"--microbatches 4 --vocab-parallel --stages 3 --vocab-barriers 1 --sequence 2 {MIXTRAL} --z-loss 0.001", ""),
    (f"--microbatches 4 --vocab-parallel --stages 2 --data-parallel 2 --expert-parallel 2 --schedule zb-h1 {MIXTRAL}", ""),
    # a statistic sharded over the sequence axis is split like a parameter, not by positions
    (f"--microbatches 2 --sequence 2 --shard gradients {DEEPSEEK}", ""),
    (f"--microbatches 2 --sequence 2 --sequence-attention ring --sequence-layout zigzag --shard parameters {DEEPSEEK}", ""),
    # ... and has the units of the value that it averages: groups of experts
    (f"--microbatches 2 --tensor 3 {DEEPSEEK.replace('--experts 5', '--experts 8')} --expert-groups 2 --top-groups 2", ""),
    # a gradient sent to the experts, of a sum computed where the rows come from
    (f"--microbatches 2 --data-parallel 2 --expert-parallel 2 {GPT_OSS}", ""),
    (f"--microbatches 2 --data-parallel 2 --tensor 2 --expert-parallel 4 --stages 2 {GPT_OSS}", ""),
]


def command_of(text, paths):
    words, c, options = text.split(), Command(""), None
    options = c.run
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            c.model, options = word, c.own
        else:
            options[word[2:]] = options.get(word[2:], []) + [None if word[2:] in FLAGS else words.pop(0)]
    c.own["layers"] = [int(c.own["layers"][0])]
    if paths:
        c.files["paths"] = paths.replace("/", "\n")
    return c


# ---- drawing ------------------------------------------------------------------------------------


class Draw:
    def __init__(self, seed, number):
        self.rng = random.Random(f"{seed}/{number}")

    def often(self, share):
        return self.rng.random() < share

    def of(self, *choices):
        return self.rng.choice(choices)

    def put(self, options, name, share, *choices):
        """Adds the option with one of these values, in this share of all commands."""
        if self.often(share):
            options[name] = [self.of(*choices)]

    def command(self):
        c = Command(self.of(*MODELS))
        self.microbatches = self.of(1, 2, 3, 4, 4, 5, 6, 8)
        c.run["microbatches"] = [self.microbatches]
        self.sizes(c)
        self.learning(c)
        self.stages = self.of(1, 1, 2, 2, 3, 4)
        self.grid(c)
        self.pipeline(c)
        self.sequence(c)
        self.memory(c)
        self.job(c)
        return c

    def sizes(self, c):
        o = c.own
        self.layers = self.of(1, 2, 3, 4, 5, 6)
        heads, size = self.of(1, 2, 3, 4, 5, 6), self.of(2, 4, 6, 8, 10)
        self.heads, self.context, self.rows = heads, self.of(5, 8, 12, 16, 17, 24, 31), self.of(1, 2, 2, 3, 4)
        if self.often(0.5):
            o["data"] = ["tokens.u16"]
            o["vocab"] = [self.of(37, 64, 65, 101)]
        else:
            o["data"] = ["text.txt"]
            self.put(o, "vocab", 0.4, 256, 257, 300)
        o["layers"], o["width"], o["heads"] = [self.layers], [heads * size], [heads]
        o["context"], o["batch"] = [self.context], [self.rows * self.microbatches]
        self.put(o, "positions", 0.1, self.context, self.context + 7)
        self.put(o, "window", 0.2, 1, 3, 7, self.context)
        self.put(o, "document-end", 0.2, 0, 10, 32)
        self.put(o, "eps", 0.1, 1e-6, 1e-3)
        if c.model == "mamba2":
            self.mamba2(c)
        elif c.model == THROUGH:
            self.through(c)
        elif c.model != "gpt":
            self.put(o, "kv-heads", 0.5, *[n for n in range(1, heads + 1) if heads % n == 0])
            self.put(o, "head-dim", 0.2, 2, 4, 8)
            self.put(o, "theta", 0.1, 100, 500000)
            self.put(o, "rope", 0.15, "none", "linear:factor=2", "yarn:factor=4,original_max_position_embeddings=16",
                     "llama3:factor=8,low_freq_factor=1,high_freq_factor=4,original_max_position_embeddings=16",
                     "dual-chunk:chunk_size=8,local_size=2")
            self.put(o, "bias", 0.3, "none", "qkv", "attention")
            self.put(o, "tied", 0.3, None)
            MODELS[c.model](self, c)

    def dense(self, c):
        o = c.own
        self.put(o, "ffn", 0.7, 3, 17, 32, 40)
        self.put(o, self.of("qk-norm", "qk-norm-whole"), 0.3, None)
        self.put(o, "norms", 0.3, "before", "after", "both")
        for flag in "plus-one", "packed", "scaled-embedding":
            self.put(o, flag, 0.2, None)
        self.put(o, "gate", 0.2, "silu", "gelu")
        self.put(o, "query-scalar", 0.1, 3, 20)
        self.put(o, "logit-cap", 0.1, 2, 30)
        if "window" in o:
            self.put(o, "full-every", 0.5, 1, 2, 3)
            self.put(o, "local-theta", 0.5, 500, 20000)

    def experts(self, c):
        o = c.own
        experts = self.of(1, 2, 3, 4, 5, 8)
        o["experts"], o["top-k"] = [experts], [self.rng.randint(1, min(experts, 3))]
        o["expert-ffn"] = [self.of(1, 5, 8, 24)]
        if c.model == "qwen-moe":
            self.put(o, "shared-ffn", 0.5, 4, 9)
        self.put(o, "norm-topk", 0.4, 0, 1)
        if c.model in ("mixtral", "qwen-moe"):
            self.put(o, "qk-norm", 0.3, None)
        self.put(o, "aux-loss", 0.6, 0, 0, 0.02)
        self.put(o, "z-loss", 0.3, 0, 0.001)

    def hybrid(self, c):
        o = c.own
        self.put(o, "ffn", 0.7, 3, 17, 32)
        self.put(o, "softmax-every", 0.7, 0, 1, 2, 3)
        self.put(o, "side-by-side", 0.2, None)
        self.put(o, "gates", 0.3, "own", "keys")
        self.put(o, "gate-rank", 0.5, 1, 3, 8)
        if "document-end" not in o:
            self.put(o, "sink-tokens", 0.2, 1, 5)
        self.put(o, "spikes", 0.15, 1, 3)
        if "spikes" not in o and self.often(0.35):
            self.experts(c)
            self.put(o, "dense-blocks", 0.3, "0")

    def through(self, c):
        o, heads = c.own, c.own["heads"][0]
        o["through"] = [self.rng.randrange(1000)]
        self.put(o, "kv-heads", 0.4, *[n for n in range(1, heads + 1) if heads % n == 0])
        self.put(o, "packed", 0.3, None)
        for name in "positions", "window", "document-end", "eps":
            o.pop(name, None)

    def mamba2(self, c):
        o, heads = c.own, c.own["heads"][0]
        o["head-dim"] = [self.of(2, 4, 6)]
        self.put(o, "groups", 0.3, *[n for n in range(1, heads + 1) if heads % n == 0])
        o["state"] = [self.of(1, 4, 8)]
        self.put(o, "conv", 0.4, 1, 2, 3, 5)
        self.put(o, "no-conv-bias", 0.2, None)
        self.put(o, "tied", 0.3, None)
        for name in "positions", "window":
            o.pop(name, None)

    def qwen3_next(self, c):
        o, keys = c.own, self.of(1, 2, 3)
        self.put(o, "mixers", 0.7, "delta", "full", "delta,full", "delta,delta,full")
        o["key-heads"], o["value-heads"] = [keys], [keys * self.of(1, 2)]
        o["key-dim"], o["value-dim"] = [self.of(2, 4, 8)], [self.of(2, 4, 8)]
        self.put(o, "conv", 0.4, 1, 2, 3, 5)
        self.mixture(c)
        o["feeds"] = ["mlp" if o.get("experts") == [0] else self.of("experts", "mlp,experts")]

    def gpt_oss(self, c):
        o = c.own
        self.put(o, "full-every", 0.5, 0, 1, 2, 3)
        self.put(o, "swiglu-limit", 0.3, 0.5, 7)
        self.experts(c)

    def deepseek(self, c):
        o = c.own
        o["latent"], o["nope-dim"], o["rope-dim"] = [self.of(3, 8)], [self.of(2, 3, 8)], [self.of(2, 4)]
        o["value-dim"] = [self.rng.randint(1, o["nope-dim"][0] + o["rope-dim"][0])]
        self.put(o, "query-rank", 0.5, 3, 8)
        self.put(o, "rope-halves", 0.3, None)
        self.put(o, "query-scalar", 0.1, 3, 20)
        self.mixture(c)
        self.put(o, "dense-layers", 0.4, 0, 1, 2)
        groups = self.of(*[n for n in (1, 2, 4) if o["experts"][0] % n == 0])
        if groups > 1:
            o["expert-groups"] = [groups]
            self.put(o, "top-groups", 0.7, *range(1, groups + 1))
        self.put(o, "routed-scale", 0.3, 2.5)
        self.put(o, "correction-rate", 0.3, 0.01)
        for name in "kv-heads", "head-dim":
            o.pop(name, None)

    def mixture(self, c):
        """Adds experts next to dense blocks."""
        self.put(c.own, "ffn", 0.7, 3, 17, 32)
        self.experts(c)
        self.put(c.own, "shared-ffn", 0.5, 4, 9)

    def learning(self, c):
        """Draws options that the run on one device gets too."""
        o = c.own
        if c.model == THROUGH:
            self.put(c.run, "optimizer", 0.5, "adamw:lr=1e-3", "sgd:lr=0.05", "adamw:clip=0")
            return
        if self.often(0.3):
            c.run["optimizer"] = [self.of("adamw:lr=1e-3", "adam:lr=1e-3,clip=0.5", "sgd:lr=0.05",
                                          "sgd:lr=0.02,momentum=0.9,nesterov=1", "lion:lr=1e-4", "adamw:clip=0")]
        else:
            for name, values in (("lr", (1e-3, 3e-3)), ("min-lr", (0, 1e-5)), ("warmup", (0, 2)),
                                 ("decay-steps", (0, 3)), ("weight-decay", (0, 0.3)), ("clip", (0, 0.3, 5)),
                                 ("beta1", (0.5, 0.8)), ("beta2", (0.99,))):
                self.put(o, name, 0.1, *values)
            self.put(c.run, "lr-schedule", 0.1, "constant", "linear:warmup=2,decay-steps=3", "cosine:decay-steps=4",
                     "wsd:warmup=1,decay-begin=2,decay-steps=3")
        layers, norm, linear, table = {
            "gpt": ("h", "ln_1", "attn", "wte"),
            "mamba2": ("backbone.layers", "norm", "mixer.in_proj", "backbone.embeddings"),
        }.get(c.model, ("model.layers", "input_layernorm", "self_attn.*", "model.embed_tokens"))
        linear = f"{layers}.*.{linear}"
        if self.often(0.12):
            c.run["lora"] = [f"{linear}={self.of(1, 2, 3)}" + self.of("", ",alpha=4")]
        else:
            self.put(c.run, "freeze", 0.15, f"{layers}.0", f"{layers}.*.{norm}", linear,
                     table)
        self.put(c.run, "group", 0.1, f"{layers}.*.{norm}:lr=1e-4,decay=0", f"{layers}.0:lr=1e-2")
        self.put(c.run, "seed", 0.2, 2, 3, 4)
        self.put(c.run, "shuffle", 0.2, 1, 2)

    def grid(self, c):
        r, moe = c.run, "experts" in c.own
        data = tensor = sequence = expert = 1
        if self.often(0.65):
            data = self.of(1, 1, 2, 2, 3, 3, 4, 5, 7)
            tensor = self.of(1, 1, 1, 2, 2, 3, 5) if data < 4 else 1
            sequence = self.of(1, 1, 1, 2, 3, 4, 5, 7) if data * tensor < 4 else 1
            if self.often(0.5) and data > 1:  # rows that do not divide
                self.rows = data + self.of(1, 2)
                c.own["batch"] = [self.rows * self.microbatches]
            if self.often(0.9) and self.rows < data:  # too small a batch is refused: mostly avoided
                self.rows = data
                c.own["batch"] = [self.rows * self.microbatches]
            if moe and data * tensor > 1 and self.often(0.5):
                expert = self.of(*[n for n in range(2, data * tensor + 1) if data * tensor % n == 0])
                c.own["experts"] = [max(c.own["experts"][0], expert) if self.often(0.9) else c.own["experts"][0]]
        if data * tensor * sequence == 1:
            self.put(r, "parallel", 0.1, 2, 3, 4)
        for name, n in (("data-parallel", data), ("tensor", tensor), ("sequence", sequence),
                        ("expert-parallel", expert)):
            if n > 1:
                r[name] = [n]
        self.ways = data * tensor * sequence * int(c.one("parallel"))
        if self.ways > 1:
            c.own.pop("spikes", None)  # rounds to whole spikes: sums in another order give different spikes
        self.on_stage = data * sequence
        if expert > 1:
            self.put(r, "expert-tensor", 0.3, 0, 1, 1 if data % expert else tensor)
            self.put(r, "expert-rows", 0.2, 0, 1.5, 4, 16)
        elif moe and self.ways == 1:
            self.put(c.own, "expert-capacity", 0.15, 0.5, 1, 2)
        if sequence > 1:
            self.put(r, "sequence-attention", 0.7, "heads", "ring", "auto")
            self.put(r, "sequence-states", 0.2, "heads", "exchange", "auto")
            self.put(r, "sequence-layout", 0.4, "contiguous", "zigzag")
        if self.ways > 1:
            if self.on_stage > 1 or self.often(0.05):
                self.put(r, "shard", 0.5, "nothing", "optimizer", "gradients", "parameters", "parameters")
            self.put(r, "exchange", 0.25, "beside", "inline")
            self.put(r, "boundary", 0.4 if tensor > 1 else 0.05, "whole", "scattered", "scattered")
            axes = ["tensor", "sequence", "expert", "data", "stage"]
            self.rng.shuffle(axes)
            self.put(r, "layout", 0.15, ",".join(axes))
            self.put(r, "sbp", 0.1, *(["linear.1=-,S2", "linear.2=-,B", "rmsnorm.1=-,S1"] if tensor > 1 else
                                      ["linear.1=S0,-"] if data > 1 else []), "linear.9=B,-")

    def pipeline(self, c):
        r = c.run
        if self.often(0.2):
            self.stages = self.of(2, 3, 4)
            r["vocab-parallel"] = [None]
            self.put(r, "vocab-barriers", 0.5, 1, 2)
            if c.one("vocab-barriers") == 1 and self.often(0.9):
                c.own.pop("document-end", None)
        self.stages = min(self.stages, self.layers + 2) if self.often(0.9) else self.stages
        if self.stages > 1:
            r["stages"] = [self.stages]
        self.put(r, "schedule", 0.7, *PASSES)
        if self.often(0.04) and self.ways * self.stages <= 4:  # auto runs the virtual clock many times
            r["schedule"] = ["auto"]
            self.put(r, "activations", 0.5, 2, 4)
        chunks = 1
        if c.one("schedule", "") in ("interleaved", "1f1b", "gpipe", "zb-h1"):
            self.put(r, "chunks", 0.25, 2, 2, 3)
            self.put(r, "placement", 0.5 if "chunks" in r else 0.05, "loop", "vee")
        if c.one("schedule", "") in ("interleaved", "zb-v", "dualpipev", "v-half", "v-min"):
            chunks = 2
        self.put(r, "backward", 0.2, "fused", "split")
        self.put(r, "grain", 0.2, "pass", "layer")
        self.put(r, "look-ahead", 0.03, 1e-5)
        self.put(r, "ranges", 0.08, 2, 2, 3)
        if c.model == "gpt" and self.layers > 1 and not c.has("vocab-parallel"):
            self.put(c.own, "loop", 0.1, "0-0x2", f"1-{self.layers - 1}x2", "0-1x3")
        places = self.stages * int(c.one("chunks", chunks))
        m = self.microbatches
        if places > 2 and self.often(0.2):
            self.paths(c, places, m)
        elif self.stages > 2 and self.often(0.04) and not c.has("vocab-parallel"):
            r["skip"], r["save-paths"] = [self.of(0.1, 0.25)], ["found"]
            self.put(r, "swap", 0.4, None)
        elif self.often(0.06):
            r["order"] = ["derive"]
        elif self.often(0.05) and c.one("schedule", "1f1b") == "1f1b" and places == self.stages:
            fused = " ".join([f"F{i}" for i in range(m)] + [f"B{i}" for i in range(m)])
            r["order"], c.files["order"] = ["order"], "".join(f"{s}: {fused}\n" for s in range(self.stages))

    def paths(self, c, stages, m):
        """Draws paths: each microbatch skips some stages, and all inner stages are visited equally often."""
        visits = self.rng.randint(1, m)
        of = [[] for _ in range(m)]
        for stage in range(1, stages - 1):
            for i in self.rng.sample(range(m), visits):
                of[i].append(stage)
        if self.often(0.3):
            for path in of:
                self.rng.shuffle(path)
        c.run["paths"] = ["paths"]
        c.files["paths"] = "".join(f"{i}: {' '.join(map(str, [0, *path, stages - 1]))}\n" for i, path in enumerate(of))

    def sequence(self, c):
        r = c.run
        if not self.often(0.05 if c.has("paths", "vocab-parallel") else 0.3):
            if c.one("schedule", "") == "seq1f1b":
                r["pieces"] = [2]
            return
        r["pieces"] = [self.of(2, 3, 4)]
        if self.context < (least := r["pieces"][0] * int(c.one("sequence"))) * 2 and self.often(0.9):
            self.context = c.own["context"][0] = 3 * least
            c.own.pop("positions", None)
        if "experts" in c.own:
            c.own["aux-loss"] = [0]
            c.own.pop("expert-capacity", None)  # of a piece
        self.put(r, "cut", 0.3, "even", "balanced")
        self.put(r, "piece-order", 0.4, "tokens", "layers", "layers")
        if c.one("piece-order", "") == "layers" and self.often(0.5):
            r["home"] = ["kv=disk"]
        if self.often(0.3):
            r["home"] = r.get("home", []) + ["act=disk"]
            shares = (0, 0.25, 0.5, 0.6, 1)
            self.put(r, "offload", 0.7, *[f"activations={x}" for x in shares])

    def memory(self, c):
        r = c.run
        blocks = ["h.0", f"h.{self.layers - 1}", "h.*"]
        if self.often(0.25):
            r["recompute"] = [self.of("none", "selective", "full", "full", "whole")]
            if self.often(0.2):
                r["recompute"] = [f"{self.of('selective', 'full', 'whole')}@{self.of(*blocks)}"]
        r.pop("grain", None) if "home" in r and self.often(0.9) else None
        if self.often(0.15) and "home" not in r:
            r.pop("grain", None)
            self.layers = c.own["layers"][0] = max(self.layers, self.of(4, 5, 6, 8))  # enough layers to save something
            r["home"] = [self.of("act=disk", "act.b=disk", "state=disk", "weights=disk", "weights=peer:1", "auto")]
            if r["home"] == ["auto"]:
                r["memory"] = [self.of("2M", "8M")]
            elif self.often(0.2):
                r["home"] = r["home"] + [f"{r['home'][0].split('=')[0]}@{self.of(*blocks)}=device"]
        if "home" in r:
            self.put(r, "disk", 0.3, ".", ".:1G")
            self.put(r, "host-memory", 0.05, "1G")
        self.put(r, "memory", 0.1, "1G")
        self.put(r, "update", 0.02, "device", "device", "every:2")
        self.quotas(c)

    def quotas(self, c):
        names = ["act", "act.b", "load"] + (["fwd", "bwd"] if self.stages > 1 else [])
        if c.one("schedule", "") in ("interleaved", "zb-v", "dualpipev", "v-half", "v-min"):
            names += ["pool"]
        if c.one("schedule", "").startswith(("zb", "v-", "dual")):
            names += ["act.w"]
        if any("disk" in home for home in c.run.get("home", [])):
            names += ["spill", "fill"]
        if any("weights" in home for home in c.run.get("home", [])):
            names += ["weights"]
        if c.one("shard", "") == "parameters":
            names += ["gather"]
        if c.one("shard", "") in ("parameters", "gradients"):
            names += ["reduce"]
        if c.has("vocab-parallel"):
            names += ["spread"]
        if self.often(0.25):
            c.run["quota"] = [f"{self.of(*names)}{self.of('', '', '', '@0')}={self.of(1, 2, 3, 5)}"
                              for _ in range(self.of(1, 1, 2))]

    def job(self, c):
        r = c.run
        devices = self.ways * self.stages
        self.put(r, "devices", 0.1, "cpu", f"cpu:{devices}", f"cpu:{devices}x1")
        if devices > 1 and self.often(0.15):
            r["processes"], r["heartbeat-timeout"] = [self.of(2, 2, min(3, devices))], [60]
        order = list(range(devices))
        self.rng.shuffle(order)
        if devices > 1:
            self.put(r, "assign", 0.05, ",".join(map(str, order)))
        self.put(r, "workers", 0.3, 1, 2, 3)
        self.put(r, "machine", 0.03, "a100-sxm-80gb", "h100-sxm-80gb")
        self.put(r, "check-finite", 0.1, None)
        self.put(r, "certify", 0.1, "certificate")
        if self.often(0.08):
            r["eval"], r["eval-every"] = ["text.txt" if c.own["data"] == ["text.txt"] else "tokens.u16"], [self.of(1, 2)]
            self.put(r, "best", 0.5, "loss", "loss:min")
        self.put(r, "save", 0.25, "values.safetensors")
        if c.has("lora"):
            self.put(r, "save-adapter", 0.4, "adapter")
        if self.often(0.12) and not c.has("skip", "save-paths"):
            r["checkpoint"], r["every"] = ["points"], [self.of(1, 2)]
            self.put(r, "keep", 0.5, 1, 2)
            self.put(r, "resume", 0.7, None)
            c.alone = self.of("", "writer", "reader")
        for name in ("report", "trace", "plan"):
            self.put(r, name, 0.05, name)


THROUGH = "./weights_through_ops.so"  # a model of this folder, if there is a compiler
MODELS = {"gpt": None, THROUGH: None, "llama": Draw.dense, "mixtral": Draw.experts, "qwen-moe": Draw.experts, "hybrid": Draw.hybrid, "mamba2": None,
          "qwen3-next": Draw.qwen3_next, "gpt-oss": Draw.gpt_oss, "deepseek": Draw.deepseek}


# ---- running ------------------------------------------------------------------------------------


class Outcome:
    """The status of a command, its output, and {step: (loss, norm, rate)}."""

    def __init__(self, status, said, steps, folder):
        self.status, self.said, self.steps, self.folder = status, said, steps, folder


def once(words, folder):
    """Runs one process group with a timeout; returns (status, output)."""
    env = dict(os.environ, HOME=folder, TMPDIR=folder)
    with subprocess.Popen(words, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True) as run:
        try:
            said = run.communicate(timeout=TIMEOUT)[0]
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            return 124, run.communicate()[0]
        return run.returncode, said


def steps_of(path):
    try:
        with open(path, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
    except (OSError, ValueError):
        return {}
    steps = {row["step"]: (row["loss"], row["grad_norm"], row["lr"]) for row in rows if "loss" in row}
    return steps | {f"eval {row['step']}": (row["eval_loss"],) for row in rows if "eval_loss" in row}


class Runs:
    def __init__(self, work):
        self.work, self.lock, self.number, self.references = work, threading.Lock(), 0, {}
        rng = random.Random(7)
        with open(os.path.join(work, "text.txt"), "w", encoding="ascii") as file:
            words = ["river", "stone\n", "and", "a", "mill", "turns", "slowly.\n", "under", "it", "x"]
            file.write(" ".join(rng.choice(words) for _ in range(3000)))
        with open(os.path.join(work, "tokens.u16"), "wb") as file:
            tokens = [min(rng.randrange(37), rng.randrange(37)) for _ in range(12000)]
            file.write(struct.pack(f"<{len(tokens)}H", *tokens))
        self.given = ["text.txt", "tokens.u16"]
        here = os.path.dirname(os.path.abspath(__file__))
        source, include = "weights_through_ops.c", os.path.join("..", "..", "include")
        if shutil.which("cc"):
            library = os.path.join(work, os.path.basename(THROUGH))
            subprocess.run(["cc", "-shared", "-fPIC", "-I" + include, "-o", library, source], check=True, cwd=here)
            self.given.append(os.path.basename(THROUGH))
        else:
            MODELS.pop(THROUGH)

    def folder(self, command):
        with self.lock:
            self.number += 1
            folder = os.path.join(self.work, str(self.number))
        os.mkdir(folder)
        for name in self.given:
            os.link(os.path.join(self.work, name), os.path.join(folder, name))
        for name, text in command.files.items():
            with open(os.path.join(folder, name), "w", encoding="ascii") as file:
                file.write(text)
        return folder

    def run(self, command, *more):
        folder = self.folder(command)
        words = [BIN, "--quiet", "--watchdog", "20", "--log", "log.jsonl", *more]
        before = {}
        if command.has("resume"):  # an earlier run does two steps, on one device after another
            first = self.without_resume(command)
            if command.alone == "writer":
                first = plain(first, {"checkpoint", "every", "keep"})
            status, said = once([*words, "--steps", "2", *first.words()], folder)
            if status:
                return Outcome(status, said, {}, folder)
            before = steps_of(os.path.join(folder, "log.jsonl"))
            if command.alone == "reader":
                command = plain(command, {"checkpoint", "every", "keep", "resume", "save"})
        status, said = once([*words, "--steps", str(STEPS), *command.words()], folder)
        return Outcome(status, said, {**before, **steps_of(os.path.join(folder, "log.jsonl"))}, folder)

    @staticmethod
    def without_resume(command):
        first = command.copy()
        for name in ("resume", "save", "save-adapter"):
            first.run.pop(name, None)
        return first

    def reference(self, command, keep):
        """Returns what one device learns; `keep` names options that it gets too."""
        with self.lock:
            key = " ".join(plain(command, keep).words()) + repr(command.files.get("paths"))
            job = self.references.setdefault(key, [threading.Lock(), None])
        with job[0]:
            if job[1] is None:
                one = plain(command, keep)
                one.run["save"] = ["values.safetensors"]
                job[1] = self.run(one)
        return job[1]


def plain(command, keep):
    """Returns the command for the same model and training on one device (with paths: one per stage)."""
    one = command.copy()
    learned = {name for name, what in OPTIONS.items() if what == LEARNED} | keep
    if command.has("paths"):
        learned |= {"stages"}
        one.run["stages"] = [stages_of(command)]
    one.run = {name: values for name, values in one.run.items() if name in learned}
    return one


def stages_of(command):
    return 1 + max(int(n) for line in command.files["paths"].splitlines() for n in line.split(":")[1].split())


# ---- judging ------------------------------------------------------------------------------------


def apart(a, b):
    """Returns the largest relative difference of a loss or norm between two runs."""
    if a.steps.keys() != b.steps.keys():
        return float("inf")
    worst = 0.0
    for step, one in a.steps.items():
        for x, y in zip(one[:2], b.steps[step][:2]):
            if not (isinstance(x, (int, float)) and isinstance(y, (int, float)) and x == x and y == y):
                return float("inf")
            worst = max(worst, abs(x - y) / max(abs(y), 1e-3))
    return worst


def tensors(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        head, data = json.loads(file.read(size)), file.read()
    head.pop("__metadata__", None)
    return {name: (t["dtype"], tuple(t["shape"]), data[t["data_offsets"][0]:t["data_offsets"][1]])
            for name, t in head.items()}


def values_apart(command, a, b, exact):
    """Returns why the saved values differ from the reference's, or None. A gradient that is nothing but rounding
    may move a value either way, by up to the learning rate."""
    mine, theirs = (tensors(os.path.join(o.folder, "values.safetensors")) for o in (a, b))
    if {n: t[:2] for n, t in mine.items()} != {n: t[:2] for n, t in theirs.items()}:
        return "saved tensors have other names, types or shapes"
    if exact:
        return next((f"saved {n} has other bits" for n in mine if mine[n][2] != theirs[n][2]), None)
    rate = 1e-2 if command.has("group") else 0
    bound = 1e-5 + 4 * sum(max(step[2] or 0, rate) for step in b.steps.values() if len(step) > 2)
    for name, (kind, _, data) in mine.items():
        if kind == "F32":
            form = f"<{len(data) // 4}f"
            pairs = zip(struct.unpack(form, data), struct.unpack(form, theirs[name][2]))
            if not all(abs(x - y) <= bound for x, y in pairs):
                return f"saved {name} has other values"
    return None


def refusal_is_wrong(command, o):
    """Returns why a refusal is not acceptable, or None."""
    if not o.said.strip():
        return "refused without a word"
    if "broken invariant" in o.said:
        return "broken invariant"
    if re.search(r"(?<![\w.])/?[\w./-]+/[\w-]+\.[ch]:\d+", o.said):
        return "a source path of the build in a message"
    if o.status == 3 and re.search(r"stuck|deadlock|cannot finish|waits for", o.said):
        if not command.has("quota", "order"):
            return "stuck without a quota or an order of the user's"
    return None


def reason(said):
    """Returns the text of a refusal without its numbers and names."""
    line = next((l for l in said.splitlines() if l.strip()), "")
    line = re.sub(r"^(actorrun|\[\d+\]|rank \d+|process \d+): *", "", line)
    line = re.sub(r"\b[\w.-]*\d[\w.-]*\b", "N", re.sub(r"/\S+", "PATH", line))
    return line[:110]


class Judge:
    def __init__(self, work):
        self.runs = Runs(work)

    def judge(self, command, again):
        """Returns (kind, message)."""
        o = self.runs.run(command)
        try:
            kind, why = self.outcome(command, o)
            if kind.startswith("equal") and again:
                more = self.runs.run(command, "--jitter", "60")
                if more.status or apart(more, o) != 0:
                    kind, why = "wrong", f"under jitter: status {more.status}, {apart(more, o):.1e} apart\n{more.said}"
                shutil.rmtree(more.folder)
            return kind, why
        finally:
            shutil.rmtree(o.folder)

    def outcome(self, command, o):
        if o.status == 124:
            return "hung", o.said
        if o.status < 0 or o.status > 100 or "Sanitizer" in o.said or "runtime error:" in o.said:
            return "crashed", f"status {o.status}\n{o.said}"
        if o.status in (2, 3):
            why = refusal_is_wrong(command, o)
            return ("crashed" if why == "broken invariant" else "badly refused", f"{why}\n{o.said}") if why \
                else ("refused", reason(o.said))
        if o.status:
            if command.has("expert-rows") and "--expert-rows" in o.said:
                return "refused", reason(o.said)
            return "failed", f"status {o.status}\n{o.said}"
        return self.compare(command, o)

    def compare(self, command, o):
        if command.has("skip"):  # one device gets the paths that were found
            command = command.copy()
            with open(os.path.join(o.folder, "found"), encoding="ascii") as file:
                command.files["paths"] = file.read()
            command.run["paths"] = ["paths"]
        exact = not command.has(*AXES)
        capacity = "expert-capacity" in command.own  # counts tokens of a piece
        one = self.runs.reference(command, REORDERS & command.run.keys() if exact or capacity else set())
        if one.status:
            return "failed", f"one device: status {one.status}\n{one.said}"
        far = apart(o, one)
        if far > (0 if exact else NEAR):
            both = "\n".join(f"  {s}: {o.steps.get(s)} for {one.steps.get(s)}" for s in one.steps)
            return "wrong", f"{far:.2e} apart\n{both}"
        if exact and not capacity and REORDERS & command.run.keys():
            whole = self.runs.reference(command, set())
            if not whole.status and apart(o, whole) > NEAR:
                return "wrong", f"{apart(o, whole):.2e} from whole sequences\n  {o.steps} for {whole.steps}"
        if command.has("save"):
            why = values_apart(command, o, one, exact)
            if why:
                return "wrong", why
        return "equal, bit for bit" if exact else "equal", ""


# ---- shortening a command -------------------------------------------------------------------------


def shorter(command):
    """Yields commands with one option fewer, or a smaller number."""
    for name in list(command.run):
        if name in ("microbatches",):
            continue
        less = command.copy()
        values = less.run.pop(name)
        if name in ("paths", "skip", "checkpoint"):
            for other in {"skip": ("save-paths", "swap"), "checkpoint": ("every", "keep", "resume")}.get(name, ()):
                less.run.pop(other, None)
        yield less
        if len(values) > 1:
            for i in range(len(values)):
                less = command.copy()
                less.run[name] = values[:i] + values[i + 1:]
                yield less
    for name in list(command.own):
        if name in ("data", "layers", "width", "heads", "context", "batch", "experts", "top-k", "expert-ffn", "vocab"):
            continue
        less = command.copy()
        less.own.pop(name)
        yield less
    if command.own["layers"][0] > 1:
        less = command.copy()
        less.own["layers"] = [less.own["layers"][0] - 1]
        yield less


def shrink(judge, command, kind, why, budget=80):
    first = lambda text: reason(text.split("\n")[0])
    again = True
    while again:
        again = False
        for less in shorter(command):
            if (budget := budget - 1) < 0:
                return command
            got, said = judge.judge(less, "under jitter" in why)
            if got == kind and (kind == "wrong" or first(said) == first(why)):
                command, again = less, True
                break
    return command


# ---- the test -------------------------------------------------------------------------------------


def offered():
    names = set()
    for model in ([], *([name] for name in MODELS if name != THROUGH)):
        said = subprocess.run([BIN, *model, "--help", *([] if model else ["all"])], capture_output=True, text=True, check=True).stdout
        names |= set(re.findall(r"^  --([a-z0-9-]+)", said, re.M))
    return names


def check_options():
    """Checks that OPTIONS covers every option."""
    there = offered() | {"through"}
    unknown, gone = sorted(there - OPTIONS.keys()), sorted(OPTIONS.keys() - there)
    for name in unknown:
        print(f"--{name}: OPTIONS of compositions.py does not say whether it may change what is learned")
    for name in gone:
        print(f"--{name}: OPTIONS of compositions.py has an option that actorrun has not")
    return not unknown and not gone


def show(seed, number, kind, why, command):
    print(f"\n{kind}: {number}" if isinstance(number, str) else
          f"\n{kind}: seed {seed}, number {number}: compositions.py --seed {seed} --only {number}")
    print("  actorrun --steps 3 " + shlex.join(command.words()))
    for name, text in command.files.items():
        print(f"  {name}: " + " / ".join(text.splitlines()))
    if command.alone:
        print(f"  one device: the {command.alone} of the checkpoint")
    print("  " + why.strip().replace("\n", "\n  ")[:1500], flush=True)


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--seed", type=int, default=int(os.environ.get("SLUICE_SEED") or 1))
    ask.add_argument("--count", type=int, default=(6 if SLOW else 100) * int(os.environ.get("SLUICE_SEEDS") or 1))
    ask.add_argument("--only", type=int)
    ask.add_argument("--jobs", "-j", type=int, default=2)
    ask.add_argument("--without", action="append", default=[])
    ask.add_argument("--no-shrink", action="store_true")
    ask.add_argument("--all", action="store_true", help="prints every command and how it ended")
    how = ask.parse_args()
    ok = check_options()
    print(f"seed {how.seed}, {how.count} commands", flush=True)
    numbers = range(how.count) if how.only is None else [how.only]
    some = 6 if SLOW and not os.environ.get("SLUICE_LONG") else 1 # sanitizers run a sixth of the cases daily
    cases = [f"case {i}" for i in range(how.seed % some, len(CASES), some)] if how.only is None else []
    ends, reasons, drawn, lock = collections.Counter(), collections.Counter(), collections.Counter(), threading.Lock()
    work = tempfile.mkdtemp(prefix="compositions")
    judge = Judge(work)

    def one(number):
        drawn_now = isinstance(number, int)
        command = Draw(how.seed, number).command() if drawn_now else command_of(*CASES[int(number[5:])])
        if any(word in command.words() for word in how.without):
            return
        kind, why = judge.judge(command, not drawn_now or number % 3 == 0)
        with lock:
            ends[kind] += 1
            drawn.update([*command.run, *command.own] if drawn_now else [])
            if kind == "refused" and not drawn_now:
                ends["case refused"] += 1
            if kind == "refused":
                reasons[why] += 1
            if how.all:
                print(f"{number} {kind}: {shlex.join(command.words())} {why}", flush=True)
        if not kind.startswith("equal") and (not drawn_now or kind != "refused"):
            less = command if how.no_shrink else shrink(judge, command, kind, why)
            with lock:
                show(how.seed, number, kind, why, command)
                if less.words() != command.words():
                    print("  shorter: actorrun --steps 3 " + shlex.join(less.words()), flush=True)

    try:
        with concurrent.futures.ThreadPoolExecutor(how.jobs) as pool:
            for done in [pool.submit(one, number) for number in [*cases, *numbers]]:
                done.result()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print("\n" + ", ".join(f"{n} {kind}" for kind, n in ends.most_common()))
    for why, n in reasons.most_common():
        print(f"  {n:4} refused: {why}")
    if len(numbers) >= 1000:
        for name, what in OPTIONS.items():
            if what in (FREE, LEARNED) and not drawn[name] and name != "jitter":
                print(f"--{name} was never drawn")
                ok = False
    sys.exit(0 if ok and ends.keys() <= {"equal", "equal, bit for bit", "refused"} else 1)


if __name__ == "__main__":
    main()
