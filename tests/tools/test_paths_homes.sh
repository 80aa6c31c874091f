#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --skip with --home auto: paths are searched once, not for each plan that the search for homes
# tries. The same paths and homes, given by hand, give the same losses.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
job=(--stages 4 --microbatches 8)
model=(llama --layers 4 --width 32 --heads 4 --context 16 --batch 16 --data "$reference/tokens.u16")
cpu() { # COMMAND...: prints its CPU seconds
  local TIMEFORMAT=%U
  { time ends 0 "$@" >/dev/null; } 2>&1 | tail -1
}
once=$(cpu "$actorrun" --dry-run "${job[@]}" --skip 0.25 --save-paths found "${model[@]}")
all=$(cpu "$actorrun" --dry-run "${job[@]}" --skip 0.25 --home auto --memory 700K --save-paths again "${model[@]}")
awk -v a="$all" -v b="$once" 'BEGIN { exit !(a <= 4 * b + 2) }' || fail "a search within a search: $all s, $once s without --home auto"
homes=$(sed -n 's/^homes auto: //p' out)
[[ $homes == --* ]] || fail "--home auto moves nothing"
cmp -s found again || fail "with --home auto other paths are found"

# shellcheck disable=SC2086
ends 0 "$actorrun" --quiet --steps 2 --report hand.json "${job[@]}" --paths found $homes "${model[@]}"
ends 0 "$actorrun" --quiet --steps 2 --report auto.json "${job[@]}" "${patient[@]}" -n 2 --skip 0.25 --home auto --memory 700K "${model[@]}"
[ "$(hexes hand.json)" = "$(hexes auto.json)" ] || fail "by hand: other losses"

# For a plan that does not fit, the advice keeps the skipped stages and is found quickly.
ends 3 "$actorrun" --dry-run "${job[@]}" --skip 0.25 --memory 620K "${model[@]}"
says "these would fit: --" err
