#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --exchange inline has the same losses to the bit, with any recomputation. A pass that has begun
# occupies its device, so with free links a pipeline is hardly slower than its busiest device.
# Patterns set the layout of tensors.
# labels: outside
# needs: zeromq
set -u
. "$SLUICE_SOURCE/tests/support/tool.sh"

gpt=(gpt --data "$reference/text.txt" --layers 4 --width 32 --heads 4 --context 16 --batch 8)
losses() {
  timeout -s KILL 60 "$actorrun" "${patient[@]}" --steps 1 --quiet --report r.json "$@" "${gpt[@]}" >out 2>err || fail "$*"
  python3 -c 'import json; print(*[s["loss_hex"] for s in json.load(open("r.json"))["steps"]])'
}
for grid in "--tensor 2 --data-parallel 2 --microbatches 2" "--stages 2 --tensor 2 --microbatches 4 --schedule zb-h1" \
            "--stages 2 --tensor 2 --microbatches 4 --pieces 2 -n 2"; do
  want=$(losses $grid)
  for how in "--exchange inline" "--exchange inline --recompute whole"; do
    got=$(losses $grid $how)
    [[ $got == "$want" ]] || fail "$grid $how: losses are $got, not $want"
  done
done

cat >free.json <<'END'
{"flops_per_second": {"f32": 1e12}, "flops_efficiency": 1, "bytes_per_second": 1e13, "bytes_efficiency": 1,
 "op_seconds": 0, "memory_bytes": 1e15, "link_seconds": 0, "link_bytes_per_second": 0}
END
over_busiest() {
  timeout -s KILL 60 "$actorrun" --clock virtual --machine free.json --steps 3 --quiet --report r.json --stages 5 \
    --tensor 8 --microbatches 100 --schedule interleaved --chunks 3 --recompute whole "$@" gpt --layers 15 \
    --width 512 --heads 8 --context 256 --vocab 512 --batch 100 >out 2>err || fail "$*"
  python3 -c '
import json
p = json.load(open("r.json"))["predicted"]
print(p["passes_seconds"] / max(d["busy_seconds"] for d in p["devices"]))'
}
python3 -c "import sys; sys.exit($(over_busiest --exchange inline) > 1.07)" || fail "inline is slower than its busiest device"

# Recomputation in a backward pass waits for the gradient, as the pass does. Otherwise it would
# start as soon as it has a slot, ahead of forward passes that other stages wait for. The model is
# Megatron-LM's row of 529.6 10^9 parameters, on 8 stages.
timeout -s KILL 60 "$actorrun" --clock virtual --machine "$SLUICE_SOURCE/tests/bench/megatron.json" --dtype bf16 \
  --memory 100T --steps 2 --quiet --report r.json --trace r.trace --stages 8 --tensor 8 --microbatches 16 \
  --schedule interleaved --chunks 3 --recompute whole --exchange inline --grain pass --sbp 'layernorm.*=-,B' \
  --sbp 'add.*=-,B' gpt --layers 24 --width 20480 --heads 128 --context 2048 --vocab 51200 --batch 16 >out 2>err ||
  fail "a large plan"
python3 - <<'P' || fail "passes back begin before what they wait for is there"
import json
p = json.load(open("r.json"))["predicted"]
ratio = p["passes_seconds"] / max(d["busy_seconds"] for d in p["devices"])
assert ratio < 1.47, ratio # 1.55 where they do
P
timeout -s KILL 60 "$bin/actortrace" rows r.trace >rows 2>err || fail "its trace, with slots of more than 4 GiB: $(<err)"

refused() {
  local says=$1
  shift
  timeout -s KILL 60 "$actorrun" --dry-run --tensor 2 "$@" "${gpt[@]}" >out 2>err && fail "not refused: $*"
  grep -qF -- "$says" err || fail "$*: does not say $says"
}
refused "--exchange between: must be one of beside, inline" --exchange between
refused "no parameter or op is called layernrm.*" --sbp 'layernrm.*=-,B'
"$actorrun" --dry-run --tensor 2 --show-sbp --sbp 'layernorm.*=-,S1' "${gpt[@]}" >out 2>err || fail "patterns"
[[ $(grep -c 'layernorm.* -> S1' out) == 3 ]] || fail "a pattern speaks of all norms"
