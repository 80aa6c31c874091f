#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures the round trip of a register between two processes, through actors. Two stages have one
# worker each and one activation slot, so that each microbatch waits for the one before it. The
# cases: one worker; the default number of workers; an additional worker for links; and 1,000
# stages on two devices, where every transfer uses another register. Prints microseconds and
# context switches of the whole machine per round trip, as medians over the rounds:
#
#   SLUICE_BUILD=build/release tests/bench/round_trip.sh [ROUNDS]
set -euo pipefail

run=${SLUICE_BUILD:?where actorrun is built}/bin/actorrun rounds=${1:-5}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Prints microseconds and context switches per round trip; `trips` is the round trips per step.
measure() { # trips workers words...
  local trips=$1 workers=$2 before after
  shift 2
  before=$(switches)
  "$run" -n 2 --devices null:2 --stages 2 --workers "$workers" --steps 40 --quiet \
    --report "$scratch/run.json" "$@" pipeline
  after=$(switches)
  sed -nE '/"predicted"/q; s/^\t"step_seconds":\t([0-9.e-]+),?$/\1/p' "$scratch/run.json" |
    awk -v trips="$trips" -v switches=$((after - before)) \
      '{ printf "%.2f %.4f\n", $1 / trips * 1e6, switches / trips / 40 }'
}

# Prints the context switches of the whole machine so far.
switches() { awk '$1 == "ctxt" { print $2 }' /proc/stat; }

median() { # name; lines of two figures on stdin
  sort -g | awk -v name="$1" '{ line[NR] = $0 } END { split(line[int((NR + 1) / 2)], f, " ")
    printf "%s\t%s\tus\t%s\tswitches of the whole machine\n", name, f[1], f[2] }'
}

for _ in $(seq "$rounds"); do
  measure 256 1 --microbatches 256 --quota act=1 --quota fwd=8 --quota bwd=8
done | median few
for _ in $(seq "$rounds"); do
  measure 256 0 --microbatches 256 --quota act=1 --quota fwd=8 --quota bwd=8
done | median default
for _ in $(seq "$rounds"); do
  measure 256 2 --microbatches 256 --quota act=1 --quota fwd=8 --quota bwd=8
done | median carrier
for _ in $(seq "$rounds"); do
  measure 999 1 --chunks 500 --placement loop --microbatches 1 --schedule gpipe
done | median registers1000
