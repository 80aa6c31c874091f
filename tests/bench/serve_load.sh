#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests actorserve's connections under load, with a dummy model. For a minute there are 1,000 streams
# and 3,000 idle connections; a fifth of the streams hang up and a tenth read one byte per second. The
# 99th percentile of the latency of /health must be at most 50 ms.
#
#   serve_load.sh [STREAMS [TOKENS [TICK_MICROSECONDS]]]
set -euo pipefail
cd "$(dirname "$0")/../.."
streams=${1:-1000} tokens=${2:-300} tick=${3:-200000}
ulimit -n $((6 * streams + 100))
port=$(mktemp)
build/release/tests/serve_made_up "$tick" "$streams" 8 >"$port" &
server=$!
trap 'kill -9 $server 2>/dev/null || :; rm -f "$port"' EXIT
until [[ -s $port ]]; do sleep 0.1; done
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/support \
  python3 tests/support/serve_load.py "$(<"$port")" "$server" "$streams" "$tokens" 50
kill -INT $server
wait $server
cat "$port"
