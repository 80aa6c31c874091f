# SPDX-License-Identifier: Apache-2.0
"""Clients for the tests of actorserve: one based on Python's http.client, and one on bare sockets."""
import http.client
import json
import socket
import sys
import time

HOST = "127.0.0.1"


def check(good, *what):
    if not good:
        raise SystemExit("actorserve: " + " ".join(map(str, what)))


class Client:
    def __init__(self, port, key=None):
        self.port, self.key = port, key

    def open(self, method, path, body=None):
        """Returns (connection, response); the body is not read yet."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=60)
        headers = {"Authorization": "Bearer " + self.key} if self.key else {}
        if body is not None and not isinstance(body, (bytes, str)):
            body, headers["Content-Type"] = json.dumps(body), "application/json"
        connection.request(method, path, body, headers)
        return connection, connection.getresponse()

    def ask(self, method, path, body=None):
        """Returns (status, parsed body, header fields)."""
        connection, response = self.open(method, path, body)
        text = response.read()
        connection.close()
        kind = response.getheader("Content-Type")
        return response.status, json.loads(text) if kind == "application/json" else text.decode(), response.headers

    def complete(self, **fields):
        status, said, _ = self.ask("POST", "/v1/completions", fields)
        check(status == 200, fields, "is answered with", status, said)
        return said

    def stream(self, path="/v1/completions", **fields):
        """Yields the events of a stream as they arrive, until the stream ends."""
        connection, response = self.open("POST", path, dict(fields, stream=True))
        if response.status != 200:
            check(False, fields, "is answered with", response.status, response.read())
        check(response.getheader("Content-Type") == "text/event-stream", "a stream of events")
        for line in response:
            line = line.decode().rstrip("\n")
            if line == "data: [DONE]":
                check(response.read() == b"\n", "nothing is behind the end")
                connection.close()
                return
            if line:
                check(line.startswith("data: "), "an event begins with data, not", line)
                yield json.loads(line[6:])
        raise SystemExit("actorserve: a stream has no end")

    def refused(self, status, says, path="/v1/completions", **fields):
        got, said, headers = self.ask("POST", path, fields)
        text = said["error"]["message"] if isinstance(said, dict) else said
        check(got == status and says in text, fields, "is refused with", got, text)
        return said["error"], headers

    def metric(self, name):
        for line in self.ask("GET", "/metrics")[1].splitlines():
            if line.startswith("sluice_%s " % name):
                return float(line.split()[1])
        raise SystemExit("actorserve: there is no metric " + name)

    def until(self, what, condition):
        end = time.monotonic() + 60
        while not condition():
            check(time.monotonic() < end, "not in a minute:", what)
            time.sleep(0.01)

    def raw(self, *pieces, then=None):
        """Sends bytes and returns all data received until the connection ends."""
        with socket.create_connection((HOST, self.port), timeout=60) as s:
            for piece in pieces:
                s.sendall(piece)
            if then:
                then(s)
            got = b""
            while True:
                more = s.recv(65536)
                if not more:
                    return got
                got += more


def port_of(path):
    """Returns the port that a server prints first."""
    with open(path) as out:
        return int(out.readline().rsplit(":")[-1].split("/")[0])


def status_of(answer):
    return int(answer.split(b" ", 2)[1])


def text_of(events):
    return "".join(c.get("text") or c.get("delta", {}).get("content") or ""
                   for e in events for c in e["choices"])
