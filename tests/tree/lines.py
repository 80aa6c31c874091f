# SPDX-License-Identifier: Apache-2.0
"""Prints lines of code by room, and how many more or less than in the last row of lines.csv.

    lines.py [--source DIR]          prints the table
    lines.py --add LABEL             adds today's figures as a row

Blank lines and comments do not count. Rooms are the layers, include, python, and all of tests.
"""
import argparse
import csv
import os
import re
import subprocess

ROOMS = ("base io text ops kernels placement actors comm graph pytorch serve rollouts models tools include python "
         "examples tests").split()
SLASHES = tuple(".c .h .cpp .cu .cuh .def .js .css".split())
HASHES = (".py", ".sh")


def count(path):
    """Returns a file's lines of code."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    if path.endswith(SLASHES):
        text = re.sub(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/|//[^\n]*',
                      lambda m: m[0] if m[0][0] == '"' else "\n" * m[0].count("\n"), text, flags=re.S)
    elif path.endswith(HASHES):
        text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
    else:
        return 0
    return sum(1 for line in text.split("\n") if line.strip())


def measure(source):
    lines = dict.fromkeys(ROOMS, 0)
    names = subprocess.run(["git", "-C", source, "ls-files"], capture_output=True, text=True, check=True).stdout
    for name in names.split("\n"):
        room, path = name.split("/")[0], os.path.join(source, name)
        if room in lines and os.path.isfile(path):
            lines[room] += count(path)
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", default=os.path.join(os.path.dirname(__file__), "..", ".."))
    parser.add_argument("--add", metavar="LABEL")
    options = parser.parse_args()
    table = os.path.join(options.source, "tests", "tree", "lines.csv")
    now = measure(options.source)
    if options.add:
        with open(table, "a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow([options.add, *now.values()])
    with open(table, encoding="utf-8") as file:
        last = list(csv.DictReader(file))[-1]
    assert list(last) == ["label", *ROOMS], "lines.csv has other rooms: %s" % list(last)
    print("%-10s %8s  since %s" % ("room", "lines", last["label"]))
    for room in [*ROOMS, "all but tests"]:
        rooms = [room] if room in now else [r for r in ROOMS if r != "tests"]
        lines, before = (sum(int(row[r]) for r in rooms) for row in (now, last))
        print("%-13s %8d %+6d" % (room, lines, lines - before))


if __name__ == "__main__":
    main()
