#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# C, C++ and CUDA files are laid out as clang-format does by .clang-format. Tables of columns are marked in
# their files, and stay as they are.
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
# checked FILES...: what clang-format says of them.
checked() { printf '%s\n' "$@" | xargs -n 50 clang-format --dry-run --Werror --ferror-limit=1 2>&1; }

said=$(checked "${files[@]}") || fail "$(grep 'error: ' <<<"$said" | cut -d: -f1,2 | head -40)
clang-format -i FILE lays a file out"

# It sees what is wrong, by the same file.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp .clang-format "$scratch"
printf 'int  f( int x ){return x ;}\n' >"$scratch/wrong.c"
if checked "$scratch/wrong.c" >/dev/null; then fail "it sees nothing wrong in a wrong file"; fi
