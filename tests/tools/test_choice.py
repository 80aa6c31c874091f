# SPDX-License-Identifier: Apache-2.0
"""The family of f32 products is chosen by timing, once per machine, and kept in the user's cache. Processes that start
together measure once and choose alike. A damaged file and one of another processor are measured again. Without a cache
that can be written, with SLUICE_CPU_LEVEL and with --exact the choice has no effect.

labels: outside
"""
import glob
import os
import subprocess

from tool import ACTORRUN, PATIENT, Report, Runs, read, words, write

os.environ.pop("SLUICE_CPU_FP32", None)
run = Runs("gpt --layers 1 --width 64 --heads 2 --context 32 --batch 4 --data {reference}/tokens.u16", "--steps 2")


def choice(report):
    return report.whole["products_choice"]


def files(folder):
    return glob.glob(folder + "/sluice/products-*")


def cache(name):
    os.mkdir(name)
    return os.path.abspath(name)


def fnv(text):
    h = 14695981039346656037
    for byte in text.encode():
        h = (h ^ byte) * 1099511628211 % 2**64
    return f"{h:016x}\n"


def forge(path, library, vectors):
    """Writes a file with these times, of which the machine has no tiles."""
    lines = read(path).decode().splitlines()[:2]
    lines += [f"{name} tiles {0:.9f} library {library:.9f} vectors {vectors:.9f}" for name in ("wide", "narrow")]
    text = "\n".join(lines) + "\n"
    write(path, text + fnv(text))


# Processes that start together wait for the first one's times.
first = cache("first")
starts = [subprocess.Popen([ACTORRUN, *words(f"--quiet {PATIENT} --steps 1 --report r{i}.json {run.model}")],
                           env={**os.environ, "XDG_CACHE_HOME": first}) for i in range(4)]
assert not any(p.wait() for p in starts)
told = {choice(Report.read(f"r{i}.json")) for i in range(4)}
assert len(told) == 1 and len(files(first)) == 1, told
path, kept = files(first)[0], read(files(first)[0])
assert f"timed once, kept in {path}" in told.pop() and b"\nwide tiles " in kept

# A run reads what is kept, and replaces what it cannot trust.
run("", XDG_CACHE_HOME=first)
assert read(path) == kept, "it is measured once"
other = kept.replace(b"processor", b"processor of another kind,", 1)
for damage in (b"", kept[:-9], kept[:60], other, b"\xff" * 5000, kept.replace(b"vectors 0", b"vectors 1", 1)):
    with open(path, "wb") as file:
        file.write(damage)
    run("--seed " + str(len(damage) + damage.count(b"1")), XDG_CACHE_HOME=first)
    assert read(path) != damage and read(path).startswith(kept[:60]), damage

# The kept times choose. Exact runs do not read them.
with_library = "oneDNN" in run("", SLUICE_CPU_FP32="library").whole["products_library"]
bits = {}
for name, times in {"library": (.001, .002), "own": (.002, .001)}.items():
    forge(path, *times)
    forged = run(f"--steps 3 --log {name}.csv", XDG_CACHE_HOME=first)
    named = run("--steps 3", SLUICE_CPU_FP32=name)
    assert forged.bits == named.bits, name
    assert choice(named) == "SLUICE_CPU_FP32 is set"
    assert ("oneDNN" in forged.whole["products_library"]) == (with_library and name == "library"), choice(forged)
    bits[name] = run(f"--exact --log exact-{name}.csv", XDG_CACHE_HOME=first).bits
assert bits["library"] == bits["own"], "--exact has one definition"

# The default of the level: if a level is asked for, without a cache, and with one that cannot be written.
assert choice(run("", SLUICE_CPU_LEVEL="1")) == "SLUICE_CPU_LEVEL is set"
assert "cannot be written" in choice(run("", XDG_CACHE_HOME="/dev/null/cache"))
assert "does not exist" in choice(run("", HOME="", XDG_CACHE_HOME=""))
