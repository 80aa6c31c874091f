#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A graph network over stages, chunk by chunk: the neighbours are what it learns from, every process
# layout and schedule gives the same losses, and each boundary is crossed by each vertex once on each way.
# labels: numbers outside
# needs: zeromq
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
gcn=$SLUICE_SOURCE/examples/gcn.c

# accuracy OPTIONS...: of the vertices without labels, in thousandths, when they are evaluated for the
# second time: evaluations have a record of their own, which the first one finds empty.
accuracy() {
  ends 0 "$actorrun" --quiet --steps 40 --eval-every 20 --report r.json "$@"
  sed -n 's/.*"accuracy":[^0-9]*\([0-9.]*\).*/\1/p' r.json | awk '{ a = $1 } END { print int(1000 * a) }'
}

with=$(accuracy "$gcn") without=$(accuracy "$gcn" --edges 0) pieces=$(accuracy --pieces 8 "$gcn")
((with > 900 && without < 500 && pieces > 750)) ||
  fail "right of 1000: $with, without edges $without, in pieces $pieces"

# like PIECES 'OPTIONS': the losses of a run of so many pieces are those of the first one.
like() {
  # shellcheck disable=SC2086
  ends 0 "$actorrun" --quiet --steps 6 --pieces "$1" "${patient[@]}" --report r.json $2 "$gcn"
  grep -o '"loss_hex":[^,]*' r.json >"losses.$1.new"
  [ -e "losses.$1" ] || cp "losses.$1.new" "losses.$1"
  [ "$(wc -l <"losses.$1")" -eq 6 ] && cmp -s "losses.$1" "losses.$1.new" || fail "$1 pieces, $2: other losses"
}

for options in '' '--stages 2 --schedule zb-h1' '--stages 2 --piece-order layers' \
               '--stages 3 --schedule seq1f1b' '--stages 2 --recompute full'; do
  like 8 "$options"
done

# N = 2000 vertices of H = 32 numbers, of 4 bytes: 2 (p - 1) N H; and the labels for the last stage.
for p in 2 4; do
  like 8 "--stages $p -n $p"
  moved=$(sed -n 's/.*"pipeline":[^0-9]*\([0-9.]*\).*/\1/p' r.json | head -1)
  [ "$moved" = $((2 * (p - 1) * 2000 * 32 * 4 + 2000 * 4)) ] || fail "$p stages move $moved bytes a step"
done

ends 2 "$actorrun" --steps 1 --microbatches 2 "$gcn"
says "a batch of 1 rows cannot be cut into 2 equal microbatches" err
