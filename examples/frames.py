#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the frames of a clip as one picture.

    frames.py CLIP.npy PICTURE.png [COLUMNS [SCALE]]

CLIP.npy is what `actorrun --clips --video CLIP.npy` writes: f32 [frames, height, width], -1 to 1. Frames go row by
row, COLUMNS (16) in a row, SCALE (3) pixels wide for each of theirs; numbers are dark on white."""
import struct
import sys
import zlib

GAP = 2


def read_npy(path):
    data = open(path, "rb").read()
    size = struct.unpack("<H", data[8:10])[0]
    shape = eval(data[10 : 10 + size].decode())["shape"]
    return shape, struct.unpack(f"<{(len(data) - 10 - size) // 4}f", data[10 + size :])


def write_png(path, lines):
    def part(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", len(lines[0]), len(lines), 8, 0, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + bytes(line) for line in lines), 9)
    with open(path, "wb") as out:
        out.write(b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", data) + part(b"IEND", b""))


def main(clip, picture, columns=16, scale=3):
    (count, height, width), numbers = read_npy(clip)
    rows, high, wide = -(-count // columns), height * scale + GAP, width * scale + GAP
    lines = [bytearray([255]) * (columns * wide + GAP) for _ in range(rows * high + GAP)]
    for i in range(count):
        top, left = i // columns * high + GAP, i % columns * wide + GAP
        for y in range(height * scale):
            for x in range(width * scale):
                level = numbers[(i * height + y // scale) * width + x // scale]
                lines[top + y][left + x] = 255 - round(min(max((level + 1) * 127.5, 0), 255))
    write_png(picture, lines)


if __name__ == "__main__":
    main(*sys.argv[1:3], *(int(word) for word in sys.argv[3:5]))
