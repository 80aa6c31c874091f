#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes templates.json: templates as Jinja renders them in transformers.

    pip install jinja2
    python3 make_templates.py

templates.txt has the templates, separated by lines ====; each renders several chats. A row has a template,
messages, and the text, or null if Jinja fails.
"""
import json
import os

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def messages(*texts, system=None):
    said = [{"role": "user" if i % 2 == 0 else "assistant", "content": text} for i, text in enumerate(texts)]
    return [{"role": "system", "content": system}] * (system is not None) + said


CHATS = [messages("Hi"), messages("Hi", "Hello", "  more \n", system=" sys "), messages("a", "<think>b</think>\nc", "c'd\"e\\\n"),
         messages("\u00fc\u6f22\U0001f600"), messages("Hi") + [{"role": "system", "content": "s"}] + messages("x")]


def main():
    env, rows = environment(), []
    with open(os.path.join(HERE, "templates.txt"), encoding="utf-8", newline="") as file:
        templates = file.read().split("\n====\n")
    for template in templates:
        for chat in CHATS:
            try:
                text = env.from_string(template).render(messages=chat, tools=None, documents=None, add_generation_prompt=True,
                                                        bos_token="<s>", eos_token="</s>")
            except Exception:
                text = None
            rows.append([template, chat, text])
    with open(os.path.join(HERE, "templates.json"), "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
