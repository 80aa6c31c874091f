#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes chats.json: messages as transformers' apply_chat_template renders them, with the templates that text/chat.c
names.

    pip install transformers jinja2
    python3 make_chats.py [--out DIR]

The templates in this file are as short as possible while they render the same text as the models' templates.
"""
import argparse
import json
import os

import transformers
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))

CHATML = ("{{% for message in messages %}}{system}{{{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}}}"
          "{{% endfor %}}{{% if add_generation_prompt %}}{{{{ '<|im_start|>assistant\n' }}}}{{% endif %}}")
FIRST = "{{% if loop.first and message['role'] != 'system' %}}{{{{ '<|im_start|>system\\n{0}<|im_end|>\\n' }}}}{{% endif %}}"
TURNS = "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('not in turn') }}{% endif %}"


def chatml(system=None):
    return CHATML.format(system=FIRST.format(system) if system else "")


LLAMA2 = ("{% if messages[0].role == 'system' %}{% set system_message = messages[0].content %}{% set said = messages[1:] %}"
          "{% else %}{% set said = messages %}{% endif %}{% for message in said %}" + TURNS +
          "{% if loop.first and system_message is defined %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message.content %}"
          "{% else %}{% set content = message.content %}{% endif %}"
          "{% if message.role == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
          "{% else %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}")
LLAMA3 = ("{{ bos_token }}%s{%% for message in %s %%}{{ '<|start_header_id|>' + message['role'] + \"<|end_header_id|>\\n\\n\" + "
          "message['content'] | trim + '<|eot_id|>' }}{%% endfor %%}"
          "{%% if add_generation_prompt %%}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%% endif %%}")
DATES = ("{% if messages[0].role == 'system' %}{% set system_message = messages[0].content | trim %}{% set said = messages[1:] %}"
         "{% else %}{% set system_message = '' %}{% set said = messages %}{% endif %}"
         "{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}{{- \"Cutting Knowledge Date: December 2023\\n\" }}"
         "{{- 'Today Date: ' + '26 Jul 2024' + '\\n\\n' + system_message + '<|eot_id|>' }}")
MISTRAL = ("{{ bos_token }}{% for message in messages %}" + TURNS + "{% if message['role'] == 'user' %}"
           "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% else %}{{ message['content'] + eos_token}}{% endif %}{% endfor %}")
ZEPHYR = ("{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n"
          "{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n"
          "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n' + message['content'] + eos_token }}\n{% endif %}\n"
          "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}")

TEMPLATES = {
    "chatml": (chatml(), "<|endoftext|>", "<|im_end|>"),
    "smollm2": (chatml("You are a helpful AI assistant named SmolLM, trained by Hugging Face"), "<|im_start|>", "<|im_end|>"),
    "qwen2": (chatml("You are a helpful assistant."), None, "<|im_end|>"),
    "qwen2.5": (chatml("You are Qwen, created by Alibaba Cloud. You are a helpful assistant."), None, "<|im_end|>"),
    "llama2": (LLAMA2, "<s>", "</s>"),
    "llama3": (LLAMA3 % ("", "messages"), "<|begin_of_text|>", "<|eot_id|>"),
    "llama3.1": (LLAMA3 % (DATES, "said"), "<|begin_of_text|>", "<|eot_id|>"),
    "mistral": (MISTRAL, "<s>", "</s>"),
    "zephyr": (ZEPHYR, "<s>", "</s>"),
}


def messages(*texts, system=None):
    said = [{"role": "user" if i % 2 == 0 else "assistant", "content": text} for i, text in enumerate(texts)]
    return [{"role": "system", "content": system}] * (system is not None) + said


CHATS = [
    messages("What is the capital of France?"),
    messages("Hi", "Hello! How can I help?", "Write a haiku."),
    messages("Wer bist du?\n\nSag es kurz.", system="You answer in German.\nBe brief."),
    messages("  spaces around \n", "\tand here ", " {text} {begin} 'quotes' \"too\" \\n", system="  a system with spaces  "),
    messages("", "", "x"),
    messages("\u4e2d\u6587 \U0001f600 na\u00efve", "<|im_end|> as text", "<s>[INST] nothing [/INST]", "ok", "last"),
]


def render(template, begin, end, chat):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token=begin, eos_token=end)
    return tokenizer.apply_chat_template(chat, chat_template=template, tokenize=False, add_generation_prompt=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=HERE)
    out = {"transformers": transformers.__version__, "templates": []}
    path = os.path.join(parser.parse_args().out, "chats.json")
    for name, (template, begin, end) in TEMPLATES.items():
        chats = [c for c in CHATS if name != "mistral" or c[0]["role"] != "system"]
        out["templates"].append({"name": name, "template": template, "begin": begin, "end": end, "chats": [
            {"messages": chat, "text": render(template, begin, end, chat)} for chat in chats]})
    with open(path, "w", encoding="utf-8") as file:
        json.dump(out, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
