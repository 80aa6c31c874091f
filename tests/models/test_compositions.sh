#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests random combinations of all options: each learns what one device learns (compositions.py).
# labels: random first
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
exec python3 "$SLUICE_SOURCE/tests/models/compositions.py" "$@"
