#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends all prompts to actorserve concurrently, and compares its answers with those of transformers for the folder.

    serve_greedy.py PORT GREEDY.json FOLDER

Tokens must be the same up to a near tie of the two best tokens, and their log-probabilities equal within 2e-5.
Tokens are bytes.
"""
import concurrent.futures
import json
import sys

from serve_client import Client, check

CLOSE = 2e-5


def token_of(text):
    return int(text[len("bytes:\\x"):], 16) if text.startswith("bytes:") else ord(text)


def compare(client, line):
    """Returns the number of equal tokens, up to the first near tie."""
    said = client.complete(prompt=line["prompt"], max_tokens=len(line["answer"]), temperature=0, logprobs=1)
    said = said["choices"][0]["logprobs"]
    tokens = [token_of(text) for text in said["tokens"]]
    check(len(tokens) == len(line["answer"]), "an answer of", len(tokens))
    for i, (token, want) in enumerate(zip(tokens, line["answer"])):
        if token != want and line["gaps"][i] < CLOSE:
            return i
        check(token == want, "token", i, "behind", line["prompt"], "is", token, "of transformers", want)
        apart = abs(said["token_logprobs"][i] - line["logprobs"][i])
        check(apart < CLOSE, "token", i, "behind", line["prompt"], "has a logprob", apart, "away")
    return len(tokens)


def main():
    port, path, folder = sys.argv[1:]
    with open(path) as file:
        lines = [line for line in map(json.loads, file) if line["folder"] == folder]
    client = Client(int(port))
    with concurrent.futures.ThreadPoolExecutor(len(lines)) as pool:
        same = sum(pool.map(lambda line: compare(client, line), lines))
    check(same > 0.9 * sum(len(line["answer"]) for line in lines), "only", same, "tokens are the same")
    print(f"{folder}: {same} tokens are those of transformers")


if __name__ == "__main__":
    main()
