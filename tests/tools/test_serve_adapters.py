# SPDX-License-Identifier: Apache-2.0
"""Requests name adapters as models. Each adapter answers with the same bits alone and among others, over stages and
devices. Adapters are loaded and unloaded while the server runs. Only requests with the same adapter share prefixes.

labels: outside
needs: libevent zeromq
"""
import os
import shutil

from tool import ACTORSERVE, PLACES, Server, actorrun, fails, read, script, write

MODEL = "llama --layers 2 --width 32 --heads 4 --kv-heads 2 --ffn 88 --context 256"
INIT, ONE = "--init {reference}/hf_llama/model.safetensors ", "--adapter one={reference}/lora_llama "
TWO = "--adapter two=second "
actorrun(f"--quiet --steps 6 --lora self_attn=4 --lora down_proj=2,alpha=8 --save-adapter second {INIT} {MODEL} --batch 4 "
         "--lr 3e-2 --data {reference}/tokens.u16")


def served(options, *asked):
    with Server(f"{INIT} {options} {MODEL}") as server:
        for arguments in asked:
            script("serve_adapters", server.port, *arguments.split())


served("", "ask alone model")
served(ONE, "ask alone one")
served(TWO + "--rows 5", "ask alone two")
assert read("alone.model") != read("alone.one"), "an adapter does nothing"
for way in ("", "--stages 2 --rows 7", "--tensor 2", "-n 2 --stages 2"):
    served(f"{way} {ONE} {TWO}", "ask all two model one", *(() if way else ("prefixes one",)))
    for name in ("model", "one", "two"):
        assert read("alone." + name) == read("all." + name), f"{way}: {name} answers otherwise"
for name in ("pipe", "secret"):
    os.makedirs("adapters/" + name)
shutil.copytree(PLACES["reference"] + "/lora_llama", "adapters/one")
shutil.copytree("second", "adapters/second")
os.symlink(os.path.abspath("second"), "adapters/away")
os.mkfifo("adapters/pipe/adapter_config.json")
write("adapters/secret/adapter_config.json", "root:hidden:1\n")
served("--adapter-places 2 --adapter-dir adapters", "swap one second")
served("--adapter-places 2", "locked second")
for text, options in (("the name two is given twice", TWO + TWO), ("nowhere", "--adapter two=nowhere")):
    fails(text, ACTORSERVE, f"--port 0 {INIT} {options} {MODEL}")
