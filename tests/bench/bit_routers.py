# SPDX-License-Identifier: Apache-2.0
"""Held-out loss of a small Mixtral served from planes, by the mean bits that rows read: the base alone, which is plain
rounding, bits by a row's place among its token's experts, and bit routers.

    tests/bench/bit_routers.py [--bin build/release/bin] [--steps N] [--router-steps N] [--alphas X,X...]
                               [--capacity X/X/X] [--folder DIR]

The model learns nine tenths of the pages of docs/ as bytes, then actorrun trains its bit routers alone, at several
weights alpha of the mean bits. The loss is the mean over 24 prompts of 120 bytes from the rest, by the server
(/v1/completions with echo and logprobs), which computes a row a tick, so that it counts the bits of each. --folder keeps
the model."""
import argparse
import json
import os
import pathlib
import re
import subprocess
import tempfile
import urllib.request

LAYERS, TOP_K = 3, 2
SHAPE = ["--context", "128", "--layers", str(LAYERS), "--width", "96", "--heads", "4", "--experts", "8", "--top-k", str(TOP_K),
         "--expert-ffn", "256"]


def served(options, folder, how, weights, prompts):
    """Returns the loss, the mean bits of rows in planes, and the bytes of experts read."""
    words = ["--weights", "experts", "--experts", how, "--quota", "experts=1000"] if how != "f32" else []
    command = [options.bin / "actorserve", "--port", "0", "--quota", "kv=16", "--rows", "1", "--quiet", "--init", weights]
    server = subprocess.Popen([*command[:-3], *words, *command[-2:], "mixtral", *SHAPE], stdout=subprocess.PIPE, text=True,
                              env=dict(os.environ, TMPDIR=folder))
    try:
        url, total, count = server.stdout.readline().split()[-1], 0.0, 0
        for prompt in prompts:
            body = {"prompt": list(prompt), "max_tokens": 0, "echo": True, "logprobs": 1}
            with urllib.request.urlopen(url + "/completions", json.dumps(body).encode()) as answer:
                found = json.load(answer)["choices"][0]["logprobs"]["token_logprobs"]
            total -= sum(x for x in found if x is not None)
            count += sum(x is not None for x in found)
        with urllib.request.urlopen(url.removesuffix("/v1") + "/metrics") as answer:
            counts = dict(re.findall(r"^sluice_(\w+)_total (\d+)$", answer.read().decode(), re.M))
    finally:
        server.terminate()
        server.wait()
    rows = int(counts["rows"]) * LAYERS * TOP_K
    return total / count, int(counts.get("experts_wanted", 0)) / rows, int(counts.get("expert_bytes_read", 0))


def learn(options, folder, words, *model):
    subprocess.run([options.bin / "actorrun", "--quiet", *words, "mixtral", *SHAPE, "--data", f"{folder}/learned.txt",
                    "--batch", "8", *model], check=True)


def train_routers(options, folder, alpha, capacity):
    """Returns the file with bit routers."""
    out, steps = f"{folder}/routed.safetensors", str(options.router_steps)
    keys = f"alpha={alpha},capacity={capacity}" if capacity else f"alpha={alpha}"
    learn(options, folder, ["--steps", steps, "--planes", f"2..4,routed:{keys}", "--save", out, "--init",
                            f"{folder}/model/model.safetensors"],
          *"--aux-loss 0 --lr 0.01 --warmup 0 --min-lr 0 --weight-decay 0 --clip 0 --decay-steps".split(), steps)
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--router-steps", type=int, default=60)
    parser.add_argument("--alphas", default="0,0.0003,0.001,0.003")
    parser.add_argument("--capacity", default=".3/.4/.3")
    parser.add_argument("--folder")
    options = parser.parse_args()
    text = "".join(path.read_text() for path in sorted(pathlib.Path("docs").glob("*.md"))).encode()
    learned, rest = text[:len(text) * 9 // 10], text[len(text) * 9 // 10:]
    prompts = [rest[i * len(rest) // 25:][:120] for i in range(24)]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        folder = options.folder or folder
        if not os.path.exists(f"{folder}/model"):
            pathlib.Path(folder, "learned.txt").write_bytes(learned)
            learn(options, folder, ["--steps", str(options.steps), "--save", f"{folder}/model/"], "--lr", "2e-3")
        weights = f"{folder}/model/model.safetensors"
        print("experts\tmean bits\tloss\tMB read", flush=True)

        def row(name, how, file):
            loss, bits, read = served(options, folder, how, file, prompts)
            print(f"{name}\t{bits:.2f}\t{loss:.4f}\t{read / 1e6:.2f}", flush=True)

        for how in ("f32", "planes:2", "planes:2..3", "planes:3", "planes:2..4", "planes:4", "planes:8"):
            row(how, how, weights)
        for alpha, capacity in [(alpha, "") for alpha in options.alphas.split(",")] + [("0", options.capacity)]:
            row(f"planes:2..4,routed, alpha {alpha}{capacity and ', capacity '}{capacity}", "planes:2..4,routed",
                train_routers(options, folder, alpha, capacity))


main()
