#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks that the messages explained in docs/messages.md exist.
# labels: unthreaded outside smoke
set -u
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
exec python3 "$SLUICE_SOURCE/tests/tree/messages.py" "$SLUICE_SOURCE"
