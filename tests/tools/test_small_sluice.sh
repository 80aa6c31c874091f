#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# examples/small_sluice.c, the runtime in one file, gives the schedules of the real one: each device begins each pass at
# the same time, for depths and numbers of microbatches that fit each other badly. Bad arguments are refused by name.
# labels: outside unthreaded
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

cc -std=c17 -Wall -Wextra -Werror "$SLUICE_SOURCE/examples/small_sluice.c" -o small_sluice

# Prints DEVICE PASS MICROBATCH TIME for each pass of a picture.
passes() {
  python3 -c '
import re, sys
digits = "0123456789abcdefghijklmnopqrstuvwxyz"
begun = {}
for device, units in re.findall(r"^ ?(\d+) \|(.*)\|$", sys.stdin.read(), re.M):
    for at in range(0, len(units), 2):
        if units[at] != " ":
            begun.setdefault((device, units[at], digits.index(units[at + 1])), at // 2)
for (device, kind, number), time in begun.items():
    print(device, kind, number, time)' | sort
}

for schedule in gpipe 1f1b zb-h1; do
  for sizes in "1 4" "2 3" "3 7" "4 8" "5 5" "7 13" "8 3"; do
    read -r stages microbatches <<<"$sizes"
    ./small_sluice "$schedule" "$stages" "$microbatches" | passes >small
    "$actorrun" --quiet --clock virtual --devices "timed:$stages" --stages "$stages" --microbatches "$microbatches" \
      --schedule "$schedule" --cost F=1,B=1,W=1,comm=0 --steps 1 --trace real.trace pipeline
    "$bin/actortrace" rows real.trace | awk -F'\t' '$3 ~ /^[FBW]$/ {print $2, $3, $6, $8 / 1e9}' | sort >real
    [[ -s small ]] || fail "$schedule, $sizes: no passes"
    diff small real >difference || fail "$schedule, $stages stages, $microbatches microbatches: $(head -5 difference)"
  done
done

refused() { # TEXT ARGUMENTS...
  local text=$1
  shift
  ends 2 ./small_sluice "$@"
  says "$text" err
}
refused 'there is no schedule zb-v' zb-v
refused 'the number of stages is "0", not a number from 1 to 16' 1f1b 0
refused 'the number of microbatches is "many"' 1f1b 4 many
