# SPDX-License-Identifier: Apache-2.0
"""Decoders exported from PyTorch are served: several clients at once get PyTorch's greedy tokens, and its
log-probabilities to 1e-5, in small ticks, from shared prefixes, on two stages and on two tensor parts. A tokenizer.json
beside the file is used. What cannot be served is refused with the call and its line.

labels: outside
needs: libzip libevent pcre2 utf8proc
"""
import json
import os
import re
import shutil
import subprocess
import tarfile
import threading
import zipfile

from serve_client import Client
from tool import BUILD, PLACES, ends, write

ACTORSERVE = BUILD + "/bin/actorserve"
WAYS = ["", "--rows 3 --sequences 2", "--stages 2", "--tensor 2", "--quota kv=2", "--speculate ngram:tokens=3,always"]
with tarfile.open(PLACES["reference"] + "/pytorch/served.tar.gz") as tar:
    tar.extractall()
with open("served/answers.json", encoding="utf-8") as file:
    cases = json.load(file)


class Server:
    """A server of a file, while the block runs."""

    def __init__(self, options):
        self.command = [ACTORSERVE, "--port", "0", *options.split()]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        assert line, f"{self.command} does not start"
        return Client(int(re.search(r":(\d+)/", line)[1]))

    def __exit__(self, *error):
        self.process.terminate()
        assert self.process.wait() == 0


def ask(client, want, out, i):
    said = client.complete(prompt=want["prompt"], max_tokens=len(want["tokens"]), temperature=0, logprobs=1)
    out[i] = said["choices"][0]["logprobs"]


def compare(name, answers, way):
    with Server(f"{way} served/{name}.pt2") as client:
        got = [None] * len(answers)
        threads = [threading.Thread(target=ask, args=(client, want, got, i)) for i, want in enumerate(answers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for want, have in zip(answers, got):
        assert have, f"{name} {way}: no answer"
        # a model of up to 256 tokens reads bytes
        assert [ord(t) for t in have["tokens"]] == want["tokens"], (name, way, have["tokens"], want["tokens"])
        far = max(abs(a - b) for a, b in zip(have["token_logprobs"], want["logprobs"]))
        assert far <= 1e-5, f"{name} {way}: log-probabilities differ by {far}"


for i, (name, of) in enumerate(cases.items()):
    if "answers" in of:
        compare(name, of["answers"], WAYS[i % len(WAYS)])
    else:
        err = ends(2, ACTORSERVE, f"--port 0 served/{name}.pt2").stderr
        pattern = r"\d+".join(map(re.escape, of["refused"]))
        assert re.search(pattern, err) and f"{name}.pt2 cannot be served: " in err, (name, of["refused"], err)

# A tokenizer beside the file turns text into tokens.
os.mkdir("beside")
shutil.copy("served/pairs.pt2", "beside/model.pt2")
letters = {chr(32 + i): i for i in range(61)}
write("beside/tokenizer.json", json.dumps({
    "version": "1.0", "model": {"type": "BPE", "vocab": letters, "merges": [], "unk_token": None}, "added_tokens": [],
    "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": {"type": "Fuse"}}))
want = cases["pairs"]["answers"][1]
with Server("beside/model.pt2") as client:
    said = client.complete(prompt="".join(chr(32 + t) for t in want["prompt"]), max_tokens=6, temperature=0)
assert [ord(c) - 32 for c in said["choices"][0]["text"]] == want["tokens"], said

# Files that are wrong are refused, and so is a model without weights.
with open("served/pairs.pt2", "rb") as file:
    data = file.read()
with zipfile.ZipFile("served/pairs.pt2") as archive:
    weight = next(i for i in archive.infolist() if i.filename.endswith("weights/weight_1"))
at = weight.header_offset + 200
for name, wrong in (("cut", data[:len(data) // 2]), ("damaged", data[:at] + bytes([data[at] ^ 64]) + data[at + 1:])):
    with open(name + ".pt2", "wb") as file:
        file.write(wrong)
    err = ends(2, ACTORSERVE, f"--port 0 {name}.pt2").stderr
    assert name + ".pt2: " in err, err
err = ends(2, ACTORSERVE, "--port 0 gpt").stderr
assert "needs weights" in err, err
