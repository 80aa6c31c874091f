# SPDX-License-Identifier: Apache-2.0
"""With a tool_choice the answer is a tool call whose arguments match the tool's schema, in every known format, whole and
streamed. Impossible choices are rejected.

labels: outside
needs: libevent zeromq pcre2 utf8proc
"""
import shutil

from tool import PLACES, Server, actorrun, script, write

actorrun("--quiet --steps 5 --tokenizer {reference}/tokenizers/smollm.json --save model/ llama --data {reference}/text.txt "
         "--layers 2 --width 16 --heads 2 --context 512 --vocab 700 --lr 1e-2 --warmup 0")
shutil.copy(PLACES["reference"] + "/tokenizers/smollm.json", "model/tokenizer.json")
write("template", "{{ messages[-1].content }}")
for form in ("hermes", "qwen3-coder", "llama3", "mistral", "gpt-oss", "none"):
    with Server(f"--tool-parser {form} --chat-template template model") as server:
        script("serve_choice", server.port, form)
