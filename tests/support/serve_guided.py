# SPDX-License-Identifier: Apache-2.0
"""Requests answers that follow a schema or an expression: serve_guided.py URL [more | answers FILE]"""
import json
import re
import sys
import urllib.error
import urllib.request

URL = sys.argv[1]
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["red", "blue"]}, "minItems": 1, "maxItems": 2},
        "of": {"anyOf": [{"type": "null"}, {"const": "x"}]},
    },
    "required": ["name", "age", "tags", "of"],
    "additionalProperties": False,
}


def ask(path, **body):
    request = urllib.request.Request(URL + path, json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request) as answer:
            text = answer.read().decode()
    except urllib.error.HTTPError as error:
        return json.loads(error.read())
    if not body.get("stream"):
        return json.loads(text)
    events = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]
    pieces = "".join(c["text"] for e in events for c in e["choices"])
    return {"choices": [{"text": pieces, "finish_reason": events[-1]["choices"][0]["finish_reason"]}]}


def complete(**body):
    return ask("/completions", **{"prompt": "It is", "max_tokens": 150, **body})["choices"]


def check_person(text):
    x = json.loads(text)
    assert list(x) == list(PERSON["properties"]), text
    assert len(x["name"]) <= 8 and 0 <= x["age"] <= 120 and type(x["age"]) is int, text
    assert 1 <= len(x["tags"]) <= 2 and set(x["tags"]) <= {"red", "blue"} and x["of"] in (None, "x"), text


def format_of(schema):
    return {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema}}


def check_answers():
    for seed in range(6):
        for stream in (False, True):
            c = complete(response_format=format_of(PERSON), seed=seed, stream=stream)[0]
            assert c["finish_reason"] == "stop", c
            check_person(c["text"])
    for c in complete(guided_json=PERSON, n=3, temperature=1.5, top_p=0.9, top_k=40):
        check_person(c["text"])
    for c in complete(guided_grammar='root ::= item ("," item)*\nitem ::= [0-9]{1,3} | "(" root? ")"\n', n=3, max_tokens=40):
        assert re.fullmatch(r"[0-9,()]*", c["text"]) and ",," not in c["text"], c
    for c in complete(guided_choice=["yes", "no", "maybe so"], n=4, seed=1, logprobs=2):
        assert c["text"] in ("yes", "no", "maybe so") and c["finish_reason"] == "stop", c
        assert all(p <= 0 for p in c["logprobs"]["token_logprobs"]), c
    for c in complete(guided_regex=r"\d{3}-[a-fä]{2,4}\.", n=4):
        assert re.fullmatch(r"\d{3}-[a-fä]{2,4}\.", c["text"]), c
    c = complete(response_format=format_of(PERSON), max_tokens=5)[0]  # too short to be complete
    assert c["finish_reason"] == "length" and c["text"].startswith("{"), c
    c = complete(guided_regex="a{200}", max_tokens=12, temperature=0)[0]
    assert c["text"] == "a" * len(c["text"]) and c["finish_reason"] == "length", c
    assert complete(response_format={"type": "text"}, max_tokens=2)[0]["finish_reason"] == "length"
    c = complete(guided_regex="[ab]{40}", stop="b", max_tokens=99)[0]
    assert set(c["text"]) <= {"a"} and c["finish_reason"] == "stop", c


def check_refusals():
    for field, value, what in (
            ("response_format", format_of({"type": "object", "properties": {"a": {"not": {}}}}),
             "schema: properties.a.not: this keyword is not supported"),
            ("response_format", format_of({"type": "objekt"}), "schema: type: must be a type of JSON"),
            ("response_format", format_of({"$ref": "#/$defs/a"}), '"#/$defs/a" is not a schema'),
            ("response_format", format_of({"enum": []}), "no text matches"),
            ("response_format", {"type": "xml"}, "response_format.type must be"),
            ("response_format", {"type": "json_schema"}, "json_schema must be an object"),
            ("guided_regex", "a(?=b)", "lookahead is not supported"),
            ("guided_regex", "((a{99}){99}){99}", "too large"),
            ("guided_choice", [], "guided_choice must be an array of texts"),
            ("guided_json", "text", "guided_json must be a schema"),
            ("guided_json", {"maxLength": 10**7}, "maxLength: 10000000 is more than")):
        e = ask("/completions", prompt="a", **{field: value})["error"]
        assert e["type"] == "invalid_request_error" and e["param"] == field and what in e["message"], (what, e)
    e = ask("/completions", prompt="a", guided_regex="a", guided_choice=["b"])["error"]
    assert "can be guided by one of them" in e["message"], e


def answers():
    return [c["text"] for seed in (1, 2) for c in complete(response_format=format_of(PERSON), seed=seed, n=2)]


if sys.argv[2:3] == ["answers"]:
    json.dump(answers(), open(sys.argv[3], "w"))
else:
    check_answers()
    check_refusals()
