#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Models with states, sinks, latents and spikes train on emulated GPUs: losses equal those of the CPU
# except for the last bits, whole and in pieces.
# labels: outside
set -euo pipefail
# shellcheck source=tests/support/emulated.sh
source "$SLUICE_SOURCE/tests/support/emulated.sh"

common=(--context 16 --batch 2 --lr 1e-3 --vocab 259 --data "$SLUICE_SOURCE/tests/reference/tokens.u16")
run() { # REPORT OPTIONS...
  local report=$1
  shift
  ends 0 "$actorrun" --microbatches 2 --steps 2 --quiet --report "$work/$report" "$@" "${common[@]}"
}
alike() { # OPTIONS...
  run cpu "$@"
  run gpu --devices cuda "$@"
  near cpu gpu 1e-6
}
heads=(--heads 6 --kv-heads 2)
hybrid=(hybrid --layers 3 --width 48 "${heads[@]}" --window 7)
next=(qwen3-next --layers 4 --width 48 "${heads[@]}" --softmax-every 3 --value-heads 4 --key-heads 2 --value-dim 8
      --key-dim 12 --experts 0)
alike "${hybrid[@]}"
alike "${next[@]}"
alike mamba2 --layers 2 --width 48 --head-dim 16 --groups 3 --state 10
alike gpt-oss --layers 2 --width 32 --heads 4 --kv-heads 2 --window 5 --experts 5 --expert-ffn 24
alike deepseek --layers 2 --width 32 --heads 4 --latent 24 --nope-dim 12 --rope-dim 8 --value-dim 10 \
  --expert-ffn 24 --shared-ffn 24 --experts 6
alike hybrid --layers 2 --width 48 "${heads[@]}" --spikes 3
alike --pieces 2 "${hybrid[@]}"
alike --pieces 2 "${next[@]}"
# Two GPUs share the positions.
run cpu --sequence 2 "${hybrid[@]}"
SLUICE_EMULATED_GPUS=2 run gpu --devices cuda --sequence 2 "${hybrid[@]}"
near cpu gpu 1e-6
