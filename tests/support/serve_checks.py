# SPDX-License-Identifier: Apache-2.0
"""Checks actorserve's HTTP server with a dummy model that echoes its prompt:

    serve_checks.py PORT PID
"""
import concurrent.futures
import json
import os
import signal
import socket
import sys
import time

from serve_client import HOST, Client, check, status_of, text_of

client = Client(int(sys.argv[1]), "secret")
SANITIZED = any(name in os.environ for name in ("ASAN_OPTIONS", "TSAN_OPTIONS")) and "SLUICE_LONG" not in os.environ
MANY = 300 if SANITIZED else 2000  # sequential requests
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\n"


def again(prompt, count):
    raw = prompt.encode()
    return (raw * (count // len(raw) + 1))[:count].decode()


def answers():
    said = client.complete(prompt="abc", max_tokens=7, model="made-up")
    check(said["choices"][0] == {"index": 0, "text": "abcabca", "logprobs": None, "finish_reason": "length"}, said)
    check(said["usage"] == {"prompt_tokens": 3, "completion_tokens": 7, "total_tokens": 10,
                            "prompt_tokens_details": {"cached_tokens": 0}}, said)
    said = client.complete(prompt=["ab", [99, 100]], n=2, max_tokens=4)
    check([c["text"] for c in said["choices"]] == ["abab", "abab", "cdcd", "cdcd"], said)
    check([c["index"] for c in said["choices"]] == [0, 1, 2, 3], said)
    check(client.complete(prompt="x")["choices"][0]["text"] == "x" * 16, "16 tokens, if nothing is said")
    check(client.complete(prompt="x" * 8183)["choices"][0]["text"] == "x" * 9, "or as many as fit")


def streams():
    prompt = "a\u00e4\u20ac\U0001f600"
    for count in (1, 3, 6, 23):
        events = list(client.stream(prompt=prompt, max_tokens=count, stream_options={"include_usage": True}))
        check(text_of(events) == again(prompt, count), count, text_of(events))
        check(events[-2]["choices"][0]["finish_reason"] == "length", events[-2])
        check(events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == count, events[-1])
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 19}
    events = list(client.stream("/v1/chat/completions", **chat))
    check(events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}, events[0])
    check(text_of(events) == "<|im_start|>user\nhi", text_of(events))
    whole = client.ask("POST", "/v1/chat/completions", chat)[1]["choices"][0]
    check(whole["message"] == {"role": "assistant", "content": "<|im_start|>user\nhi"}, whole)


def stops():
    for fields in ({}, {"stream": True}):
        if fields:
            text, last = "", None
            for event in client.stream(prompt="one two three ", max_tokens=99, stop=["xyz", "wo th"]):
                text += event["choices"][0]["text"]
                last = event["choices"][0]["finish_reason"]
        else:
            choice = client.complete(prompt="one two three ", max_tokens=99, stop=["xyz", "wo th"])["choices"][0]
            text, last = choice["text"], choice["finish_reason"]
        check(text == "one t" and last == "stop", text, last)
    said = client.complete(prompt="abc", max_tokens=4, stop="cax", logprobs=0)["choices"][0]
    check(said["text"] == "abca" and said["finish_reason"] == "length", said)
    check(said["logprobs"]["tokens"] == list("abca") and said["logprobs"]["text_offset"] == [0, 1, 2, 3], said)
    said = client.complete(prompt="abc", max_tokens=9, stop="ca", logprobs=0)["choices"][0]
    check(said["logprobs"]["tokens"] == ["a", "b"], said)


def sampling():
    """Sampling fields: end tokens, prompts in front of them, and fields that are passed to the engine."""
    for fields in ({}, {"ignore_eos": True}):
        said = client.complete(prompt="abcd", max_tokens=9, stop_token_ids=[99], **fields)["choices"][0]
        check(said["text"] == "ab" and said["finish_reason"] == "stop", "a stop token ends it:", said)
    for prompt in ("abc", [97, 98, 99]):
        said = client.complete(prompt=prompt, max_tokens=4, echo=True, n=2)["choices"]
        check([c["text"] for c in said] == ["abcabca"] * 2, "the prompt goes before:", said)
        check(text_of(client.stream(prompt=prompt, max_tokens=4, echo=True)) == "abcabca", "also in a stream")
    said = client.complete(prompt=["ab", "cd"], max_tokens=2, n=2, best_of=3)
    check([(c["index"], c["text"]) for c in said["choices"]] == [(0, "ab"), (1, "ab"), (2, "cd"), (3, "cd")], said)
    check(said["usage"]["completion_tokens"] == 12, "all candidates count:", said["usage"])
    client.complete(prompt="a", min_p=0.1, presence_penalty=1, frequency_penalty=-1, repetition_penalty=1.1,
                    min_tokens=3, logit_bias={"97": 5, "0": -100}, store=True, service_tier="auto", user="x",
                    metadata={"a": "b"}, skip_special_tokens=True)
    for field, value, says in (("logit_bias", {"256": 1}, "token 256 of logit_bias is outside the vocabulary of 256"),
                               ("stop_token_ids", [3, 256], "token 256 of stop_token_ids is outside"),
                               ("min_tokens", 17, "more than the 16"), ("presence_penalty", 3, "from -2 to 2")):
        error, _ = client.refused(400, says, prompt="a", max_tokens=16, **{field: value})
        check(error["param"] == field, field, "is named:", error)


