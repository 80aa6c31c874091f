#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures a server's milliseconds per token at several context lengths, for three models of the same size: one with a
recurrent state in every block, one where every second block has softmax attention with a window of 4,096 tokens, and one
with softmax attention only.

    states.py --bin build/release/bin [--rounds 3] [CONTEXT...]

The server has one core. "prompt" is the processor time per prompt token of the first request. "token" is the processor time
per generated token: an answer of 33 tokens minus an answer of one token, both after a cached prompt, the best of --rounds
rounds. Processor time excludes what other programs take."""
import argparse
import glob
import json
import os
import pathlib
import re
import subprocess
import tempfile
import urllib.request

SIZE = ["--layers", "6", "--width", "384", "--heads", "6"]
KINDS = {"states": ["--softmax-every", "0"], "hybrid": ["--softmax-every", "2", "--window", "4096"],
         "softmax": ["--softmax-every", "1"]}
TOKENS = 32


def cpu_seconds(pid):
    return sum(int(pathlib.Path(f).read_text().split()[0]) for f in glob.glob(f"/proc/{pid}/task/*/schedstat")) / 1e9


class Server:
    def __init__(self, options, weights, context, kind):
        self.process = subprocess.Popen(
            [f"{options.bin}/actorserve", "--port", "0", "--devices", "cpu:1x1", "--sequences", "1", "--init", weights,
             "hybrid", *SIZE, *kind, "--context", str(context + TOKENS + 64)], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True)
        self.url = re.search(r"http://\S+", self.process.stdout.readline()).group(0) + "/completions"

    def seconds(self, prompt, tokens):
        """Returns the server's processor seconds for an answer of `tokens` tokens."""
        before = cpu_seconds(self.process.pid)
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        answer = json.load(urllib.request.urlopen(urllib.request.Request(self.url, json.dumps(body).encode())))
        assert answer["usage"]["completion_tokens"] == tokens, answer["usage"]
        return cpu_seconds(self.process.pid) - before

    def close(self):
        self.process.kill()
        self.process.wait()


def measure(options, folder, context, kind):
    """Returns the milliseconds per prompt token and per generated token."""
    weights = str(folder / "w.safetensors")
    subprocess.run([f"{options.bin}/actorrun", "--quiet", "--steps", "0", "--save", weights, "hybrid", *SIZE, *kind,
                    "--context", "64", "--data", "README.md"], check=True)
    server = Server(options, weights, context, kind)
    prompt = [7 * i % 256 for i in range(context)]
    first = server.seconds(prompt, 1)
    again = min(server.seconds(prompt, 1) for _ in range(options.rounds))
    longer = min(server.seconds(prompt, 1 + TOKENS) for _ in range(options.rounds))
    server.close()
    return first / context * 1e3, (longer - again) / TOKENS * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of actorrun and actorserve")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("contexts", type=int, nargs="*", metavar="CONTEXT")
    options = parser.parse_args()
    options.bin = os.path.abspath(options.bin)
    os.chdir(pathlib.Path(__file__).parents[2])
    print(" " * 8 + "".join(f"{kind:>20}" for kind in KINDS))
    print(f"{'context':>8}" + f"{'prompt':>10}{'token':>10}" * len(KINDS))
    with tempfile.TemporaryDirectory() as name:
        for context in options.contexts or [1024, 8192, 32768, 65536]:
            row = [measure(options, pathlib.Path(name), context, kind) for kind in KINDS.values()]
            print(f"{context:8}" + "".join(f"{prompt:10.3f}{token:10.2f}" for prompt, token in row), flush=True)


main()
