#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rollouts beside a server alone: processor time for a token that actorrun --rl and actorserve sample, of the same model with
weights in fp32, so many answers at once, on one core each.

Both are asked for short answers and for long ones: the difference in processor time, by the difference in tokens, has neither
the start nor the prompts in it. A run with --rl is ended as soon as it has its answers."""
import argparse
import glob
import json
import os
import pathlib
import random
import re
import subprocess
import tempfile
import threading
import time
import urllib.request

PROMPT, SHORT = 16, 2


def cpu_seconds(pid):
    return sum(int(pathlib.Path(f).read_text().split()[0]) for f in glob.glob(f"/proc/{pid}/task/*/schedstat")) / 1e9


def rollout_seconds(options, folder, tokens):
    """The processor time of a run until its first step has its answers."""
    done = folder / "done"
    done.unlink(missing_ok=True)
    p = subprocess.Popen(
        [f"{options.bin}/actorrun", "--init", options.weights, "--steps", "1", "--rl", "grpo:group=2", "--prompts",
         "prompts.jsonl", "--reward", "head -1 >/dev/null; touch done; sleep 600", "--max-tokens", str(tokens), "--devices",
         "cpu:1x1", "llama", "--context", str(options.context), "--batch", str(options.answers)], cwd=folder,
        stdout=subprocess.DEVNULL)
    while not done.exists():
        assert p.poll() is None, "actorrun has ended"
        time.sleep(0.003)
    seconds = cpu_seconds(p.pid)
    p.kill()
    p.wait()
    return seconds


class Server:
    def __init__(self, options):
        self.p = subprocess.Popen(
            [f"{options.bin}/actorserve", "--port", "0", "--dtype", "fp32", "--devices", "cpu:1x1", "--sequences",
             str(options.answers), "--context", str(options.context), options.weights], stdout=subprocess.PIPE, text=True)
        found = None
        while not found:
            line = self.p.stdout.readline()
            assert line, "actorserve has ended"
            found = re.search(r"http://[0-9.:]+", line)
        self.url = found.group(0) + "/v1/completions"

    def ask(self, prompt, tokens, seed):
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 1, "seed": seed, "ignore_eos": True}
        request = urllib.request.Request(self.url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        usage = json.load(urllib.request.urlopen(request))["usage"]
        assert usage["completion_tokens"] == tokens, usage

    def seconds(self, prompts, tokens):
        """The processor time of answers to all prompts at once."""
        before = cpu_seconds(self.p.pid)
        asked = [threading.Thread(target=self.ask, args=(prompt, tokens, i)) for i, prompt in enumerate(prompts)]
        for thread in asked:
            thread.start()
        for thread in asked:
            thread.join()
        return cpu_seconds(self.p.pid) - before


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True, help="folder of actorrun and actorserve")
    parser.add_argument("--answers", type=int, default=16, help="at once")
    parser.add_argument("--tokens", type=int, default=64, help="of a long answer, more than of a short one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("weights", help="a GGUF file of a llama")
    options = parser.parse_args()
    options.bin, options.weights = os.path.abspath(options.bin), os.path.abspath(options.weights)
    options.context = PROMPT + SHORT + options.tokens
    dice = random.Random(1)

    def fresh():
        return [[dice.randrange(100, 40000) for _ in range(PROMPT)] for _ in range(options.answers)]

    scale = 1e3 / (options.answers * options.tokens)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": p}) + "\n" for p in fresh()))
        server = Server(options)
        server.seconds(fresh(), SHORT)
        sums = [0, 0]
        for i in range(options.rounds):
            served = server.seconds(fresh(), SHORT + options.tokens) - server.seconds(fresh(), SHORT)
            rolled = rollout_seconds(options, folder, SHORT + options.tokens) - rollout_seconds(options, folder, SHORT)
            sums = [sums[0] + rolled, sums[1] + served]
            print(f"round {i + 1}: rollouts {rolled * scale:.2f} ms of processor time a token, server {served * scale:.2f} ms",
                  flush=True)
        server.p.terminate()
        print(f"tokens of rollouts in a second of processor time, by those of the server: {sums[1] / sums[0]:.3f}")


main()