def tokens():
    """Texts become tokens and back. The page at / needs no key and loads nothing from elsewhere."""
    def ask(path, **fields):
        status, said, _ = client.ask("POST", path, fields)
        check(status == 200, path, fields, "is answered with", status, said)
        return said
    said = ask("/tokenize", model="made-up", prompt="a\u00e4")
    check(said == {"count": 3, "max_model_len": 8192, "tokens": [97, 195, 164], "token_strs": None}, said)
    said = ask("/tokenize", prompt="ab", return_token_strs=True, add_special_tokens=False)
    check(said["token_strs"] == ["a", "b"], said)
    chat = ask("/tokenize", messages=[{"role": "user", "content": "hi"}])
    text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    check(bytes(chat["tokens"]).decode() == text and chat["count"] == len(text), chat)
    check(ask("/detokenize", tokens=chat["tokens"]) == {"prompt": text}, "and back")
    check(ask("/tokenize", prompt="x" * 8190)["count"] == 8190, "a long one")
    check(ask("/detokenize", tokens=[]) == {"prompt": ""}, "no tokens are no text")
    for path, fields, param, says in (("/tokenize", {"prompt": [1]}, "prompt", "must be a text"),
                                      ("/tokenize", {}, "prompt", "is missing"),
                                      ("/detokenize", {}, "tokens", "is missing"),
                                      ("/detokenize", {"tokens": "a"}, "tokens", "array of tokens"),
                                      ("/detokenize", {"tokens": [256]}, "tokens", "outside the vocabulary"),
                                      ("/detokenize", {"tokens": [1], "n": 2}, "n", "unknown field"),
                                      ("/tokenize", {"prompt": "a", "add_special_tokens": 1}, "add_special_tokens",
                                       "true or false")):
        error, _ = client.refused(400, says, path, **fields)
        check(error["param"] == param, path, fields, "names", error)
    status, page, headers = Client(client.port).ask("GET", "/")
    check(status == 200 and page.startswith("<!doctype html>"), "the page is", status)
    check("default-src 'none'" in headers["Content-Security-Policy"], "it may load nothing")
    check("http://" not in page and "https://" not in page, "and needs nothing from elsewhere")
    check(client.ask("GET", "/x")[0] == 404, "another path is none")


def refusals():
    refused = client.refused
    error, _ = refused(400, "9120 bytes", prompt="x" * 9120)
    check("8192" in error["message"] and error["type"] == "invalid_request_error", error)
    error, _ = refused(400, "8000 of max_tokens", prompt="x" * 1000, max_tokens=8000)
    check("8192" in error["message"], error)
    error, _ = refused(404, "made-up", model="other", prompt="x")
    check(error["code"] == "model_not_found" and error["param"] == "model", error)
    error, _ = refused(400, "colour", prompt="x", colour=1)
    check(error["param"] == "colour", error)
    refused(400, "messages[0].role", "/v1/chat/completions", messages=[{"role": "x", "content": ""}])
    refused(400, "outside the vocabulary of 256", prompt=[1, 256])
    refused(400, "no tokens", prompt="")
    check(client.ask("GET", "/v1/completions")[0] == 405, "GET")
    check(client.ask("GET", "/nowhere")[0] == 404, "a path")
    check(client.ask("GET", "/v1/models/made-up")[1]["id"] == "made-up", "one model")
    check(client.ask("GET", "/v1/models/other")[0] == 404, "another model")
    stranger = Client(client.port, "secrex")
    status, said, headers = stranger.ask("GET", "/v1/models")
    check(status == 401 and said["error"]["code"] == "invalid_api_key" and headers["WWW-Authenticate"], said)
    check(Client(client.port).ask("GET", "/v1/models")[0] == 401, "no key")
    check(Client(client.port).ask("GET", "/health")[0] == 200, "health is open")


