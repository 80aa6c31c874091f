#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the data of which_digit.c from digits.u8 (see make_digits.py):

    python3 examples/make_which_digit.py FOLDER [FRAMES [EXAMPLES]]

frames.npy holds images in 4 patches of 4 by 4 pixels, as bytes. tokens.npy holds EXAMPLES examples of
FRAMES images each: 4 tokens 1 per image, "#", the number of one image, its digit, a newline.
prompts.jsonl and held_out.jsonl hold prompts for --rl; the images of held-out prompts occur nowhere else.
"""
import json
import pathlib
import random
import struct
import sys

PIXELS, RECORD, HELD_OUT = 64, 65, 6
MARKER, PATCHES = 1, 4
PROMPTS, HELD_OUT_PROMPTS = 512, 256


def patches(image):
    """Returns pixels 0 to 16 as bytes 0 to 240, patch by patch."""
    return bytes(15 * image[8 * (4 * (p // 2) + r) + 4 * (p % 2) + c]
                 for p in range(4) for r in range(4) for c in range(4))


def write_npy(path, descr, shape, data):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def main():
    folder = pathlib.Path(sys.argv[1])
    each = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    examples = int(sys.argv[3]) if len(sys.argv) > 3 else 4096
    data = (pathlib.Path(__file__).parent / "digits.u8").read_bytes()
    records = [data[i:i + RECORD] for i in range(0, len(data), RECORD)]
    held_out, learned = records[HELD_OUT - 1::HELD_OUT], records
    learned = [r for i, r in enumerate(records) if i % HELD_OUT != HELD_OUT - 1]
    dice = random.Random(1)
    frames, tokens = [], []

    def draw(images):
        """Adds the frames of a question; returns its tokens and its answer."""
        chosen = [dice.choice(images) for _ in range(each)]
        at = dice.randrange(each)
        frames.extend(patches(r[:PIXELS]) for r in chosen)
        return [MARKER] * (PATCHES * each) + [ord("#"), ord(str(at + 1)[-1])], str(chosen[at][PIXELS])

    def prompts(name, count, images):
        with open(folder / name, "w") as out:
            for _ in range(count):
                first = len(frames)
                prompt, answer = draw(images)
                out.write(json.dumps({"prompt": prompt, "frames": list(range(first, first + each)),
                                      "answer": answer}) + "\n")

    folder.mkdir(parents=True, exist_ok=True)
    for _ in range(examples):
        prompt, answer = draw(learned)
        tokens += prompt + [ord(answer), ord("\n")]
    tokens.append(MARKER)  # the last target
    prompts("prompts.jsonl", PROMPTS, learned)
    prompts("held_out.jsonl", HELD_OUT_PROMPTS, held_out)
    write_npy(folder / "tokens.npy", "|u1", f"({len(tokens)},)", bytes(tokens))
    write_npy(folder / "frames.npy", "|u1", f"({len(frames)}, {PATCHES}, {PIXELS // PATCHES})",
              b"".join(frames))


if __name__ == "__main__":
    main()
