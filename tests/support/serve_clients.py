# SPDX-License-Identifier: Apache-2.0
"""Tests langchain-openai and openai-agents with a server whose model echoes the last message:
serve_clients.py PORT"""
import asyncio
import sys

import agents
import langchain_openai
import openai
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool

URL = "http://127.0.0.1:%s/v1" % sys.argv[1]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 20, "b": 3}}\n</tool_call>!'


@tool
def add(a: int, b: int) -> str:
    """Adds."""
    return "%d!" % (a + b)


# LangChain: a model with tools, called and streamed; the script returns the result.
chat = langchain_openai.ChatOpenAI(base_url=URL, api_key="any", model="made-up", stop_sequences=["!"], max_retries=0)
assert chat.invoke("Good day!").content == "Good day"
assert "".join(piece.content for piece in chat.stream("Good day!")) == "Good day"
bound = chat.bind_tools([add])
said = bound.invoke(CALL)
assert [(c["name"], c["args"]) for c in said.tool_calls] == [("add", {"a": 20, "b": 3})], said
whole = None
for piece in bound.stream(CALL):
    whole = piece if whole is None else whole + piece
assert [(c["name"], c["args"]) for c in whole.tool_calls] == [("add", {"a": 20, "b": 3})], whole
result = add.invoke(said.tool_calls[0])
assert bound.invoke([HumanMessage(CALL), said, result]).content == "23"
newer = langchain_openai.ChatOpenAI(base_url=URL, api_key="any", model="made-up", use_responses_api=True, max_retries=0,
                                    extra_body={"stop": "!"}).bind_tools([add])
said = newer.invoke(CALL)
assert [(c["name"], c["args"]) for c in said.tool_calls] == [("add", {"a": 20, "b": 3})], said

# OpenAI agents: their own loop runs the tool, with both request types, whole and streamed.
agents.set_tracing_disabled(True)
client = openai.AsyncOpenAI(base_url=URL, api_key="any", max_retries=0)


@agents.function_tool
def add_up(a: int, b: int) -> str:
    """Adds."""
    return "%d!" % (a + b)


async def run():
    for kind in (agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel):
        agent = agents.Agent("clerk", instructions="Add.", tools=[add_up], model=kind("made-up", openai_client=client),
                             model_settings=agents.ModelSettings(extra_body={"stop": "!"}))
        asked = CALL.replace("add", "add_up", 1)
        result = await agents.Runner.run(agent, asked)
        assert result.final_output == "23", (kind, result)
        streamed = agents.Runner.run_streamed(agent, asked)
        async for _ in streamed.stream_events():
            pass
        assert streamed.final_output == "23", (kind, streamed)


asyncio.run(run())
