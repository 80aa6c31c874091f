# SPDX-License-Identifier: Apache-2.0
"""--expert-placement and --expert-replicas on modelled devices: placing experts by their expected rows, and copies of
those with most, take the time of a model that has an expert for each place and whose routing file gives the rows of
each, device by device, as placed here. Real devices, and settings that lack what they need, are refused by name.

labels: unthreaded
"""
import json

from tool import ACTORRUN, Runs, ends, read, write

EXPERTS, DEVICES, ROWS = 16, 4, 4096 * 2
MODEL = "mixtral --layers 1 --width 256 --heads 2 --context 512 --batch 8 --top-k 2 --expert-ffn 512 --aux-loss 0"
CLOCK = (f"--clock virtual --machine h100-sxm-80gb --devices timed:{DEVICES} --data-parallel {DEVICES} --expert-parallel "
         f"{DEVICES} --steps 2")


def zipf(skew):
    weights = [1 / (e + 1) ** skew for e in range(EXPERTS)]
    return [ROWS * w / sum(weights) for w in weights]


def place(rows, replicas):
    """Returns the rows of all places, device by device."""
    copies = [1] * len(rows)
    for _ in range(replicas):
        copies[max(range(len(rows)), key=lambda e: rows[e] / copies[e])] += 1
    parts = sorted((n / c for n, c in zip(rows, copies) for _ in range(c)), reverse=True)
    room = [len(parts) * (d + 1) // DEVICES - len(parts) * d // DEVICES for d in range(DEVICES)]
    devices = [[] for _ in range(DEVICES)]
    for part in parts:
        free = [d for d in range(DEVICES) if len(devices[d]) < room[d]]
        devices[min(free, key=lambda d: sum(devices[d]))].append(part)
    return [part for device in devices for part in device]


def whole(parts):
    """Rounds parts so that their sum stays."""
    ends_at = [round(sum(parts[:i])) for i in range(len(parts) + 1)]
    return [b - a for a, b in zip(ends_at, ends_at[1:])]


def run(how, experts):
    """Returns the report of a run."""
    ends(0, ACTORRUN, f"--quiet {CLOCK} {how} --report report.json {MODEL} --experts {experts}")
    return json.loads(read("report.json"))


times = {}
for replicas in (None, 0, 3, 8):
    how = "" if replicas is None else f"--expert-placement load --expert-replicas {replicas}"
    got = run(f"--routing zipf:1 {how}", EXPERTS)
    places = zipf(1) if replicas is None else place(zipf(1), replicas)
    write(f"rows{replicas}", " ".join(map(str, whole(places))) + "\n")
    want = run(f"--routing rows{replicas}", len(places))
    times[replicas] = got["passes_seconds"]
    assert abs(got["passes_seconds"] / want["passes_seconds"] - 1) < 2e-3, (replicas, got["passes_seconds"])
    held = [max(d["peak_bytes"]["parameters"] for d in r["devices"]) for r in (got, want)]
    assert abs(held[0] / held[1] - 1) < 2e-3, (replicas, held)
assert times[8] < times[0] < times[None]

# The rows of a file are placed as well.
write("skewed", " ".join(map(str, whole(zipf(1)))) + "\n")
placed = run("--routing skewed --expert-placement load --expert-replicas 8", EXPERTS)
assert abs(placed["passes_seconds"] / times[8] - 1) < 2e-3

for how, text in (("--routing zipf:1 --expert-replicas 2", "--expert-replicas 2: needs --expert-placement load"),
                  ("--expert-placement load", "--expert-placement load: needs --routing, zipf:S or a file"),
                  ("--routing zipf:1 --expert-placement hot", "--expert-placement hot: must be one of order, load")):
    Runs(MODEL, CLOCK).refused(text, how)
err = ends(2, ACTORRUN, "--steps 1 --data-parallel 2 --expert-parallel 2 --expert-placement load --expert-replicas 2 mixtral "
           "--batch 2 --data {reference}/text.txt").stderr
assert "--expert-placement load: cpu devices have experts in their order; only timed devices take this option" in err
