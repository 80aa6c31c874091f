#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# actorrun --auto: the run equals the command line that it prints, with the same losses. Options
# that the user gives are kept, a measured machine needs no options, and the budget holds. Bad
# options are rejected.
# labels: outside
set -u
. "$SLUICE_SOURCE/tests/support/tool.sh"

head -c 8192 /dev/urandom | base64 >text
gpt=(gpt --layers 3 --width 64 --heads 4 --context 32 --vocab 256 --batch 8 --data text)
cat >one.json <<'J'
{"flops_per_second": {"f32": 1e11}, "flops_efficiency": 1, "bytes_per_second": 1e10, "bytes_efficiency": 1,
 "op_seconds": 1e-6, "memory_bytes": 1e12, "link_seconds": 0, "link_bytes_per_second": 0, "devices_per_host": 2}
J
run() { timeout -s KILL 100 "$actorrun" "$@" >out 2>err || fail "actorrun $*"; }

run --auto --machine one.json --devices cpu:2x1 --steps 2 --report chosen.json "${gpt[@]}"
command=$(sed -n 's/^chosen: actorrun //p' out)
[[ $command == *"--devices cpu:2x1"* && $command == *"--schedule"* && $command != *"--auto"* ]] || fail "does not say its plan: $command"
says "a step, " out
says "the next best with --" out
run $command --report said.json
[[ -n $(hexes chosen.json) && $(hexes chosen.json) == "$(hexes said.json)" ]] || fail "what it says is not what it runs"
python3 -c 'import json; assert json.load(open("chosen.json"))["predicted"]["durations"] == "modelled"' ||
  fail "what was predicted is not in the report"

run --auto --machine one.json --devices cpu:2x1 --stages 2 --microbatches 4 --steps 1 --report chosen.json "${gpt[@]}"
grep -q "^chosen: .*--stages 2 .*--microbatches 4 " out || fail "what was given was chosen otherwise"

# Evaluations and checkpoints need more memory, but do not exceed the budget.
run --auto --machine one.json --devices cpu:2x1 --steps 1 --report chosen.json "${gpt[@]}"
bytes=$(python3 -c 'import json; print(max(d["peak_bytes"]["total"] for d in json.load(open("chosen.json"))["devices"]))')
run --auto --machine one.json --devices cpu:2x1 --memory "$bytes" --steps 2 --eval text --eval-every 2 --checkpoint kept --every 2 \
  --report chosen.json "${gpt[@]}"
python3 -c "import json; d = json.load(open('chosen.json'))['devices']; assert max(x['peak_bytes']['total'] for x in d) <= $bytes" ||
  fail "over the budget of $bytes"

mkdir -p .cache/sluice
unset XDG_CACHE_HOME
cp one.json ".cache/sluice/$(uname -n).json"
run --auto --steps 1 "${gpt[@]}"
grep -q "^chosen: actorrun --devices cpu:2 --machine here " out || fail "what was measured is not found"
grep -q " of 2 cores" out && fail "one device of all cores, of which nothing is known"

# If one device of all cores was measured too, --auto takes the faster of the two.
sed 's/"devices_per_host": 2/"devices_per_host": 1/' one.json >".cache/sluice/$(uname -n).whole.json"
run --auto --steps 1 "${gpt[@]}"
grep -q "^chosen: actorrun --devices cpu:2 --machine here " out || fail "one device as fast as each of two is chosen: $(<out)"
grep -q "1 device of 2 cores each +" out || fail "what comes second is not said: $(<out)"
sed 's/"devices_per_host": 2/"devices_per_host": 1/; s/1e11/9e11/; s/1e10/9e10/' one.json >".cache/sluice/$(uname -n).whole.json"
run --auto --steps 1 --report chosen.json "${gpt[@]}"
command=$(sed -n 's/^chosen: actorrun //p' out)
[[ $command == "--devices cpu:1x2 --machine here-whole "* ]] || fail "one device of two cores, nine times as fast: $command"
grep -q "2 devices of 1 core each +" out || fail "what comes second is not said: $(<out)"
run $command --report said.json
[[ $(hexes chosen.json) == "$(hexes said.json)" ]] || fail "what it says is not what it runs on one device"
run --auto --devices cpu:2 --machine here --steps 1 "${gpt[@]}"
grep -q "^chosen: actorrun --devices cpu:2 --machine here " out || fail "devices that are given are chosen otherwise"
run --auto --stages 2 --steps 1 "${gpt[@]}"
grep -q "^chosen: .* --stages 2 " out || fail "stages that are given are chosen otherwise"
rm -r .cache

# A folder as MODEL brings its weights and its options.
ends 0 timeout -s KILL 60 "$actorrun" --auto --machine one.json --steps 1 "$reference/hf_gemma3" --data "$reference/text.txt"
grep -q "^chosen: .* --schedule 1f1b .*hf_gemma3 --data " out || fail "a folder as MODEL: $(<out)"

refused() { # refused STATUS SAYS ARGUMENT...
  local status=$1 says=$2
  shift 2
  ends "$status" timeout -s KILL 60 "$actorrun" --auto "$@" "${gpt[@]}"
  grep -qF -- "$says" err || fail "$*: does not say $says"
}
refused 2 "--auto: plan on cpu devices: durations are not known"
refused 2 "--auto with --schedule gpipe: " --machine one.json --schedule gpipe
refused 3 "no plan fits in 1.0 KiB: the smallest plan needs" --machine one.json --memory 1K --stages 1
refused 2 "--machine here: this machine has not been measured" --machine here
