#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The tree is as docs/tree.md says: no circles, faces, sizes, names, one line for every file.
# structure.py says what is held, exceptions.txt what is excused and why.
# labels: unthreaded outside smoke
# needs: everything
set -u
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
exec python3 "$SLUICE_SOURCE/tests/tree/structure.py"
