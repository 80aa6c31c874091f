#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Queries a server with the openai client: asks for a function call, and for JSON that matches a schema.

    python3 ask.py http://localhost:8000/v1
"""
import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none")
model = client.models.list().data[0].id
weather = {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}}}
timer = {"type": "function", "function": {"name": "set_timer", "parameters": {
    "type": "object", "properties": {"minutes": {"type": "integer"}}, "required": ["minutes"]}}}
for text in ("How is the weather in Berlin today?", "Set a timer for 17 minutes."):
    answer = client.chat.completions.create(model=model, temperature=0, max_tokens=60, tools=[weather, timer],
                                            messages=[{"role": "user", "content": text}]).choices[0]
    calls = answer.message.tool_calls or []
    print(text, "->", answer.finish_reason, [(c.function.name, json.loads(c.function.arguments)) for c in calls]
          or answer.message.content)
order = {"type": "object", "properties": {"item": {"type": "string"}, "quantity": {"type": "integer"}},
         "required": ["item", "quantity"], "additionalProperties": False}
text = "Write this order as JSON: Please send 24 lamps."
answer = client.chat.completions.create(
    model=model, temperature=0, max_tokens=60, messages=[{"role": "user", "content": text}],
    response_format={"type": "json_schema", "json_schema": {"name": "order", "schema": order, "strict": True}})
print(text, "->", json.loads(answer.choices[0].message.content))
