# SPDX-License-Identifier: Apache-2.0
"""Soak test of a server: ordinary load mixed with attacks for several minutes, then a check for leaks.

    serve_soak.py SECONDS COMMAND...                    starts and stops the server
    serve_soak.py --port PORT --pid PID SECONDS         tests a running server

COMMAND has to print its address. Ordinary clients constantly request streams, chats and completions.
Attackers send bodies that are oversized in every way, abandon bodies and answers, connect and send
nothing, or hang up. They also pipeline requests without reading the answers, send data that is not
HTTP, and send texts with misplaced special tokens. The script prints the server's memory every second
and requests /health over separate connections.

Exits with 1 if the 99th percentile of /health exceeds SOAK_HEALTH ms [50], or if an ordinary request
is not answered. It also exits with 1 if pages, requests or bytes are left at the end, or if memory
grows by more than the server may hold. The limit is --request-memory (SOAK_MEMORY MiB [256]), plus a quarter of it for the
allocator, plus the memory for reading one body.
"""
import json
import multiprocessing
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time

HOST = "127.0.0.1"
READING = 40  # MiB
MEMORY = int(os.environ.get("SOAK_MEMORY", 256))
HEALTH = float(os.environ.get("SOAK_HEALTH", 50))
KEY = os.environ.get("SLUICE_API_KEY")
AUTHORIZATION = b"Authorization: Bearer %s\r\n" % KEY.encode() if KEY else b""


def head(method, path, more=b""):
    return b"%s %s HTTP/1.1\r\nHost: a\r\n%s%s\r\n" % (method, path, AUTHORIZATION, more)


def post(path, body):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return head(b"POST", path, b"Content-Length: %d\r\n" % len(body)) + body


TEXTS, CHATS = b"/v1/completions", b"/v1/chat/completions"


class Connection:
    def __init__(self, port, timeout=60, room=None):
        self.s = socket.socket()
        if room:
            self.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        self.s.settimeout(timeout)
        self.s.connect((HOST, port))
        self.kept = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.s.close()

    def until(self, mark):
        while mark not in self.kept:
            more = self.s.recv(65536)
            if not more:
                raise OSError("the connection has ended")
            self.kept += more
        at = self.kept.index(mark) + len(mark)
        got, self.kept = self.kept[:at], self.kept[at:]
        return got

    def answer(self):
        """Returns (status, body) of a response with Content-Length or in chunks."""
        begin = self.until(b"\r\n\r\n")
        if begin.startswith(b"HTTP/1.1 100"):
            begin = self.until(b"\r\n\r\n")
        status = int(begin.split()[1])
        length = re.search(rb"(?i)content-length: *(\d+)", begin)
        if not length:
            return status, self.until(b"0\r\n\r\n")
        while len(self.kept) < int(length[1]):
            more = self.s.recv(65536)
            if not more:
                raise OSError("the connection has ended")
            self.kept += more
        body, self.kept = self.kept[:int(length[1])], self.kept[int(length[1]):]
        return status, body


# ---- ordinary clients ------------------------------------------------------------------------------


def ordinary(port, rng):
    kind = rng.randrange(5)
    if kind == 0:
        request = post(TEXTS, {"prompt": "soak %d " % rng.randrange(100), "max_tokens": 8})
    elif kind == 1:
        request = post(TEXTS, {"prompt": [1, 2, rng.randrange(200)], "max_tokens": 20, "stream": True, "n": 2})
    elif kind == 2:
        request = post(CHATS, {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "stream": True})
    elif kind == 3:
        request = post(TEXTS, {"prompt": "x" * rng.randrange(1, 40), "max_tokens": 6, "logprobs": 3})
    else:
        request = head(b"GET", b"/v1/models")
    with Connection(port) as c:
        c.s.sendall(request)
        status, body = c.answer()
    return status, body


def ordinary_all(port, end, counts, seed):
    rng = random.Random(seed)
    while not end.is_set():
        try:
            status, body = ordinary(port, rng)
        except OSError as e:
            status, body = 0, str(e).encode()
        with counts["lock"]:
            counts[status] = counts.get(status, 0) + 1
            # a model without a chat template rejects chats with 400; a full server replies 503
            if status not in (200, 503) and not (status == 400 and b'"messages"' in body):
                counts["wrong"] = (status, body[:200])


# ---- attacks -------------------------------------------------------------------------------------------


