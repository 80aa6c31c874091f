#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Wherever a limit of the process's addresses (ulimit -v) leaves too little, the run ends before its
# first step with an error that names the limit, and nothing else breaks.
# labels: outside
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
if grep -q 'SLUICE_SANITIZE:[A-Z]*=.' "$SLUICE_BUILD/CMakeCache.txt"; then
  skip "sanitizers take terabytes of addresses"
fi

job=(--steps 1 --stages 2 --microbatches 2 gpt --data "$reference/tokens.u16" --layers 2
     --width 256 --heads 4 --context 64 --batch 2)

limited() { # KIB: its exit status; what it says is in `said`
  (ulimit -v "$1" && "$actorrun" "${job[@]}") >said 2>&1
}

# The least that it runs in, to 4 MiB, and from there down.
low=65536 high=4194304
while ((high - low > 4096)); do
  middle=$(((low + high) / 2))
  if limited $middle; then high=$middle; else low=$middle; fi
done
echo "runs in $((high / 1024)) MiB of addresses"
for ((kib = high - 4096; kib > high - 147456 && kib > 65536; kib -= 4096)); do
  limited "$kib"
  status=$?
  ((status)) || continue
  ((status == 1)) || fail "in $((kib / 1024)) MiB it ends with $status: $(tail -1 said)"
  grep -q 'ulimit -v' said || fail "in $((kib / 1024)) MiB it does not name the limit: $(tail -1 said)"
done
