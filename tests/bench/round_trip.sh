#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Round trip of a register between two processes, through actors: two stages of one worker each, one
# activation, so that each microbatch waits for the one before it. Cases: few registers; the default
# number of workers; an additional worker for links; and 1,000 stages on two devices, where every
# transfer uses another register. Prints microseconds and context switches of the whole machine, both
# per round trip, as medians of the rounds:
#
#   SLUICE_BUILD=build/release tests/bench/round_trip.sh [ROUNDS]
set -euo pipefail

run=${SLUICE_BUILD:?where actorrun is built}/bin/actorrun rounds=${1:-5}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Prints microseconds and context switches per round trip, given the round trips of a step.
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
