#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a file of make_models.py as a Hugging Face folder, without PyTorch.

    python3 model_folder.py FILE.json FOLDER

A tensor's values are center + scale u, where u in -1..1 comes from a linear congruential generator
that starts from the CRC-32 of the tensor's name.
"""
import array
import json
import os
import struct
import sys
import zlib


def values(name, shape, center, scale):
    """Returns the values of a tensor as the bytes of 32-bit floats."""
    count, state, out = 1, zlib.crc32(name.encode()), array.array("f")
    for n in shape:
        count *= n
    for _ in range(count):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(center + scale * (state / 2147483648 - 1))
    return out.tobytes()


def write_weights(path, tensors):
    write_bytes(path, {name: (shape, values(name, shape, center, scale)) for name, (shape, center, scale) in tensors.items()})


def write_numbers(path, tensors):
    """Writes tensors given as shapes and lists of numbers."""
    write_bytes(path, {name: (shape, array.array("f", numbers).tobytes()) for name, (shape, numbers) in tensors.items()})


def write_bytes(path, tensors):
    head, data = {"__metadata__": {"format": "pt"}}, []
    at = 0
    for name, (shape, raw) in tensors.items():
        data.append(raw)
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data[-1])]}
        at += len(data[-1])
    text = json.dumps(head).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def write_folder(path, folder):
    """Writes the folder, and returns what the file holds."""
    with open(path) as file:
        made = json.load(file)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(made["config"], file)
    write_weights(os.path.join(folder, "model.safetensors"), made["tensors"])
    return made


if __name__ == "__main__":
    write_folder(*sys.argv[1:3])
