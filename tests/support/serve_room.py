# SPDX-License-Identifier: Apache-2.0
"""Checks the limits on what all clients of actorserve may take together, with a dummy model that echoes its prompt:

    serve_room.py PORT PID MIB CONNECTIONS

The server's requests may hold MIB MiB, and it may have at most CONNECTIONS connections. A client that uses
up either must not lock out others.
"""
import json
import os
import socket
import sys
import time

from serve_client import HOST, Client, check, status_of

port, pid, mib, connections = map(int, sys.argv[1:5])
client = Client(port)
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
BODY = 4 << 20
SHADOW = 6 if "TSAN_OPTIONS" in os.environ else 1  # the thread sanitizer keeps shadow words for each word


def memory():
    with open("/proc/%d/status" % pid) as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) >> 10


def processor():
    """Returns the server's processor seconds, which exclude other load on the machine."""
    with open("/proc/%d/stat" % pid) as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def answered(what):
    begin, computed = time.monotonic(), processor()
    said = client.complete(prompt="abc", max_tokens=4)
    check(said["choices"][0]["text"] == "abca", what, said)
    computed, took = processor() - computed, time.monotonic() - begin
    check(computed < 20 and took < 20 + 10 * computed, what, "it takes", took, "and computes", computed)


def connect():
    s = socket.create_connection((HOST, port), timeout=30)
    return s


def idle():
    """The server closes the connections that have been idle longest, also within a request; active ones
    stay."""
    kept = connect()
    ask = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
    held = []
    for i in range(3 * connections):
        held.append(connect())
        held[-1].sendall((b"", b"P", HEAD % 9, HEAD % BODY + b"{")[i % 4])
        if i % 20 == 0:
            kept.sendall(ask)
            check(status_of(kept.recv(4096)) == 200, "who talks is not closed")
    answered("beside idle connections")
    check(client.metric("connections") <= connections, "there are", client.metric("connections"))
    check(client.metric("given_up_total") >= 2 * connections - 10, "given up:", client.metric("given_up_total"))
    for s in held + [kept]:
        s.close()


def bodies():
    """Incomplete bodies hold at most the limit, and are dropped to make room for complete ones."""
    before, held = memory(), []
    for _ in range(3 * mib // 4):
        held.append(connect())
        try:
            held[-1].sendall(HEAD % BODY + bytes(BODY - 1))
        except OSError:
            pass
        check(memory() - before < SHADOW * (1.25 * mib + 16), "memory grows by", memory() - before, "MiB")
    body = json.dumps({"prompt": [1] * 100, "user": "u" * 3000000, "max_tokens": 1}).encode()
    for _ in range(5):
        got = client.raw(HEAD.replace(b"Host: a", b"Host: a\r\nConnection: close") % len(body) + body)
        check(status_of(got) == 200, "a body that comes whole:", got[:300])
    answered("beside bodies")
    refused = sum(b" 503 " in s.recv(4096) for s in held[:3])
    check(refused == 3, "the first are told why:", refused)
    for s in held:
        s.close()
    client.until("all is given back", lambda: client.metric("held_bytes") < 10000)
    client.until("to the system as well", lambda: memory() - before < 24)


def answers():
    """An answer that would take too much memory fails, and the others continue."""
    before = memory()
    chat = {"messages": [{"role": "user", "content": "a"}], "n": 16, "logprobs": True, "top_logprobs": 20, "max_tokens": 8000}
    status, said, _ = client.ask("POST", "/v1/chat/completions", chat)
    check(status == 503 and "more memory than one request may have" in said["error"]["message"], status)
    check(memory() - before < SHADOW * (1.25 * mib + 16), "memory grows by", memory() - before, "MiB")
    client.until("the engine is done", lambda: client.metric("running") == 0)
    answered("after long answers")
    client.until("nothing is left", lambda: client.metric("held_bytes") < 10000 and client.metric("running") == 0)


def chats():
    """A chat whose template takes too much memory is rejected, and others are answered."""
    before = memory()
    say = lambda count: client.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}] * count, "max_tokens": 2})
    for _ in range(3):
        status, said, _ = say(8000)
        check(status == 413 and "more memory than the 8.0 MiB" in said["error"]["message"], status, said)
    check(memory() - before < SHADOW * (mib // 4 + 16), "memory grows by", memory() - before, "MiB")
    status, said, _ = say(100)
    check(status == 200 and said["choices"][0]["message"]["content"] == "aa", "a chat that is shorter:", said)
    client.until("nothing is left", lambda: client.metric("held_bytes") < 10000)


def values():
    """A body whose values take too much memory is rejected as well."""
    before = memory()
    body = b'{"prompt":[' + b"1," * 200000 + b"1]}"
    got = client.raw(HEAD.replace(b"Host: a", b"Host: a\r\nConnection: close") % len(body) + body)
    check(status_of(got) == 413, "200,001 values:", got[:300])
    check(memory() - before < SHADOW * (mib // 4 + 16), "memory grows by", memory() - before, "MiB")


def connected():
    """Connections count toward the limit as well."""
    held = [connect() for _ in range(100)]
    client.until("they are counted", lambda: client.metric("held_bytes") > 100 * 4000)
    for s in held:
        s.close()


for step in (idle, bodies, answers, chats, values, connected):
    step()
