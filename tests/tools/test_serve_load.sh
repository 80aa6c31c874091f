#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Many concurrent streams whose clients leave, read slowly or stay idle: all answers are correct,
# and nothing remains of the requests. tests/bench/serve_load.sh measures the same load.
# labels: random
# needs: libevent
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need python3
streams=$((${SLUICE_SEEDS:-1} * 100))
ulimit -n $((6 * streams + 100)) 2>/dev/null || skip "a process may not have $((6 * streams + 100)) files open"

# Makes the sanitizer release freed memory early.
export ASAN_OPTIONS=${ASAN_OPTIONS-}:quarantine_size_mb=8
background "$SLUICE_BUILD/tests/serve_made_up" 2000 "$streams" 8
until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended"; sleep 0.01; done
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$SLUICE_SOURCE/tests/support \
  python3 "$SLUICE_SOURCE/tests/support/serve_load.py" "$(<out)" "$pid" "$streams" 100 2>said || fail "$(<said)"
got=0
kill -INT "$pid"
wait "$pid" || got=$?
((got == 0)) || fail "it ends with status $got"
says "0 pages, 0 events" out
