#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# If a limit on the address space (ulimit -v) leaves too little, the run ends before its first step
# with an error that names the limit. Nothing else breaks, whatever the limit.
# labels: outside
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
if grep -q 'SLUICE_SANITIZE:[A-Z]*=.' "$SLUICE_BUILD/CMakeCache.txt"; then
  skip "sanitizers take terabytes of addresses"
fi

job=(--steps 1 --stages 2 --microbatches 2 gpt --data "$reference/tokens.u16" --layers 2
     --width 256 --heads 4 --context 64 --batch 2)

limited() { # KIB: returns the exit status; the output is in `said`
  (ulimit -v "$1" && "$actorrun" "${job[@]}") >said 2>&1
}

# Finds the smallest limit with which the run succeeds, to 4 MiB, then tries smaller ones.
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
