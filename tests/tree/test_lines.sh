#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Prints lines of code by room, and the difference to the last row of tests/tree/lines.csv.
# labels: unthreaded outside smoke
set -u
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
git -C "$SLUICE_SOURCE" rev-parse --git-dir >/dev/null 2>&1 || { echo "skipped: the source is no clone"; exit 77; }
exec python3 "$SLUICE_SOURCE/tests/tree/lines.py" --source "$SLUICE_SOURCE"
