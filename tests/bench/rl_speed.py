#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the processor time per sampled token of actorrun --rl with that of actorserve, for the same model with fp32 weights
and --answers concurrent sequences, on one core each.

Both generate short answers and long ones. The difference in processor time, divided by the difference in tokens, excludes
startup and prompts. While both generate, the script stops one and lets the other run, alternating in slices of about a tick,
so that other load on the machine slows both. It kills a run with --rl as soon as that has all answers of its step. Main
threads, which load the model and serve HTTP, are not counted."""
import argparse
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import threading
import time
import urllib.request

PROMPT, SHORT, SLICE = 16, 2, 0.15


class Timed:
    """A process whose processor time can be read and which can be paused."""

    def __init__(self, command, **options):
        self.p = subprocess.Popen(command, text=True, **options)

    def seconds(self):
        tasks = [t for t in pathlib.Path(f"/proc/{self.p.pid}/task").iterdir() if t.name != str(self.p.pid)]
        return sum(int((t / "schedstat").read_text().split()[0]) for t in tasks) / 1e9

    def hold(self, held):
        self.p.send_signal(signal.SIGSTOP if held else signal.SIGCONT)

    def end(self):
        self.p.kill()
        self.p.wait()


class Rollouts(Timed):
    """A run of one step, over when the reward program has read all answers."""

    def __init__(self, options, folder, tokens):
        self.answers, self.done = folder / "answers", folder / "done"
        self.done.unlink(missing_ok=True)
        reward = f"head -{options.answers} >answers; touch done; cat >/dev/null"
        super().__init__(
            [f"{options.bin}/actorrun", "--init", options.weights, "--steps", "1", "--rl", "grpo:group=2", "--prompts",
             "prompts.jsonl", "--reward", reward, "--max-tokens", str(tokens), "--devices", "cpu:1x1", "llama", "--context",
             str(options.context), "--batch", str(options.answers)], cwd=folder, stdout=subprocess.DEVNULL)

    def over(self):
        assert self.p.poll() is None, "actorrun has ended"
        if not self.done.exists():
            return False
        assert all(json.loads(line)["truncated"] for line in open(self.answers)), "an answer has ended by itself"
        return True


class Server(Timed):
    def __init__(self, options):
        super().__init__(
            [f"{options.bin}/actorserve", "--port", "0", "--dtype", "fp32", "--devices", "cpu:1x1", "--sequences",
             str(options.answers), "--context", str(options.context), options.weights], stdout=subprocess.PIPE)
        found = None
        while not found:
            line = self.p.stdout.readline()
            assert line, "actorserve has ended"
            found = re.search(r"http://[0-9.:]+", line)
        self.url = found.group(0) + "/v1/completions"

    def answer(self, prompt, tokens, seed):
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 1, "seed": seed, "ignore_eos": True}
        request = urllib.request.Request(self.url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        usage = json.load(urllib.request.urlopen(request))["usage"]
        assert usage["completion_tokens"] == tokens, usage

    def ask(self, prompts, tokens):
        """Sends requests for all prompts concurrently."""
        self.asked = [threading.Thread(target=self.answer, args=(p, tokens, i)) for i, p in enumerate(prompts)]
        for thread in self.asked:
            thread.start()

    def over(self):
        return not any(thread.is_alive() for thread in self.asked)


def wait(process, seconds):
    """Waits up to `seconds` for the process to be over. Returns whether it is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not process.over():
        time.sleep(0.003)
    return process.over()


def seconds_of_both(options, folder, server, prompts, tokens):
    """Returns the processor seconds of the rollouts and of the server, which run alternately."""
    before, rollouts = server.seconds(), Rollouts(options, folder, tokens)
    taken = {}
    server.ask(prompts, tokens)
    both = {"rollouts": rollouts, "server": server}
    while len(taken) < len(both):
        for name in both.keys() - taken.keys():
            for other in both:
                both[other].hold(other != name)
            if wait(both[name], SLICE):
                taken[name] = both[name].seconds()
    server.hold(False)
    rollouts.end()
    return taken["rollouts"], taken["server"] - before


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
        server.ask(fresh(), SHORT)
        wait(server, 600)
        sums = [0, 0]
        for i in range(options.rounds):
            long = seconds_of_both(options, folder, server, fresh(), SHORT + options.tokens)
            short = seconds_of_both(options, folder, server, fresh(), SHORT)
            rolled, served = [l - s for l, s in zip(long, short)]
            sums = [sums[0] + rolled, sums[1] + served]
            print(f"round {i + 1}: rollouts {rolled * scale:.2f} ms of processor time a token, server {served * scale:.2f} ms",
                  flush=True)
        server.end()
        print(f"tokens of rollouts in a second of processor time, by those of the server: {sums[1] / sums[0]:.3f}")


main()