def wire():
    raw = client.raw
    body = json.dumps({"prompt": "ab", "max_tokens": 3}).encode()
    length = b"Content-Length: %d\r\n" % len(body)
    two = (HEAD + length + b"\r\n" + body) * 2
    got = raw(two[:-1], two[-1:] + HEAD + length + b"Connection: close\r\n\r\n" + body)
    check(got.count(b'"text":"aba"') == 3, "requests one behind the other:", got)
    got = raw(b"POST /v1/completions HTTP/1.0\r\nAuthorization: Bearer secret\r\n" + length + b"\r\n" + body)
    check(b'"text":"aba"' in got, "HTTP/1.0:", got)
    got = raw(HEAD + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" +
              b"".join(b"%x\r\n%c\r\n" % (1, c) for c in body) + b"0\r\n\r\n")
    check(b'"text":"aba"' in got, "a body in chunks:", got)
    late = HEAD + length + b"Expect: 100-continue\r\nConnection: close\r\n\r\n"
    got = raw(late, then=lambda s: (check(s.recv(100).startswith(b"HTTP/1.1 100"), "100"), s.sendall(body)))
    check(b'"text":"aba"' in got, "a body that waits:", got)
    for status, bytes_, what in (
            (400, b"nonsense\r\n\r\n", "no request"), (400, HEAD + b"Content-Length: x\r\n\r\n", "no length"),
            (400, HEAD + b"Content-Length: 2\r\n\r\n{}" + body + b"\r\n\r\n", "a length that is too short"),
            (413, HEAD + b"Content-Length: 4194305\r\n\r\n", "a long body"),
            (413, HEAD + b"Transfer-Encoding: chunked\r\n\r\n400001\r\n" + bytes(4194305), "one in chunks"),
            (431, HEAD + b"A: " + b"x" * 20000, "a long head"),
            (400, HEAD + length + b"Transfer-Encoding: chunked\r\n\r\n", "two lengths")):
        check_fault(raw(bytes_), status, what)


