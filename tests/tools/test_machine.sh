#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# actortune machine: writes a machine file with the rows that were measured, alone and with all
# devices busy. A model on that machine needs the same memory as a real run, to the byte. Bad
# arguments are rejected.
# labels: outside
# needs: zeromq
set -u
. "$SLUICE_SOURCE/tests/support/tool.sh"

timeout -s KILL 200 "$bin/actortune" machine --devices cpu:2x1 --seconds 1 -o box.json >out 2>err || fail "actortune machine"
says "measures 2 devices of 1 core for 1 s: products, attention, vocabularies, served calls, firings, wakes, messages" err
says "box.json: a device multiplies at up to " err
says "(spread " err
python3 - <<'P' || fail "the file is not as it should be"
import json
said = open("err").read()
box = json.load(open("box.json"))
curves = box["curves"]
for row in "linear linear.transposed linear_b linear_w gelu adamw layernorm rmsnorm cross_entropy".split():
    assert row in curves, row
linear = curves["linear"]
assert linear["devices"] == [1, 2], linear["devices"]
assert len(linear["seconds"]) == len(linear["m"]) and box["firing_seconds"] > 0 and box["wake_seconds"] > 0
for row in "linear_served linear_served.bf16 linear_served.Q8_0 linear_served.Q4_1".split():
    served = curves[row]
    sizes = [len(served[axis]) for axis in ("m", "n", "k", "devices")]
    assert len(served["seconds"]) == sizes[0] * sizes[1] * sizes[2] * sizes[3] and sizes[3] == 2, (row, sizes)
    pairs = list(zip(served["seconds"][::2], served["seconds"][1::2]))
    assert all(0 < one <= 1.001 * both for one, both in pairs), row
    many, one = served["seconds"][-2], served["seconds"][2 * sizes[1] * sizes[2] - 2]
    assert many > one, (row, one, many)  # 256 rows, and one
for row in ("attention_served", "attention_served.prompt"):
    seconds = curves[row]["seconds"]
    assert min(seconds) > 0 and seconds[-1] > seconds[0], row
rate = max(2 * m * n * k / linear["seconds"][i][j][l][1] for i, m in enumerate(linear["m"])
           for j, n in enumerate(linear["n"]) for l, k in enumerate(linear["k"]))
assert rate < 1.5 * box["flops_per_second"]["f32"], rate
assert box["devices_per_host"] == 2 and box["spread"] >= 0, box["spread"]
assert ("kept the machine busy" in said) == (box["spread"] > 0.25), said
link = box["process_link"]
assert link["devices"] == [1, 2] and all(0 < times[0] < 5 and 0 < times[1] < 5 for times in link["seconds"]), link
link["seconds"] = [[1, 1]] * len(link["bytes"])
json.dump(box, open("slow.json", "w"))
P

# ---- what took longer than predicted ---------------------------------------------------------------------------

gpt=(gpt --layers 2 --width 64 --heads 2 --context 32 --vocab 256 --batch 8)
head -c 4096 /dev/urandom | base64 >text
timeout -s KILL 100 "$bin/actorrun" --devices cpu:2x1 --stages 2 --microbatches 4 --steps 3 --quiet --report took.json "${gpt[@]}" \
  --machine box.json --data text >out 2>err || fail "actorrun on this machine"

# ---- two processes, with links that take a second: the prediction changes, the losses do not -------------------

timeout -s KILL 100 "$bin/actorrun" -n 2 "${patient[@]}" --devices cpu:2x1 --stages 2 --microbatches 4 --steps 3 --quiet --report two.json \
  "${gpt[@]}" --machine slow.json --data text >out 2>err || fail "actorrun -n 2 on a machine with slow links"
python3 - <<'P' || fail "links between processes"
import json
took, two = json.load(open("took.json")), json.load(open("two.json"))
assert two["predicted"]["step_seconds"] > 2 > took["predicted"]["step_seconds"], (two["predicted"], took["predicted"])
assert [s["loss_hex"] for s in two["steps"]] == [s["loss_hex"] for s in took["steps"]]
P

timeout -s KILL 60 "$bin/actortune" compare took.json >table 2>err || fail "actortune compare"
python3 - <<'P' || fail "the table is not what the report says"
import json, re
took = json.load(open("took.json"))
lines = {line[:24].strip(): line[24:].split() for line in open("table")}
calls = sum(op["calls_per_step"] for op in took["ops"] if op["op"] == "linear_w")
assert int(lines["linear_w"][0]) == calls, (lines["linear_w"], calls)
assert all("predicted_seconds" in op for op in took["ops"] if op["op"].startswith(("linear", "attention"))), took["ops"]
share = {name: float(line[-2]) for name, line in lines.items() if line[-1] == "%"}
rows = sum(value for name, value in share.items() if name not in ("all calls", "outside of calls", "the step"))
assert abs(rows - share["all calls"]) < 0.02 * len(share), share
assert "outside of calls" in lines and "the step" in lines
P
timeout -s KILL 100 "$bin/actorrun" --devices timed:2 --clock virtual --machine box.json --memory 1T --stages 2 --microbatches 4 \
  --steps 3 --quiet --report said.json "${gpt[@]}" >out 2>err || fail "actorrun --machine box.json"
python3 - <<'P' || fail "what is said of memory is not what it is"
import json
said, took = json.load(open("said.json")), json.load(open("took.json"))
assert [d["peak_bytes"] for d in said["devices"]] == [d["peak_bytes"] for d in took["devices"]]
assert said["predicted"]["step_seconds"] > 0
P
timeout -s KILL 100 "$bin/actortune" plan --devices timed:2 --machine box.json "${gpt[@]}" >out 2>err || fail "plan --machine box.json"

timeout -s KILL 60 "$bin/actorrun" --clock virtual --devices timed:2 --stages 2 --microbatches 2 --steps 1 --quiet \
  --cost F=1,B=1,W=1 --report bare.json pipeline >out 2>err || fail "actorrun --cost"
for culprit in bare.json nowhere.json; do
  timeout -s KILL 60 "$bin/actortune" compare $culprit >out 2>err && fail "compare $culprit is not refused"
  grep -qF $culprit err || fail "compare $culprit: the culprit is not named"
done

refused() {
  local says=$1
  shift
  timeout -s KILL 60 "$bin/actortune" machine "$@" >out 2>err && fail "not refused: $*"
  grep -qF -- "$says" err || fail "$*: does not say $says"
}
# Without options it measures both ways to divide the cores.
if (($(nproc) > 1)); then
  timeout -s KILL 200 env XDG_CACHE_HOME=. "$bin/actortune" machine --seconds 2 >out 2>err || fail "actortune machine without anything"
  python3 - "sluice/$(uname -n)" <<'P' || fail "one device for each core, and one of all: $(<err)"
import json, os, sys
each, whole = json.load(open(sys.argv[1] + ".json")), json.load(open(sys.argv[1] + ".whole.json"))
assert each["devices_per_host"] > 1 == whole["devices_per_host"], (each["source"], whole["source"])
assert whole["memory_bytes"] > 1.9 * each["memory_bytes"] and f"of {each['devices_per_host']} cores" in whole["source"]
P
  says "measures 1 device of $(nproc) cores" err
fi

refused "only CPU devices can be measured" --devices timed:2
refused "gpt: actortune machine takes options only" gpt
refused "nowhere/box.json" -o nowhere/box.json
refused "unknown option --stages" --stages 2
