#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the log-probabilities of actorserve's answers with those of training for the same tokens.

    serve_exact.py ask PORT SEED ROWS CONTEXT ANSWERS.json TOKENS.u16
    serve_exact.py compare ANSWERS.json LOGPROBS.jsonl

`ask` sends random prompts concurrently, and writes the answers and a row of tokens for each. `compare` exits with 1
unless `actorrun --logprobs` gives the same numbers, which leave out learned tokens in front of a row. Tokens are ASCII
bytes.
"""
import concurrent.futures
import json
import random
import struct
import sys

from serve_client import Client

VOCABULARY = 128


def f32(x):
    return struct.pack("<f", x)


def ask_one(client, draw, context):
    prompt = [draw.randrange(VOCABULARY) for _ in range(draw.randrange(1, context // 2))]
    said = client.complete(prompt=prompt, max_tokens=draw.randrange(1, context // 2), logprobs=draw.randrange(3),
                           temperature=draw.choice([0, 1, 1.5]), seed=draw.randrange(1000))["choices"][0]["logprobs"]
    return {"prompt": prompt, "answer": [ord(t) for t in said["tokens"]], "logprobs": said["token_logprobs"]}


def ask(port, seed, rows, context, answers, tokens):
    client = Client(int(port))
    with concurrent.futures.ThreadPoolExecutor(int(rows)) as pool:
        draws = [random.Random(int(seed) * 1000 + i) for i in range(int(rows))]
        all_said = list(pool.map(lambda draw: ask_one(client, draw, int(context)), draws))
    with open(answers, "w") as file:
        json.dump(all_said, file)
    with open(tokens, "wb") as file:
        for said in all_said:
            row = said["prompt"] + said["answer"]
            file.write(struct.pack("<%dH" % int(context), *(row + [0] * (int(context) - len(row)))))
        file.write(struct.pack("<H", 0))


def compare(answers, logprobs):
    with open(answers) as file:
        told = json.load(file)
    with open(logprobs) as file:
        trained = {x["row"]: x["logprobs"] for x in map(json.loads, file) if x["step"] == 1}
    compared = differ = 0
    for row, said in enumerate(told):
        for i, logprob in enumerate(said["logprobs"]):
            compared += 1
            differ += f32(logprob) != f32(trained[row][len(said["prompt"]) + i - 1])
    print("%d of %d log-probabilities differ" % (differ, compared))
    sys.exit(differ > 0 or compared < 50)


if __name__ == "__main__":
    {"ask": ask, "compare": compare}[sys.argv[1]](*sys.argv[2:])
