#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# /v1/messages answers in Anthropic's format: texts, thoughts, calls and their results, streams,
# errors. The client of PyPI works with it unmodified, if SLUICE_ANTHROPIC_PYTHON names a python3
# that has it.
# labels: outside
# needs: libevent
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
python=${SLUICE_ANTHROPIC_PYTHON:-python3}
need "$python"

background "$SLUICE_BUILD/tests/serve_made_up" 400 8 8 60 secret 32 \
  '{# <tool_call> <think> #}{% for m in messages %}{% if m.role == "tool" %}[{{ m.tool_call_id }}] {% endif %}{% endfor %}{{ messages[-1].content }}'
until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended"; sleep 0.01; done
"$python" "$SLUICE_SOURCE/tests/support/serve_messages.py" "$(<out)" >said 2>&1 || fail "$(<said)"
cat said
