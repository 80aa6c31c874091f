#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# With a tool_choice the answer is a tool call whose arguments match the tool's schema, in every
# known format, whole and streamed. Impossible choices are rejected.
# labels: outside
# needs: libevent zeromq pcre2 utf8proc
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need python3

ends 0 "$bin/actorrun" --quiet --steps 5 --tokenizer "$reference/tokenizers/smollm.json" --save model/ llama \
  --data "$reference/text.txt" --layers 2 --width 16 --heads 2 --context 512 --vocab 700 --lr 1e-2 --warmup 0
cp "$reference/tokenizers/smollm.json" model/tokenizer.json

# asked FORMAT TEMPLATE: tests a server with this tool parser.
asked() {
  printf '%s' "$2" >template
  background "$bin/actorserve" --port 0 --tool-parser "$1" --chat-template template model
  until [[ -s out ]]; do kill -0 "$pid" || fail "$1: the server has ended: $(<err)"; sleep 0.05; done
  python3 "$SLUICE_SOURCE/tests/support/serve_choice.py" "$(sed -E 's,.*:([0-9]+)/.*,\1,' out)" "$1" 2>said ||
    fail "$1: $(<said)"
  local got=0
  kill -INT "$pid"
  wait "$pid" || got=$?
  ((got == 0)) || fail "$1: it ends with status $got"
}
for format in hermes qwen3-coder llama3 mistral gpt-oss; do asked "$format" '{{ messages[-1].content }}'; done
asked none '{{ messages[-1].content }}'
