#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes chat_masks.json: tokens of chats, and masks of the tokens to learn.

    pip install transformers jinja2
    python3 make_chat_masks.py [--trl FOLDER]

A case has a tokenizer of tokenizers/ with some added tokens, a chat template, and lines of a chat file, each with its
tokens and a mask. If a template has {% generation %} blocks, the masks are those of transformers'
apply_chat_template(return_assistant_tokens_mask=True). Otherwise each answer is what TRL calls a completion: it covers
the tokens of the chat with the answer after the end of the prompt's tokens. Pairs of prompt and completion texts are
tokenized as in TRL, too.

The templates in this file are as short as possible while they render the same text as the models' templates. --trl names
TRL's folder chat_templates: each template with the name of a file there must give the same tokens and masks.
"""
import argparse
import json
import os

from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))

CHATML = ["<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]
LLAMA3 = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
GEMMA = ["<start_of_turn>", "<end_of_turn>"]
PHI3 = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]

QWEN = """{%- if messages[0]['role'] == 'system' %}{{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
{%- else %}{{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' }}{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' %}{{- '<|im_start|>user\n' + message.content + '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}{{- '<|im_start|>assistant' }}{% BEGIN %}
        {%- if message.content %}{{- '\n' + message.content }}{%- endif %}
        {%- for call in message.tool_calls or [] %}
            {{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}{{- call.function.arguments | tojson }}{{- '}\n</tool_call>' }}
        {%- endfor %}{{- '<|im_end|>\n' }}{% END %}
    {%- elif message.role == 'tool' %}{{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}{%- endif %}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""
TOOLS = """{%- if tools %}{{- 'Tools:\n' }}{%- for tool in tools %}{{- tool | tojson + '\n' }}{%- endfor %}{%- endif %}
{%- for message in messages %}{{- '<|im_start|>' + message.role + '\n' }}{% if message.role == 'assistant' %}{% BEGIN %}
    {{- message.content or '' }}{%- for call in message.tool_calls or [] %}{{- '<tool_call>' + call.function.name }}{{- call.function.arguments | tojson }}{{- '</tool_call>' }}{%- endfor %}
    {{- '<|im_end|>' }}{% END %}{% else %}{{- message.content + '<|im_end|>' }}{% endif %}{{- '\n' }}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""
LLAMA = """{{- bos_token }}{%- for message in messages %}{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}
{%- if message.role == 'assistant' %}{% BEGIN %}{{- message.content | trim + '<|eot_id|>' }}{% END %}
{%- else %}{{- message.content | trim + '<|eot_id|>' }}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"""
TURNS = """{{- bos_token -}}{%- for message in messages -%}{%- if message.role == 'assistant' -%}{{- '<start_of_turn>model\n' -}}
{% BEGIN %}{{- message.content | trim + '<end_of_turn>\n' -}}{% END %}
{%- else -%}{{- '<start_of_turn>' + message.role + '\n' + message.content | trim + '<end_of_turn>\n' -}}{%- endif -%}{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\n' -}}{%- endif -%}"""
PHI = """{%- for message in messages %}{{- '<|' + message.role + '|>\n' }}{%- if message.role == 'assistant' %}{% BEGIN %}{{- message.content + '<|end|>\n' }}{% END %}
{%- else %}{{- message.content + '<|end|>\n' }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|assistant|>\n' }}
{%- elif messages[-1].role == 'assistant' %}{% BEGIN %}{{- eos_token }}{% END %}{%- else %}{{- eos_token }}{%- endif %}"""
MISTRAL = """{{- bos_token }}{%- for message in messages %}{%- if message.role == 'user' %}{{- '[INST] ' + message.content + ' [/INST]' }}
{%- else %}{% BEGIN %}{{- ' ' + message.content + eos_token }}{% END %}{%- endif %}{%- endfor %}"""
PLAIN = """{%- for message in messages %}{{- '### ' + message.role + ': ' }}{% if message.role == 'assistant' %}{% BEGIN %}{{- message.content + '\n' }}{% END %}
{%- else %}{{- message.content + '\n' }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '### assistant: ' }}{%- endif %}"""

# name, tokenizer, added tokens, begin, end, template; each also yields a case without marks
CASES = [
    ("qwen2_5_training", "qwen2", CHATML, None, "<|im_end|>", QWEN), ("tools", "smollm", CHATML, None, "<|im_end|>", TOOLS),
    ("llama3_training", "llama3", LLAMA3, "<|begin_of_text|>", "<|eot_id|>", LLAMA),
    ("gemma_training", "metaspace", GEMMA, "<s>", "</s>", TURNS), ("phi3_training", "llama2", PHI3, "<s>", "</s>", PHI),
    ("mistral", "mistral", [], "<s>", "</s>", MISTRAL), ("plain", "gpt2", [], None, "<|endoftext|>", PLAIN),
    ("prefixed", "roberta", [], None, "<|endoftext|>", PLAIN),
]
MARKS = {"{% BEGIN %}": "{%- generation -%}", "{% END %}": "{%- endgeneration -%}"}


def says(role, content, **more):
    return {"role": role, "content": content, **more}


def turns(*texts, system=None):
    said = [says("assistant" if i % 2 else "user", text) for i, text in enumerate(texts)]
    return ([says("system", system)] if system else []) + said


CALL = {"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": {"place": "K\u00f6ln", "days": 3}}}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}}
LINES = [
    {"messages": turns("What is the capital of France?", "The capital of France is Paris.")},
    {"messages": turns("Hi", "Hello! How can I help?", "Write a haiku.", "An old silent pond.\nA frog jumps in.")},
    {"messages": turns("a", "\n\nb ", "  c", " d\n", "e", "\tf\n\n")},
    {"messages": turns("\u4e2d\u6587 \U0001f600 nai\u0308ve?", "\U0001f600\U0001f600 nai\u0308ve \u4e2d", "Caf\u00e9", "e\u0301 e\u0301\u0301 \u212b")},
    {"messages": turns("x", "x", "x", "x", "y", "x")},
    {"prompt": turns("Who are you?", "A model.", "Whose?"), "completion": [says("assistant", "Nobody's, they say.")]},
    {"prompt": "The sky is", "completion": " blue, and the sea is too."},
    {"prompt": "Q: a\nA:", "completion": "\n\nb"},
]
SYSTEM = [{"messages": turns("Who is there?", "Me.", "And?", "Nobody.", system="Be brief.")}]
WITH_CALLS = [
    {"messages": turns("The weather?") + [says("assistant", "", tool_calls=[CALL]), says("tool", "7 degrees"), says("assistant", "It has 7 degrees.")],
     "tools": [WEATHER]},
]


def prefix(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


def by_prompts(encode, messages, first):
    """Returns tokens and a mask of each answer: from the end of its prompt's tokens to the end of the chat with it."""
    ids, mask = encode(messages, False), None
    mask = [0] * len(ids)
    for i in range(first, len(messages)):
        if messages[i]["role"] != "assistant":
            continue
        upto, withit = encode(messages[:i], True), encode(messages[:i + 1], False)
        for k in range(prefix(upto, withit), prefix(withit, ids)):
            mask[k] = 1
    return ids, mask


def read(tokenizer, template, marked, line):
    if isinstance(line.get("prompt"), str):
        end = tokenizer.eos_token
        prompt, whole = (tokenizer(text)["input_ids"] for text in (line["prompt"], line["prompt"] + line["completion"] + end))
        n = prefix(prompt, whole)
        return whole, [0] * n + [1] * (len(whole) - n)
    messages = line.get("messages") or line["prompt"] + line["completion"]
    first = len(line.get("prompt", []))
    more = {"chat_template": template, "tools": line.get("tools"), "tokenize": True, "return_dict": True}

    def encode(some, prompt):
        return tokenizer.apply_chat_template(some, add_generation_prompt=prompt, **more)["input_ids"]
    if not marked:
        return by_prompts(encode, messages, first)
    out = tokenizer.apply_chat_template(messages, return_assistant_tokens_mask=True, **more)
    ids, mask = out["input_ids"], out["assistant_masks"]
    if first:
        n = prefix(encode(messages[:first], True), ids)
        mask = [0] * n + [1] * (len(ids) - n)
    return ids, mask


def open_tokenizer(name, added, begin, end):
    path = os.path.join(HERE, "tokenizers", name + ".json")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=path, bos_token=begin, eos_token=end)
    tokenizer.add_tokens([AddedToken(text, special=True, normalized=False) for text in added])
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trl")
    trl, cases = parser.parse_args().trl, []
    for name, file, added, begin, end, template in CASES:
        tokenizer = open_tokenizer(file, added, begin, end)
        for marked in (True, False):
            text = template
            for mark, instead in MARKS.items():
                text = text.replace(mark, instead if marked else "")
            lines = LINES + (SYSTEM if name not in ("gemma_training", "mistral") else []) + \
                (WITH_CALLS if template == TOOLS else [{"messages": WITH_CALLS[0]["messages"]}] if template == QWEN else [])
            rows = []
            for line in lines:
                ids, mask = read(tokenizer, text, marked, line)
                rows.append({"line": json.dumps(line, ensure_ascii=False), "ids": ids, "mask": mask})
                path = os.path.join(trl or "", name + ".jinja")
                if trl and marked and os.path.exists(path):
                    with open(path, encoding="utf-8") as theirs:
                        assert read(tokenizer, theirs.read(), True, line) == (ids, mask), (name, line)
            cases.append({"name": name + ("" if marked else ", without marks"), "tokenizer": file, "begin": begin, "end": end,
                          "added": {t: tokenizer.convert_tokens_to_ids(t) for t in added}, "template": text, "rows": rows})
    with open(os.path.join(HERE, "chat_masks.json"), "w", encoding="utf-8") as file:
        json.dump(cases, file, ensure_ascii=True, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