def methods():
    """HEAD has no body and OPTIONS lists the methods. Pages from this machine may use them, pages from other
    origins may not."""
    get, head = (client.raw(m + b" /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") for m in (b"GET", b"HEAD"))
    check(head == get[:get.index(b"\r\n\r\n") + 4] and get != head, head)
    got = client.raw(b"HEAD /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    check(b" 405 " in got and got.endswith(b"\r\n\r\n"), got)
    for target in (b"*", b"/v1/completions"):
        got = client.raw(b"OPTIONS %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % target)
        check(b" 204 " in got and b"Allow: " in got and b"POST" in got, got)
    ask = (b"OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nOrigin: %s\r\n"
           b"Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-one, authorization\r\n\r\n")
    for origin in (b"http://localhost:3000", b"http://127.0.0.1", b"https://[::1]:8", b"HTTP://LocalHost"):
        got = client.raw(ask % origin)
        check(b" 204 " in got and b"Access-Control-Allow-Origin: " + origin in got and b"Headers: x-one" in got, got)
    for origin in (b"http://localhost.evil.example", b"http://evil.example", b"null", b"http://127.0.0.1:8000@evil.example"):
        got = client.raw(ask % origin)
        check(b" 403 " in got and b"Allow-Origin" not in got, got)
    got = client.raw(b"GET /v1/models HTTP/1.1\r\nHost: a\r\nConnection: close\r\nOrigin: http://localhost:1\r\n\r\n")
    check(b" 401 " in got and b"Access-Control-Allow-Origin: http://localhost:1" in got, "errors can be read as well:", got)


def targets():
    for target, status in (("http://other:9/health", 200), ("/health?deep=1", 200), ("/%68ealth", 200), ("/v1/models/made-up?x=y", 200),
                           ("/v1/models/made%2Dup", 200), ("/v1%2Fmodels", 404), ("/health/", 404), ("/%zz", 400), ("h", 400)):
        got = client.raw(b"GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: bearer secret\r\n\r\n" % target.encode())
        check(status_of(got) == status, target, "is answered with", got)


def strangers():
    """A client without a key is rejected before its body is read."""
    for fields in (b"Content-Length: 4000000\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Length: 9\r\nExpect: 100-continue\r\n"):
        got = client.raw(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n" + fields + b"\r\n")
        check_fault(got, 401, fields)
        check(got.startswith(b"HTTP/1.1 401") and b"Connection: close" in got, got)


def half_closed():
    """A client that has closed its sending side but still reads gets an answer; incomplete requests are
    rejected at once."""
    body = json.dumps({"prompt": "ab", "max_tokens": 3}).encode()
    whole = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    end = lambda s: s.shutdown(socket.SHUT_WR)
    for bytes_, count in ((whole, 1), (whole * 3, 3)):
        got = client.raw(bytes_, then=end)
        check(got.count(b'"text":"aba"') == count, "half closed:", got)
    body = json.dumps({"prompt": "ab", "max_tokens": 30, "stream": True}).encode()
    got = client.raw(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body, then=end)
    check(b"[DONE]" in got, "half closed, streamed:", got)
    for bytes_ in (b"G", HEAD, HEAD + b"Content-Length: 9\r\n\r\n{}", HEAD + b"Transfer-Encoding: chunked\r\n\r\n4\r\nab"):
        check_fault(client.raw(bytes_, then=end), 400, bytes_)
    check(client.raw(then=end) == b"", "nothing is answered with nothing")


def check_fault(got, status, what):
    """Checks that the last response is an error."""
    last = got.split(b"HTTP/1.1 ")[-1]
    check(status_of(b"HTTP/1.1 " + last) == status, what, "is answered with", got)
    check(json.loads(last.split(b"\r\n\r\n")[1])["error"]["message"], got)


def waits():
    """Incomplete requests time out."""
    rows = ((HEAD + b"Content-Length: 99\r\n\r\n{}", "a length that is too long"), (HEAD, "half a head"), (b"P", "a byte"))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for (_, what), got in zip(rows, pool.map(lambda row: client.raw(row[0]), rows)):
            check_fault(got, 408, what)


def hang_ups():
    before, cancelled = client.metric("hung_up_total"), client.metric('ended_total{end="cancelled"}')
    for fields in ({"stream": True}, {}):
        body = json.dumps(dict(fields, prompt="stick", n=4)).encode()
        with socket.create_connection((HOST, client.port)) as s:
            s.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            client.until("it is under way", lambda: client.metric("running") >= 4)
        client.until("it is noticed", lambda: client.metric("hung_up_total") > before)
        client.complete(prompt="unstick", max_tokens=1)
        client.until("its pages are back", lambda: client.metric("pages_used") == 0)
        before += 1
    check(client.metric('ended_total{end="cancelled"}') == cancelled + 8, "none of them has been written")


def hang_ups_behind():
    """Hang-ups are also noticed after pipelined requests, beyond the bytes that are read ahead."""
    before = client.metric("hung_up_total")
    for fields in ({"stream": True}, {}):
        body = json.dumps(dict(fields, prompt="stick")).encode()
        with socket.create_connection((HOST, client.port)) as s:
            s.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            s.sendall((HEAD + b"Content-Length: 2\r\n\r\n{}") * 1200)
            client.until("it is under way", lambda: client.metric("running") >= 1)
        before += 1
        client.until("it is noticed", lambda: client.metric("hung_up_total") >= before)
        client.complete(prompt="unstick", max_tokens=1)
        client.until("its pages are back", lambda: client.metric("pages_used") == 0)


def unread():
    """Pipelined requests wait while the client reads no answer, and all are answered later."""
    ask = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
    with socket.create_connection((HOST, client.port), timeout=60) as s:
        s.sendall(ask * MANY)
        time.sleep(0.2)
        held = client.metric("held_bytes")
        check(held < 1 << 20, "it holds", held)
        s.shutdown(socket.SHUT_WR)
        got = b"".join(iter(lambda: s.recv(1 << 20), b""))
    check(got.count(b"HTTP/1.1 200") == MANY, "of", MANY, "answered", got.count(b"HTTP/1.1 200"))


def queue():
    """Eight requests run concurrently, and eight may wait."""
    connections = [client.open("POST", "/v1/completions", {"prompt": "stick", "stream": True}) for _ in range(16)]
    client.until("some wait", lambda: client.metric("queued") == 8)
    error, headers = client.refused(503, "requests are waiting", prompt="x")
    check(headers["Retry-After"] and error["type"] == "server_error", error)
    for connection, response in connections:
        response.close()
        connection.close()
    client.complete(prompt="unstick", max_tokens=1)
    client.until("nobody waits", lambda: client.metric("queued") + client.metric("running") == 0)


def health():
    connection, response = client.open("POST", "/v1/completions", {"prompt": "stick", "stream": True, "max_tokens": 3})
    client.until("it says that it is stuck", lambda: client.ask("GET", "/health")[0] == 503)
    client.complete(prompt="unstick", max_tokens=1)
    client.until("it is well again", lambda: client.ask("GET", "/health")[0] == 200)
    check(b"[DONE]" in response.read(), "what was stuck goes on")
    connection.close()


def end(pid):
    """Requests in progress are answered; later clients are not accepted."""
    events = client.stream(prompt="abc", max_tokens=3000)
    first = next(events)
    os.kill(pid, signal.SIGINT)
    text = first["choices"][0]["text"] + text_of(events)
    check(text == again("abc", 3000), "what was under way is answered whole:", len(text))
    client.until("nobody is let in", is_closed)


def is_closed():
    try:
        socket.create_connection((HOST, client.port)).close()
    except ConnectionRefusedError:
        return True
    return False


for step in (answers, streams, stops, sampling, tokens, refusals, wire, methods, targets, strangers, half_closed, waits, hang_ups,
             hang_ups_behind, unread, queue, health):
    step()
end(int(sys.argv[2]))
