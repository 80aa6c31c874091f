# SPDX-License-Identifier: Apache-2.0
"""Damages checkpoints at random and resumes runs from them. The run must detect, name and set aside every
damaged checkpoint, and continue from the previous one with the same losses. If no checkpoint is left, it must
fail with an error. A run must never crash, hang, or continue from data that was not written.

    damage_checkpoints.py ACTORRUN WHOLE FULL ROUNDS SEED WORDS...

WHOLE is a directory with the checkpoints step-4 and step-8, FULL the report of the uninterrupted run,
WORDS the arguments of actorrun for resuming.
"""
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

ODD = [0, 1, 7, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 62, (1 << 64) - 1]


def curve(path):
    with open(path, encoding="utf-8") as file:
        return [(s["step"], s["loss_hex"]) for s in json.load(file)["steps"]]


def flip(data, chance):
    """Flips one bit; half the time near the beginning, where headers are."""
    end = len(data) if chance.randrange(2) else min(len(data), 512)
    data[chance.randrange(end)] ^= 1 << chance.randrange(8)


def flips(data, chance):
    for _ in range(chance.randrange(2, 9)):
        flip(data, chance)


def cut(data, chance):
    del data[chance.randrange(len(data)):]


def lengthen(data, chance):
    data += bytes(chance.randrange(256) for _ in range(chance.choice([1, 8, 4096])))


def lose(data, chance):
    """Removes a piece in the middle."""
    at = chance.randrange(len(data))
    del data[at:at + chance.choice([1, 2, 64])]


def blank(data, chance):
    """Zeroes a block, as if it had never reached the disk."""
    at = chance.randrange(len(data))
    data[at:at + 512] = bytes(len(data[at:at + 512]))


def word(data, chance):
    """Changes the header's length, or another number of eight bytes."""
    at = 0 if chance.randrange(3) == 0 else chance.randrange(max(1, len(data) // 8)) * 8
    data[at:at + 8] = struct.pack("<Q", chance.choice(ODD))


def digit(data, chance):
    """Changes a number in the text of a header or manifest."""
    at = chance.choice([m.start() for m in re.finditer(rb"\d", bytes(data[:4096]))] or [0])
    data[at:at + 1] = chance.choice([b"0", b"1", b"9", b"-", b"e", b"99999999999999999999"])


HARMS = [flip, flips, cut, lengthen, lose, blank, word, digit]


def swap(folder, chance):
    """Replaces a file with that of the previous checkpoint or of another stage."""
    name = chance.choice(os.listdir(os.path.join(folder, "step-8")))
    other = os.path.join(folder, "step-4", name)
    if chance.randrange(2) and name != "manifest.json":
        other = os.path.join(folder, "step-8", chance.choice(
            [n for n in os.listdir(os.path.join(folder, "step-8")) if n not in (name, "manifest.json")]))
    shutil.copyfile(other, os.path.join(folder, "step-8", name))
    return "%s is now %s" % (name, os.path.relpath(other, folder))


def remove(folder, step, chance):
    name = chance.choice(os.listdir(os.path.join(folder, step)))
    os.unlink(os.path.join(folder, step, name))
    return "%s/%s is gone" % (step, name)


def harm(folder, step, chance):
    """Damages one file of a checkpoint. Returns a description, or None if the file is unchanged."""
    name = chance.choice(["manifest.json"] + os.listdir(os.path.join(folder, step)))
    path, how = os.path.join(folder, step, name), chance.choice(HARMS)
    with open(path, "rb") as file:
        before = file.read()
    data = bytearray(before)
    how(data, chance)
    with open(path, "wb") as file:
        file.write(data)
    return "%s of %s/%s" % (how.__name__, step, name) if data != before else None


def damage(folder, chance):
    """Returns (description, step to resume from). The step is None if no checkpoint is left."""
    kind = chance.randrange(12)
    if kind == 0:
        return remove(folder, "step-8", chance), 4
    if kind == 1:
        return swap(folder, chance), 4
    if kind == 2:  # `latest` is only informative
        with open(os.path.join(folder, "latest"), "wb") as file:
            file.write(chance.choice([b"", b"step-4\n", b"step-99", b"../..", os.urandom(40)]))
        return "another latest", 8
    if kind == 3:
        done = [harm(folder, step, chance) for step in ("step-8", "step-4")]
        left = [s for s, d in zip((8, 4), done) if not d]
        return " and ".join(d for d in done if d) or None, left[0] if left else None
    done = harm(folder, "step-8", chance)
    return done, 4 if done else 8


def check(run, text, start, full, report):
    """Returns an error in the resumed run, or None."""
    if run.returncode < 0 or run.returncode > 2 or "Sanitizer" in text or "runtime error" in text:
        return "ended with %d" % run.returncode
    if start is None:
        refused = run.returncode == 2 and "none of the 2 checkpoints" in text
        return None if refused else "not refused, status %d" % run.returncode
    if run.returncode:
        return "ended with %d, though step-%d is whole" % (run.returncode, start)
    if "/step-%d, written by" % start not in run.stdout.decode(errors="replace"):
        return "did not go on from step-%d" % start
    if (start == 4) != ("step-8 is incomplete" in text):
        return "what is damaged is not named"
    steps = curve(report)
    if not steps or steps != full[-len(steps):] or steps[0][0] != start:
        return "the losses are others"
    return None


def main():
    program, whole, full, rounds, seed, words = *sys.argv[1:4], *map(int, sys.argv[4:6]), sys.argv[6:]
    full, began, ended = curve(full), seed, {}
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # does not wait for a disk
    with tempfile.TemporaryDirectory(dir=fast) as work:
        report = os.path.join(work, "report.json")
        for seed in range(began, began + rounds):
            chance, folder = random.Random(seed), os.path.join(work, "c")
            shutil.copytree(whole, folder)
            what, start = damage(folder, chance)
            line = [program, "--checkpoint", folder, "--resume", "--report", report,
                    "--stages", str(chance.choice([1, 2, 4])), *words]
            try:
                run = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
                text = run.stderr.decode(errors="replace")
                wrong = check(run, text, start, full, report)
            except subprocess.TimeoutExpired:
                text, wrong = "", "does not end"
            if wrong:
                print("FAILED: seed %d: %s: %s\n%s" % (seed, what, wrong, text))
                raise SystemExit(1)
            key = "refused" if start is None else "went on from step-%d" % start
            ended[key] = ended.get(key, 0) + 1
            shutil.rmtree(folder)
    print("%d damaged checkpoints: %s" % (rounds, ", ".join(
        "%d %s" % (n, how) for how, n in sorted(ended.items()))))


main()
