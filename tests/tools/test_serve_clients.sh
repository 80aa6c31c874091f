#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# langchain-openai and OpenAI's agents SDK work with actorserve unmodified: chats, streams, tools,
# and the agents' own loop, over /v1/chat/completions and /v1/responses. SLUICE_CLIENTS_PYTHON names
# a python3 that has both packages.
# labels: outside
# needs: libevent
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
python=${SLUICE_CLIENTS_PYTHON:-python3}
need "$python"
"$python" -c 'import agents, langchain_openai' 2>/dev/null ||
  skip "the packages langchain-openai and openai-agents are not installed"

background "$SLUICE_BUILD/tests/serve_made_up" 200 8 8 60 "" 32 "{# <tool_call> #}{{ messages[-1].content }}"
until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended"; sleep 0.01; done
"$python" "$SLUICE_SOURCE/tests/support/serve_clients.py" "$(<out)" >said 2>&1 || fail "$(<said)"
