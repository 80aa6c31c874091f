#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares decoding throughput with and without --speculate, on texts that repeat themselves and on others.

    serve_drafts.py --actorserve build/release/bin/actorserve [--tokens 200] [--rounds 3] FILE.gguf
    serve_drafts.py --actorserve build/release/bin/actorserve --speculate draft:small/ --text book.txt big/

Sends each prompt to both servers in turn, alone or as --streams concurrent requests. Both must return the same answer.
The best round counts, because other load on the machine can only slow a run down. With --text, for models without a
chat template, prompts are passages of a file. "right" is the acceptance rate a: the share of checked draft tokens that
were accepted, where checking stops at the first wrong token of a draft. "tokens a round" is measured; "expected" is
the value that follows from a and the mean draft length g, (1 - a^(g+1)) / (1 - a).
"""
import argparse
import concurrent.futures
import http.client
import json
import signal
import subprocess
import time

CODE = """def area(shape):
    if shape.kind == "circle":
        return 3.14159 * shape.radius * shape.radius
    if shape.kind == "square":
        return shape.side * shape.side
    if shape.kind == "rectangle":
        return shape.width * shape.height
    raise ValueError("unknown kind of shape: " + shape.kind)
"""
PROMPTS = {
    "code, repeated": "Repeat this program exactly, without any changes.\n\n```python\n" + CODE + "```",
    "code, with a change": "Rename the function area to surface and print the whole program.\n\n```python\n" + CODE + "```",
    "JSON": "Write a JSON array of the months of the year, each an object with the members name, number and days.",
    "prose": "Tell me a story about a lighthouse keeper and a storm.",
}


class Server:
    def __init__(self, options, extra):
        self.options = options
        self.process = subprocess.Popen([options.actorserve, "--port", "0", *extra, *options.option, options.file,
                                         "--context", str(options.context)],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1].split("/")[0])

    def call(self, method, path, body=None):
        link = http.client.HTTPConnection("127.0.0.1", self.port)
        link.request(method, path, body and json.dumps(body))
        return link.getresponse()

    def ask(self, prompt, tokens, temperature):
        """Returns the answer, and the tokens per second after its first token."""
        asked = {"prompt": prompt} if self.options.text else {"messages": [{"role": "user", "content": prompt}]}
        body = {**asked, "max_tokens": tokens, "temperature": temperature,
                "seed": 5, "stream": True, "stream_options": {"include_usage": True}}
        path = "/v1/completions" if self.options.text else "/v1/chat/completions"
        answer, first, text, usage = self.call("POST", path, body), None, "", None
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            piece = json.loads(line[6:])
            usage = piece.get("usage") or usage
            choice = piece["choices"][0] if piece["choices"] else {}
            content = choice.get("text") or choice.get("delta", {}).get("content")
            if content:
                first = first or time.monotonic()
                text += content
        return text, (usage["completion_tokens"] - 1) / (time.monotonic() - first)

    def ask_all(self, prompt, options, temperature):
        """Returns the answers to --streams concurrent requests, and their total tokens per second."""
        with concurrent.futures.ThreadPoolExecutor(options.streams) as pool:
            answers = list(pool.map(lambda i: self.ask(prompt[i:], options.tokens, temperature), range(options.streams)))
        return [text for text, _ in answers], sum(speed for _, speed in answers)

    def counts(self):
        names = {"sluice_draft_rounds_total": 0, "sluice_drafted_total": 0, "sluice_drafts_accepted_total": 0,
                 "sluice_drafts_checked_total": 0}
        for line in self.call("GET", "/metrics").read().decode().splitlines():
            name, _, value = line.partition(" ")
            if name in names:
                names[name] = int(float(value))
        return list(names.values())

    def close(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def measure(options, servers, prompt, temperature):
    best, before = {}, servers["drafts"].counts()
    for _ in range(options.rounds):
        answers = {}
        for name, server in servers.items():
            answers[name], speed = server.ask_all(prompt, options, temperature)
            best[name] = max(best.get(name, 0), speed)
        if answers["plain"] != answers["drafts"]:
            raise SystemExit(f"the answers differ: {answers}")
    return best, [b - a for a, b in zip(before, servers["drafts"].counts())]


def expected(share, length):
    return 1 + length if share == 1 else (1 - share ** (length + 1)) / (1 - share)


def prompts_of(options):
    if not options.text:
        return PROMPTS
    with open(options.text) as file:
        text = file.read()
    return {f"passage {i + 1}": text[len(text) * (2 * i + 1) // 8:][:options.passage] for i in range(4)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actorserve", required=True)
    parser.add_argument("--speculate", default="ngram")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--text")
    parser.add_argument("--passage", type=int, default=100, help="characters of a passage")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--option", action="append", default=[], help="of both servers: --option=--rows=16")
    parser.add_argument("file")
    options = parser.parse_args()
    servers = {"plain": Server(options, []), "drafts": Server(options, ["--speculate", options.speculate])}
    print(f"{'':24}{'plain':>10}{'drafts':>10}{'times':>8}{'right':>8}{'tokens a round':>16}{'expected':>10}")
    for temperature in 0, 0.7:
        for name, prompt in prompts_of(options).items():
            best, (rounds, drafted, accepted, checked) = measure(options, servers, prompt, temperature)
            share = accepted / max(checked, 1)
            label = name if not temperature else f"{name}, {temperature}"
            print(f"{label:24}{best['plain']:10.1f}{best['drafts']:10.1f}{best['drafts'] / best['plain']:8.2f}"
                  f"{share:8.0%}{1 + accepted / max(rounds, 1):16.2f}"
                  f"{expected(share, drafted / max(rounds, 1)):10.2f}", flush=True)
    for server in servers.values():
        server.close()


if __name__ == "__main__":
    main()
