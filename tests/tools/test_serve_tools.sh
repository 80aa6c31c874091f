#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The server extracts tool calls from answers, whole and streamed, in every template format.
# labels: smoke
# needs: libevent
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need python3

for format in hermes qwen3-coder llama3 mistral gpt-oss; do
  case $format in
    hermes) mark='<tool_call>' ;;
    qwen3-coder) mark='<tool_call><function=' ;;
    llama3) mark='<|python_tag|>' ;;
    mistral) mark='[TOOL_CALLS]' ;;
    *) mark='<|channel|>' ;;
  esac
  # The dummy model echoes its prompt, here the last message.
  : >out
  "$SLUICE_BUILD/tests/serve_made_up" 0 8 8 30 "" 32 "{# $mark <think> #}{{ messages[-1].content }}" >out 2>err &
  pid=$!
  to_end+=("$pid")
  until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended"; sleep 0.01; done
  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$SLUICE_SOURCE/tests/support \
    python3 "$SLUICE_SOURCE/tests/support/serve_tools.py" "$(<out)" "$format" 2>said || fail "$format: $(<said)"
  kill -INT "$pid"
  got=0
  wait "$pid" || got=$?
  ((got == 0)) || fail "it ends with status $got"
  says "0 pages, 0 events" out
done
