#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Processes that serve a model together reject each other at startup if their options, weights or
# adapters differ, with an error that gives the name and both values.
# needs: libevent
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need python3

export SLUICE_KEY=0123456789abcdefghij0123456789abcdefghij
model=(gpt --layers 2 --width 16 --heads 2 --context 16)
mkdir -p other
"$actorrun" --steps 1 --quiet --save w.safetensors "${model[@]}" --data "$reference/text.txt"
"$actorrun" --steps 2 --quiet --save other/w.safetensors "${model[@]}" --data "$reference/text.txt"
"$actorrun" --steps 1 --quiet --init w.safetensors --lora 'transformer.h.*.mlp.c_fc=2' --save-adapter low "${model[@]}" --data "$reference/text.txt"
"$actorrun" --steps 2 --quiet --init w.safetensors --lora 'transformer.h.*.mlp.c_fc=2' --save-adapter other/low "${model[@]}" --data "$reference/text.txt"

# process NUMBER FOLDER WORDS...: starts one process of two, as torchrun would.
process() (
  local rank=$1
  cd "$2"
  shift 2
  RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
    timeout 60 "$@"
)

# refused TEXT FOLDER TOOL [WORDS OF BOTH...] -- WORDS OF THE SECOND: both have to fail, with an
# error that matches TEXT.
refused() {
  local text=$1 folder=$2 status=(0 0) both=() second=()
  shift 2
  while (($#)) && [[ $1 != -- ]]; do both+=("$1"); shift; done
  shift
  second=("$@")
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  process 0 . "${both[@]}" "${model[@]}" >out 2>err &
  local pid=$!
  process 1 "$folder" "${both[@]}" "${second[@]}" "${model[@]}" >out1 2>err1 || status[1]=$?
  wait $pid || status[0]=$?
  ((status[0] == 2 && status[1])) || fail "$text: ended with ${status[*]}, $(<err) $(<err1)"
  grep -qE -- "$text" err || fail "$text: not in $(<err)"
}

serve=("$bin/actorserve" --port 0 --stages 2)
value='with [0-9]+ bytes, hash [0-9a-f]{16}'
refused "process 1 has w.safetensors $value, process 0 has w.safetensors $value" other "${serve[@]}" --init w.safetensors --
refused "has low/adapter_model.safetensors $value, process 0 has" other "${serve[@]}" --init "$PWD/w.safetensors" --adapter low --
refused "process 1 has no --adapter|--adapter none|has --adapter" . "${serve[@]}" --init w.safetensors -- --adapter low
refused "process 1 has --admit reserve, process 0 has --admit recompute" . "${serve[@]}" --init w.safetensors -- --admit reserve
refused "process 1 has --prefix-caching off, process 0 has" . "${serve[@]}" --init w.safetensors -- --prefix-caching off
refused "process 1 has w.safetensors $value, process 0 has w.safetensors $value" other \
  "$actorrun" --stages 2 --init w.safetensors --steps 0 --generate 4 --prompt a --
