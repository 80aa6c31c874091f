# SPDX-License-Identifier: Apache-2.0
"""coverage.py BUILD: prints the share of executed lines in each folder, from the gcov counts of this
build."""
import collections
import gzip
import json
import os
import subprocess
import sys
import tempfile

LAYERS = ("base", "io", "ops", "kernels", "placement", "actors", "comm", "graph", "serve", "models", "tools")


def counters(build):
    for folder, _, names in os.walk(build):
        for name in names:
            if name.endswith(".gcno"):
                yield os.path.join(folder, name)


def lines_of(build):
    """Returns {source: {line: executed}}. A line of a header, or of a file compiled twice, counts if any copy
    of it ran."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(build)))
    found = collections.defaultdict(dict)
    files = [os.path.abspath(name) for name in counters(build)]
    for i in range(0, len(files), 200):
        with tempfile.TemporaryDirectory() as work:
            subprocess.run(["gcov", "--json-format", "--preserve-paths", "--hash-filenames", *files[i:i + 200]], cwd=work,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            for name in os.listdir(work):
                with gzip.open(os.path.join(work, name)) as report:
                    data = json.load(report)
                for source in data["files"]:
                    path = os.path.normpath(os.path.join(data["current_working_directory"], source["file"]))
                    path = os.path.relpath(path, root)
                    if path.split("/")[0] not in LAYERS:
                        continue
                    for line in source["lines"]:
                        number = line["line_number"]
                        found[path][number] = found[path].get(number, False) or line["count"] > 0
    return found


def main(build):
    sums = collections.defaultdict(lambda: [0, 0])
    for path, lines in lines_of(build).items():
        for folder in (path.split("/")[0], "all"):
            sums[folder][0] += sum(lines.values())
            sums[folder][1] += len(lines)
    if not sums:
        raise SystemExit("coverage: no counters in " + build)
    print("%-10s %8s %8s %7s" % ("folder", "lines", "ran", "share"))
    for folder in (*LAYERS, "all"):
        ran, lines = sums[folder]
        print("%-10s %8d %8d %6.1f%%" % (folder, lines, ran, 100 * ran / lines if lines else 0))


main(sys.argv[1])
