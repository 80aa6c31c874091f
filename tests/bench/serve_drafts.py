#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens a second of answers with and without --speculate, on texts that repeat themselves and on others.

    serve_drafts.py --actorserve build/release/bin/actorserve [--tokens 200] [--rounds 3] FILE.gguf

Each prompt is asked of both servers by turns, alone. The answers must be the same. The best round of each
counts, because other load on the machine only slows a run down.
"""
import argparse
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
        self.process = subprocess.Popen([options.actorserve, "--port", "0", "--context", "2048", *extra, options.file],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1].split("/")[0])

    def call(self, method, path, body=None):
        link = http.client.HTTPConnection("127.0.0.1", self.port)
        link.request(method, path, body and json.dumps(body))
        return link.getresponse()

    def ask(self, prompt, tokens, temperature):
        """Returns the answer, and its tokens a second behind the first one."""
        body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "temperature": temperature,
                "seed": 5, "stream": True, "stream_options": {"include_usage": True}}
        answer, first, text, usage = self.call("POST", "/v1/chat/completions", body), None, "", None
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            piece = json.loads(line[6:])
            usage = piece.get("usage") or usage
            content = piece["choices"][0]["delta"].get("content") if piece["choices"] else None
            if content:
                first = first or time.monotonic()
                text += content
        return text, (usage["completion_tokens"] - 1) / (time.monotonic() - first)

    def counts(self):
        names = {"sluice_draft_rounds_total": 0, "sluice_drafted_total": 0, "sluice_drafts_accepted_total": 0}
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
            answers[name], speed = server.ask(prompt, options.tokens, temperature)
            best[name] = max(best.get(name, 0), speed)
        if len(set(answers.values())) > 1:
            raise SystemExit(f"the answers differ: {answers}")
    rounds, drafted, accepted = (b - a for a, b in zip(before, servers["drafts"].counts()))
    return best, rounds, drafted, accepted


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actorserve", required=True)
    parser.add_argument("--speculate", default="ngram")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("file")
    options = parser.parse_args()
    servers = {"plain": Server(options, []), "drafts": Server(options, ["--speculate", options.speculate])}
    print(f"{'':24}{'plain':>10}{'drafts':>10}{'times':>8}{'right':>8}{'tokens a round':>16}")
    for temperature in 0, 0.7:
        for name, prompt in PROMPTS.items():
            best, rounds, drafted, accepted = measure(options, servers, prompt, temperature)
            label = name if not temperature else f"{name}, {temperature}"
            print(f"{label:24}{best['plain']:10.1f}{best['drafts']:10.1f}{best['drafts'] / best['plain']:8.2f}"
                  f"{accepted / max(drafted, 1):8.0%}{1 + accepted / max(rounds, 1):16.2f}", flush=True)
    for server in servers.values():
        server.close()


if __name__ == "__main__":
    main()
