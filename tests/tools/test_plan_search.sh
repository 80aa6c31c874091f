#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# actortune plan estimates plans from the prices of blocks and makes only the best. Its best plan is
# that of a search that makes every plan, on random models and machines (the test prints the seed).
# The number of plans made does not grow with the number of choices, and 512 devices take seconds.
# labels: random outside
set -u
. "$SLUICE_SOURCE/tests/support/tool.sh"

draw "$@"
cat >compare.py <<'P'
import json, os, random, subprocess, sys
actortune, seed = sys.argv[1], int(sys.argv[2])

def plan(words):
    run = subprocess.run([actortune, "plan", "--points", "1", "--json", "plans.json", *words], capture_output=True, text=True)
    if run.returncode:
        return run.returncode, run.stderr, None
    said = json.load(open("plans.json"))
    return said["plans"][0]["step_seconds"], said["plans"][0]["words"], said["search"]

def compare(seed):
    draw = random.Random(seed)
    layers, heads = draw.choice([3, 4, 5, 7]), draw.choice([2, 4])
    model = [draw.choice(["gpt", "llama", "gpt-oss"]), "--layers", layers, "--width", 64 * draw.randint(1, 4), "--heads", heads,
             "--context", draw.choice([32, 64]), "--vocab", draw.choice([128, 512]), "--batch", draw.choice([6, 8])]
    speed = 10 ** draw.uniform(11, 14)
    json.dump({"flops_per_second": {"f32": speed}, "flops_efficiency": 0.5, "bytes_per_second": speed / draw.choice([10, 100, 300]),
               "bytes_efficiency": 0.8, "op_seconds": draw.choice([1e-6, 5e-6]), "memory_bytes": 1e12, "link_seconds": 2e-6,
               "link_bytes_per_second": speed / draw.choice([100, 1000, 3000])}, open("machine.json", "w"))
    devices = draw.choice([2, 3, 4])
    base = ["--devices", f"timed:{devices}", "--machine", "machine.json", "--fix",
            "sequence=1,pieces=1,home=device," + draw.choice(["recompute=none,shard=nothing", "schedule=zb-h1,recompute=none",
                                                              "schedule=1f1b,chunks=1,shard=optimizer"])]
    least = plan([*base, "--memory", "1K", *map(str, model)])[1]
    unit = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    needs = least.split("smallest plan needs ")[1].split()
    memory = int(float(needs[0]) * unit[needs[1]] * draw.choice([1.2, 2, 10]))
    words = [*base, "--memory", str(memory), *map(str, model)]
    found, chosen, search = plan(["--effort", "full", *words])
    every, best, _ = plan(["--effort", "all", *words])
    print(f"seed {seed}: {found} s of {search} against {every} s")
    if search is None or found > 1.001 * every:
        sys.exit(f"seed {seed}: {found} s against {every} s:\n{chosen}\n{best}")

for n in range(int(os.environ.get("SLUICE_SEEDS", "2"))):
    compare(seed + n)
P
timeout -s KILL 600 python3 compare.py "$bin/actortune" "$seed" >out 2>err || fail "$(cat out err)"

# The number of plans made is no larger with ten times as many choices, and memory is kept.
big=(llama --layers 80 --width 8192 --heads 64 --kv-heads 8 --ffn 28672 --context 4096 --vocab 128256 --batch 2048)
made() { # made DEVICES OPTIONS: prints the choices and the plans made
  timeout -s KILL 600 "$bin/actortune" plan --machine h100-sxm-80gb --dtype bf16 --memory 76G --points 1 --json big.json "$@" \
    "${big[@]}" >out 2>err || fail "plan $*"
  python3 -c '
import json
found = json.load(open("big.json"))
assert all(plan["memory_bytes"] <= 76 * 2**30 for plan in found["plans"])
print(found["search"]["choices"], found["search"]["proved"])'
}
read -r few most < <(made --devices timed:512 --fix tensor=1,schedule=1f1b,recompute=full)
read -r many proved < <(made --devices timed:512 --fix tensor=1)
((many > 10 * few)) || fail "$many choices, $few with more fixed"
((proved <= 16 && most <= 16)) || fail "$proved plans made of $many choices, $most of $few"
grep -q "estimated from .* samples of 3 layers" out || fail "does not say how the plan was found"
grep -q "left out: .* too large, .* slower than the best" out || fail "does not say what was left out"
