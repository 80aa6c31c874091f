#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Counts instructions per firing with callgrind. Each case runs at two sizes, so that the
# cost of startup and shutdown cancels in the difference.
#
#   tests/bench/instructions.sh [BENCH_ACTORS] [CASE...]
set -euo pipefail
bench=${1:-build/release/tests/bench_actors}
cases=("${@:2}")
[ ${#cases[@]} -gt 0 ] || cases=(chain1 fanout pipeline virtual)

declare -A firings_per_step=([chain1]=512 [fanout]=640 [pipeline]=1536 [virtual]=393216)
declare -A steps=([chain1]=100 [fanout]=100 [pipeline]=40 [virtual]=1)

# Prints the instructions that all threads execute in a run of the given case and steps.
instructions() {
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$bench" "$1" "$2" 2>&1 >/dev/null |
    sed -n 's/.*Collected : //p'
}

for case in "${cases[@]}"; do
  small=$(instructions "$case" "${steps[$case]}")
  large=$(instructions "$case" "$((2 * steps[$case]))")
  echo "$case $(((large - small) / (steps[$case] * firings_per_step[$case])))" |
    awk '{ printf "%s\t%d\tinstructions/firing\n", $1, $2 }'
done
