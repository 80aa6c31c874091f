#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A short soak test: ordinary load mixed with attacks. Memory stays within the request limits,
# ordinary requests are answered, and nothing is left. tests/bench/serve_soak.py runs longer and
# also bounds the latency of /health.
# labels: random
# needs: libevent
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need python3
ulimit -n 4096 2>/dev/null || skip "a process may not have 4,096 files open"

"$actorrun" --quiet --steps 1 --save bytes.safetensors gpt --data "$reference/text.txt" --layers 1 --width 16 --heads 2 --context 64
# Sanitizers keep freed memory for a while, and the machine may be busy.
export SOAK_HEALTH=10000 SOAK_MEMORY=64
[[ -z ${ASAN_OPTIONS-}${TSAN_OPTIONS-} ]] || SOAK_MEMORY=1024
export ASAN_OPTIONS=${ASAN_OPTIONS-}:quarantine_size_mb=8
python3 "$SLUICE_SOURCE/tests/bench/serve_soak.py" "${SLUICE_SOAK_SECONDS:-4}" "$bin/actorserve" --port 0 --request-memory 64M --quota kv=64 \
  --init bytes.safetensors gpt --layers 1 --width 16 --heads 2 --context 64 >out 2>err || fail "$(<err)"
says "left: " out
