#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Requests name adapters as models. Each adapter answers with the same bits alone and among others,
# over stages and devices. Adapters are loaded and unloaded while the server runs. Only requests
# with the same adapter share prefixes.
# labels: outside
# needs: libevent zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need python3

model=(llama --layers 2 --width 32 --heads 4 --kv-heads 2 --ffn 88 --context 256)
init=(--init "$reference/hf_llama/model.safetensors")
one=$reference/lora_llama
ends 0 "$actorrun" --quiet --steps 6 --lora 'self_attn=4' --lora 'down_proj=2,alpha=8' --save-adapter second "${init[@]}" \
  "${model[@]}" --batch 4 --lr 3e-2 --data "$reference/tokens.u16"

serve() {
  background "$bin/actorserve" --port 0 "${init[@]}" "$@" "${model[@]}"
  until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended: $(<err)"; sleep 0.05; done
  port=$(sed -E 's,.*:([0-9]+)/.*,\1,' out)
}
ask() { python3 "$SLUICE_SOURCE/tests/support/serve_adapters.py" "$port" "$@" 2>said || fail "$1: $(<said)"; }
drained() {
  local got=0
  kill -INT "$pid"
  wait "$pid" || got=$?
  ((got == 0)) || fail "it ends with status $got: $(<err)"
}

serve
ask ask alone model
drained
serve --adapter one="$one"
ask ask alone one
drained
serve --adapter two=second --rows 5
ask ask alone two
drained
cmp -s alone.model alone.one && fail "an adapter does nothing"
for way in "" "--stages 2 --rows 7" "--tensor 2" "-n 2 --stages 2"; do
  # shellcheck disable=SC2086 # words
  serve $way --adapter one="$one" --adapter two=second
  ask ask all two model one
  for name in model one two; do cmp alone.$name all.$name || fail "$way: $name answers otherwise"; done
  [[ $way ]] || ask prefixes one
  drained
done
mkdir adapters adapters/pipe adapters/secret
cp -rL "$one" adapters/one
cp -r second adapters/second
ln -s "$PWD/second" adapters/away
mkfifo adapters/pipe/adapter_config.json
echo 'root:hidden:1' >adapters/secret/adapter_config.json
serve --adapter-places 2 --adapter-dir adapters
ask swap one second
drained
serve --adapter-places 2
ask locked second
drained

refused() { # MESSAGE ARGUMENT...
  ends 2 "$bin/actorserve" --port 0 "${init[@]}" "${@:2}" "${model[@]}"
  says "$1" err
}
refused "the name two is given twice" --adapter two=second --adapter two=second
refused "nowhere" --adapter two=nowhere
