# SPDX-License-Identifier: Apache-2.0
"""Strangers cannot keep a server busy or waiting: grammars take bounded time, clients take turns, files that a user named
by mistake are refused, browsers led to another name get nothing, and SIGTERM ends it in time.

labels: outside
needs: libevent pcre2 utf8proc
"""
import os
import signal

from tool import ACTORSERVE, Server, actorrun, fails, read, says, script

MODEL = "--init bytes.safetensors gpt --layers 2 --width 16 --heads 2 --context 256"
actorrun("--quiet --steps 1 --save bytes.safetensors gpt --data {reference}/text.txt --layers 2 --width 16 --heads 2 "
         "--context 256")
with Server("--grace 0.5 --access-log full " + MODEL) as server:
    for arguments in (["names"], ["grammars"], ["shapes"], [server.process.pid, "grace"]):
        script("serve_strangers", server.port, *arguments)
    assert server.process.wait(60) == 0
says(read("full").decode(), '"POST /v1/completions" 403')
with Server("--sequences 4 " + MODEL) as server:
    script("serve_strangers", server.port, "turns")
    assert server.stop(signal.SIGTERM) == 0

# Files that are pipes, devices or folders are refused at once, wherever they are named.
os.mkfifo("pipe")
os.mkdir("folder")
for path in ("pipe", "/dev/zero", "folder"):
    for option in ("config", "api-key-file", "tokenizer", "arrivals", "replay"):
        fails(path, ACTORSERVE, f"--port 0 --{option} {path} {MODEL}")
