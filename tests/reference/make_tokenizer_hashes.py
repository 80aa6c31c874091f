# SPDX-License-Identifier: Apache-2.0
"""Prints hashes of the tokens that Hugging Face's tokenizers gives for every character and for random strings, for
test_io_tokenizer_all: pip install tokenizers; python3 make_tokenizer_hashes.py NAME.json >NAME.hashes

A line covers 4096 characters, each between an a and a b, or 1000 strings."""
import sys

from tokenizers import Tokenizer

MASK, PRIME, BASIS = (1 << 64) - 1, 1099511628211, 14695981039346656037
WHITE = " \n\t\r"


def add(value, ids):
    for i in list(ids) + [0xffffffff]:
        value = ((value ^ i) * PRIME) & MASK
    return value


class Rng:
    def __init__(self, seed):
        self.state = seed

    def roll(self, sides):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & MASK
        return (self.state >> 33) % sides


def character(rng):
    kind = rng.roll(6)
    if kind == 0:
        return chr(32 + rng.roll(95))
    if kind == 1:
        return chr(97 + rng.roll(26))
    if kind == 2:
        return WHITE[rng.roll(4)]
    if kind == 3:
        return chr(0xa0 + rng.roll(0x2000))
    if kind == 4:
        return chr(0x4e00 + rng.roll(0x5000))
    return chr(0x1f300 + rng.roll(0x600))


def string(seed):
    rng = Rng(seed)
    return "".join(character(rng) for _ in range(1 + rng.roll(40)))


def points(first):
    return ["a%cb" % c for c in range(first, first + 4096) if not 0xd800 <= c < 0xe000]


def main():
    tokenizer = Tokenizer.from_file(sys.argv[1])
    groups = [("point", first, points(first)) for first in range(0, 0x110000, 4096)]
    groups += [("string", first, [string(s) for s in range(first, first + 1000)]) for first in range(0, 100000, 1000)]
    for kind, first, texts in groups:
        value = BASIS
        for encoding in tokenizer.encode_batch(texts, add_special_tokens=False):
            value = add(value, encoding.ids)
        print(kind, first, "%016x" % value)


main()
