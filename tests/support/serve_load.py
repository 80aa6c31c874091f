# SPDX-License-Identifier: Apache-2.0
"""Many concurrent clients of actorserve, with a dummy model that echoes its prompt:

    serve_load.py PORT PID STREAMS TOKENS [MOST_MILLISECONDS]

A fifth of the streams hang up at some point, and a tenth read one byte at a time while others run. There are
three idle connections per stream. All answers must be correct, and the server must hold nothing of them at
the end. Prints the latency of /health under this load; its 99th percentile must not exceed
MOST_MILLISECONDS, if given.
"""
import asyncio
import http.client
import json
import multiprocessing
import random
import socket
import sys
import time

from serve_client import HOST, Client, check

port, pid, streams, tokens = map(int, sys.argv[1:5])
client = Client(port)
rng = random.Random(1)
over = asyncio.Event()


def memory():
    with open("/proc/%d/status" % pid) as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1024


def request(prompt):
    body = json.dumps({"prompt": prompt, "max_tokens": tokens, "stream": True}).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body


async def connect(room=None):
    s = socket.socket()
    if room:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    s.setblocking(False)
    await asyncio.get_running_loop().sock_connect(s, (HOST, port))
    return await asyncio.open_connection(sock=s, limit=1 << 16)


def text_of(answer):
    """Returns the text of a complete stream."""
    lines = [line for line in answer.split(b"\n") if line.startswith(b"data: ")]
    check(lines and lines[-1] == b"data: [DONE]", "a stream has no end:", answer[-200:])
    return "".join(json.loads(line[6:])["choices"][0]["text"] for line in lines[:-1])


def plain(answer):
    """Decodes a chunked body."""
    head, rest = answer.split(b"\r\n\r\n", 1)
    check(b" 200 OK" in head.split(b"\r\n")[0], head)
    out, at = [], 0
    while True:
        end = rest.index(b"\r\n", at)
        size = int(rest[at:end], 16)
        if not size:
            return b"".join(out)
        out.append(rest[end + 2:end + 2 + size])
        at = end + 4 + size


async def answered(number):
    prompt = "%06d " % number
    reader, writer = await connect()
    writer.write(request(prompt))
    answer = await reader.read(-1)
    writer.close()
    check(text_of(plain(answer)) == (prompt * tokens)[:tokens], "stream", number, "is answered otherwise")
    return "answered"


async def slow(number):
    prompt = "%06d " % number
    reader, writer = await connect(4096)
    writer.write(request(prompt))
    answer = b""
    while not over.is_set():
        answer += await reader.read(1)
        try:
            await asyncio.wait_for(over.wait(), 1)
        except asyncio.TimeoutError:
            pass
    answer += await reader.read(-1)
    writer.close()
    check(text_of(plain(answer)) == (prompt * tokens)[:tokens], "slow stream", number, "is answered otherwise")
    return "slow"


async def left(number):
    reader, writer = await connect()
    writer.write(request("%06d " % number))
    events = rng.randrange(tokens)
    for _ in range(events):
        await reader.readline()
    writer.close()
    return "left"


def probe(end):
    """Requests /health repeatedly over its own connection, and records the times."""
    times = []
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    while not end.poll(0.02):
        begin = time.monotonic()
        connection.request("GET", "/health")
        response = connection.getresponse()
        check(response.status == 200 and b'"ok"' in response.read(), "it is well")
        times.append(time.monotonic() - begin)
    connection.close()
    end.send(sorted(times))


async def idle():
    reader, writer = await connect()
    await over.wait()
    writer.close()


async def load():
    idlers = []
    for _ in range(3 * streams // 100 + 1):  # in batches: a listening socket has a limited backlog
        idlers += [asyncio.create_task(idle()) for _ in range(100)]
        await asyncio.sleep(0.02)
    kinds = [left if n % 5 == 0 else slow if n % 10 == 1 else answered for n in range(streams)]
    tasks = [asyncio.create_task(kind(n)) for n, kind in enumerate(kinds)]
    quick = [task for task, kind in zip(tasks, kinds) if kind is not slow]
    await asyncio.gather(*quick)
    client.until("the slow ones are no longer under way", lambda: client.metric("running") == 0)
    over.set()
    said = await asyncio.gather(*tasks)
    await asyncio.gather(*idlers)
    return said


ours, theirs = multiprocessing.Pipe()
prober = multiprocessing.Process(target=probe, args=(theirs,))  # own process: delays here do not distort it
prober.start()
theirs.close()
begin, before = time.monotonic(), memory()
said = asyncio.run(load())
ours.send(None)
times = ours.recv()
prober.join()
client.until("all connections are over", lambda: client.metric("connections") <= 1)
check(client.metric("pages_used") == 0 and client.metric("queued") == 0, "nothing is left")
after, p99 = memory(), times[len(times) * 99 // 100] * 1e3
print("%d answered, %d read slowly, %d left, %d idle connections: %.1f s, /health %.2f ms in the median, %.2f at 99 %%, "
      "memory %d MiB before and %d after" % (said.count("answered"), said.count("slow"), said.count("left"), 3 * streams,
                                             time.monotonic() - begin, times[len(times) // 2] * 1e3, p99, before, after))
check(after - before < 64, "memory comes back: %d MiB before, %d after" % (before, after))
check(len(sys.argv) < 6 or p99 < float(sys.argv[5]), "/health takes %.1f ms" % p99)
