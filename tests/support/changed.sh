#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# changed.sh FILE...: prints a regular expression, for ctest -R, of the tests that changes to these
# files can affect. It may include too many tests:
#
#   a layer's file     tests of its layer, of those above it, of the tools and of Python
#   tools/             tests of the tools and of Python; of one tool, those that name it
#   tests/A/test_B     that test
#   tests/support/F    tests that name F, or a file of tests/support that does
#   docs/, examples/, machines/, schemas and other data    tests that name the file
#   anything else      all tests
#
# Tests of the tree are always included.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit

# Layers in link order, lowest first; test folders have the same names.
order=(base io ops kernels placement actors comm graph serve models tools python)
found=(test_tree_)

# names FILE...: adds the tests that name these files.
names() {
  local file
  for file; do
    [[ $file =~ ^tests/([a-z]+)/test_([a-z0-9_]+)\.(c|sh|py)$ ]] || continue
    if [[ ${BASH_REMATCH[1]} == gpu ]]; then found+=("test_kernels_cuda_${BASH_REMATCH[2]}\$" "gpu_test_${BASH_REMATCH[2]}\$")
    else found+=("test_${BASH_REMATCH[1]}_${BASH_REMATCH[2]}\$"); fi
  done
}
# mentions WORD: prints the files in tests that contain the word, in any case.
mentions() { grep -rlwiF --include='*.c' --include='*.h' --include='*.sh' --include='*.py' -e "$1" tests || :; }
# imports NAME: prints the files in tests that import a Python module, or run it as a script.
imports() { grep -rlE --include='*.py' "^(from|import) $1\\b|script\\(\"$1\"" tests || :; }

# above LAYER: adds the tests of this layer and of the layers above it.
above() {
  local layer on=false
  for layer in "${order[@]}"; do
    [[ $layer == "$1" ]] && on=true
    $on && found+=("test_${layer}_")
  done
  found+=(test_fuzz_)
  case $1 in base | io | ops | kernels | actors | comm | graph) found+=(gpu_) ;; esac
}

# helper FILE: adds the tests that use a file of tests/support, directly or indirectly.
declare -A seen=()
helper() {
  local file
  [[ -z ${seen[$1]-} ]] || return 0
  seen[$1]=1
  for file in $(mentions "$(basename "$1")"; [[ $1 != *.py ]] || imports "$(basename "$1" .py)"); do
    case $file in
      "$1") ;;
      tests/*/test_*) names "$file" ;;
      tests/CMakeLists.txt) found=(.) ;;
      *) helper "$file" ;;
    esac
  done
  # X.h declares what tests/support/X.c defines
  [[ $1 != *.c || ! -e ${1%.c}.h ]] || helper "${1%.c}.h"
}

# users WORD: adds the tests that contain the word, or use a support file that does.
users() {
  local file
  for file in $(mentions "$1"); do
    case $file in tests/*/test_*) names "$file" ;; tests/support/*) helper "$file" ;; esac
  done
}

# one FILE: adds the tests that the file can affect.
one() {
  local top=${1%%/*} file
  case $1 in
    tests/*/test_*) names "$1" ;;
    tests/fuzz/corpus/*) file=${1#tests/fuzz/corpus/}; found+=("test_fuzz_${file%%/*}\$") ;;
    tests/tree/* | tests/bench/*) ;;
    tests/emulated/*) found+=(test_kernels_cuda_ cuda nccl) ;;
    tests/support/test.h | tests/support/cases.c | tests/support/tool.sh | tests/support/within.sh) found=(.) ;;
    tests/*/*) helper "$1" ;;
    tools/actor*/*) file=${1#tools/}; users "${file%%/*}" ;;
    tools/*) above tools ;;
    docs/* | examples/* | machines/* | *.md) users "$(basename "$1")" ;;
    include/* | CMake* | cmake/* | tests/*) found=(.) ;;
    *)
      [[ " ${order[*]} " == *" $top "* ]] || return 0
      above "$top"
      ;;
  esac
}

for file; do
  one "$file"
  [[ ${found[0]} != . ]] || break
done
[[ ${found[0]} != . ]] || { echo .; exit; }
mapfile -t found < <(printf '%s\n' "${found[@]}" | sort -u)
IFS='|'
echo "^(${found[*]})"
