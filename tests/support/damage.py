# SPDX-License-Identifier: Apache-2.0
"""Damages copies of a trace at random and gives them to actortrace, which must read them or report the error,
and must end.

    damage.py ACTORTRACE FILE ROUNDS SEED
"""
import os
import random
import struct
import subprocess
import sys
import tempfile

PRIME, BASIS, MASK = 1099511628211, 14695981039346656037, (1 << 64) - 1


def fnv(data):
    value = BASIS
    for byte in data:
        value = ((value ^ byte) * PRIME) & MASK
    return value


def rehash(data):
    """Recomputes the sections' hashes, so that only later checks see the damage."""
    sections, size = struct.unpack_from("<II", data, 16)
    if size != 32 or 64 + sections * 32 > len(data):
        return
    for i in range(sections):
        at = 64 + i * 32
        item, count, offset = struct.unpack_from("<IQQ", data, at + 4)
        if offset + item * count <= len(data):
            struct.pack_into("<Q", data, at + 24, fnv(data[offset:offset + item * count]))
    struct.pack_into("<I", data, 44, 0)
    struct.pack_into("<I", data, 44, fnv(data[:64 + sections * size]) & 0xffffffff)


ODD = [0, 1, 2, 3, 7, 64, 65536, 1 << 24, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 32) - 1]


def craft(data, chance, first, last):
    """Replaces values in the plan, the head or the firings with others that may be invalid."""
    for _ in range(chance.randrange(1, 4)):
        at = chance.choice([36, 40, first + 4 * chance.randrange((last - first) // 4),
                            last + 4 * chance.randrange((len(data) - last) // 4)])
        word, = struct.unpack_from("<I", data, at)
        word = chance.choice([chance.choice(ODD), word + 1, word - 1]) & 0xffffffff
        struct.pack_into("<I", data, at, word)
    rehash(data)


FIRINGS = 12  # index of the firings' section


def main():
    program, path, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with open(path, "rb") as file:
        good = file.read()
    chance = random.Random(int(sys.argv[4]))
    commands = ["show", "rows", "reasons", "page", "svg", "chrome", "perfetto", "diff"]
    table = [struct.unpack_from("<IIQQQ", good, 64 + 32 * i)
             for i in range(struct.unpack_from("<I", good, 16)[0])]
    firings = next(offset for number, _, _, offset, _ in table if number == FIRINGS)
    devices = struct.unpack_from("<Q", good, 64 + 32 + 16)[0]
    ended = {}
    with tempfile.TemporaryDirectory() as folder:
        bad = os.path.join(folder, "bad.trace")
        for number in range(rounds):
            data = bytearray(good)
            kind = number % 6
            if kind == 0:
                del data[chance.randrange(len(data)):]
            elif kind > 3:
                craft(data, chance, devices, firings)
            else:
                # in the head and tables, anywhere, or in the firings
                low, high = [(8, 700), (8, len(data)), (firings, len(data))][kind - 1]
                for _ in range(chance.randrange(1, 6)):
                    data[chance.randrange(low, high)] = chance.randrange(256)
                if kind == 3:
                    rehash(data)
            with open(bad, "wb") as file:
                file.write(data)
            command = commands[number // 6 % len(commands)]
            words = [program, command, bad] + ([path] if command == "diff" else [])
            try:
                run = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60)
            except subprocess.TimeoutExpired:
                print("FAILED: round %d: %s does not end" % (number, command))
                raise SystemExit(1)
            text = run.stderr.decode(errors="replace")
            if run.returncode not in (0, 1, 2, 3) or "Sanitizer" in text or "runtime error" in text:
                print("FAILED: round %d: %s ended with %d: %s" % (number, command, run.returncode, text))
                raise SystemExit(1)
            if run.returncode and not text.startswith(("actortrace: ", "sluice: ")):
                print("FAILED: round %d: %s does not say what is wrong: %s" % (number, command, text))
                raise SystemExit(1)
            ended[run.returncode] = ended.get(run.returncode, 0) + 1
    print("%d damaged files: %s" % (rounds, ", ".join("%d ended with %d" % (n, s)
                                                     for s, n in sorted(ended.items()))))


main()
