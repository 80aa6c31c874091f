#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Learned tokens in front of each sequence: the same losses and tensors on any grid, bit for bit, in
# pieces, on stages and over processes. The tokens are trained, saved and loaded; other weights lack
# them. Features that do not support them are rejected with an error that names them.
# labels: outside
# needs: zeromq
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

data=$reference/text.txt
model=(hybrid --layers 4 --width 32 --heads 4 --kv-heads 2 --context 96 --batch 8 --data "$data" --window 20 --sink-tokens 32
  --exact-leaf 32)
run=("$actorrun" --quiet --exact --steps 3)
ends 0 "${run[@]}" --certify one.jsonl "${model[@]}"
for grid in "--pieces 4" "--stages 4 --microbatches 4 --schedule zb-h1" "--tensor 2 --data-parallel 2 --pieces 2" "--sequence 2" \
  "--pieces 2 --recompute full" "--stages 2 --pieces 2 --microbatches 2 --schedule seq1f1b" \
  "-n 2 --stages 2 --shard parameters --data-parallel 2"; do
  # shellcheck disable=SC2086
  ends 0 "${run[@]}" $grid "${patient[@]}" --recheck one.jsonl "${model[@]}"
done
both=(hybrid --layers 3 --width 32 --heads 4 --context 64 --batch 4 --data "$data" --side-by-side --gates keys --window 9 --sink-tokens 5)
ends 0 "${run[@]}" --certify both.jsonl "${both[@]}"
ends 0 "${run[@]}" --tensor 2 --microbatches 2 --recheck both.jsonl "${both[@]}"

# The tokens learn: with a short window a text is learned better with them. They are saved and
# loaded.
small=(hybrid --layers 2 --width 32 --heads 2 --context 64 --batch 8 --data "$data" --lr 1e-2 --warmup 0 --softmax-every 1 --window 4)
ends 0 "$actorrun" --quiet --steps 30 --save w.safetensors --report r.json --eval "$data" --eval-rows 8 --eval-every 30 "${small[@]}" --sink-tokens 16
ends 0 "$actorrun" --quiet --steps 1 --init w.safetensors --report again.json --eval "$data" --eval-rows 8 --eval-every 1 "${small[@]}" \
  --sink-tokens 16 --lr 1e-30
python3 - <<'PY' || fail "it learns nothing, or another model is loaded"
import json
a, b = json.load(open("r.json")), json.load(open("again.json"))
assert a["steps"][-1]["loss"] < a["steps"][0]["loss"] - 1.5, a["steps"][-1]
assert a["evaluations"][-1]["loss"] == b["evaluations"][-1]["loss"], (a["evaluations"], b["evaluations"])
PY
# Their table is a parameter that other weights lack.
ends 0 "$actorrun" --quiet --steps 1 --save plain.safetensors "${small[@]}"
ends 2 "$actorrun" --steps 1 --init plain.safetensors "${small[@]}" --sink-tokens 16
says 'model.sink_tokens.weight' err
ends 0 "$actorrun" --quiet --steps 1 --init plain.safetensors --init-new '*sink_tokens*' "${small[@]}" --sink-tokens 16

# --logprobs reports the tokens of the data, and their mean is the loss, whole and in pieces.
for way in "" "--pieces 2" "--data-parallel 2"; do
  # shellcheck disable=SC2086
  ends 0 "$actorrun" --quiet --steps 1 --logprobs told.jsonl --report r.json $way "${small[@]}" --sink-tokens 5
  python3 - <<'PY' || fail "$way: --logprobs counts sink tokens"
import json
rows = [json.loads(line)["logprobs"] for line in open("told.jsonl")]
loss = json.load(open("r.json"))["steps"][0]["loss"]
assert [len(row) for row in rows] == [64] * 8, rows
assert abs(-sum(map(sum, rows)) / 512 - loss) < 1e-5, loss
PY
done

# Rejected settings.
printf '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n' >chats.jsonl
ends 2 "$actorrun" --steps 1 "${small[@]}" --sink-tokens 16 --document-end 10
says 'hybrid: --sink-tokens: not supported with --document-end' err
ends 2 "$actorrun" --steps 1 --home kv=disk --pieces 2 --piece-order layers "${small[@]}" --sink-tokens 16
says 'attrs.attention.shown' err
echo "sink tokens: the same numbers on any grid"
