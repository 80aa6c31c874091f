# SPDX-License-Identifier: Apache-2.0
"""What strangers ask of a server: serve_strangers.py PORT names | grammars | turns | PORT PID grace"""
import http.client
import json
import os
import re
import signal
import socket
import sys
import threading
import time

port, what = int(sys.argv[1]), sys.argv[-1]


def check(good, *words):
    if not good:
        raise SystemExit("actorserve: " + " ".join(map(str, words)))


def ask(body, source="127.0.0.1", host=None, path="/v1/completions"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60, source_address=(source, 0))
    fields = {"Host": host} if host else {}
    begin = time.monotonic()
    connection.request("POST", path, json.dumps(body), fields)
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), time.monotonic() - begin


def names():
    """A page that a browser was led to by another name gets no answer."""
    for host, status in (("localhost", 200), ("LocalHost:%d" % port, 200), ("127.0.0.1:%d" % port, 200),
                         ("127.1.2.3", 200), ("[::1]:80", 200), ("chat.localhost", 200), ("evil.example", 403),
                         ("127.0.0.1.evil.example", 403), ("localhost.evil.example:80", 403), ("sluice", 200),
                         ("EVIL.EXAMPLE.:80", 403)):
        got, text, _ = ask({"prompt": [1], "max_tokens": 1}, host=host)
        check(got == status, host, "is answered with", got, text)
        check(status == 200 or "--api-key-file" in text, text)


def nested(depth):
    return {"anyOf": [{"type": "null"}, nested(depth - 1)]} if depth else {"type": "null"}


def grammars():
    """Grammars of strangers take a bounded time, and those that are too large are refused by name."""
    many = {"k%d" % i: {"type": "string"} for i in range(2049)}
    chain = {"d%d" % i: {"$ref": "#/$defs/d%d" % (i + 1)} for i in range(6000)}
    chain["d6000"] = {"type": "null"}
    asked = [
        ("at most 4096 can be read", {"guided_json": {"enum": list(range(4097))}}),
        ("at most 2048 can be read", {"guided_json": {"type": "object", "properties": many}}),
        ("at most 2048 can be read", {"guided_json": {"type": "object", "required": list(many)}}),
        ("at most 4096 can be read", {"guided_json": {"prefixItems": [{"type": "null"}] * 4097}}),
        ("only the empty text", {"guided_grammar": 'root ::= ""'}),
        ("only the empty text", {"guided_grammar": "root ::="}),
        ("only the empty text", {"guided_regex": "^(a{0})$"}),
        (None, {"guided_json": {"$ref": "#/$defs/d0", "$defs": chain}}),
        (None, {"guided_json": {"prefixItems": [{"type": "string", "maxLength": i + 1} for i in range(4000)]}}),
        (None, {"guided_json": {"enum": [{"k%d" % k: k for k in range(300)} for _ in range(600)], "type": "object"}}),
        (None, {"guided_json": {"oneOf": [{"const": i} for i in range(900)]}}),
        (None, {"guided_grammar": "root ::= " + "(" * 60 + '"a"' + "{0,20})" * 60}),
        (None, {"guided_grammar": 'root ::= (("a"{1,700}){1,700}) "b"\n'}),
        (None, {"guided_grammar": "root ::= " + '"a"? ' * 12000}),
        (None, {"guided_grammar": "root ::= " + '"" ' * 200000}),
        (None, {"guided_grammar": "root ::= r0\n" + "".join("r%d ::= r%d\n" % (i, i + 1) for i in range(4000)) +
                'r4000 ::= "a"\n'}),
        (None, {"guided_regex": "(a?){2000}(b?){2000}"}),
        (None, {"guided_regex": "[%s]{900}" % "".join(chr(256 + 2 * i) for i in range(3000))}),
        (None, {"guided_regex": "(a|aa)*" * 40 + "b{500}"}),
    ]
    for says, body in asked:
        status, text, seconds = ask({"prompt": "a", "max_tokens": 1, **body})
        check(status == (400 if says else status) and status in (200, 400, 413), list(body), "is answered with", status, text)
        check(not says or says in text, text)
        check(seconds < 8, json.dumps(body)[:80], "takes", seconds, "s")
        print("%.2f s, %d: %.60s... %.120s" % (seconds, status, json.dumps(body), text if status != 200 else ""))