def long_body(rng):
    n = rng.randrange(1000, 40000)
    message = b'{"role":"user","content":"a"}'
    part = b'{"type":"text","text":"a"}'
    return rng.choice([
        b'{"messages":[{"role":"user","content":[' + b",".join([part] * n) + b"]}]}",
        b'{"messages":[' + b",".join([message] * n) + b"]}",
        b'{"prompt":[' + b",".join([b"1"] * 6 * n) + b"]}",
        b'{"prompt":' + b"[" * 6 * n, b'{"prompt":"' + b"a" * 50 * n + b'"}',
        b'{"stop":[' + b",".join([b'"a"'] * n) + b"]}", b'{"logit_bias":{' + b",".join([b'"1":1'] * n) + b"}}",
        b"{" + b",".join([b'"n":1'] * n) + b"}", b'{"prompt":"' + "\u0301\u0323".encode() * n + b'"}',
        b'{"messages":[{"role":"user","content":"' + "\u0301\u0323".encode() * n + b'"}]}',
        b'{"prompt":"a","max_tokens":1000000,"n":128,"logprobs":20}', b'{"prompt":"a","n":128,"stop":["' + b"a" * 1000 + b'b"]}',
        bytes(50 * n), b'{"prompt":"' + b"\\u00e4" * 6 * n + b'"}'])


def send_long(port, rng, hold):
    with Connection(port, 20) as c:
        c.s.sendall(post(rng.choice([TEXTS, CHATS]), long_body(rng)))
        if rng.randrange(3):
            c.answer()


def leave_body(port, rng, hold):
    """Sends most of a body of 4 MiB and then stops."""
    c = Connection(port, 5)
    hold.append(c)
    c.s.sendall(head(b"POST", TEXTS, b"Content-Length: 4194304\r\n") + bytes(rng.randrange(4190000)))


def leave_answers(port, rng, hold):
    """Pipelines requests and never reads the answers."""
    c = Connection(port, 0.2, 4096)
    hold.append(c)
    for _ in range(200):
        c.s.sendall(head(b"GET", b"/metrics") * 200)


def leave_stream(port, rng, hold):
    c = Connection(port, 5, 4096)
    hold.append(c)
    c.s.sendall(post(TEXTS, {"prompt": "a", "max_tokens": 60, "n": 64, "stream": True, "logprobs": 20}))


def say_nothing(port, rng, hold):
    for _ in range(50):
        hold.append(Connection(port, 5))
        hold[-1].s.sendall(rng.choice([b"", b"P", head(b"POST", TEXTS)[:-2], head(b"POST", TEXTS, b"Content-Length: 9\r\n")]))


def hang_up(port, rng, hold):
    with Connection(port, 5) as c:
        c.s.sendall(post(TEXTS, {"prompt": "a", "max_tokens": 60, "n": rng.randrange(1, 9), "stream": bool(rng.randrange(2))}))
        c.s.sendall(head(b"GET", b"/health") * rng.choice([0, 3000]))
        time.sleep(rng.random() / 20)


def half_close(port, rng, hold):
    with Connection(port, 20) as c:
        c.s.sendall(post(TEXTS, {"prompt": "a", "max_tokens": 5}))
        c.s.shutdown(socket.SHUT_WR)
        c.answer()


def noise(port, rng, hold):
    good = post(TEXTS, {"prompt": "a", "max_tokens": 2})
    at = rng.randrange(len(good))
    with Connection(port, 5) as c:
        c.s.sendall(rng.choice([rng.randbytes(3000), good[:at] + rng.randbytes(4) + good[at + 3:], good[:at], b"\r\n" * 3000,
                                head(b"POST", TEXTS, b"Transfer-Encoding: chunked\r\n") + b"1;%s\r\na\r\n" % (b"x" * 200) * 900]))


ATTACKS = (send_long, send_long, leave_body, leave_body, leave_answers, leave_stream, say_nothing, hang_up, half_close, noise)


def attack(port, end, seed):
    """Runs one attack after another in its own process and keeps their connections open for a while."""
    rng, hold = random.Random(seed), []
    while not end.is_set():
        try:
            rng.choice(ATTACKS)(port, rng, hold)
        except OSError:
            pass
        while len(hold) > 400 or (hold and rng.randrange(40) == 0):
            hold.pop(rng.randrange(len(hold))).s.close()
    for c in hold:
        c.s.close()


# ---- observation ----------------------------------------------------------------------------------


def probe(port, end, out):
    """Measures the latency of /health in its own process, over new and over kept-alive connections."""
    times, bad, kept = [], [], None
    while not end.is_set():
        begin = time.monotonic()
        try:
            if kept is None or len(times) % 20 == 0:
                kept = Connection(port)
            kept.s.sendall(head(b"GET", b"/health"))
            status, body = kept.answer()
            if status != 200:
                bad.append(body[:200])
        except OSError:  # the server closed it to make room for others
            kept = None
        times.append(time.monotonic() - begin)
        time.sleep(0.02)
    out.send((sorted(times), bad[:3]))


