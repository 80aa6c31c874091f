#!/bin/bash
# Long runs of the fuzz targets, by clang's libFuzzer under the address and undefined behaviour sanitizers.
#
#   tests/fuzz/long.sh [SECONDS [NAME...]]    60 seconds each of all targets, by default
#
# Builds in build/fuzz (the preset `fuzz`); what an input newly reaches is kept in build/fuzz/corpus/NAME, a crash
# in build/fuzz/crashes. Needs clang with its runtime: clang and libclang-rt-14-dev of Debian 12.
set -euo pipefail
cd "$(dirname "$0")/../.."

command -v clang >/dev/null || { echo "long.sh: clang is not installed" >&2; exit 1; }
seconds=${1:-60} names=("${@:2}")
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { sed -n '2,/^set/s/^# \?//p' "$0" >&2; exit 2; }
if ((${#names[@]} == 0)); then
  for file in tests/fuzz/test_*.c; do file=${file##*/test_}; names+=("${file%.c}"); done
fi

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target "${names[@]/#/test_fuzz_}" >&2
mkdir -p build/fuzz/crashes
# oneDNN and others keep what they allocated when they were loaded.
export LSAN_OPTIONS=print_suppressions=0:suppressions=$PWD/tests/support/leaks.supp SLUICE_SOURCE=$PWD
failed=()
for name in "${names[@]}"; do
  mkdir -p "build/fuzz/corpus/$name"
  echo "$name: $seconds s"
  build/fuzz/tests/"test_fuzz_$name" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=4096 -max_len=65536 \
    -artifact_prefix="build/fuzz/crashes/$name-" -print_final_stats=1 \
    "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name" >"build/fuzz/$name.log" 2>&1 || failed+=("$name")
  grep -E '^stat::number_of_executed_units|^SUMMARY|^artifact|ERROR' "build/fuzz/$name.log" || true
done
((${#failed[@]} == 0)) || { echo "failed: ${failed[*]}; see build/fuzz/NAME.log" >&2; exit 1; }
