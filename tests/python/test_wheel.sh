#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `pip install .` in a fresh virtual environment builds everything, and the package works outside of the
# tree. pip finds scikit-build-core, cffi and NumPy as configured.
# labels: outside anew
set -euo pipefail
fail() { echo "$*" >&2; exit 1; }
grep -q '^SLUICE_SANITIZE:STRING=.' "$SLUICE_BUILD/CMakeCache.txt" &&
  { echo "skipped: the wheel is built without sanitizers"; exit 77; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv" 2>/dev/null || { echo "skipped: python3-venv is not installed"; exit 77; }
pip=("$scratch/venv/bin/python" -m pip --disable-pip-version-check -q)
"${pip[@]}" download --no-deps -d "$scratch/found" scikit-build-core >/dev/null 2>&1 ||
  { echo "skipped: pip finds no scikit-build-core"; exit 77; }

"${pip[@]}" install -C build-dir="$scratch/build" "$SLUICE_SOURCE" >"$scratch/pip.log" 2>&1 ||
  { tail -40 "$scratch/pip.log"; fail "pip install does not build the package"; }
cd "$scratch"
"$scratch/venv/bin/python" "$SLUICE_SOURCE/examples/python/tour.py" >tour.log ||
  fail "the tour does not run with the installed package"
"$scratch/venv/bin/python" -m unittest discover -q -s "$SLUICE_SOURCE/tests/python" -p 'check_*.py'
