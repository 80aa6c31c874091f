#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests the chat page at / in a browser: with a key, with reasoning, stopped, rejected, in light and
# dark mode.
# labels: outside
# needs: libevent
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need chromium chromium-browser google-chrome
program=$(command -v chromium || command -v chromium-browser || command -v google-chrome)

background "$SLUICE_BUILD/tests/serve_made_up" 2000 8 8 60 secret 64 '{# <think> #}{{ messages[-1].content }}'
until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended"; sleep 0.01; done
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$SLUICE_SOURCE/tests/support \
  python3 "$SLUICE_SOURCE/tests/support/chat_in_chromium.py" "$(<out)" "$program" 2>said || fail "$(<said)"
