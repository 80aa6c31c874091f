# SPDX-License-Identifier: Apache-2.0
"""A server on emulated GPUs does what one on CPUs does: chats, adapters, answers that follow a schema or an expression,
calls of functions, drafts, scores of prompts, and OpenAI's client. Greedy texts are the CPU's; drafts change no bit.
SLUICE_OPENAI_PYTHON names a python3 that has the package openai.

labels: outside
needs: libevent zeromq pcre2 utf8proc
"""
import os
import re
import shutil
import subprocess
import sys

from tool import ACTORRUN, EMULATED, PLACES, Server, ends, need_emulated, write

need_emulated()
SUPPORT = PLACES["source"] + "/tests/support/"
EMULATED_SERVE = os.path.dirname(EMULATED) + "/emulated_actorserve"
os.environ["SLUICE_EMULATED_GPUS"] = "2"
SMALL = "llama --layers 2 --width 32 --heads 4 --kv-heads 2 --vocab 700 --positions 256 "
DATA = "--data {reference}/text.txt --tokenizer {reference}/tokenizers/smollm.json --context 64 --batch 4 --lr 1e-2 --warmup 0 "
ends(0, ACTORRUN, f"--quiet --steps 20 --save model/ {SMALL} {DATA}")
ends(0, ACTORRUN, f"--quiet --steps 5 --init model --lora self_attn=3 --save-adapter own {SMALL} {DATA}")
shutil.copy(PLACES["reference"] + "/tokenizers/smollm.json", "model/tokenizer.json")
write("model/tokenizer_config.json", '{{"eos_token": "<|endoftext|>", "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": '
      '"{{% for m in messages %}}{{{{ m.role }}}}: {{{{ m.content }}}}\\n{{% endfor %}}<tool_call>"}}'.format())
MESSAGES = [{"role": "user", "content": text} for text in ("Who is there?", "And the King")]
TOOL = {"type": "function", "function": {"name": "weigh", "parameters": {
    "type": "object", "properties": {"grams": {"enum": [3, 5, 7]}}, "required": ["grams"], "additionalProperties": False}}}


def said(server):
    """Returns answers of all kinds: texts, and the names and arguments of calls."""
    out = []
    for model in ("model", "own"):
        body = {"model": model, "messages": MESSAGES, "max_tokens": 20, "temperature": 0}
        out.append(server.ask("/chat/completions", **body)["choices"][0]["message"]["content"])
        chosen = server.ask("/chat/completions", **{**body, "max_tokens": 90}, tools=[TOOL], tool_choice="required")["choices"][0]["message"]
        out += [(call["function"]["name"], call["function"]["arguments"]) for call in chosen["tool_calls"]]
        text = {"model": model, "prompt": "It is", "max_tokens": 30, "temperature": 0}
        out += [c["text"] for c in server.ask("/completions", **text, n=3)["choices"]]
        out.append(server.ask("/completions", **text, guided_regex="(ab[a-f]c|xyz){3,5}")["choices"][0]["text"])
        scores = server.ask("/completions", **{**text, "max_tokens": 1}, echo=True, logprobs=2)["choices"][0]["logprobs"]
        out += [round(x, 3) for x in scores["token_logprobs"] if x is not None]
    assert re.fullmatch(r"(ab[a-f]c|xyz){3,5}", out[5]) and out[1][0] == "weigh", out
    return out


OPENAI = """
import sys, openai
client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
assert [m.id for m in client.models.list()] == ["model", "own"], list(client.models.list())
messages = [{"role": "user", "content": "Who is there?"}]
whole = client.chat.completions.create(model="own", messages=messages, max_tokens=21, temperature=0)
parts = client.chat.completions.create(model="own", messages=messages, max_tokens=21, temperature=0, stream=True)
text = "".join(p.choices[0].delta.content or "" for p in parts if p.choices)
assert text == whole.choices[0].message.content and whole.usage.completion_tokens == 21, (text, whole)
"""
PYTHON = os.environ.get("SLUICE_OPENAI_PYTHON", sys.executable)
HAS_OPENAI = not subprocess.run([PYTHON, "-c", "import openai"], capture_output=True, check=False).returncode

with Server("--adapter own=own model") as server:
    want = said(server)
assert want[:len(want) // 2] != want[len(want) // 2:], "the adapter changes nothing"
for how in ("", "--tensor 2", "--stages 2 --rows 5 --speculate ngram:tokens=3,always"):
    with Server(f"--devices cuda {how} --adapter own=own model", EMULATED_SERVE) as server:
        got = said(server)
        assert got == want, (how, [pair for pair in zip(want, got) if pair[0] != pair[1]])
        if how:
            continue
        subprocess.run([sys.executable, SUPPORT + "serve_guided.py", server.url, "more"], check=True)
        if HAS_OPENAI:
            subprocess.run([PYTHON, "-c", OPENAI, server.url], check=True)
