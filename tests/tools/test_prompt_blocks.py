#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--prompt-blocks: prompts attend to chosen pages. Log-probabilities and answers have the same bits for a prompt alone,
beside others, after a cached prefix, after a preemption, over two stages, two tensor-parallel devices, with drafts, and
in a replay. They differ from those of attention to all pages, the recall says by how much weight, and what cannot be chosen is refused.

labels: numbers
needs: libevent
"""
import concurrent.futures
import json
import re
import subprocess
import urllib.request

from tool import ACTORRUN, BUILD, PLACES, ends, read, words

SERVE = BUILD + "/bin/actorserve"
MODEL = "llama --layers 2 --width 64 --heads 4 --kv-heads 2 --context 512"
CHUNK = "--prompt-blocks 0.3,64 --rows 160 --sequences 64"

ends(0, ACTORRUN, f"--quiet --steps 30 --lr 1e-2 --warmup 0 --save w.safetensors {MODEL} --batch 2 "
                  "--data {reference}/text.txt")
TEXT = list(read(PLACES["reference"] + "/text.txt"))


class Server:
    def __init__(self, options):
        self.process = subprocess.Popen([SERVE, *words(f"--port 0 --init w.safetensors --report report.json {options} {MODEL}")],
                                        stdout=subprocess.PIPE, text=True)
        self.url = re.search(r"http://\S+", self.process.stdout.readline()).group(0) + "/completions"

    def ask(self, prompt, **more):
        body = {"prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True, "logprobs": 0, **more}
        with urllib.request.urlopen(urllib.request.Request(self.url, json.dumps(body).encode())) as answer:
            got = json.load(answer)
        choice = got["choices"][0]
        return choice["text"], choice["logprobs"]["token_logprobs"], got["usage"]

    def all(self, prompts, **more):
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            return list(pool.map(lambda p: self.ask(p, **more)[:2], prompts))

    def end(self):
        """Returns the counts of the report."""
        self.process.terminate()
        assert self.process.wait() == 0
        with open("report.json", encoding="utf-8") as file:
            return json.load(file)


def find(of, name):
    """Returns the value of a key, at any depth."""
    if isinstance(of, dict):
        for key, value in of.items():
            found = value if key == name else find(value, name)
            if found is not None:
                return found
    return None


prompts = [TEXT[at:at + n] for at, n in ((0, 400), (300, 65), (700, 257), (0, 330), (1500, 20), (900, 192))]

alone = []
one = Server(CHUNK + " --prefix-caching off --log alone.log")
for prompt in prompts:
    alone.append(one.ask(prompt)[:2])
scored = one.ask(prompts[0], echo=True)[:2]
assert one.all(prompts) == alone, "beside others"
counts = one.end()
heads, recall = find(counts, "attention_choices"), find(counts, "attention_recall")
chunks = 2 * sum((len(p) - 1) // 64 for p in prompts) + (len(prompts[0]) - 1) // 64
assert heads == chunks * 2 * 4, (heads, chunks)
assert 0.3 < recall / 1e6 / heads < 1, recall / 1e6 / heads
print(f"recall {recall / 1e6 / heads:.3f}")

again = Server(CHUNK + " --prefix-caching off --replay alone.log")
assert [again.ask(prompt)[:2] for prompt in prompts] == alone, "in a replay"
again.process.kill()

shared = Server(CHUNK)
first = [shared.ask(prompt)[:2] for prompt in prompts]
text, logprobs, usage = shared.ask(prompts[0])
assert first == alone and (text, logprobs) == alone[0], "after a cached prefix"
assert usage["prompt_tokens_details"]["cached_tokens"] == 384, usage
text, logprobs, usage = shared.ask(prompts[0][:350])
assert usage["prompt_tokens_details"]["cached_tokens"] == 320, usage
assert shared.ask(prompts[0], echo=True)[:2] == scored, "scored beside a cached prefix"
shared.end()

for how in ("--stages 2", "--tensor 2", "--devices cpu:1x3", "--speculate ngram:tokens=3,always"):
    other = Server(f"{CHUNK} {how}")
    assert other.all(prompts) == alone, how
    assert other.ask(prompts[0], echo=True)[:2] == scored, how
    other.end()

few = Server(CHUNK + " --quota kv=10 --admit recompute")
long = few.ask(prompts[2], max_tokens=150)[:2]
assert few.all([prompts[2]] * 4, max_tokens=150) == [long] * 4, "after a preemption"
assert find(few.end(), "preemptions") > 0

every = Server("--rows 160 --sequences 64")
assert every.ask(prompts[4])[:2] == alone[4], "a prompt without a chunk attends to all"
whole = every.ask(prompts[0], echo=True)
assert whole[1][1:64] != scored[1][1:64] or whole[1][64:] != scored[1][64:], "pages are left out"
assert whole[1][1:60] == scored[1][1:60], "two pages or fewer are all chosen"
every.end()


def refused(text, options, model=MODEL):
    got = ends(2, SERVE, f"--port 0 --init w.safetensors {options} {model}").stderr
    assert text in got, got


refused("--prompt-blocks 1.5: must be a fraction between 0 and 1", "--prompt-blocks 1.5")
refused("--prompt-blocks 0.1,x: must be a fraction", "--prompt-blocks 0.1,x")
refused("a multiple of 64 positions", "--prompt-blocks 0.1,100")
refused("rows must be at least 191", "--prompt-blocks 0.1,128 --rows 128")
refused("attends to all keys", "--prompt-blocks 0.1,64 --rows 160 --exact")
refused("it keeps states, not pages", "--prompt-blocks 0.1,64 --rows 160", "hybrid --layers 2 --width 64 --heads 4 --context 512")
