# SPDX-License-Identifier: Apache-2.0
"""The server extracts tool calls from answers, whole and streamed, in every template format.

labels: smoke
needs: libevent
"""
from tool import MadeUp, says, script

# The dummy model echoes its prompt, here the last message.
for form, mark in (("hermes", "<tool_call>"), ("qwen3-coder", "<tool_call><function="), ("llama3", "<|python_tag|>"),
                   ("mistral", "[TOOL_CALLS]"), ("gpt-oss", "<|channel|>")):
    with MadeUp(0, 8, 8, 30, "", 32, "{# %s <think> #}{{ messages[-1].content }}" % mark) as server:
        script("serve_tools", server.port, form)
    says(server.out, "0 pages, 0 events")
