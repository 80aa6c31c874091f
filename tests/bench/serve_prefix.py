#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the time to first token of chats that share a long system prompt, with prefix caching on and off.

    serve_prefix.py --actorserve build/release/bin/actorserve [--chats 16] [--system 1000] FILE.gguf

One chat starts alone; when it has its first token, all other chats start concurrently. The two settings
alternate for --rounds rounds, each with its own server. The best round counts, because other load on the
machine can only slow a run down.
"""
import argparse
import http.client
import json
import signal
import subprocess
import threading
import time


def first_token(port, chat, system, out):
    prompt = [(i * 7919 + 13) % 40000 for i in range(system)] + [(chat * 131 + i) % 40000 for i in range(20)]
    begin = time.monotonic()
    link = http.client.HTTPConnection("127.0.0.1", port)
    body = {"prompt": prompt, "max_tokens": 16, "temperature": 0, "stream": True}
    link.request("POST", "/v1/completions", json.dumps(body))
    answer = link.getresponse()
    answer.readline()
    out.append(time.monotonic() - begin)
    answer.read()


def one_round(options, switch):
    server = subprocess.Popen([options.actorserve, "--port", "0", "--prefix-caching", switch, "--context", "2048", "--quota", "kv=320",
                               options.file], stdout=subprocess.PIPE, text=True)
    port = int(server.stdout.readline().rsplit(":", 1)[1].split("/")[0])
    alone, others = [], []
    first_token(port, 0, options.system, alone)
    threads = [threading.Thread(target=first_token, args=(port, chat, options.system, others))
               for chat in range(1, options.chats)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.send_signal(signal.SIGINT)
    server.wait()
    others.sort()
    return alone[0], others[len(others) // 2], others[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actorserve", required=True)
    parser.add_argument("--chats", type=int, default=16)
    parser.add_argument("--system", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("file")
    options = parser.parse_args()
    found = {"on": [], "off": []}
    for _ in range(options.rounds):
        for switch, rounds in found.items():
            rounds.append(one_round(options, switch))
    for switch, rounds in found.items():
        print("%-3s  the first chat %.2f s; the others' median %.2f s, last %.2f s" % ((switch,) + min(rounds, key=sum)))


if __name__ == "__main__":
    main()
