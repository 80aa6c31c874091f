#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A graph network over stages, chunk by chunk: it learns from the neighbours, every process layout and
# schedule gives the same losses, and each vertex crosses each stage boundary once per direction.
# labels: numbers outside
# needs: zeromq
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
gcn=$SLUICE_SOURCE/examples/gcn.c

# accuracy OPTIONS...: prints the accuracy on unlabelled vertices in thousandths, at the second evaluation.
# Evaluations keep a separate record, which is empty at the first one.
accuracy() {
  ends 0 "$actorrun" --quiet --steps 40 --eval-every 20 --report r.json "$@"
  sed -n 's/.*"accuracy":[^0-9]*\([0-9.]*\).*/\1/p' r.json | awk '{ a = $1 } END { print int(1000 * a) }'
}

with=$(accuracy "$gcn") without=$(accuracy "$gcn" --edges 0) pieces=$(accuracy --pieces 8 "$gcn")
((with > 900 && without < 500 && pieces > 750)) ||
  fail "right of 1000: $with, without edges $without, in pieces $pieces"

# like PIECES 'OPTIONS': checks that a run with PIECES pieces has the losses of the first such run.
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

# N = 2000 vertices of H = 32 values of 4 bytes: 2 (p - 1) N H, plus the labels for the last stage.
for p in 2 4; do
  like 8 "--stages $p -n $p"
  moved=$(sed -n 's/.*"pipeline":[^0-9]*\([0-9.]*\).*/\1/p' r.json | head -1)
  [ "$moved" = $((2 * (p - 1) * 2000 * 32 * 4 + 2000 * 4)) ] || fail "$p stages move $moved bytes a step"
done

ends 2 "$actorrun" --steps 1 --microbatches 2 "$gcn"
says "a batch of 1 rows cannot be cut into 2 equal microbatches" err
