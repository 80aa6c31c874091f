#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Frozen weights that stay in the blocks of their file. Adapters train as with f32 weights, on one
# device and over stages, grids and processes, with the same bits where sums are exact. They resume
# from checkpoints, which do not contain the base. Merging gives the same model. Weights that cannot
# stay are rejected with an error that names them.
# labels: outside
# needs: zeromq pcre2 utf8proc
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

tiny=$reference/gguf/tiny.gguf
lora=(--lora 'self_attn.*_proj=4,alpha=8' --lora 'mlp.*=2')
train=(--data "$reference/text.txt" --context 32 --batch 4 --lr 1e-2 --min-lr 1e-2 --warmup 0)

# run HOW REPORT OPTIONS...: trains adapters for ten steps with --frozen HOW.
run() {
  local how=$1 report=$2
  shift 2
  ends 0 "$actorrun" --quiet "${patient[@]}" --report "$report" --init "$tiny" "${lora[@]}" --frozen "$how" \
    --steps 10 "$@" llama "${train[@]}"
}
losses() { grep -o '"loss":[^,}]*' "$1"; }
# near A B: the losses have to agree within rounding.
near() {
  paste <(losses "$1") <(losses "$2") | awk -F'[:\t]' '
    { d = $2 - $4; if (d > 2e-6 * $2 || -d > 2e-6 * $2) bad = 1; n++ }
    END { exit bad || !n }' || fail "$2 has other losses than $1: $(losses "$2" | tr '\n' ' ')"
}
bytes() { grep -oE "\"$2\":[[:space:]]*[0-9]+" "$1" | head -1 | grep -oE '[0-9]+$'; }

run fp32 fp32.json
run stored stored.json --save-adapter adapter --save merged/
near fp32.json stored.json
[[ $(losses stored.json | head -1) != "$(losses stored.json | tail -1)" ]] || fail "nothing is learned"
((2 * $(bytes stored.json parameters) < $(bytes fp32.json parameters))) || fail "the base is as large as in f32"
every 2 "--stages 2 --microbatches 2" "--data-parallel 2" "--stages 2 -n 2" \
  "--data-parallel 2 --shard optimizer" "--recompute full" "--pieces 2" "--stages 2 --vocab-parallel" \
  "--eval $reference/text.txt --eval-every 5"
for layout in "${some[@]}"; do
  # shellcheck disable=SC2086
  run fp32 one.json $layout
  # shellcheck disable=SC2086
  run stored other.json $layout
  near one.json other.json
done

# With exact sums the bits equal those of f32.
run fp32 exact.json --exact
run stored again.json --exact
cmp <(losses exact.json) <(losses again.json) || fail "exact sums have other bits"
run stored again.json --exact --data-parallel 2
cmp <(losses exact.json) <(losses again.json) || fail "exact sums of two devices have other bits"

# The base with the adapter and the merged model are the same model.
ends 0 "$actorrun" --quiet --report a.json --init "$tiny" --adapter adapter --frozen stored --steps 1 llama "${train[@]}"
ends 0 "$actorrun" --quiet --report b.json --init "$tiny" --adapter adapter --steps 1 llama "${train[@]}"
ends 0 "$actorrun" --quiet --report c.json --init merged/ --steps 1 llama "${train[@]}"
near a.json b.json
near a.json c.json

# Wide weights, sharded over devices at block boundaries.
wide=(llama --layers 1 --width 512 --heads 4 --ffn 512 --vocab 256 --data "$reference/text.txt" --context 16 --batch 2)
for type in q4_k f16; do
  ends 0 "$actorrun" --quiet --steps 0 --save "wide.gguf:$type" "${wide[@]}"
  for how in fp32 stored; do
    for devices in 1 2; do
      ends 0 "$actorrun" --quiet "${patient[@]}" --report "$how.$devices.json" --init wide.gguf --frozen "$how" \
        --lora 'mlp.*=2' --tensor "$devices" --steps 3 "${wide[@]}"
    done
  done
  near fp32.1.json stored.1.json
  near fp32.2.json stored.2.json
done

# A checkpoint does not contain the base, and a run resumes from it.
run stored whole.json
run stored part.json --steps 6 --checkpoint c --every 3
grep -aq lora_A c/*/*.safetensors || fail "the checkpoint has no adapters"
! grep -aq '"model.layers.0.mlp.up_proj.weight"' c/*/*.safetensors || fail "the checkpoint has the base"
run stored rest.json --checkpoint c --resume
cmp <(losses whole.json | tail -4) <(losses rest.json) || fail "another run goes on from the checkpoint"

# Invalid combinations.
refused() {
  local named=$1
  shift
  ends 2 "$actorrun" --steps 1 "$@" llama "${train[@]}"
  says "$named" err
}
refused "--frozen stored: needs --init with the stored weights" --frozen stored "${lora[@]}"
refused "frozen" --frozen half --init "$tiny" "${lora[@]}"
refused "no frozen weight can keep its file's format" --frozen stored --init "$tiny"
refused "cannot keep its file's format: devices hold shards of it" --frozen stored --init "$tiny" "${lora[@]}" \
  --data-parallel 2 --shard parameters
refused "weight model.layers.0.self_attn.o_proj.weight cannot keep its file's format" --frozen stored --init "$tiny" "${lora[@]}" --tensor 2 --sbp model.layers.0.self_attn.o_proj.weight=-,S1
