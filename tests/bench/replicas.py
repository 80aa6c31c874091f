# SPDX-License-Identifier: Apache-2.0
"""The cost of skewed routing on modelled devices, and what replicas of hot experts save.

    tests/bench/replicas.py [--bin build/release/bin] [--experts E] [--devices D] [--skew S]

The E experts have rows in proportion to 1 / (e + 1)^S. With R replicas there are E + R places for experts, equally many
on each device. The places go one by one to the expert with most rows per place, and the experts' places, the largest
first, to the device with fewest rows that has room (DeepSeek's EPLB places them so). A model with E + R experts and a
routing file with the rows of each place then runs on the virtual clock. It has the memory, products and exchanges of
the replicas; the sums of gradients between replicas of one expert are left out."""
import argparse
import json
import pathlib
import subprocess
import tempfile

TOKENS, TOP = 65536, 2


def rows_of(experts, skew):
    shares = [1 / (e + 1) ** skew for e in range(experts)]
    rows = [int(TOKENS * TOP * s / sum(shares)) for s in shares]
    rows[0] += TOKENS * TOP - sum(rows)
    return rows


def place(rows, replicas, devices):
    """Returns the rows of all places, device by device."""
    copies = [1] * len(rows)
    for _ in range(replicas):
        copies[max(range(len(rows)), key=lambda e: rows[e] / copies[e])] += 1
    parts = []
    for n, c in zip(rows, copies):
        parts += [n // c + (i < n % c) for i in range(c)]
    room = len(parts) // devices
    lines = [[] for _ in range(devices)]
    for part in sorted(parts, reverse=True):
        min((line for line in lines if len(line) < room), key=sum).append(part)
    return lines


def step(options, lines):
    with tempfile.TemporaryDirectory() as folder:
        path, report = pathlib.Path(folder) / "routing", pathlib.Path(folder) / "report.json"
        path.write_text(" ".join(str(n) for line in lines for n in line) + "\n")
        subprocess.run([options.bin / "actorrun", "--quiet", "--clock", "virtual", "--machine", "h100-sxm-80gb",
                        "--devices", f"timed:{options.devices}", "--data-parallel", str(options.devices),
                        "--expert-parallel", str(options.devices), "--dtype", "bf16", "--routing", path, "--report", report,
                        "--steps", "2", "mixtral", "--layers", "2", "--width", "2048", "--heads", "16", "--context", "512",
                        "--batch", str(TOKENS // 512), "--experts", str(sum(map(len, lines))), "--top-k", str(TOP),
                        "--expert-ffn", "4096"], check=True)
        report = json.loads(report.read_text())
        return report["passes_seconds"], max(d["peak_bytes"]["parameters"] for d in report["devices"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--skew", type=float, default=1)
    options = parser.parse_args()
    print("skew\treplicas\tbusiest device\tms of passes\tparameters, MB")
    for skew in (0, options.skew):
        rows = rows_of(options.experts, skew)
        for replicas in (0,) if not skew else (None, 0, 8, 16, 32):
            if replicas is None:  # experts in their own order
                each = options.experts // options.devices
                lines = [rows[d * each:(d + 1) * each] for d in range(options.devices)]
            else:
                lines = place(rows, replicas, options.devices)
            seconds, parameters = step(options, lines)
            even = sum(rows) / options.devices
            name = "0, in order" if replicas is None else replicas
            print(f"{skew:g}\t{name}\t{max(map(sum, lines)) / even:.3f}\t{seconds * 1e3:.2f}\t{parameters / 1e6:.0f}", flush=True)


main()
