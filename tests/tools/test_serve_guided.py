# SPDX-License-Identifier: Apache-2.0
"""actorserve's answers follow schemas and regular expressions, whole and streamed, with a tokenizer and with byte tokens.
Unsupported schemas are rejected with an error that names the keyword. Answers are the same on several stages, devices and
processes.

labels: outside
needs: libevent zeromq pcre2 utf8proc
"""
import shutil

from tool import PLACES, Server, actorrun, read, script

SMALL = "--layers 2 --width 16 --heads 2 --context 256"
TEXT = "--data {reference}/text.txt"
actorrun(f"--quiet --steps 5 --tokenizer {{reference}}/tokenizers/smollm.json --save model/ llama {TEXT} {SMALL} --vocab 700 "
         "--lr 1e-2 --warmup 0")
shutil.copy(PLACES["reference"] + "/tokenizers/smollm.json", "model/tokenizer.json")
actorrun(f"--quiet --steps 5 --save bytes.safetensors gpt {TEXT} {SMALL} --lr 1e-2")
with Server("model") as server:
    script("serve_guided", server.url)
    script("serve_guided", server.url, "answers", "one")
with Server(f"gpt --init bytes.safetensors {SMALL}") as server:
    script("serve_guided", server.url)
for way in ("--stages 2 --groups 3", "--tensor 2", "-n 2 --stages 2 --rows 9"):
    with Server(way + " model") as server:
        script("serve_guided", server.url, "answers", "other")
    assert read("one") == read("other"), f"{way}: answers differ"
