#!/bin/bash
# examples/snake.c, a model with an op of its own: it learns, and it learns the same however it is
# shared out; a shape that does not fit is refused with the op and the line.
# labels: numbers
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

losses() { sed -n 's/.*"loss":[^0-9]*\([0-9.e+-]*\).*/\1/p' "$1"; }
learn() { # NAME OPTIONS...
  ends 0 "$actorrun" --quiet --steps 400 --report "$1.json" "${@:2}" "$SLUICE_SOURCE/examples/snake.c"
  [ "$(losses "$1.json" | wc -l)" -eq 400 ] || fail "$1: 400 losses"
  losses "$1.json" | awk 'END { exit !($1 < 0.005) }' || fail "$1: the wave is learned"
  # Sums in another order part a little more with each step.
  paste <(losses one.json) <(losses "$1.json") | head -20 |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4 * $1) exit 1 }' || fail "$1: other losses"
}
learn one
learn stages --stages 2 --microbatches 4 --schedule zb-h1
learn rows --data-parallel 2
learn columns --tensor 2
learn processes --stages 2 -n 2 --microbatches 4

sed 's/SL_TYPE(SL_F32, width), SL_CONSTANT(1)/SL_TYPE(SL_F32, width + 1), SL_CONSTANT(1)/' \
  "$SLUICE_SOURCE/examples/snake.c" >wrong.c
line=$(grep -n 'sl_apply(g, &row' wrong.c | cut -d: -f1)
ends 2 "$actorrun" --steps 1 wrong.c
says "wrong.c:$line: op first/snake.1 (snake): a must be f32[32]" err
