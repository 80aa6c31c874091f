#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A hybrid with spiking linear layers learns a text about as well as one without, also with widths
# that the groups of int8 weights do not divide. With --exact its losses, parameters and optimizer
# state have the same bits on any grid: in pieces, on stages, with sharded data, tensors and
# sequences, with recomputation, and over processes. The report counts the spikes, and evaluations
# show their sparsity. Invalid thresholds and adapters on rounded weights are rejected.
# labels: outside
# needs: zeromq
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

data=$reference/text.txt
model=(hybrid --layers 4 --width 32 --heads 4 --kv-heads 2 --context 128 --batch 8 --spikes 3 --data "$data" --exact-leaf 32)
run=("$actorrun" --quiet --exact --steps 3)
ends 0 "${run[@]}" --certify one.jsonl "${model[@]}"
every 3 "--pieces 4" "--stages 4 --microbatches 4 --schedule zb-h1" "--tensor 2 --data-parallel 2 --pieces 2" \
  "--sequence 2" "--pieces 2 --recompute full" "--pieces 4 --piece-order layers --stages 2" \
  "--stages 2 --pieces 2 --microbatches 2 --schedule seq1f1b" "-n 2 --stages 2 --shard parameters --data-parallel 2"
for grid in "${some[@]}"; do
  # shellcheck disable=SC2086
  ends 0 "${run[@]}" $grid "${patient[@]}" --recheck one.jsonl "${model[@]}"
done

# 144 = 128 + 16: the last group of a row is shorter.
small=(--layers 2 --width 144 --heads 4 --context 64 --data "$data")
for k in 0 3; do
  ends 0 "$actorrun" --quiet --steps 60 --lr 5e-3 --warmup 0 --eval "$data" --eval-every 60 --report "$k.json" \
    --save "$k.safetensors" hybrid "${small[@]}" --spikes $k
done
ends 0 python3 - <<'EOF'
import json
plain, spiking = (json.load(open(name)) for name in ("0.json", "3.json"))
last = [sum(s["loss"] for s in r["steps"][-10:]) / 10 for r in (plain, spiking)]
assert last[1] < spiking["steps"][0]["loss"] - 2, "it learns nothing"
assert last[1] < 1.03 * last[0], "spikes cost more than 3 %%: %g, %g" % tuple(last)
zeros = bits = of = 0
for layer in range(2):
    counts = spiking["tallies"]["h.%d.spikes" % layer]
    zeros, bits, of = zeros + counts["last"][0], bits + counts["last"][1], of + counts["last"][2]
    # inputs of linear layers: x, g_proj's 16 numbers, the heads' outputs, x, and the inner width of 384
    assert counts["last"][2] == 8 * 64 * (3 * 144 + 384 + (0 if layer else 16)), counts
assert 0.05 < zeros / of < 0.5 and 0.8 < bits / of < 2, (zeros / of, bits / of)
told = spiking["evaluations"][-1]["metrics"]
assert abs(told["spikes-zero"] - zeros / of) < 0.05 and abs(told["spikes-bits"] - bits / of) < 0.1, told
assert "tallies" not in plain and "metrics" not in plain["evaluations"][-1]
EOF

# A model that generates without its data source answers as it has learned.
ends 0 "$actorrun" --quiet --steps 0 --init 3.safetensors --generate 20 --prompt "the " hybrid "${small[@]:0:8}" --spikes 3
cp out first
ends 0 "$actorrun" --quiet --steps 0 --init 3.safetensors --generate 20 --prompt "the " hybrid "${small[@]:0:8}" --spikes 3
cmp -s out first || fail "it answers differently"

for k in -1 nan x; do
  ends 2 "$actorrun" --quiet --steps 1 hybrid "${small[@]}" --spikes $k
  says '--spikes' err
done
ends 2 "$actorrun" --quiet --steps 1 --lora '*q_proj*=4' hybrid "${small[@]}" --spikes 3
says 'lora *q_proj*: model.layers.0.self_attn.q_proj.weight is read by h.0/quantize.1, which is not a linear map' err
echo "spikes: as good, and the same numbers on any grid"
