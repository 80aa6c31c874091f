#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The example models: each learns its task, and learns the same however it is sharded. A user-defined op
# refuses bad shapes with its name and the line.
# labels: numbers long
# needs: zeromq
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
examples=$SLUICE_SOURCE/examples

losses() { sed -n 's/.*"loss":[^0-9]*\([0-9.e+-]*\).*/\1/p' "$1"; }

# learns MODEL STEPS LOSS [OPTIONS...]: checks that STEPS steps bring the loss below LOSS.
learns() {
  ends 0 "$actorrun" --quiet --steps "$2" --report "$1.json" "$examples/$1.c" "${@:4}"
  losses "$1.json" | awk -v most="$3" 'END { exit !(NR && $1 < most) }' ||
    fail "$1: a loss of $(losses "$1.json" | tail -1) after $2 steps, not $3"
}

# alike MODEL 'RUN OPTIONS' [MODEL OPTIONS...]: checks for the same losses, up to the order of sums.
alike() {
  # shellcheck disable=SC2086
  ends 0 "$actorrun" --quiet --steps 20 "${patient[@]}" --report other.json $2 "$examples/$1.c" "${@:3}"
  [ "$(losses other.json | wc -l)" -eq 20 ] || fail "$1 $2: 20 losses"
  paste <(losses "$1.json") <(losses other.json) | head -20 |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4 * $1) exit 1 }' || fail "$1 $2: other losses"
}

learns snake 400 0.005
for run in "--stages 2 --microbatches 4 --schedule zb-h1" "--data-parallel 2" "--tensor 2" \
           "--stages 2 -n 2 --microbatches 4"; do
  alike snake "$run"
done

gru=(--data "$reference/text.txt" --lr 5e-3 --width 64)
learns gru 150 2.9 "${gru[@]}"
for run in "--stages 2 --microbatches 4 --schedule zb-h1" "--data-parallel 2"; do
  alike gru "$run" "${gru[@]}"
done

# Guessing a space is right for a fifth of the bytes; guessing by frequency has a loss of 2.97. Each
# microbatch has a separate mean over its masked bytes.
bert=(--data "$reference/text.txt" --lr 3e-3)
ends 0 "$actorrun" --quiet --steps 200 --microbatches 2 --eval "$reference/text.txt" --eval-every 200 \
  --report bert.json "$examples/bert.c" "${bert[@]}"
sed -n 's/.*"accuracy":[^0-9]*\([0-9.]*\).*/\1/p' bert.json | awk 'END { exit !(NR == 1 && $1 > 0.26) }' ||
  fail "bert: the accuracy of masked bytes is $(grep accuracy bert.json)"
sed -i '/"evaluations"/,/"loss"/d' bert.json
losses bert.json | awk 'END { exit !(NR == 200 && $1 < 2.8) }' || fail "bert: $(losses bert.json | tail -1)"
for run in "--stages 2 --schedule zb-h1" "--data-parallel 2" "--tensor 2"; do
  alike bert "--microbatches 2 $run" "${bert[@]}"
done

sed 's/SL_TYPE(SL_F32, width), SL_CONSTANT(1)/SL_TYPE(SL_F32, width + 1), SL_CONSTANT(1)/' \
  "$examples/snake.c" >wrong.c
line=$(grep -n 'sl_apply(g, &row' wrong.c | cut -d: -f1)
ends 2 "$actorrun" --steps 1 wrong.c
says "wrong.c:$line: op first/snake.1 (snake): a must be f32[32]" err
