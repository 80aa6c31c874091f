#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A report accounts for the whole step: passes, update and the rest add up to it. --cost means the
# same in actorrun and in actortune.
# labels: outside
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

number() { grep -oE "\"$2\":[[:space:]]*[0-9.e+-]+" "$1" | head -1 | grep -oE '[0-9.e+-]+$'; }
adds_up() {
  awk -v step="$(number "$1" step_seconds)" -v passes="$(number "$1" passes_seconds)" \
    -v update="$(number "$1" update_seconds)" -v other="$(number "$1" other_seconds)" 'BEGIN {
      d = step - passes - update - other
      exit !(step > 0 && passes > 0 && update > 0 && other >= 0 && d < 1e-9 && d > -1e-9) }' ||
    fail "$1: a step is more than its parts: $(grep -oE '"[a-z]*_seconds":[^,]*' "$1" | tr '\n' ' ')"
}

# The model is mostly weights, so the update is a large part of a step.
wide=(gpt --layers 1 --width 128 --heads 2 --context 8 --batch 2 --data "$reference/text.txt")
for layout in "--stages 1" "--stages 2 --microbatches 2" "--data-parallel 2 --shard optimizer"; do
  # shellcheck disable=SC2086
  ends 0 "$actorrun" --steps 12 --report r.json $layout "${wide[@]}"
  adds_up r.json
  grep -qE '^  passes [0-9.]+ [mun]?s, update [0-9.]+ [mun]?s, other [0-9.]+ [mun]?s$' out ||
    fail "the parts are not said"
done

cost=(--devices timed:4 --clock virtual --cost F=1,B=1,W=1 --microbatches 8 --schedule interleaved --chunks 2)
ends 0 "$actorrun" --quiet "${cost[@]}" --stages 4 --steps 3 --report r.json pipeline
ends 0 "$bin/actortune" --quiet "${cost[@]}" --effort 3 --json t.json pipeline
want=$(number r.json step_seconds)
grep -oE '"step_seconds":[[:space:]]*[0-9.e+]+' t.json | grep -q "[^0-9.]${want%.0}\(\.0*\)\?$" ||
  fail "$want s in actorrun, in actortune $(grep -oE '"step_seconds":[^,]*' t.json | tr '\n' ' ')"
