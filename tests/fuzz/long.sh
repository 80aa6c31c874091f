#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the fuzz targets for longer under the address and undefined behaviour sanitizers, with seeds of the day.
#
#   tests/fuzz/long.sh [SECONDS [NAME...]]    60 seconds each of all targets, by default
#
# Builds in build/asan-ubsan. A crashing input is saved in build/asan-ubsan/fuzz as crash-NAME, the output in NAME.log.
set -euo pipefail
cd "$(dirname "$0")/../.."

seconds=${1:-60} names=("${@:2}")
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { sed -n '3,/^set/s/^# \?//p' "$0" >&2; exit 2; }
if ((${#names[@]} == 0)); then
  for file in tests/fuzz/test_*.c; do file=${file##*/test_}; names+=("${file%.c}"); done
fi

cmake --preset asan-ubsan >/dev/null
cmake --build --preset asan-ubsan --target "${names[@]/#/test_fuzz_}" >&2
export SLUICE_SOURCE=$PWD LSAN_OPTIONS=print_suppressions=0:suppressions=$PWD/tests/support/leaks.supp
mkdir -p build/asan-ubsan/fuzz
cd build/asan-ubsan/fuzz
failed=()
for name in "${names[@]}"; do
  echo "$name: $seconds s"
  ../tests/"test_fuzz_$name" --seconds "$seconds" >"$name.log" 2>&1 || failed+=("$name")
  tail -n 1 "$name.log"
done
((${#failed[@]} == 0)) || { echo "failed: ${failed[*]}; see build/asan-ubsan/fuzz/NAME.log" >&2; exit 1; }
