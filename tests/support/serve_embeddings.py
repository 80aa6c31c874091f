# SPDX-License-Identifier: Apache-2.0
"""Requests embeddings and compares them: serve_embeddings.py PORT REFERENCE FOLDER mean|last|none"""
import base64
import json
import math
import struct
import sys

from serve_client import Client, check

client, pooling = Client(int(sys.argv[1])), sys.argv[4]
with open(sys.argv[2]) as file:
    wanted = json.load(file)[sys.argv[3]]
prompts = [each["prompt"] for each in wanted]


def ask(path, status=200, **fields):
    got, said, _ = client.ask("POST", path, fields)
    check(got == status, path, fields, "is answered with", got, said)
    return said


def embed(**fields):
    said = ask("/v1/embeddings", **fields)
    check([each["index"] for each in said["data"]] == list(range(len(said["data"]))), "indices are wrong", said)
    return [each["embedding"] for each in said["data"]], said["usage"]


if pooling == "none":
    said = ask("/v1/embeddings", 400, input=[1, 2])
    check("--pooling" in said["error"]["message"], "it says", said)
    sys.exit()
vectors, usage = embed(input=prompts)
check(usage == {"prompt_tokens": sum(map(len, prompts)), "total_tokens": sum(map(len, prompts))}, "usage is", usage)
for vector, want in zip(vectors, wanted):
    far = max(abs(a - b) for a, b in zip(vector, want[pooling]))
    check(len(vector) == len(want[pooling]) and far < 2e-6, want["prompt"], "is off by", far)
for i, prompt in enumerate(prompts):
    check(embed(input=prompt)[0] == [vectors[i]], "alone, an embedding has other bits")
packed = [list(struct.unpack("<%df" % len(vectors[0]), base64.b64decode(x)))
          for x in embed(input=prompts, encoding_format="base64")[0]]
check(packed == [[struct.unpack("<f", struct.pack("<f", v))[0] for v in x] for x in vectors], "base64 is other numbers")
short = embed(input=prompts[2], dimensions=8)[0][0]
length = math.sqrt(sum(v * v for v in vectors[2][:8]))
check(max(abs(a - b / length) for a, b in zip(short, vectors[2])) < 1e-6 and len(short) == 8, "dimensions", short)
for fields, says in ((dict(input=prompts[0], dimensions=4096), "dimensions"), (dict(input=[]), "input"),
                     (dict(input=prompts[0], encoding_format="x"), "encoding_format"), ({}, "input is missing")):
    said = ask("/v1/embeddings", 400, **fields)
    check(says in said["error"]["message"], fields, "is answered with", said)
# Generation works beside embeddings.
body = dict(prompt=prompts[0], max_tokens=6, temperature=0, logprobs=1)
check(ask("/v1/completions", **body)["choices"][0]["logprobs"]["tokens"], "no answer")
