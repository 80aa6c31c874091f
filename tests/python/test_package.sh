#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests the Python package with an installation of this build, and runs the tour of examples/python.
# labels: outside
set -euo pipefail
. "$SLUICE_SOURCE/tests/support/install.sh"
fail() { echo "$*" >&2; exit 1; }
grep -q '^SLUICE_SANITIZE:STRING=.' "$SLUICE_BUILD/CMakeCache.txt" &&
  { echo "skipped: Python does not load a library with a sanitizer"; exit 77; }

python=
for word in ${SLUICE_PYTHON:+"$SLUICE_PYTHON"} python3 /usr/bin/python3; do
  "$word" -c 'import numpy, cffi' 2>/dev/null && python=$word && break
done
[[ $python ]] || { echo "skipped: python3-numpy or python3-cffi is not installed"; exit 77; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
install_build "$scratch/prefix"
mkdir "$scratch/site"
cp -r "$SLUICE_SOURCE/python/sluice" "$scratch/site/"
"$python" "$SLUICE_SOURCE/python/make_abi.py" "$SLUICE_SOURCE/include" "$scratch/site/sluice" \
  >/dev/null || fail "make_abi.py does not understand the headers"
SLUICE_PREFIX=$scratch/prefix "$python" "$SLUICE_SOURCE/python/make_stub.py" "$scratch/site/sluice" ||
  fail "make_stub.py does not understand the library"
export SLUICE_PREFIX=$scratch/prefix PYTHONPATH=$scratch/site PYTHONDONTWRITEBYTECODE=1
cd "$scratch"
"$python" -m unittest discover -q -s "$SLUICE_SOURCE/tests/python" -p 'check_*.py'
"$python" "$SLUICE_SOURCE/examples/python/tour.py" >tour.log || fail "the tour does not run"
grep -q '^right: [89][0-9]\|^right: 100' tour.log || fail "the tour: $(cat tour.log)"
grep -q 'Where the time went' tour.log || fail "the tour shows no trace"
