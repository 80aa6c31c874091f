# SPDX-License-Identifier: Apache-2.0
"""A prompt of empty frames for examples/which_digit.c, and what its encoders take."""
import json
import re
import struct


def write_frames(folder, frames, patches, pixels, merged):
    """Writes frames.npy and prompts.jsonl, a prompt with all frames, and returns the model's options for them."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({frames}, {patches}, {pixels}), }}".ljust(117) + "\n"
    with open(folder + "/frames.npy", "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.truncate(file.tell() + frames * patches * pixels)
    prompt = [1] * (frames * patches // merged) + [35, 50]
    with open(folder + "/prompts.jsonl", "w", encoding="utf-8") as file:
        file.write(json.dumps({"prompt": prompt, "frames": list(range(frames)), "answer": "7"}) + "\n")
    return f"--each {frames} --patches {patches} --pixels {pixels} --merge {merged} --frames {folder}/frames.npy"


def encoder_times(rows, devices, step):
    """Returns the nanoseconds that each device's encoders take in a step, from the output of `actortrace rows`, and
    those from the end of the last to the first reading of the prompt."""
    spent, ends, reads = [0] * devices, [0], []
    for line in rows.splitlines()[1:]:
        at, device, *_, begin, end, actor, _ = line.split("\t")
        if int(at) == step and re.match(r"span0(\.0|$)", actor):
            spent[int(device)] += int(end) - int(begin)
            ends.append(int(end))
        elif int(at) == step and actor.startswith("rollout0"):
            reads.append(int(begin))
    return spent, min(reads) - max(ends)
