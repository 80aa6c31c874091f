# SPDX-License-Identifier: Apache-2.0
"""Writes penalties.json: the likeliest token after penalties and biases, by the formulas of OpenAI's API
reference and vLLM's documentation. python3 tests/reference/make_penalties.py >tests/reference/penalties.json"""
import json
import random

VOCABULARY, CASES = 24, 160
random.seed(20)


def edited(logits, case):
    """Adds biases, then applies the repetition penalty, then the frequency and presence penalties."""
    out = [x + case["bias"].get(str(v), 0) for v, x in enumerate(logits)]
    if len(case["answer"]) < case["min_tokens"]:
        for v in case["stop"]:
            out[v] = float("-inf")
    for v in set(case["prompt"]) | set(case["answer"]):
        out[v] = out[v] / case["repetition"] if out[v] > 0 else out[v] * case["repetition"]
    for v in set(case["answer"]):
        out[v] -= case["frequency"] * case["answer"].count(v) + case["presence"]
    return out


def some(most, count=None):
    return [random.randrange(VOCABULARY) for _ in range(random.randrange(most) if count is None else count)]


def draw():
    rarely = lambda value, usual: value if random.random() < 0.5 else usual
    return {"logits": [round(random.gauss(0, 1.5), 3) for _ in range(VOCABULARY)],
            "prompt": some(20) or [0], "answer": some(30), "stop": sorted(set(some(4))),
            "min_tokens": rarely(random.randrange(30), 0),
            "repetition": rarely(random.choice([0.5, 1.2, 1.5, 2]), 1),
            "presence": rarely(random.choice([-2, -0.5, 0.7, 2]), 0),
            "frequency": rarely(random.choice([-1, 0.1, 0.4, 2]), 0),
            "bias": {str(v): random.choice([-100, -1.5, 2, 5]) for v in some(4)} if random.random() < 0.5 else {}}


cases = []
while len(cases) < CASES:
    case = draw()
    after = edited(case["logits"], case)
    first, second = sorted(after, reverse=True)[:2]
    changes = max(range(VOCABULARY), key=case["logits"].__getitem__) != after.index(first)
    if first - second > 1e-3 and (changes or random.random() < 0.2):
        cases.append(dict(case, token=after.index(first)))
print(json.dumps({"vocabulary": VOCABULARY, "cases": cases}))
