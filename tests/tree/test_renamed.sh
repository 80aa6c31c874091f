#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks that a program with names of the previous version compiles and links against an installed Sluice, in C and in
# C++, and that it no longer does if it requests new names only.
# labels: unthreaded outside
set -euo pipefail
. "$SLUICE_SOURCE/tests/support/install.sh"
fail() { echo "$*" >&2; exit 1; }
[[ -e $SLUICE_SOURCE/include/sluice/renamed.h ]] || { echo "skipped: no name has changed since the version before"; exit 77; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
sanitize=$(sed -n 's/^SLUICE_SANITIZE:STRING=//p' "$SLUICE_BUILD/CMakeCache.txt")
install_build "$scratch/prefix"
include=$scratch/prefix/include
PKG_CONFIG_PATH=$(find "$scratch/prefix" -name sluice.pc -printf '%h\n')
export PKG_CONFIG_PATH
read -ra flags <<<"$(pkg-config --cflags --libs sluice)"
[[ -z $sanitize ]] || flags+=("-fsanitize=$sanitize")

# Each old name is used like its new one: a function is referenced, a type or a constant has its type taken.
others=$(cat $(ls "$include"/sluice/*.h | grep -v /renamed.h))
program() {
  echo '#include <sluice/sluice.h>'
  echo '#include <sluice/cuda.h>'
  echo 'int main(void) {'
  while read -r old new; do
    grep -qw -- "$new" <<<"$others" || fail "renamed.h: $old became $new, which no header has"
    if grep -qE "^#define $new\(" <<<"$others"; then continue; fi # macros of ops wrap functions that end with _at
    if grep -qE "^[a-z][^(=]*[ *]$new\(" <<<"$others"; then echo "  if (!(void *)&$old) return 1;"
    else echo "  { __typeof__($old) *it = 0; if (it) return 1; }"; fi
  done < <(sed -nE 's/^#define (\w+) (\w+)$/\1 \2/p' "$include/sluice/renamed.h")
  echo '  return 0;'
  echo '}'
}
program >"$scratch/old.c"
(($(grep -c '__typeof__\|(void \*)' "$scratch/old.c") >= 5)) || fail "renamed.h has few names: $(<"$scratch/old.c")"
cp "$scratch/old.c" "$scratch/old.cpp"
cc -Wall -Wextra -Wno-address "$scratch/old.c" "${flags[@]}" -o "$scratch/old" || fail "old names do not compile"
"$scratch/old" || fail "a program with old names does not run"
c++ -std=c++17 -Wno-address "$scratch/old.cpp" "${flags[@]}" -o "$scratch/oldcpp" || fail "old names do not compile in C++"

cc -DSLUICE_NO_OLD_NAMES -fsyntax-only "$scratch/old.c" "${flags[@]}" 2>"$scratch/said" && fail "SLUICE_NO_OLD_NAMES leaves old names in"
first=$(sed -nE 's/^#define (\w+) (\w+)$/\1/p' "$include/sluice/renamed.h" | head -1)
grep -q "$first" "$scratch/said" || fail "it is not $first that is missing: $(<"$scratch/said")"
printf '#include <sluice/sluice.h>\nint main(void) { return 0; }\n' >"$scratch/new.c"
cc -Wall -Wextra -Werror -DSLUICE_NO_OLD_NAMES "$scratch/new.c" "${flags[@]}" -o "$scratch/new" || fail "headers need old names themselves"