def memory(pid):
    with open("/proc/%d/status" % pid) as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def turns(pid):
    """Returns the seconds that the connection thread ran, and the seconds that it waited for a core."""
    with open("/proc/%d/task/%d/schedstat" % (pid, pid)) as f:
        return [int(word) * 1e-9 for word in f.read().split()[:2]]


def metrics(port):
    with Connection(port) as c:
        c.s.sendall(head(b"GET", b"/metrics"))
        _, body = c.answer()
    return {w[0]: float(w[1]) for w in (line.split() for line in body.decode().splitlines()) if w[0] != "#"}


LEFT = ("sluice_pages_used", "sluice_queued", "sluice_running", "sluice_held_bytes")


def wait_until_idle(port):
    """Returns what the server still holds after at most a minute ({} if nothing), and all metrics."""
    deadline = time.monotonic() + 60
    while True:
        now = metrics(port)
        left = {name: now[name] for name in LEFT if now[name] > (65536 if name.endswith("bytes") else 0)}
        if not left or time.monotonic() > deadline:
            return left, now
        time.sleep(0.1)


def watch(pid, end_at):
    most, second = 0, 0
    while time.monotonic() < end_at:
        now = memory(pid)
        most = max(most, now)
        if second % 10 == 0:
            print("%4d s  %6.1f MiB" % (second // 10, now), flush=True)
        second += 1
        time.sleep(0.1)
    return most


def soak(port, pid, seconds):
    spawn = multiprocessing.get_context("fork")
    end = spawn.Event()
    ours, theirs = spawn.Pipe()
    counts = {"lock": threading.Lock()}
    for i in range(3):  # measure memory after a few requests, not before
        ordinary(port, random.Random(i))
    before = memory(pid)
    others = [spawn.Process(target=attack, args=(port, end, i)) for i in range(2)] + [spawn.Process(target=probe, args=(port, end, theirs))]
    for p in others:
        p.start()
    asking = [threading.Thread(target=ordinary_all, args=(port, end, counts, i)) for i in range(4)]
    for t in asking:
        t.start()
    most = watch(pid, time.monotonic() + seconds)
    end.set()
    times, bad = ours.recv()
    for t in asking + others:
        t.join()
    left, now = wait_until_idle(port)
    after = memory(pid)
    del counts["lock"]
    wrong = counts.pop("wrong", None)
    p99 = times[len(times) * 99 // 100] * 1e3
    print("ordinary requests by status: %s" % counts)
    print("/health: %d times, %.2f ms in the median, %.2f at 99 %%, %.2f at most" % (
        len(times), times[len(times) // 2] * 1e3, p99, times[-1] * 1e3))
    print("memory: %.1f MiB before, %.1f at most, %.1f after; %d connections given up, %d clients hung up, %d cut off" % (
        before, most, after, now["sluice_given_up_total"], now["sluice_hung_up_total"], now["sluice_cut_off_total"]))
    print("the thread of connections computed for %.1f s and waited for a core for %.1f" % tuple(turns(pid)))
    print("left: %s" % ({name: now[name] for name in LEFT}))
    faults = []
    if most - before > MEMORY * 1.25 + READING:
        faults.append("memory grew by %.1f MiB" % (most - before))
    if p99 > HEALTH:
        faults.append("/health takes %.1f ms at 99 %%" % p99)
    if bad:
        faults.append("/health says %s" % bad)
    if left:
        faults.append("there is left: %s" % left)
    if wrong or not counts.get(200):
        faults.append("an ordinary request is answered with %s" % (wrong,))
    for fault in faults:
        print("serve_soak: " + fault, file=sys.stderr)
    return not faults


def start(command):
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    line = server.stdout.readline()
    found = re.search(r"(\d+)(?:/v1)?\s*$", line)
    if not found:
        raise SystemExit("serve_soak: the server says no port: " + line)
    return server, int(found[1])


def main():
    words = sys.argv[1:]
    if words[0] == "--port":
        return soak(int(words[1]), int(words[3]), float(words[4]))
    server, port = start(words[1:])
    try:
        good = soak(port, server.pid, float(words[0]))
        server.send_signal(signal.SIGINT)
        status = server.wait(30)
    finally:
        server.kill()
    if status:
        print("serve_soak: the server ends with status %d" % status, file=sys.stderr)
    return good and not status


sys.exit(0 if main() else 1)
