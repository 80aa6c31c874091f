# SPDX-License-Identifier: Apache-2.0
"""Checks tool calls in the answers of a server whose dummy model echoes its input.

  serve_tools.py PORT FORMAT

The model answers with the last message. A stop text ends each answer completely."""
import json
import re
import sys

from serve_client import Client, check

client, form = Client(int(sys.argv[1])), sys.argv[2]
CHAT = "/v1/chat/completions"
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}
         for name in ("weather", "now")]
CALLS = [("weather", {"city": "Köln {\"x\"}", "days": 3}), ("now", {})]
END = "\x03"


def spoken(calls):
    """Returns the text of tool calls in this format."""
    texts = [json.dumps(arguments, ensure_ascii=False) for _, arguments in calls]
    names = [name for name, _ in calls]
    if form == "hermes":
        return "\n".join('<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>' % x for x in zip(names, texts))
    if form == "qwen3-coder":
        return "\n".join("<tool_call>\n<function=%s>\n%s</function>\n</tool_call>" % (
            name, "".join("<parameter=%s>\n%s\n</parameter>\n" % x for x in arguments.items()))
            for name, arguments in calls)
    if form == "llama3":
        return "<|python_tag|>" + "; ".join('{"name": "%s", "parameters": %s}' % x for x in zip(names, texts))
    if form == "mistral":
        return "[TOOL_CALLS] [" + ", ".join('{"name": "%s", "arguments": %s}' % x for x in zip(names, texts)) + "]"
    return "<|start|>assistant".join("<|channel|>commentary to=functions.%s <|constrain|>json<|message|>%s<|call|>" % x
                                     for x in zip(names, texts))


def ask(text, **fields):
    """Returns the choice of a whole answer, after comparing it with the one assembled from a stream."""
    body = dict(messages=[{"role": "user", "content": text + END}], stop=END, **fields)
    status, said, _ = client.ask("POST", CHAT, body)
    check(status == 200, fields, "is answered with", status, said)
    whole = said["choices"][0]
    streamed, finish = {"role": "assistant", "content": None}, None
    for event in client.stream(CHAT, **body):
        choice = event["choices"][0]
        finish = choice["finish_reason"] or finish
        for key, value in choice["delta"].items():
            if key == "tool_calls":
                merge(streamed.setdefault(key, []), value)
            elif key != "role":
                streamed[key] = (streamed.get(key) or "") + value
    message = dict(whole["message"])
    check(finish == whole["finish_reason"], "a stream ends with", finish, "and not", whole["finish_reason"])
    for each in (message, streamed):
        each["content"] = each["content"] or ""
        ids = [call.pop("id") for call in each.get("tool_calls", ())]
        check(len(set(ids)) == len(ids) and all(map(is_id, ids)), "ids of calls are", ids)
    check(message == streamed, "whole it is", message, "\nbut as a stream", streamed)
    return whole


def merge(calls, deltas):
    """Adds deltas of tool calls: the first has the name, and the arguments arrive in pieces."""
    for delta in deltas:
        index = delta.pop("index")
        if index == len(calls):
            check(delta["type"] == "function" and delta["function"]["arguments"] == "", "a call begins as", delta)
            calls.append(delta)
        else:
            check(index == len(calls) - 1 and set(delta) == {"function"} and set(delta["function"]) == {"arguments"},
                  "a call goes on as", delta)
            calls[index]["function"]["arguments"] += delta["function"]["arguments"]


def is_id(text):
    return re.fullmatch("[0-9A-Za-z]{9}" if form == "mistral" else "call_[0-9A-Za-z]{24}", text)


def check_calls(choice, calls, content):
    message = choice["message"]
    got = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message["tool_calls"]]
    check(got == calls, "calls of", message)
    check(message["content"] == content, "content is", message["content"], "and not", content)
    check(choice["finish_reason"] == "tool_calls", "it ends with", choice["finish_reason"])
    check({c["type"] for c in message["tool_calls"]} == {"function"}, "types of calls")


always = form == "gpt-oss"
before = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant" if always else "I look.\n"
check_calls(ask(spoken(CALLS), tools=TOOLS), CALLS, None)
check_calls(ask(spoken(CALLS[:1]), tools=TOOLS, logprobs=True), CALLS[:1], None)
check_calls(ask(before + spoken(CALLS), tools=TOOLS, tool_choice="auto"), CALLS, "I look.")
if not always:
    # Without tools, or with tool_choice none, everything is content.
    for fields in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        plain = ask(spoken(CALLS), **fields)
        check(plain["message"] == {"role": "assistant", "content": spoken(CALLS)} and plain["finish_reason"] == "stop",
              "without tools it is", plain)
one = ask(spoken(CALLS), tools=TOOLS, parallel_tool_calls=False)
check_calls(one, CALLS[:1], None)

# A truncated call ends with finish_reason length, and text that only resembles a call is content.
cut = client.ask("POST", CHAT, {"messages": [{"role": "user", "content": spoken(CALLS[:1])}], "tools": TOOLS,
                                "max_tokens": len(spoken(CALLS[:1]).encode()) - 12})[1]["choices"][0]
check(cut["finish_reason"] == "length", "a call that is cut off ends with", cut)
for text in ("a < b", "Use <tool_call> or [TOOL_CALLS] or <|x", '{"no": "call"}', "<tool_call>{\"name\": 1}</tool_call>"):
    text = "<|channel|>final<|message|>" + text if always else text
    plain = ask(text, tools=TOOLS)
    check(plain["message"]["content"] == text.replace("<|channel|>final<|message|>", "") and
          plain["finish_reason"] == "stop" and "tool_calls" not in plain["message"], text, "is answered with", plain)

# Reasoning is separate from the content.
thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant" if always else "<think>\nHm.\n</think>\n\n"
final = "<|channel|>final<|message|>Yes." if always else "Yes."
said = ask(thought + final)["message"]
check(said == {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}, "reasoning is", said)
said = ask(thought + spoken(CALLS[:1]), tools=TOOLS)
check(said["message"]["reasoning_content"] == "Hm.", "reasoning in front of a call is", said)
check_calls(said, CALLS[:1], None)

# Errors name invalid fields.
client.refused(400, "parallel_tool_calls must be true or false", CHAT, parallel_tool_calls=1,
               messages=[{"role": "user", "content": "a"}])
