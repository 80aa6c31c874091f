#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Mixtures of experts on emulated GPUs: losses equal those of the CPU except for the last bits. They
# have the same bits on one GPU and on stages in two processes, also with experts on several GPUs.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/emulated.sh
source "$SLUICE_SOURCE/tests/support/emulated.sh"
export SLUICE_EMULATED_GPUS=2

mixtral=(mixtral --layers 2 --width 16 --heads 2 --context 8 --batch 4 --lr 1e-3 --vocab 259 --experts 4
         --expert-ffn 24 --data "$SLUICE_SOURCE/tests/reference/tokens.u16")
qwen=(qwen-moe "${mixtral[@]:1}" --shared-ffn 16 --qk-norm --expert-capacity 1.25)
run() { # REPORT OPTIONS...
  local report=$1
  shift
  "$actorrun" "${patient[@]}" --microbatches 2 --steps 2 --quiet --report "$work/$report" "$@"
}

run cpu "${mixtral[@]}"
SLUICE_EMULATED_GUARD=1 run one --devices cuda:0 "${mixtral[@]}"
near cpu one 1e-5
run processes --devices cuda -n 2 --stages 2 --schedule zb-h1 --jitter 100 "${mixtral[@]}"
same one processes
run bf16 --devices cuda:0 --dtype bf16 "${mixtral[@]}"
near cpu bf16 1e-3

# Experts on two GPUs: in one process, where no kernel dereferences the other GPU's addresses, and
# in two processes, on two stages.
apart=(--data-parallel 2 --expert-parallel 2)
run parts --devices cuda "${apart[@]}" "${mixtral[@]}"
near cpu parts 1e-5
SLUICE_EMULATED_GPUS=4 run parts_far --devices cuda -n 2 --stages 2 --schedule zb-h1 --jitter 100 "${apart[@]}" \
  "${mixtral[@]}"
same parts parts_far
SLUICE_EMULATED_GUARD=1 run parts_bf16 --devices cuda "${apart[@]}" --dtype bf16 "${mixtral[@]}"
near cpu parts_bf16 1e-3
ends 1 "$actorrun" --quiet --devices cuda "${apart[@]}" --expert-rows 1.01 "${mixtral[@]}"
grep -qE "actor F[^ ]* on cuda:[01]: op h\.[01]/.*own_ids.*: [0-9]+ rows come to device [01] of the stage .*--expert-rows [0-9.]+ would have been enough" \
  err || fail "too many rows: $(cat err)"

run qwen_cpu "${qwen[@]}"
run qwen --devices cuda --stages 2 "${qwen[@]}"
near qwen_cpu qwen 1e-5
tallies() { grep -A4 '"tallies"' "$work/$1"; }
cmp <(tallies qwen_cpu) <(tallies qwen) || fail "other tokens are dropped"
