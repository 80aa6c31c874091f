#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# OpenAI's Python client works with actorserve unmodified. SLUICE_OPENAI_PYTHON names a python3 that
# has it.
# labels: outside
# needs: libevent
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
python=${SLUICE_OPENAI_PYTHON:-python3}
need "$python"
"$python" -c 'import openai' 2>/dev/null || skip "the package openai is not installed"

background "$SLUICE_BUILD/tests/serve_made_up" 200 8 8 60 secret
until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended"; sleep 0.01; done
"$python" - "$(<out)" >said 2>&1 <<'PY' || fail "$(<said)"
import sys
import openai

url = "http://127.0.0.1:%s/v1" % sys.argv[1]
client = openai.OpenAI(base_url=url, api_key="secret", max_retries=0)
assert [m.id for m in client.models.list()] == ["made-up"]
assert client.models.retrieve("made-up").owned_by == "sluice"

done = client.completions.create(model="made-up", prompt="abc", max_tokens=7, temperature=0.5, seed=3, logprobs=0)
assert done.choices[0].text == "abcabca" and done.choices[0].finish_reason == "length", done
assert done.usage.total_tokens == 10 and done.choices[0].logprobs.tokens == list("abcabca"), done
several = client.completions.create(model="made-up", prompt=["a", "b"], n=2, max_tokens=2)
assert [c.text for c in several.choices] == ["aa", "aa", "bb", "bb"], several
pieces = client.completions.create(model="made-up", prompt="one two ", max_tokens=50, stop=["wo o"], stream=True)
assert "".join(p.choices[0].text for p in pieces) == "one t"

messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
chat = client.chat.completions.create(model="made-up", messages=messages, max_completion_tokens=21,
                                      logprobs=True, top_logprobs=2)
assert chat.choices[0].message.content == "<|im_start|>system\nbe", chat
assert chat.choices[0].message.role == "assistant" and len(chat.choices[0].logprobs.content) == 21, chat
text, usage = "", None
for piece in client.chat.completions.create(model="made-up", messages=messages, max_tokens=21, stream=True,
                                            stream_options={"include_usage": True}):
    text += "".join(c.delta.content or "" for c in piece.choices)
    usage = piece.usage or usage
assert text == "<|im_start|>system\nbe" and usage.completion_tokens == 21, (text, usage)


def refused(kind, says, call, **fields):
    try:
        call(**fields)
    except kind as error:
        assert says in str(error), error
    else:
        raise SystemExit("%s is not refused" % fields)


complete = client.completions.create
refused(openai.BadRequestError, "9120 bytes", complete, model="made-up", prompt="x" * 9120)
refused(openai.BadRequestError, "temperature", complete, model="made-up", prompt="x", temperature=-1)
refused(openai.NotFoundError, "made-up", complete, model="gpt-4", prompt="x")
stranger = openai.OpenAI(base_url=url, api_key="other", max_retries=0)
refused(openai.AuthenticationError, "API key", stranger.completions.create, model="made-up", prompt="x")
PY

# Tool calls, whole and as the client assembles them from a stream.
: >out
"$SLUICE_BUILD/tests/serve_made_up" 200 8 8 60 "" 32 "{# <tool_call> <think> #}{{ messages[-1].content }}" >out 2>err &
pid=$!
to_end+=("$pid")
until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended"; sleep 0.01; done
"$python" - "$(<out)" >said 2>&1 <<'PY' || fail "$(<said)"
import json
import sys
import openai

client = openai.OpenAI(base_url="http://127.0.0.1:%s/v1" % sys.argv[1], api_key="any", max_retries=0)
tools = [{"type": "function", "function": {"name": n, "parameters": {"type": "object", "properties": {}}}} for n in "fg"]
text = """<think>
Hm.
</think>
<tool_call>
{"name": "f", "arguments": {"city": "Köln"}}
</tool_call>
<tool_call>
{"name": "g", "arguments": {}}
</tool_call>!"""
asked = dict(model="made-up", messages=[{"role": "user", "content": text}], tools=tools, stop="!")


