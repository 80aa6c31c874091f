#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --generate uses a serving session. Greedy text that outgrows the context continues from the newest
# tokens, and does not depend on the number of processes. After training with several processes the
# first one generates from the saved weights. Requests that cannot be served are rejected before
# training starts.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
text=$reference/text.txt
model=(gpt --layers 2 --width 16 --heads 2 --context 16)

# writes FILE WORDS...: runs actorrun greedily and stores its output.
writes() {
  local to=$1
  shift
  ends 0 "$actorrun" --quiet --temperature 0 "$@"
  cp out "$to"
}
same() { cmp -s "$1" "$2" || fail "$(<"$1") is not $(<"$2")"; }

ends 0 "$actorrun" --quiet --steps 20 --save w.safetensors "${model[@]}" --data "$text" --lr 1e-2 --warmup 0
first=(--steps 0 --init w.safetensors)
writes long "${first[@]}" --generate 24 --prompt "And the " "${model[@]}"
(($(wc -c <long) == 8 + 24 + 1)) || fail "as many tokens as asked for"
# The 16 positions are full at 16 and at 24 characters; generation continues from the newest 8.
writes next "${first[@]}" --generate 7 --prompt "$(head -c 24 long | tail -c 8)" "${model[@]}"
[[ "$(<next)" == "$(head -c 31 long | tail -c 15)" ]] || fail "a full context goes on from its newer half: $(<next), $(<long)"

writes two -n 2 "${patient[@]}" --stages 2 "${first[@]}" --generate 24 --prompt "And the " "${model[@]}"
same long two
writes learned -n 2 "${patient[@]}" --data-parallel 2 --steps 2 --save both.safetensors --generate 9 "${model[@]}" --data "$text"
writes again --steps 0 --init both.safetensors --generate 9 "${model[@]}"
same learned again

chance() { ends 0 "$actorrun" --quiet "${first[@]}" --generate 30 --seed "$1" "${model[@]}"; cp out "$2"; }
chance 1 a
chance 1 b
same a b
chance 2 c
! cmp -s a c || fail "another seed, another text"

# refused NAMED WORDS...: actorrun has to reject WORDS with an error that contains NAMED.
refused() {
  local named=$1
  shift
  ends 2 "$actorrun" --quiet "$@"
  grep -qF -- "$named" err || fail "the message names $named: $(<err)"
}
refused "--generate: with 2 processes, it also needs --save FILE" \
  -n 2 --stages 2 --steps 2 --generate 9 "${model[@]}" --data "$text"
refused "op layer.0/concat.1 (concat) cannot be served" --steps 2 --generate 9 \
  "$SLUICE_SOURCE/examples/gru.c" --data "$text"
refused "(documents) cannot be served" --steps 2 --generate 9 "$SLUICE_SOURCE/examples/bert.c" --data "$text"
