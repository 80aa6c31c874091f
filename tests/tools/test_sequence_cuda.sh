#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Sequences in a ring of emulated GPUs. Losses equal those of the CPU except for the last bits:
# chunk by chunk, in pieces, and without peer access. Two processes give the same bits.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/emulated.sh
source "$SLUICE_SOURCE/tests/support/emulated.sh"

run() { # REPORT OPTIONS...
  local report=$1
  shift
  "$actorrun" "${patient[@]}" --microbatches 1 --steps 2 --quiet --report "$work/$report" "$@" llama --layers 1 \
    --width 8 --heads 2 --kv-heads 1 --ffn 8 --vocab 257 --context 13 --batch 1 --data "$SLUICE_SOURCE/tests/reference/text.txt"
}
near() {
  paste <(grep -o '"loss":[^,]*' "$work/$1") <(grep -o '"loss":[^,]*' "$work/$2") |
    awk -F'[:\t]' '{ d = $2 / $4 - 1; n++; if (d > 1e-5 || d < -1e-5) bad = 1 } END { exit bad || n != 2 }' ||
    fail "$1 and $2 have other losses"
}

run cpu
export SLUICE_EMULATED_GPUS=2
ring=(--devices cuda --sequence 2 --sequence-attention ring)
run chunks "${ring[@]}" --recompute full
near cpu chunks
run pieces "${ring[@]}" --pieces 2
near cpu pieces
run again "${ring[@]}" --pieces 2 --recompute full -n 2
same pieces again
SLUICE_EMULATED_PEERS=0 SLUICE_EMULATED_GUARD=1 run apart "${ring[@]}" --sequence-layout contiguous 2>"$work/err"
near cpu apart