def check(choice):
    calls = [(c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls]
    assert calls == [("f", {"city": "Köln"}), ("g", {})], choice
    assert choice.finish_reason == "tool_calls" and not choice.message.content, choice
    assert len({c.id for c in choice.message.tool_calls}) == 2, choice


whole = client.chat.completions.create(**asked).choices[0]
check(whole)
assert whole.message.reasoning_content == "Hm." and whole.message.content is None, whole
with client.chat.completions.stream(**asked) as stream:
    kinds = {event.type for event in stream}
    check(stream.get_final_completion().choices[0])
assert "tool_calls.function.arguments.delta" in kinds, kinds

# What was called goes back, and so does its result.
messages = [{"role": "user", "content": "a"}, whole.message,
            *({"role": "tool", "tool_call_id": c.id, "content": "7"} for c in whole.message.tool_calls),
            {"role": "user", "content": "Thanks.!"}]
done = client.chat.completions.create(**dict(asked, messages=messages)).choices[0]
assert done.message.content == "Thanks." and done.finish_reason == "stop" and not done.message.tool_calls, done
PY

# Responses, whole and as events. The model echoes the last message.
: >out
"$SLUICE_BUILD/tests/serve_made_up" 200 8 8 60 "" 32 "{# <tool_call> <think> #}{{ messages[-1].content }}" >out 2>err &
pid=$!
to_end+=("$pid")
until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended"; sleep 0.01; done
"$python" - "$(<out)" >said 2>&1 <<'PY' || fail "$(<said)"
import json
import sys
import openai

client = openai.OpenAI(base_url="http://127.0.0.1:%s/v1" % sys.argv[1], api_key="any", max_retries=0)
tools = [{"type": "function", "name": n, "parameters": {"type": "object", "properties": {}}} for n in "fg"]
said = client.responses.create(model="made-up", input="one two", max_output_tokens=7, instructions="Be brief.", store=False)
assert said.output_text == "one two" and said.status == "incomplete", said
assert said.incomplete_details.reason == "max_output_tokens" and said.usage.output_tokens == 7, said

text = """<think>
Hm.
</think>
I ask.
<tool_call>
{"name": "f", "arguments": {"city": "K\u00f6ln"}}
</tool_call>
<tool_call>
{"name": "g", "arguments": {}}
</tool_call>!"""
asked = dict(model="made-up", extra_body={"stop": "!"}, input=[{"role": "user", "content": [{"type": "input_text", "text": text}]}], tools=tools,
             temperature=0.5, parallel_tool_calls=True, text={"format": {"type": "text"}})


def check(response):
    kinds = [item.type for item in response.output]
    assert kinds == ["reasoning", "message", "function_call", "function_call"], response
    thought, message, f, g = response.output
    assert thought.content[0].text == "Hm." and response.output_text == "I ask." and message.role == "assistant", response
    assert (f.name, json.loads(f.arguments)) == ("f", {"city": "Köln"}) and (g.name, g.arguments) == ("g", "{}"), response
    assert f.call_id != g.call_id and len({item.id for item in response.output}) == 4, response


whole = client.responses.create(**asked)
check(whole)
seen, deltas = [], {}
with client.responses.stream(**asked) as stream:
    for event in stream:
        seen.append(event.type)
        if event.type.endswith(".delta"):
            deltas[event.output_index] = deltas.get(event.output_index, "") + event.delta
    check(stream.get_final_response())
assert deltas == {0: "Hm.", 1: "I ask.", 2: whole.output[2].arguments, 3: "{}"}, deltas
assert seen[:2] == ["response.created", "response.in_progress"] and seen[-1] == "response.completed", seen
assert seen.count("response.output_item.added") == seen.count("response.output_item.done") == 4, seen
numbers = [event.sequence_number for event in client.responses.create(stream=True, **asked)]
assert numbers == list(range(len(numbers))), numbers

# What came goes back, with the results of the calls.
again = [*asked["input"], *whole.output, *({"type": "function_call_output", "call_id": item.call_id, "output": "7"}
                                           for item in whole.output[2:]), {"role": "user", "content": "Thanks."}]
assert client.responses.create(model="made-up", input=again, tools=tools, max_output_tokens=7).output_text == "Thanks."
for fields, says in ((dict(previous_response_id="resp-1"), "not stored"), (dict(input=3), "input must be"),
                     (dict(tools=[{"type": "web_search"}]), "type is not function"), (dict(temperature=-1), "temperature")):
    try:
        client.responses.create(**dict(dict(model="made-up", input="a"), **fields))
    except openai.BadRequestError as error:
        assert says in str(error), error
    else:
        raise SystemExit("%s is not refused" % fields)
PY
