#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The digits example as a user runs it: the same losses on pipelines, on data-parallel devices and
# on devices that share channels, and an error message for a file of another kind.
# labels: outside
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
digits=("$SLUICE_SOURCE/examples/digits.c" --data "$SLUICE_SOURCE/examples/digits.u8")

run() {
  local report=$1
  shift
  ends 0 timeout 60 "$actorrun" "${patient[@]}" --quiet --microbatches 4 --steps 12 \
    --report "$report" "$@" "${digits[@]}"
}
near() { # losses differ by less than 1e-5, relatively
  paste <(grep -oE '"loss":[^,]*' "$1" | grep -oE '[0-9.]+$') \
        <(grep -oE '"loss":[^,]*' "$2" | grep -oE '[0-9.]+$') |
    awk '{ d = $1 / $2 - 1; if (d > 1e-5 || d < -1e-5) bad = 1 } END { exit bad || NR < 12 }'
}

run one.json
for how in "--stages 2 --schedule zb-h1" "--stages 4 --schedule 1f1b"; do
  # shellcheck disable=SC2086
  run more.json $how
  [ "$(hexes one.json)" = "$(hexes more.json)" ] || fail "$how: other losses than one stage's"
done
for how in "--data-parallel 2" "--data-parallel 2 --shard gradients" "--tensor 2" \
           "--stages 2 --schedule zb-h1 --data-parallel 2"; do
  # shellcheck disable=SC2086
  run more.json $how
  near one.json more.json || fail "$how: other losses than one device's"
done

refused() {
  local text=$1
  shift
  ends "$1" timeout 60 "$actorrun" --quiet --steps 1 --microbatches 1 "${@:2}"
  says "$text" err
}
refused "no file nowhere.u8" 2 "$SLUICE_SOURCE/examples/digits.c" --data nowhere.u8
head -c 1000 "$SLUICE_SOURCE/examples/digits.u8" >short.u8
refused "short.u8 has 15 images, not 1797" 2 "$SLUICE_SOURCE/examples/digits.c" --data short.u8
refused "cannot be cut into pieces" 2 --pieces 2 "${digits[@]}"
