#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# If UCX cannot be loaded, the processes of a host exchange data over TCP and print one note. A
# request for shared memory is rejected.
# labels: outside
# needs: zeromq ucx
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need cc
mkdir lacking
cc -shared -o lacking/libucp.so.0 -x c /dev/null # has none of the functions
job=(--quiet -n 2 --stages 2 --steps 4 --report report.json gpt --layers 2 --width 32 --heads 2 --context 16
  --data "$reference/text.txt")

ends 0 "$actorrun" "${job[@]}"
grep -q UCX err && fail "a job with UCX speaks of it"
hexes report.json >with
export LD_LIBRARY_PATH=$work/lacking
ends 0 "$actorrun" "${job[@]}"
[[ $(grep -c 'UCX has no ucp_.*: processes of one host exchange data by TCP' err) == 1 ]] || fail "no note, or several"
hexes report.json | cmp - with || fail "other losses"
SLUICE_TRANSPORTS=memory ends 2 "$actorrun" "${job[@]}"
grep -q '^actorrun: UCX has no ucp_' err || fail "shared memory without UCX"
