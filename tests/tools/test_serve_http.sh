#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests actorserve's HTTP interface with a dummy model: answers, streams, stops, rejected requests,
# protocol errors, clients that leave, a full queue, a stuck model, and shutdown.
# labels: smoke more
# needs: libevent
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
export ASAN_OPTIONS=${ASAN_OPTIONS-}:quarantine_size_mb=8 # otherwise freed memory counts as used
need python3

background "$SLUICE_BUILD/tests/serve_made_up" 200 8 8 3 secret
until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended"; sleep 0.01; done
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$SLUICE_SOURCE/tests/support \
  python3 "$SLUICE_SOURCE/tests/support/serve_checks.py" "$(<out)" "$pid" 2>said || fail "$(<said)"
got=0
wait "$pid" || got=$?
((got == 0)) || fail "it ends with status $got"
says "0 pages, 0 events" out

# A server with little request memory and few connections.
: >out
# The chat template concatenates all messages repeatedly, which takes memory quadratic in their
# number.
joins='{% set all = namespace(text="") %}{% for m in messages %}{% set all.text = all.text + m.content %}{% endfor %}{{ all.text }}'
(ulimit -n 400 && exec "$SLUICE_BUILD/tests/serve_made_up" 200 8 8 30 "" 32 "$joins") >out 2>err &
pid=$!
to_end+=("$pid")
until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended"; sleep 0.01; done
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$SLUICE_SOURCE/tests/support \
  python3 "$SLUICE_SOURCE/tests/support/serve_room.py" "$(<out)" "$pid" 32 400 2>said || fail "$(<said)"
kill -INT "$pid"
got=0
wait "$pid" || got=$?
((got == 0)) || fail "it ends with status $got"
says "0 pages, 0 events" out

# A custom chat template receives the tools, the calls and the variables of a chat. The model echoes
# it.
: >out
template='{{ tools[0].function.name }}{% for m in messages %}|{{ m.role }}:{{ m.content }}{{ (m.tool_calls[0].function.arguments | tojson) if m.tool_calls }}{% endfor %}|{{ enable_thinking }}!'
"$SLUICE_BUILD/tests/serve_made_up" 0 8 8 30 "" 32 "$template" >out 2>err &
pid=$!
to_end+=("$pid")
until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended"; sleep 0.01; done
asked() { curl -sS "http://127.0.0.1:$(<out)/v1/chat/completions" -d "$1" | python3 -c 'import json, sys; print(json.load(sys.stdin)'"$2"')'; } # BODY PATH
tool='{"type":"function","function":{"name":"look"}}'
call='{"id":"a","type":"function","function":{"name":"look","arguments":"{\"n\": 1.0}"}}'
said=$(asked '{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null,"tool_calls":['"$call"']},{"role":"tool","tool_call_id":"a","content":"7"}],
  "tools":['"$tool"'],"tool_choice":"auto","chat_template_kwargs":{"enable_thinking":false},"stop":"!"}' '["choices"][0]["message"]["content"]')
[[ $said == 'look|user:Hi|assistant:None{"n": 1.0}|tool:7|False' ]] || fail "a chat with tools becomes: $said"
said=$(asked '{"messages":[{"role":"user","content":"Hi"}],"tools":['"$tool"'],"tool_choice":"none"}' '["error"]["message"]')
[[ $said == *'line 1 of the template: "an item" is undefined' ]] || fail "what goes wrong in a template is told: $said"
said=$(asked '{"messages":[{"role":"user","content":"Hi"}],"tools":['"$tool"'],"tool_choice":"required"}' '["error"]["param"]')
[[ $said == tool_choice ]] || fail "a choice that is not there names its field: $said"
kill -INT "$pid"
got=0
wait "$pid" || got=$?
((got == 0)) || fail "it ends with status $got"
