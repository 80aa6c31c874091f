#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Types of weights and of keys and values are dimensions of actortune serve: with lists of both, the best server is the
best of the searches with one of each, for tokens and for joules, and its command gives its figures again.

labels: numbers
"""
import json
import re
import shlex
import subprocess

from tool import BUILD, ends, words

TUNE, SERVE = BUILD + "/bin/actortune", BUILD + "/bin/actorserve"
MODEL = "llama --layers 16 --width 2048 --heads 16 --kv-heads 8 --ffn 8192 --vocab 65536 --context 4096"
LOAD = "--machine h100-sxm-80gb --devices timed:2 --concurrency 16 --lengths 512,64 --requests 32 --rows 512,1024 --prefill 0"


def best(options):
    """Returns tokens per second, joules per token and the command of the best server."""
    out = ends(0, TUNE, f"serve --points 1 --threads 2 {LOAD} {options} {MODEL}").stdout
    row = re.search(r"\n 1 +(\S+) +\d+ +(\S+) .*?([0-9.]+) mJ", out)
    return float(row[2]), float(row[3]), re.search(r"\n 1  (actorserve .*)", out)[1]


for goal, sign in (("ttft=9", 1), ("ttft=9,energy", -1)):
    each = {(d, k): best(f"--slo {goal} --dtype {d} --kv={k}") for d in ("bf16", "fp8") for k in ("bf16", "fp8")}
    found = best(f"--slo {goal} --dtype bf16,fp8 --kv=bf16,fp8")
    winner = max(each, key=lambda f: each[f][0] if sign > 0 else -each[f][1])
    assert found[:2] == each[winner][:2], (goal, found, each)
    assert f"--dtype {winner[0]}" in found[2] and f"--kv {winner[1]}" in found[2], found[2]
    assert len({row[:2] for row in each.values()}) > 1, "formats differ"

subprocess.run([SERVE, "--report", "r.json", *shlex.split(found[2])[1:]], stdout=subprocess.DEVNULL, check=True)
with open("r.json", encoding="utf-8") as file:
    report = json.load(file)
assert abs(report["tokens_per_second_per_device"] / found[0] - 1) < 1e-3, (report["tokens_per_second_per_device"], found)

for wrong in ("--dtype bf16,int3 --kv bf16", "--dtype bf16 --kv bf16,fp9"):
    got = subprocess.run([TUNE, *words(f"serve --slo ttft=9 {LOAD} {wrong} {MODEL}")], capture_output=True, text=True, check=False)
    assert got.returncode == 2 and ("int3" in got.stderr or "fp9" in got.stderr), got.stderr
