#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Sequences in pieces on GPUs: tensor-parallel exchanges of the backward pass, and keys and values,
# are offloaded to host memory or disk and change no loss.
# labels: unthreaded long
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/emulated.sh
source "$SLUICE_SOURCE/tests/support/emulated.sh"

# Offloaded values that the backward pass exchanges are filled on the device that made them, and
# then sent.
shared=(--devices cuda --tensor 2 --microbatches 2 --pieces 3 --steps 2 --recompute full "${patient[@]}")
far=(gpt --layers 8 --width 16 --heads 2 --context 24 --batch 4 --data "$reference/text.txt")
ends 0 "$actorrun" "${shared[@]}" --report kept.json "${far[@]}"
for away in "--home act=host --quota fill=1" "-n 2 --home act=disk --quota fill=1"; do
  # shellcheck disable=SC2086
  ends 0 "$actorrun" "${shared[@]}" $away --report away.json "${far[@]}"
  same kept.json away.json
done

# Keys and values arrive piece by piece; pieces begin at boundaries of key tiles.
long=(llama --layers 3 --width 16 --heads 2 --kv-heads 1 --context 128 --batch 1 --data "$reference/text.txt")
pieces=(--devices cuda --pieces 4 --steps 2 "${patient[@]}")
ends 0 "$actorrun" "${pieces[@]}" --report kept.json "${long[@]}"
for away in "kv=host" "kv=disk --home act=host --recompute full"; do
  # shellcheck disable=SC2086
  ends 0 "$actorrun" "${pieces[@]}" --piece-order layers --home $away --plan keys.plan --report keys.json \
    "${long[@]}"
  same kept.json keys.json
  grep -q '^register .*quota kv.fill=2 ' keys.plan || fail "$away: keys stay"
done
