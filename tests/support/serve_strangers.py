# SPDX-License-Identifier: Apache-2.0
"""What strangers ask of a server: serve_strangers.py PORT names | grammars | turns | PORT PID grace"""
import http.client
import json
import os
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


def turns():
    """A client that comes later with little need not wait for all of one that came with much."""
    ends = []

    def want(name, source, n):
        ask({"prompt": [1, 2], "max_tokens": 120, "n": n, "temperature": 1, "ignore_eos": True}, source=source)
        ends.append(name)

    threads = [threading.Thread(target=want, args=("many", "127.0.0.1", 100)) for _ in range(3)]
    for each in threads:
        each.start()
    time.sleep(0.3)
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