TOOL = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
BODIES = {
    "/v1/completions": {"prompt": ["a"], "max_tokens": 1, "stop": ["b"], "logit_bias": {"1": 1}, "stream": True,
                        "stream_options": {"include_usage": True}, "guided_choice": ["a"], "stop_token_ids": [1]},
    "/v1/chat/completions": {
        "messages": [{"role": "system", "content": "s"},
                     {"role": "user", "name": "n", "content": [{"type": "text", "text": "t"}]},
                     {"role": "assistant", "content": None, "reasoning_content": "r", "tool_calls": [
                         {"id": "i", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                     {"role": "tool", "tool_call_id": "i", "content": "c"}],
        "max_tokens": 1, "tools": [{"type": "function", "function": TOOL}],
        "tool_choice": {"type": "function", "function": {"name": "f"}}, "documents": [{"text": "d"}],
        "chat_template_kwargs": {"a": 1}, "response_format": {"type": "json_schema", "json_schema": {
            "name": "n", "schema": {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"]}}}},
    "/v1/responses": {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]},
                  {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                  {"type": "function_call_output", "call_id": "c", "output": "o"}, {"type": "reasoning"}],
        "instructions": "i", "max_output_tokens": 1, "tools": [dict(TOOL, type="function")],
        "tool_choice": {"type": "function", "name": "f"}, "text": {"format": {
            "type": "json_schema", "name": "n", "schema": {"type": "object"}}}, "reasoning": {"effort": "low"}},
    "/tokenize": {"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function", "function": TOOL}]},
    "/v1/rerank": {"query": "q", "documents": ["d"]},
}
ODD = [{"a": [{}]}, [[{}]], [{}], [[{"type": "text", "text": "a"}]], {}, [], "", "a", 1, -1.5, 1e300, None, True, [None], [[[]]]]


def with_odd(node):
    """Yields copies of a value with one part replaced, or added."""
    for value in ODD:
        yield value
    if isinstance(node, dict):
        for key in node:
            for value in with_odd(node[key]):
                yield {**node, key: value}
        yield {**node, "a": [{}]}
    if isinstance(node, list):
        for i in range(len(node)):
            for value in with_odd(node[i]):
                yield node[:i] + [value] + node[i + 1:]


def shapes():
    """A body with any part of any shape is answered or refused."""
    count = 0
    for path, body in BODIES.items():
        for odd in with_odd(body):
            got, text, _ = ask(odd, path=path)
            count += 1
            check(got in (200, 400, 404), path, json.dumps(odd), "is answered with", got, text)
    calls = [{"type": "function_call", "name": "f", "call_id": "c", "arguments": "{}"}] * 40000
    got, text, seconds = ask({"input": calls}, path="/v1/responses")
    check(got in (400, 413) and seconds < 8, "many calls are answered with", got, text, seconds)
    print("%d bodies" % count)


def answers_begun():
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    return int(re.search(r"^sluice_first_token_seconds_count (\d+)", connection.getresponse().read().decode(), re.MULTILINE)[1])


def turns():
    """A client that comes later with little need not wait for all of one that came with much."""
    ends, before = [], answers_begun()

    def want(name, source, n):
        ask({"prompt": [1, 2], "max_tokens": 120, "n": n, "temperature": 1, "ignore_eos": True}, source=source)
        ends.append(name)

    threads = [threading.Thread(target=want, args=("many", "127.0.0.1", 100)) for _ in range(3)]
    for each in threads:
        each.start()
    while answers_begun() == before:
        time.sleep(0.002)
    threads.append(threading.Thread(target=want, args=("one", "127.0.0.2", 1)))
    threads[-1].start()
    for each in threads:
        each.join()
    check(ends[0] == "one", "the order is", ends)


def grace():
    """After SIGTERM an unfinished body does not keep the server."""
    half = socket.create_connection(("127.0.0.1", port))
    half.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    time.sleep(0.2)
    os.kill(int(sys.argv[2]), signal.SIGTERM)
    half.settimeout(20)
    begin = time.monotonic()
    try:
        while half.recv(4096):
            pass
    except ConnectionError:
        pass
    check(time.monotonic() - begin < 5, "the connection lived for", time.monotonic() - begin, "s")


globals()[what]()
