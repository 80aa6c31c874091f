# SPDX-License-Identifier: Apache-2.0
"""Held-out loss of a small Mixtral served from planes, by the mean bits that rows read: the base alone, which is plain
rounding, bits by a row's place among its token's experts, and bit routers.

    tests/bench/bit_routers.py [--bin build/release/bin] [--steps N] [--router-steps N] [--alphas X,X...]

Needs PyTorch and transformers, which train the bit routers (tests/reference/bit_routers.py) and compute the same losses.
The model learns nine tenths of the pages of docs/ as bytes; the loss is the mean over 24 prompts of 120 bytes from the
rest, by the server (/v1/completions with echo and logprobs)."""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "reference"))
import torch

import bit_routers

SHAPE = ["--context", "128", "--layers", "3", "--width", "96", "--heads", "4", "--experts", "8", "--top-k", "2",
         "--expert-ffn", "256"]


def served(options, folder, how, weights, prompts):
    """Returns the loss, and the bytes of experts read."""
    words = ["--weights", "experts", "--experts", how, "--quota", "experts=1000"] if how != "f32" else []
    command = [options.bin / "actorserve", "--port", "0", "--quota", "kv=16", "--quiet", "--init", weights]
    server = subprocess.Popen([*command[:-3], *words, *command[-2:], "mixtral", *SHAPE], stdout=subprocess.PIPE, text=True,
                              env=dict(os.environ, TMPDIR=folder))
    try:
        url, total, count = server.stdout.readline().split()[-1], 0.0, 0
        for prompt in prompts:
            body = {"prompt": prompt.tolist(), "max_tokens": 0, "echo": True, "logprobs": 1}
            with urllib.request.urlopen(url + "/completions", json.dumps(body).encode()) as answer:
                found = json.load(answer)["choices"][0]["logprobs"]["token_logprobs"]
            total -= sum(x for x in found if x is not None)
            count += sum(x is not None for x in found)
        with urllib.request.urlopen(url.removesuffix("/v1") + "/metrics") as answer:
            read = re.search(r"^sluice_expert_bytes_read_total (\d+)$", answer.read().decode(), re.M)
    finally:
        server.terminate()
        server.wait()
    return total / count, int(read.group(1)) if read else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--router-steps", type=int, default=60)
    parser.add_argument("--alphas", default="0,0.0003,0.001,0.003")
    parser.add_argument("--folder")
    options = parser.parse_args()
    text = "".join(path.read_text() for path in sorted(pathlib.Path("docs").glob("*.md"))).encode()
    learned, rest = text[:len(text) * 9 // 10], torch.tensor(list(text[len(text) * 9 // 10:]))
    prompts = [rest[i * len(rest) // 25:][:120] for i in range(24)]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        pathlib.Path(folder, "learned.txt").write_bytes(learned)
        subprocess.run([options.bin / "actorrun", "--quiet", "--steps", str(options.steps), "--save", f"{folder}/model/",
                        "mixtral", *SHAPE, "--data", f"{folder}/learned.txt", "--batch", "8", "--lr", "2e-3"], check=True)
        weights = f"{folder}/model/model.safetensors"
        print("experts\tmean bits\tloss\tMB read\tloss in PyTorch", flush=True)
        for how, bits in [("f32", 32), ("planes:2", 2), ("planes:2..3", 2.5), ("planes:3", 3), ("planes:2..4", 3),
                          ("planes:4", 4), ("planes:8", 8)]:
            loss, read = served(options, folder, how, weights, prompts)
            print(f"{how}\t{bits}\t{loss:.4f}\t{read / 1e6:.2f}", flush=True)
        for alpha in map(float, options.alphas.split(",")):
            torch.manual_seed(1)
            model = bit_routers.Model(f"{folder}/model", 2, 4)
            model.train(torch.tensor(list(learned)), alpha, options.router_steps)
            model.save(f"{folder}/routed.safetensors")
            loss, read = served(options, folder, "planes:2..4,routed", f"{folder}/routed.safetensors", prompts)
            own = [model.loss(prompt[None], "hard") for prompt in prompts]
            bits = sum(b for _, b in own) / len(own)
            print(f"planes:2..4,routed, alpha {alpha:g}\t{bits:.2f}\t{loss:.4f}\t{read / 1e6:.2f}\t"
                  f"{sum(x for x, _ in own) / len(own):.4f}", flush=True)


main()
