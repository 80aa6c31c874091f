# SPDX-License-Identifier: Apache-2.0
"""actorserve's HTTP interface with a dummy model: answers, streams, stops, rejected requests, protocol errors, clients that
leave, a full queue, a stuck model, and shutdown.

labels: smoke more
needs: libevent
"""
import os

from tool import MadeUp, says, script

os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=8"  # else freed memory counts as used

with MadeUp(200, 8, 8, 3, "secret") as server:
    script("serve_checks", server.port, server.process.pid)
    assert server.process.wait(60) == 0
says(server.out, "0 pages, 0 events")

# Little request memory and few connections. The template concatenates all messages repeatedly, which takes memory quadratic
# in their number.
JOINS = '{% set all = namespace(text="") %}{% for m in messages %}{% set all.text = all.text + m.content %}{% endfor %}' \
    "{{ all.text }}"
with MadeUp(200, 8, 8, 30, "", 32, JOINS, files=400) as server:
    script("serve_room", server.port, server.process.pid, 32, 400)
says(server.out, "0 pages, 0 events")

# A custom chat template receives the tools, the calls and the variables of a chat. The model echoes it.
TEMPLATE = "{{ tools[0].function.name }}{% for m in messages %}|{{ m.role }}:{{ m.content }}" \
    "{{ (m.tool_calls[0].function.arguments | tojson) if m.tool_calls }}{% endfor %}|{{ enable_thinking }}!"
HI = {"role": "user", "content": "Hi"}
TOOLS = [{"type": "function", "function": {"name": "look"}}]
CALL = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"n": 1.0}'}}
with MadeUp(0, 8, 8, 30, "", 32, TEMPLATE) as server:
    def ask(*messages, **fields):
        return server.client.ask("POST", "/v1/chat/completions", dict(messages=[HI, *messages], tools=TOOLS, **fields))[1]
    said = ask({"role": "assistant", "content": None, "tool_calls": [CALL]},
               {"role": "tool", "tool_call_id": "a", "content": "7"}, tool_choice="auto", stop="!",
               chat_template_kwargs={"enable_thinking": False})
    assert said["choices"][0]["message"]["content"] == 'look|user:Hi|assistant:None{"n": 1.0}|tool:7|False', said
    said = ask(tool_choice="none")["error"]["message"]
    assert said.endswith('line 1 of the template: "an item" is undefined'), said
    assert ask(tool_choice="required")["error"]["param"] == "tool_choice"
