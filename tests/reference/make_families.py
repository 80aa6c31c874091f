#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
r"""Makes families.json: chats as Jinja renders them, with templates in the style of public models.

    pip install jinja2
    python3 make_families.py

families.txt has the templates, each below a line ==== NAME. They were written for this test and use the constructs of
these families' templates. Each renders, as in transformers, chats with and without a system message, with several turns,
tools, calls, documents and variables. A row has a template's name, a chat's name, and the text, or null if the template
fails. A date is replaced by its format between \u00ab and \u00bb. Members of chats are JSON texts, because 1.0 differs
from 1 in them.
"""
import json
import os
import re

from make_templates import environment

HERE = os.path.dirname(os.path.abspath(__file__))

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a place.",
    "parameters": {"type": "object", "required": ["place"], "properties": {
        "place": {"type": "string", "description": "A town, as in \"K\u00f6ln\""},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "days": {"type": "integer", "minimum": 0.0, "maximum": 18446744073709551615}}}}}
PLAN = {"type": "function", "function": {
    "name": "plan", "description": "Plans a trip.\nIn steps.",
    "parameters": {"type": "object", "properties": {
        "stops": {"type": "array", "items": {"type": "string"}, "description": "the stops"},
        "options": {"type": "object", "properties": {"fast": {"type": "boolean"}, "budget": {"type": "number"}},
                    "required": ["fast"]},
        "any": {"type": ["string", "null"]}, "list": {"type": "array"},
        "which": {"oneOf": [{"type": "string", "description": "by name"}, {"type": "number", "default": 1.5}]}}}}}
NOW = {"type": "function", "function": {
    "name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}}


def says(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, number="call00001"):
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


USER, SYSTEM = says("user", " Wie ist das Wetter?\n"), says("system", "Be \"brief\".\n")
CALLS = says("assistant", None, tool_calls=[call("get_weather", {"place": "K\u00f6ln", "days": 3, "x": [1.0, None, True]})])
BOTH = says("assistant", "I ask both.", tool_calls=[
    call("get_weather", {"place": "Bonn"}), call("plan", {"stops": ["a", "b"], "options": {"fast": False}}, "call00002")])
RESULT, OTHER = (says("tool", "{\"degrees\": 7}", tool_call_id="call0000%d" % i) for i in (1, 2))
THOUGHT = says("assistant", "<think>\nIt's \u4e2d\u6587?\n</think>\n\nYes: <b>\U0001f600</b> \\n 'x' {{ y }}")

CHATS = {
    "user": {"messages": [USER]},
    "system": {"messages": [SYSTEM, USER]},
    "turns": {"messages": [SYSTEM, USER, says("assistant", "Warm. "), says("user", "Sure?"), THOUGHT, says("user", "")]},
    "thought": {"messages": [USER, THOUGHT, says("user", "/no_think Go on.")], "variables": {"enable_thinking": False}},
    "reasoning": {"messages": [USER, says("assistant", "7", reasoning_content="3 + 4\n"), says("user", "Why?"),
                               says("assistant", "So.", thinking="hm", reasoning_content="hm")],
                  "variables": {"reasoning_effort": "high", "thinking": True, "date_string": "1 Jan 2026"}},
    "last_answer": {"messages": [USER, says("assistant", "Warm.")], "variables": {"add_generation_prompt": False}},
    "tools": {"messages": [USER], "tools": [WEATHER]},
    "tools_system": {"messages": [SYSTEM, USER], "tools": [WEATHER, PLAN, NOW],
                     "variables": {"tools_in_user_message": False}},
    "called": {"messages": [SYSTEM, USER, CALLS, RESULT], "tools": [WEATHER, NOW]},
    "answered": {"messages": [USER, CALLS, RESULT, says("assistant", "7 degrees."), says("user", "And Bonn?")],
                 "tools": [PLAN, WEATHER]},
    "parallel": {"messages": [SYSTEM, USER, BOTH, RESULT, OTHER, says("assistant", "Done."), USER], "tools": [WEATHER, PLAN]},
    "built_in": {"messages": [USER, says("assistant", None, tool_calls=[call("search", {"query": "x", "lang": "de"})]), RESULT],
                 "variables": {"builtin_tools": ["search", "code_interpreter"]}},
    "documents": {"messages": [SYSTEM, USER], "documents": [{"doc_title": "One", "text": "First."}, {"doc_title": "Two", "text": ""}],
                  "variables": {"controls": {"citations": True, "length": "short"}}},
    "twice": {"messages": [USER, says("user", "And?", name="bob")]},
    "system_later": {"messages": [USER, says("assistant", "Warm."), SYSTEM, says("user", "Go on.")]},
}


def render(env, template, chat):
    values = dict(messages=chat["messages"], tools=chat.get("tools"), documents=chat.get("documents"), add_generation_prompt=True,
                  bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    values.update(chat.get("variables", {}))
    try:
        return template.render(**values)
    except Exception:
        return None


def main():
    env = environment()
    env.globals["strftime_now"] = lambda form: "\u00ab%s\u00bb" % form
    with open(os.path.join(HERE, "families.txt"), encoding="utf-8", newline="") as file:
        parts = re.split(r"^==== (\S+)\n", file.read(), flags=re.M)[1:]
    templates = dict(zip(parts[::2], (text.removesuffix("\n") for text in parts[1::2])))
    rows = []
    for name, text in templates.items():
        template = env.from_string(text)
        rows += [[name, key, render(env, template, chat)] for key, chat in CHATS.items()]
    chats = {name: {key: json.dumps(value) for key, value in chat.items()} for name, chat in CHATS.items()}
    with open(os.path.join(HERE, "families.json"), "w", encoding="utf-8") as file:
        json.dump({"templates": templates, "chats": chats, "rows": rows}, file, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
