#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Connections of actorserve under load, with a stand-in model. There are 1,000 streams for a minute, of
# which a fifth hang up and a tenth read a byte a second, and 3,000 idle connections. The 99th
# percentile of /health must be at most 50 ms.
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
