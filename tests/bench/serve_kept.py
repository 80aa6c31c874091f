#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the time to first token of a long chat that continues after another chat has taken its pages.

    serve_kept.py --actorserve build/release/bin/actorserve [--tokens 1500] [--rounds 3] FILE.gguf

The KV cache has room for one chat, and two chats take turns. Evicted pages are dropped, kept in host memory, or kept
on disk (--disk DIR). The answers must be the same. The best round counts, because other load on the machine can only
slow a run down.
"""
import argparse
import http.client
import json
import signal
import subprocess
import time


def ask(port, chat, tokens):
    """Returns the time to first token in seconds, and the answer."""
    prompt = [(i * 7919 + 13 * chat) % 40000 for i in range(tokens)]
    body = {"prompt": prompt, "max_tokens": 8, "temperature": 0, "stream": True}
    begin = time.monotonic()
    link = http.client.HTTPConnection("127.0.0.1", port)
    link.request("POST", "/v1/completions", json.dumps(body))
    answer = link.getresponse()
    first = answer.readline()
    seconds = time.monotonic() - begin
    lines = (first + answer.read()).decode().splitlines()
    pieces = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return seconds, "".join(c["text"] for p in pieces for c in p["choices"])


def one_round(options, place):
    pages = options.tokens // 64 + 3
    server = subprocess.Popen([options.actorserve, "--port", "0", "--prefix-caching", place, "--disk", options.disk,
                               "--context", str(options.tokens + 64), "--sequences", "1", "--quota", f"kv={pages}",
                               options.file], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    port = int(server.stdout.readline().rsplit(":", 1)[1].split("/")[0])
    first = [ask(port, chat, options.tokens) for chat in (1, 2)]
    again = [ask(port, chat, options.tokens) for chat in (1, 2)]
    server.send_signal(signal.SIGINT)
    server.wait()
    if [text for _, text in first] != [text for _, text in again]:
        raise SystemExit(f"the answers differ: {first} {again}")
    return min(seconds for seconds, _ in first), min(seconds for seconds, _ in again)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actorserve", required=True)
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--disk", default="/var/tmp")
    parser.add_argument("file")
    options = parser.parse_args()
    found = {"on": [], "host:4G": [], "disk:4G": []}
    for _ in range(options.rounds):
        for place, rounds in found.items():
            rounds.append(one_round(options, place))
    for place, rounds in found.items():
        first, again = (min(r[i] for r in rounds) for i in range(2))
        print(f"{place:10} first {first:.3f} s, when it comes back {again:.3f} s")


if __name__ == "__main__":
    main()
