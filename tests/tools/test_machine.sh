#!/bin/bash
# actortune machine: what it writes is a machine file, with the rows that ran, alone and with all devices busy;
# a model takes on it about what it takes here, and the same memory to the byte; and what is refused.
# labels: outside
set -u
. "$SLUICE_SOURCE/tests/support/tool.sh"

timeout -s KILL 200 "$bin/actortune" machine --devices cpu:2x1 --seconds 1 -o box.json >out 2>err || fail "actortune machine"
python3 - <<'P' || fail "the file is not as it should be"
import json
box = json.load(open("box.json"))
curves = box["curves"]
for row in "linear linear_b linear_w gelu adamw layernorm rmsnorm cross_entropy".split():
    assert row in curves, row
linear = curves["linear"]
assert linear["devices"] == [1, 2], linear["devices"]
assert len(linear["seconds"]) == len(linear["m"]) and box["firing_seconds"] > 0 and box["wake_seconds"] > 0
assert box["devices_per_host"] == 2 and box["spread"] >= 0
P

gpt=(gpt --layers 2 --width 64 --heads 2 --context 32 --vocab 256 --batch 8)
head -c 4096 /dev/urandom | base64 >text
timeout -s KILL 100 "$bin/actorrun" --devices cpu:2x1 --stages 2 --microbatches 4 --steps 3 --quiet --report took.json "${gpt[@]}" \
  --data text >out 2>err || fail "actorrun on this machine"
timeout -s KILL 100 "$bin/actorrun" --devices timed:2 --clock virtual --machine box.json --memory 1T --stages 2 --microbatches 4 \
  --steps 3 --quiet --report said.json "${gpt[@]}" >out 2>err || fail "actorrun --machine box.json"
python3 - <<'P' || fail "what is said of memory is not what it is"
import json
said, took = json.load(open("said.json")), json.load(open("took.json"))
assert [d["peak_bytes"] for d in said["devices"]] == [d["peak_bytes"] for d in took["devices"]]
assert said["predicted"]["step_seconds"] > 0
P
timeout -s KILL 100 "$bin/actortune" plan --devices timed:2 --machine box.json "${gpt[@]}" >out 2>err || fail "plan --machine box.json"

refused() {
  local says=$1
  shift
  timeout -s KILL 60 "$bin/actortune" machine "$@" >out 2>err && fail "not refused: $*"
  grep -qF -- "$says" err || fail "$*: does not say $says"
}
refused "only CPU devices can be measured" --devices timed:2
refused "gpt: actortune machine takes options only" gpt
refused "nowhere/box.json" -o nowhere/box.json
refused "unknown option --stages" --stages 2
