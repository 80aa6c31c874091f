#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks the rules of docs/tree.md: no circles, faces, sizes, names, one line for every file. structure.py
# describes the checks, exceptions.txt lists the exceptions with reasons.
# labels: unthreaded outside smoke
# needs: everything
set -u
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
exec python3 "$SLUICE_SOURCE/tests/tree/structure.py"
