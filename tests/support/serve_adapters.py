# SPDX-License-Identifier: Apache-2.0
"""Requests answers with adapters: serve_adapters.py PORT ask FILE MODEL... | swap FOLDER FOLDER | prefixes NAME

ask: sends requests for all models concurrently, and writes the log-probabilities of each to FILE.MODEL."""
import json
import os
import sys
import threading

from serve_client import Client, check

port, what = int(sys.argv[1]), sys.argv[2]
TEXTS = "/v1/completions"


def ask(model, prompt, most=8):
    status, said, _ = Client(port).ask("POST", TEXTS, dict(model=model, prompt=prompt, max_tokens=most, temperature=0,
                                                           logprobs=2))
    check(status == 200, model, "is answered with", status, said)
    check(said["model"] == model, "the answer of", model, "is called", said["model"])
    return said


def prompts():
    return [[(7 * i + k * k) % 60 for k in range(3 + 5 * i)] for i in range(6)]


def answers(model):
    return [ask(model, prompt)["choices"][0]["logprobs"] for prompt in prompts()]


def models():
    status, said, _ = Client(port).ask("GET", "/v1/models")
    check(status == 200, "models are", status, said)
    return [each["id"] for each in said["data"]]


def change(verb, status, says="", **fields):
    got, said, _ = Client(port).ask("POST", "/v1/%s_lora_adapter" % verb, fields)
    check(got == status and says in json.dumps(said), verb, fields, "is answered with", got, said)
    return json.dumps(said)


if what == "ask":
    threads, found = [], {}
    for name in sys.argv[4:]:
        threads.append(threading.Thread(target=lambda name=name: found.update({name: answers(name)})))
        threads[-1].start()
    for each in threads:
        each.join()
    for name in sys.argv[4:]:
        check(name in found, name, "has no answers")
        with open("%s.%s" % (sys.argv[3], name), "w") as out:
            json.dump(found[name], out)
elif what == "locked":
    change("load", 400, "--adapter-dir", lora_name="one", lora_path=sys.argv[3])
elif what == "swap":
    base, = models()
    first = answers(base)
    change("load", 200, lora_name="one", lora_path=sys.argv[3])
    change("load", 400, "already exists", lora_name="one", lora_path=sys.argv[3])
    change("load", 400, "the model itself", lora_name=base, lora_path=sys.argv[3])
    for path in "nowhere", "../second", os.path.abspath("second"), "away", "one/..", "/etc", ".":
        change("load", 400, path, lora_name="two", lora_path=path)
    change("load", 400, "not a regular file", lora_name="two", lora_path="pipe")
    last = change("load", 400, "not JSON", lora_name="two", lora_path="secret")
    check("hidden" not in last, "a file's content is quoted:", last)
    one = answers("one")
    change("load", 200, lora_name="two", lora_path=sys.argv[4])
    change("load", 503, "no free place", lora_name="three", lora_path=sys.argv[4])
    check(models() == [base, "one", "two"], "models are", models())
    two = answers("two")
    check(one != two and one != first and two != first, "adapters do nothing")
    check(answers("one") == one and answers(base) == first, "another adapter changes answers")
    change("unload", 200, lora_name="one")
    change("unload", 404, "one", lora_name="one")
    status, said, _ = Client(port).ask("POST", TEXTS, dict(model="one", prompt=[1], max_tokens=1))
    check(status == 404, "an adapter that is gone is answered with", status, said)
    check(answers("two") == two, "unloading changes others")
    change("load", 200, lora_name="three", lora_path=sys.argv[4])
    check(answers("three") == two, "an adapter is another in a place that had one")
else:
    base, prompt = models()[0], [k % 60 for k in range(150)]
    for model in (base, sys.argv[3]):
        for cached in (0, 128):
            usage = ask(model, prompt, 1)["usage"]
            got = usage["prompt_tokens_details"]["cached_tokens"]
            check(got == cached, got, "tokens of", model, "are cached, and not", cached)
