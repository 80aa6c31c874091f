#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --exact: all CPU levels with fused multiply-add give the same numbers: losses, parameters and
# optimizer state of a GPT with each optimizer, a LLaMA, a Mixtral and a convolutional net.
# labels: outside
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

shape=(--layers 2 --width 56 --heads 4 --context 48 --batch 4 --data "$reference/text.txt")
same() { # NAME MODEL...: on levels 1 to 4, or up to the best one that the CPU has
  local name=$1 level
  shift
  for level in 1 2 3 4; do
    SLUICE_CPU_LEVEL=$level ends 0 "$actorrun" --quiet --exact --steps 3 --certify $name.$level "$@"
    cmp "$name.1" "$name.$level" || fail "$name: level $level has other numbers"
  done
}
same gpt gpt "${shape[@]}"
same llama llama --kv-heads 2 --window 40 "${shape[@]}"
same mixtral mixtral "${shape[@]}"
for rule in adamw adam sgd lion muon; do same "$rule" --optimizer "$rule" gpt "${shape[@]}"; done
same digits "$SLUICE_SOURCE/examples/digits.c" --data "$SLUICE_SOURCE/examples/digits.u8" --batch 8
echo "--exact: the same numbers on all levels"
