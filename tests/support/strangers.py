# SPDX-License-Identifier: Apache-2.0
"""Attacks every port that the processes of a job listen on, until the job ends.

    strangers.py LAUNCHER ADDRESS

ADDRESS is the host of the processes. Prints a summary at the end.
"""
import os, random, socket, struct, sys

MOST_HELD = 1200
seed = int(os.environ.get("SLUICE_SEED") or 1)
random.seed(seed)
launcher, address = int(sys.argv[1]), sys.argv[2]
held, ports, tries = [], {}, 0


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def descendants(pid):
    yield pid
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            for child in f.read().split():
                yield from descendants(int(child))
    except OSError:
        pass


def listening(pid):
    """Returns the ports of a process, except those bound to another address."""
    inodes = set()
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            link = os.readlink(f"/proc/{pid}/fd/{fd}")
            if link.startswith("socket:["):
                inodes.add(link[8:-1])
        for table in "tcp", "tcp6":
            with open(f"/proc/{pid}/net/{table}") as f:
                for line in f.readlines()[1:]:
                    words = line.split()
                    if words[3] == "0A" and words[9] in inodes:
                        yield int(words[1].rsplit(":", 1)[1], 16)
    except OSError:
        pass


def noise():
    """Returns bytes to send: input that once ended jobs, half a handshake, or random data."""
    return random.choice([
        struct.pack("<QBI", 0xCAFEBABE12345678, 0, 1 << 31),
        b"SLUICE\1" + random.randbytes(random.randrange(120)),
        b"\xff\0\0\0\0\0\0\0\1\x7f\3\0CURVE" + random.randbytes(60),
        random.randbytes(random.randrange(1, 4000)),
        b"",
    ])


def bother(port):
    global tries
    s = socket.socket()
    s.settimeout(0.2)
    try:
        s.connect((address, port))
        tries += 1
        s.sendall(noise())
    except OSError:
        s.close()
        return
    held.append(s)
    if len(held) > MOST_HELD:
        held.pop(random.randrange(len(held))).close()


while lives(launcher):
    for pid in list(descendants(launcher)):
        for port in listening(pid):
            ports[port] = True
            for _ in range(40):
                bother(port)

print(f"seed {seed}: {tries} connections to {len(ports)} ports, {len(held)} held", flush=True)
