# SPDX-License-Identifier: Apache-2.0
"""Compares the scores of a prompt with actorrun --logprobs: serve_scores.py PORT "TOKENS" exact|near."""
import json
import sys
import urllib.error
import urllib.request

port, tokens, exact = int(sys.argv[1]), [int(t) for t in sys.argv[2].split()], sys.argv[3] == "exact"


def ask(**body):
    request = urllib.request.Request("http://127.0.0.1:%d/v1/completions" % port, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    return urllib.request.urlopen(request)


def score(prompt, **more):
    return json.load(ask(prompt=prompt, echo=True, temperature=0, **more))


def row(name):
    return json.loads(open(name).readline())["logprobs"]


def check(choice, want, answers):
    found = choice["logprobs"]
    count = len(want) + 1
    assert found["token_logprobs"][0] is None and found["top_logprobs"][0] is None, found
    got = found["token_logprobs"][1:count]
    assert got == want if exact else all(abs(a - b) < 1e-4 for a, b in zip(got, want)), (got, want)
    assert {len(found[k]) for k in ("tokens", "token_logprobs", "top_logprobs", "text_offset")} == {count + answers}
    for name, value, top in zip(found["tokens"][1:], found["token_logprobs"][1:], found["top_logprobs"][1:]):
        assert top[name] == value and max(top.values()) >= value, (name, value, top)
    for i, at in enumerate(found["text_offset"][:-1]):
        if any(name.startswith("bytes:") for name in found["tokens"][max(i - 1, 0):i + 2]):
            continue  # parts of characters
        assert choice["text"][at:found["text_offset"][i + 1]] == found["tokens"][i], (i, choice)


whole, two = row("whole.jsonl"), row("two.jsonl")
for answers in 0, 1, 3:
    got = score(tokens, logprobs=3, max_tokens=answers)
    check(got["choices"][0], whole, answers)
    assert got["usage"]["completion_tokens"] == answers and got["usage"]["prompt_tokens"] == len(tokens), got["usage"]
    assert got["choices"][0]["finish_reason"] == "length", got
several = score([tokens, tokens[:2], tokens], logprobs=1, max_tokens=1)["choices"]
for choice, want in zip(several, (whole, two, whole)):
    check(choice, want, 1)
one = score(tokens[:1], logprobs=0, max_tokens=0)["choices"][0]["logprobs"]
assert one["token_logprobs"] == [None] and len(one["tokens"]) == 1, one

# The answer is the same with and without scores, and in a stream.
plain = json.load(ask(prompt=tokens, max_tokens=8, seed=3, logprobs=1))["choices"][0]
scored = json.load(ask(prompt=tokens, max_tokens=8, seed=3, logprobs=1, echo=True))["choices"][0]
assert scored["text"].endswith(plain["text"]), (plain, scored)
assert scored["logprobs"]["token_logprobs"][len(tokens):] == plain["logprobs"]["token_logprobs"]
events = [line[6:] for line in ask(prompt=tokens, max_tokens=8, seed=3, logprobs=1, echo=True, stream=True).read().decode().split("\n")
          if line.startswith("data: {")]
pieces = [json.loads(e)["choices"][0] for e in events]
assert "".join(p["text"] for p in pieces) == scored["text"]
for field in scored["logprobs"]:
    joined = [x for p in pieces if p["logprobs"] for x in p["logprobs"][field]]
    assert joined == scored["logprobs"][field], (field, joined, scored["logprobs"][field])

# Characters of several bytes: offsets count characters.
text = json.load(ask(prompt="Größe: 日本", max_tokens=0, logprobs=0, echo=True))["choices"][0]
assert text["text"] == "Größe: 日本" and text["logprobs"]["text_offset"][-1] < len(text["text"]), text

for body, why in (({"prompt": "a", "max_tokens": 0}, "max_tokens"), ({"prompt": "a", "max_tokens": -1, "echo": True}, "max_tokens"),
                  ({"prompt": "a", "echo": True, "logprobs": 1, "guided_regex": "a"}, "guided_regex")):
    try:
        ask(**body)
    except urllib.error.HTTPError as error:
        assert error.code == 400 and why in error.read().decode(), (body, error.code)
    else:
        raise SystemExit("%s is not refused" % body)
