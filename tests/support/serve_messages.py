# SPDX-License-Identifier: Apache-2.0
"""Checks /v1/messages of a server that repeats its last message: serve_messages.py PORT."""
import json
import sys
import urllib.error
import urllib.request

url = "http://127.0.0.1:%s" % sys.argv[1]
KEY = {"x-api-key": "secret", "anthropic-version": "2023-06-01"}
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Bonn"}}</tool_call>'
TOOL = {"name": "weather", "description": "d", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}


def ask(body, path="/v1/messages", headers=KEY):
    return urllib.request.urlopen(urllib.request.Request(
        url + path, json.dumps(body).encode(), dict(headers, **{"Content-Type": "application/json"})))


def said(text, **more):
    return dict({"model": "made-up", "max_tokens": 20, "temperature": 0, "messages": [{"role": "user", "content": text}]}, **more)


def refused(status, kind, why, body, **more):
    try:
        ask(body, **more)
    except urllib.error.HTTPError as error:
        got = json.load(error)
        assert error.code == status and got["type"] == "error" and got["error"]["type"] == kind, (error.code, got)
        assert why in got["error"]["message"], (why, got)
    else:
        raise SystemExit("%s is not refused" % body)


# A text, the reasons for its end, and the counts of tokens.
got = json.load(ask(said("hello ")))
assert got["content"] == [{"type": "text", "text": "hello hello hello he"}] and got["type"] == "message", got
assert got["stop_reason"] == "max_tokens" and got["stop_sequence"] is None and got["role"] == "assistant", got
assert got["usage"]["input_tokens"] + got["usage"]["cache_read_input_tokens"] == 6 and got["usage"]["output_tokens"] == 20, got
got = json.load(ask(said("hello ", stop_sequences=["xx", "lo h"])))
assert got["content"][0]["text"] == "hel" and (got["stop_reason"], got["stop_sequence"]) == ("stop_sequence", "lo h"), got
blocks = [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": " you "}]
assert json.load(ask(said(blocks, system=[{"type": "text", "text": "be brief"}])))["content"][0]["text"] == "hi you hi you hi you"
assert json.load(ask(said("hello "), "/v1/messages/count_tokens")) == {"input_tokens": 6}

# A call, and its result.
body = said(CALL + " ", max_tokens=74, tools=[TOOL], tool_choice={"type": "auto", "disable_parallel_tool_use": True})
got = json.load(ask(body))
assert got["stop_reason"] == "tool_use" and got["content"][0]["type"] == "tool_use", got
call = got["content"][0]
assert call["name"] == "weather" and call["input"] == {"city": "Bonn"} and call["id"], got
turns = [{"role": "user", "content": "weather?"},
         {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "So"}, call]},
         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "sun "}]}]}]
got = json.load(ask(dict(said("x"), messages=turns, tools=[TOOL], max_tokens=60)))
assert got["content"][0]["text"].startswith("[%s] sun " % call["id"]), got

# Streams.
def events(body):
    kinds, all = [], []
    for line in ask(dict(body, stream=True)).read().decode().split("\n"):
        if line.startswith("event: "):
            kinds.append(line[7:])
        if line.startswith("data: "):
            all.append(json.loads(line[6:]))
    assert kinds == [e["type"] for e in all], kinds
    return all


all = events(said("hello "))
assert [e["type"] for e in all[:2]] == ["message_start", "content_block_start"], all
assert "".join(e["delta"]["text"] for e in all if e["type"] == "content_block_delta") == "hello hello hello he"
assert all[-2]["delta"]["stop_reason"] == "max_tokens" and all[-2]["usage"]["output_tokens"] == 20 and all[-1] == {"type": "message_stop"}
all = events(body)
starts = [e["content_block"] for e in all if e["type"] == "content_block_start"]
assert [s["type"] for s in starts] == ["tool_use"] and starts[0]["input"] == {}, starts
parts = "".join(e["delta"]["partial_json"] for e in all if e["type"] == "content_block_delta")
assert json.loads(parts) == {"city": "Bonn"} and all[-2]["delta"]["stop_reason"] == "tool_use", all
thought = "<think>so so</think>yes "
all = events(said(thought, max_tokens=len(thought)))
assert [e["content_block"]["type"] for e in all if e["type"] == "content_block_start"] == ["thinking", "text"], all
assert [e["index"] for e in all if e["type"] == "content_block_stop"] == [0, 1], all

# Refusals.
refused(401, "authentication_error", "API key", said("a"), headers={})
refused(404, "not_found_error", "made-up", said("a", model="claude"))
refused(400, "invalid_request_error", "max_tokens is missing", {"model": "made-up", "messages": [{"role": "user", "content": "a"}]})
refused(400, "invalid_request_error", "messages", dict(said("a"), messages=[]))
refused(400, "invalid_request_error", "end with a message of the user",
        dict(said("a"), messages=[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]))
refused(400, "invalid_request_error", "neither text nor tool_result", said([{"type": "image", "source": {}}]))
refused(400, "invalid_request_error", "type is not custom", said("a", tools=[{"type": "bash_20250124", "name": "bash"}]))
refused(400, "invalid_request_error", "unknown field", said("a", frequency=1))
refused(400, "invalid_request_error", "weight is not supported", dict(said("a"), messages=[{"role": "user", "content": "a", "weight": 1}]))

try:
    import anthropic
except ImportError:
    print("without the client: it is not installed")
    raise SystemExit
client = anthropic.Anthropic(base_url=url, api_key="secret", max_retries=0)


def given(body):
    """Returns the arguments of the client, which knows no temperature."""
    body = dict(body)
    return dict({k: v for k, v in body.items() if k != "temperature"}, extra_body={"temperature": body["temperature"]})


message = client.messages.create(**given(said("hello ")))
assert message.content[0].text == "hello hello hello he" and message.stop_reason == "max_tokens", message
assert client.messages.count_tokens(model="made-up", messages=said("hello ")["messages"]).input_tokens == 6
message = client.messages.create(**given(body))
assert message.content[0].type == "tool_use" and message.content[0].input == {"city": "Bonn"}, message
with client.messages.stream(**given(body)) as stream:
    message = stream.get_final_message()
assert message.content[0].input == {"city": "Bonn"} and message.stop_reason == "tool_use", message
with client.messages.stream(**given(said("hello "))) as stream:
    assert "".join(stream.text_stream) == "hello hello hello he"
for call, kind in ((lambda: client.messages.create(**given(said("a", model="x"))), anthropic.NotFoundError),
                   (lambda: client.messages.create(**given(said("a", temperature=-1))), anthropic.BadRequestError),
                   (lambda: anthropic.Anthropic(base_url=url, api_key="x", max_retries=0).messages.create(**given(said("a"))),
                    anthropic.AuthenticationError)):
    try:
        call()
    except kind:
        pass
    else:
        raise SystemExit("%s is not raised" % kind)
print("with the client %s" % anthropic.__version__)
