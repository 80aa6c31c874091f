# SPDX-License-Identifier: Apache-2.0
"""Requests answers that must be tool calls: serve_choice.py PORT FORMAT"""
import json
import sys

from serve_client import Client, check

client, form = Client(int(sys.argv[1])), sys.argv[2]
CHAT = "/v1/chat/completions"
PLACE = {"type": "object", "$defs": {"unit": {"enum": ["C", "F"]}},
         "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 0, "maximum": 9},
                        "unit": {"$ref": "#/$defs/unit"}, "sky": {"type": "string", "enum": ["clear", "grey"]},
                        "code": {"type": "string", "pattern": "^[A-Z]{2}$"},
                        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}},
         "required": ["city", "days"]}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": PLACE}},
         {"type": "function", "function": {"name": "now"}},
         {"type": "function", "function": {"name": "log", "parameters": {
             "type": "object", "properties": {"x": {"type": "number", "minimum": 0, "maximum": 1}}, "required": ["x"],
             "additionalProperties": False}}}]


def check_call(call):
    name, x = call["function"]["name"], json.loads(call["function"]["arguments"])
    if name == "now":
        check(x == {}, "now is called with", x)
    elif name == "log":
        check(list(x) == ["x"] and 0 <= x["x"] <= 1, "log is called with", x)
    else:
        check(name == "weather" and set(x) <= set(PLACE["properties"]) and {"city", "days"} <= set(x), "call", name, x)
        check(isinstance(x["city"], str) and len(x["city"]) <= 12, "city", x)
        check(isinstance(x["days"], int) and 0 <= x["days"] <= 9, "days", x)
        check(x.get("unit", "C") in ("C", "F") and x.get("sky", "grey") in ("clear", "grey"), "enum", x)
        code = x.get("code", "AB")
        check(len(code) == 2 and code.isascii() and code.isupper(), "code", x)
        check(all(isinstance(each, bool) for each in x.get("tags", [])) and len(x.get("tags", [])) <= 2, "tags", x)


def body(seed, **fields):
    return {"messages": [{"role": "user", "content": "It is"}], "tools": TOOLS, "seed": seed, "max_tokens": 300,
            "top_k": 40, "stop_token_ids": [0], **fields}


def ask(seed, **fields):
    status, said, _ = client.ask("POST", CHAT, body(seed, **fields))
    check(status == 200, fields, "is answered with", status, said)
    choice = said["choices"][0]
    if choice["finish_reason"] == "length":
        return None
    check(choice["finish_reason"] == "tool_calls" and not choice["message"]["content"], "answer", choice)
    calls = choice["message"]["tool_calls"]
    for call in calls:
        check_call(call)
    return [call["function"]["name"] for call in calls]


def streamed(seed, **fields):
    names, arguments = [], []
    for event in client.stream(CHAT, **body(seed, **fields)):
        delta = event["choices"][0]["delta"]
        check(not delta.get("content"), "a stream has the text", delta)
        for call in delta.get("tool_calls", ()):
            if call["index"] == len(names):
                names.append(call["function"]["name"])
                arguments.append("")
            arguments[call["index"]] += call["function"]["arguments"]
    for name, each in zip(names, arguments):
        check_call({"function": {"name": name, "arguments": each}})
    return names


def named(name):
    return {"type": "function", "function": {"name": name}}


def refused(says, **fields):
    status, said, _ = client.ask("POST", CHAT, body(1, **fields))
    check(status == 400 and says in said["error"]["message"], fields, "is answered with", status, said)


if form == "none":
    refused("--tool-parser", tool_choice="required")
    sys.exit()
seen, whole = set(), 0
for seed in range(6):
    names = ask(seed, tool_choice="required")
    whole += names is not None
    seen.update(names or ())
    if names is not None:
        check(streamed(seed, tool_choice="required") == names, "a stream calls otherwise than", names)
check(whole >= 1 and (form == "gpt-oss" or len(seen) > 1), whole, "answers of 6 are whole and call", seen)
for seed in range(2):
    names = ask(seed, tool_choice="required", parallel_tool_calls=False)
    check(names is None or len(names) == 1, "without parallel calls", names)
    for name in ("weather", "now", "log"):
        names = ask(seed, tool_choice=named(name))
        check(names in (None, [name]), "the choice of", name, "calls", names)
refused("none of the tools", tool_choice=named("other"))
refused("tool_choice must be", tool_choice="any")
refused("needs tools", tool_choice="required", tools=[])
refused("guided by one", tool_choice="required", guided_regex="a")
strange = {"type": "object", "properties": {"a": {"not": {}}}}
refused("tools[0].function.parameters", tool_choice="required",
        tools=[{"type": "function", "function": {"name": "f", "parameters": strange}}])
