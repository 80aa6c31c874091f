#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the processor time per token of actorserve with and without --exact: one stream, 16 streams and a prompt.

    serve_exact.py --actorserve build/release/bin/actorserve FILE.gguf

Both servers run all the time and answer by turns, for --rounds rounds; only the one that is asked computes. Medians
count, and the ratio is the median of the rounds' ratios.
"""
import argparse
import concurrent.futures
import http.client
import json
import os
import signal
import statistics
import subprocess

PLAIN, EXACT = "without", "--exact"


def start(options, *more):
    words = [options.actorserve, "--port", "0", "--context", "1280", "--quota", "kv=600", "--prefix-caching", "off"]
    server = subprocess.Popen([*words, *more, options.file], stdout=subprocess.PIPE, text=True)
    server.port = int(server.stdout.readline().split(":")[2].split("/")[0])
    return server


def seconds(server):
    with open("/proc/%d/stat" % server.pid, encoding="utf-8") as file:
        words = file.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def ask(server, tokens, prompt, stream):
    link = http.client.HTTPConnection("127.0.0.1", server.port)
    ids = [(i * 7919 + 13 * stream + 7) % 40000 for i in range(prompt)]
    link.request("POST", "/v1/completions", json.dumps({"prompt": ids, "max_tokens": tokens, "temperature": 0}))
    return json.loads(link.getresponse().read())["usage"]["completion_tokens"]


def milliseconds(server, streams, tokens, prompt):
    """Returns the processor time per token that is answered, or per token of a prompt without an answer."""
    began = seconds(server)
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        answered = sum(pool.map(lambda stream: ask(server, tokens, prompt, stream), range(streams)))
    return (seconds(server) - began) * 1e3 / (answered if tokens > 1 else prompt)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--actorserve", default="build/release/bin/actorserve")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("file")
    options = parser.parse_args()
    servers = {PLAIN: start(options), EXACT: start(options, EXACT)}
    for server in servers.values():
        ask(server, 4, 8, 0)
    for name, load in (("one stream", (1, options.tokens, 8)), ("16 streams", (16, options.tokens // 4, 8)),
                       ("a prompt of 1,000 tokens", (1, 1, 1000))):
        rounds = [{how: milliseconds(server, *load) for how, server in servers.items()} for _ in range(options.rounds)]
        plain, exact = (statistics.median(r[how] for r in rounds) for how in (PLAIN, EXACT))
        ratio = statistics.median(r[EXACT] / r[PLAIN] for r in rounds)
        print("%s: %.2f ms a token, %.2f with --exact, ratio %.2f" % (name, plain, exact, ratio), flush=True)
    for server in servers.values():
        server.send_signal(signal.SIGINT)
        server.wait()


if __name__ == "__main__":
    main()
