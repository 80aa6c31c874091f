#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# actorserve's answers follow schemas and regular expressions, whole and streamed, with a tokenizer
# and with byte tokens. Unsupported schemas are rejected with an error that names the keyword.
# Answers are the same on several stages, devices and processes.
# labels: outside
# needs: libevent zeromq pcre2 utf8proc
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need python3
actorserve=$bin/actorserve
guided=$SLUICE_SOURCE/tests/support/serve_guided.py

small=(--layers 2 --width 16 --heads 2 --context 256)
ends 0 "$actorrun" --quiet --steps 5 --tokenizer "$reference/tokenizers/smollm.json" --save model/ llama \
  --data "$reference/text.txt" "${small[@]}" --vocab 700 --lr 1e-2 --warmup 0
cp "$reference/tokenizers/smollm.json" model/tokenizer.json
ends 0 "$actorrun" --quiet --steps 5 --save bytes.safetensors gpt --data "$reference/text.txt" "${small[@]}" --lr 1e-2

serve() {
  background "$actorserve" --port 0 "$@"
  until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended: $(<err)"; sleep 0.05; done
  url=$(<out)
  url=${url##* }
}
drained() {
  local got=0
  kill -INT "$pid"
  wait "$pid" || got=$?
  ((got == 0)) || fail "it ends with status $got"
}

serve model
python3 "$guided" "$url" 2>said || fail "$(<said)"
python3 "$guided" "$url" answers one
drained
serve gpt --init bytes.safetensors "${small[@]}"
python3 "$guided" "$url" 2>said || fail "with bytes: $(<said)"
drained
for way in "--stages 2 --groups 3" "--tensor 2" "-n 2 --stages 2 --rows 9"; do
  # shellcheck disable=SC2086 # words
  serve $way model
  python3 "$guided" "$url" answers other
  cmp one other || fail "$way: answers differ"
  drained
done
