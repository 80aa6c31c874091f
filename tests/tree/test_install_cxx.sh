#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks that the installed headers are valid C++17: each compiles alone, no macro requires C, and a C++ program and
# actorrun both build and train the model of examples/cpp.
# labels: unthreaded
set -euo pipefail
export CMAKE_GENERATOR=Ninja # make may not be there
. "$SLUICE_SOURCE/tests/support/install.sh"
type -P c++ >/dev/null || { echo "skipped: c++ is not installed"; exit 77; }
fail() { echo "$*" >&2; exit 1; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
sanitize=$(sed -n 's/^SLUICE_SANITIZE:STRING=//p' "$SLUICE_BUILD/CMakeCache.txt")
export CXXFLAGS=${sanitize:+-fsanitize=$sanitize}
prefix=$scratch/prefix
install_build "$prefix"

# Python loads the library at run time, when little static thread-local storage is left.
if [[ -z $sanitize ]] && readelf -d "$(find "$prefix" -name libsluice.so)" | grep STATIC_TLS; then
  fail "libsluice has thread-local storage of the initial-exec model: dlopen() cannot load it"
fi

# ---- headers ------------------------------------------------------------------------------

cd "$prefix/include"
for compiler in c++ clang++; do
  type -P "$compiler" >/dev/null || continue
  for header in sluice/*.h; do
    echo "#include <$header>" | "$compiler" -std=c++17 -Wall -Wextra -Wpedantic -Werror -I. \
      -fsyntax-only -x c++ - || fail "$compiler does not take $header as C++17"
  done
done
# &(sl_attrs){...} exists only in C. Functions replace the macros that need it.
if grep -nE '&\(sl_[a-z_]+\) *\{' sluice/*.h | grep -v ':[0-9]*: \*'; then
  fail "a compound literal in a macro: call a function, which other languages can call too"
fi
# Every function that returns a tensor can be called without a macro.
cat >"$scratch/calls.cc" <<'END'
#include <sluice/sluice.h>
sl_tensor *calls(sl_graph *g, sl_tensor *x, sl_tensor *w, sl_tensor *b) {
  const int64_t dims[] = {2, 3};
  sl_type type = sl_type_make(SL_F32, 2, dims);
  sl_tensor *p = sl_param(g, type, SL_NORMAL(0.02f), "p");
  x = sl_attention_packed(g, sl_linear_transposed(g, x, p, b), 2, 0);
  x = sl_rotary(g, sl_rmsnorm(g, sl_layernorm(g, x, w, b, 0), w, 0), 2, 0);
  const sl_attrs none = {};
  sl_apply(g, sl_op_find("gelu"), &none, 1, &x, 0, &x);
  x = sl_op3_at(SL_HERE, g, sl_op_find("layernorm"), &none, x, w, b);
  const sl_init inits[] = {SL_CONSTANT(1), SL_UNIFORM(1), {SL_INIT_NORMAL, 1, NULL}};
  (void)inits;
  return sl_attention(g, x, x, x, 2, 2);
}
sl_type scalar() { return SL_SCALAR(SL_F64); }
END
c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -I. -fsyntax-only "$scratch/calls.cc" ||
  fail "a call is not C++17"

# ---- the example --------------------------------------------------------------------------

cmake -S "$SLUICE_SOURCE/examples/cpp" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$scratch/build" >/dev/null || fail "examples/cpp is not built"
"$scratch/build/train" 150 >"$scratch/train.log" || fail "examples/cpp does not train"
grep -q '^loss 0\.[67][0-9]*, then 0\.[0-3]' "$scratch/train.log" ||
  fail "the loss of examples/cpp: $(cat "$scratch/train.log")"
"$prefix/bin/actorrun" --stages 2 --microbatches 4 --steps 2 "$scratch/build/libmoons.so" \
  --width 24 >/dev/null || fail "actorrun does not take a model in C++"
