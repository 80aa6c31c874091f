#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks that C, C++ and CUDA files are formatted by clang-format with .clang-format. Tables in columns are marked
# in their files and keep their layout.
# labels: unthreaded outside
set -euo pipefail
command -v clang-format >/dev/null || { echo "skipped: clang-format is not installed"; exit 77; }
[[ $(clang-format --version) =~ version\ 14[.] ]] || { echo "skipped: .clang-format is for clang-format 14"; exit 77; }
cd "$SLUICE_SOURCE"
fail() { echo "$*" >&2; exit 1; }

sources=(-name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp')
mapfile -t files < <(if [[ -e .git ]]; then git -c safe.directory='*' ls-files -- '*.c' '*.h' '*.cu' '*.cuh' '*.cpp'
  else find . -path ./build -prune -o '(' "${sources[@]}" ')' -print; fi)
((${#files[@]} > 500)) || fail "only ${#files[@]} files"
# checked FILES...: runs clang-format on the files and prints its errors.
checked() { printf '%s\n' "$@" | xargs -n 50 clang-format --dry-run --Werror --ferror-limit=1 2>&1; }

said=$(checked "${files[@]}") || fail "$(grep 'error: ' <<<"$said" | cut -d: -f1,2 | head -40)
clang-format -i FILE lays a file out"

# The same configuration detects a wrong layout.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp .clang-format "$scratch"
printf 'int  f( int x ){return x ;}\n' >"$scratch/wrong.c"
if checked "$scratch/wrong.c" >/dev/null; then fail "it sees nothing wrong in a wrong file"; fi
