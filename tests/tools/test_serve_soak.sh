#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Some seconds of ordinary load of a server with attacks mixed in: memory stays within what requests may hold, ordinary
# requests are answered, and nothing is left. (tests/bench/serve_soak.py runs for longer, and bounds how long /health takes.)
# labels: random
# needs: libevent
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need python3
ulimit -n 4096 2>/dev/null || skip "a process may not have 4,096 files open"

"$actorrun" --quiet --steps 1 --save bytes.safetensors gpt --data "$reference/text.txt" --layers 1 --width 16 --heads 2 --context 64
# A sanitizer keeps what was freed for a while; and others may want the machine.
export SOAK_HEALTH=10000 SOAK_MEMORY=64
[[ -z ${ASAN_OPTIONS-}${TSAN_OPTIONS-} ]] || SOAK_MEMORY=1024
export ASAN_OPTIONS=${ASAN_OPTIONS-}:quarantine_size_mb=8
python3 "$SLUICE_SOURCE/tests/bench/serve_soak.py" "${SLUICE_SOAK_SECONDS:-4}" "$bin/actorserve" --port 0 --request-memory 64M --quota kv=64 \
  --init bytes.safetensors gpt --layers 1 --width 16 --heads 2 --context 64 >out 2>err || fail "$(<err)"
says "left: " out
