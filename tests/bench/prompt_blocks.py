#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what prompts lose that attend to chosen blocks (actorserve --prompt-blocks), and what they save.

    prompt_blocks.py --bin build/release/bin [--steps 600] [--context 2048] [--chunk 256] [--prompts 8] [SHARE...]

A llama of 4 layers and width 192 trains on nine tenths of docs/. Prompts of the context's length from the rest are
scored. "loss" is the mean over their tokens, "recall" the part of the softmax weights of the chunks' last 64 queries that
their pages hold, and "ms" the server's processor time per token of a prompt, on one core.
"""
import argparse
import glob
import json
import os
import pathlib
import re
import subprocess
import tempfile
import urllib.request

SIZE = ["llama", "--layers", "4", "--width", "192", "--heads", "6", "--kv-heads", "2"]


def cpu_seconds(pid):
    return sum(int(pathlib.Path(f).read_text().split()[0]) for f in glob.glob(f"/proc/{pid}/task/*/schedstat")) / 1e9


def score(o, folder, share, prompts):
    """Returns the mean loss, the recall, and the milliseconds per token."""
    report = folder + "/report.json"
    blocks = ["--prompt-blocks", f"{share:g},{o.chunk}"] if share < 1 else []
    server = subprocess.Popen([o.bin + "/actorserve", "--port", "0", "--devices", "cpu:1x1", "--rows", str(2 * o.chunk),
                               "--sequences", str(o.chunk), "--quota", f"kv={o.context // 64 + 4 * o.chunk}", "--report", report,
                               *blocks, "--init", folder + "/w.safetensors", *SIZE, "--context", str(o.context + 64)],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    url = re.search(r"http://\S+", server.stdout.readline()).group(0) + "/completions"
    before, losses = cpu_seconds(server.pid), []
    for prompt in prompts:
        body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 0, "echo": True}
        answer = json.load(urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode())))
        losses += [-x for x in answer["choices"][0]["logprobs"]["token_logprobs"][1:len(prompt)]]
    spent = cpu_seconds(server.pid) - before
    server.terminate()
    server.wait()
    with open(report, encoding="utf-8") as file:
        counts = json.load(file)
    recall = counts["attention_recall"] / 1e6 / counts["attention_choices"] if share < 1 else 1
    return sum(losses) / len(losses), recall, 1e3 * spent / sum(map(len, prompts))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--bin", required=True, help="folder of actorrun and actorserve")
    options.add_argument("--steps", type=int, default=600)
    options.add_argument("--context", type=int, default=2048)
    options.add_argument("--chunk", type=int, default=256)
    options.add_argument("--prompts", type=int, default=8)
    options.add_argument("shares", type=float, nargs="*", metavar="SHARE")
    o = options.parse_args()
    o.bin = os.path.abspath(o.bin)
    os.chdir(pathlib.Path(__file__).parents[2])
    text = b"".join(pathlib.Path(f).read_bytes() for f in sorted(glob.glob("docs/*.md")))
    cut = len(text) * 9 // 10
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder + "/train.txt").write_bytes(text[:cut])
        subprocess.run([o.bin + "/actorrun", "--quiet", "--steps", str(o.steps), "--lr", "2e-3", "--seed", "1", "--save",
                        folder + "/w.safetensors", *SIZE, "--context", str(o.context), "--batch", "1", "--data",
                        folder + "/train.txt"], check=True)
        apart = (len(text) - cut - o.context) // o.prompts
        prompts = [list(text[cut + i * apart:cut + i * apart + o.context]) for i in range(o.prompts)]
        print("| share | recall | loss | ms |\n| --- | --- | --- | --- |", flush=True)
        for share in [1, *(o.shares or [.5, .3, .2, .1])]:
            loss, recall, each = score(o, folder, share, prompts)
            print(f"| {share:g} | {recall:.3f} | {loss:.4f} | {each:.3f} |", flush=True)


main()
