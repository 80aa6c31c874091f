#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Strangers cannot keep a server busy or waiting: grammars take bounded time, clients take turns, files that a user
# named by mistake are refused, browsers led to another name get nothing, and SIGTERM ends it in time.
# labels: outside
# needs: libevent pcre2 utf8proc
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need python3
export PYTHONDONTWRITEBYTECODE=1
strangers=$SLUICE_SOURCE/tests/support/serve_strangers.py

small=(--layers 2 --width 16 --heads 2 --context 256)
ends 0 "$actorrun" --quiet --steps 1 --save bytes.safetensors gpt --data "$reference/text.txt" "${small[@]}"
serve() {
  background "$bin/actorserve" --port 0 "$@" --init bytes.safetensors gpt "${small[@]}"
  until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended: $(<err)"; sleep 0.05; done
  port=$(sed -E 's,.*:([0-9]+)/.*,\1,' out)
}
ended() {
  local got=0
  wait "$pid" || got=$?
  ((got == $1)) || fail "it ends with status $got: $(<err)"
}

serve --grace 0.5 --access-log full
python3 "$strangers" "$port" names || fail "names"
python3 "$strangers" "$port" grammars || fail "grammars"
python3 "$strangers" "$port" shapes || fail "shapes"
python3 "$strangers" "$port" "$pid" grace || fail "grace"
ended 0
grep -q '"POST /v1/completions" 403' full || fail "the access log lacks a refused request: $(<full)"
serve --sequences 4
python3 "$strangers" "$port" turns || fail "turns"
kill -TERM "$pid"
ended 0

# Files that are pipes, devices or folders are refused at once, wherever they are named.
mkfifo pipe
mkdir folder
for path in pipe /dev/zero folder; do
  for words in "--config $path" "--api-key-file $path" "--tokenizer $path" "--arrivals $path" "--replay $path"; do
    # shellcheck disable=SC2086 # words
    ends 2 timeout 20 "$bin/actorserve" --port 0 $words --init bytes.safetensors gpt "${small[@]}"
    says "$path" err
  done
done
