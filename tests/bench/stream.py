# SPDX-License-Identifier: Apache-2.0
"""A stream of clips on two devices, the network and its decoder, beside its formulas (docs/loops.md).

    tests/bench/stream.py [--bin build/release/bin]

With U(n) seconds of the network for the steps of a block of n frames and V(n) of the decoder, the first frame comes
after U(n0) + V(n0), and n / max(U(n), V(n)) frames per second follow. Timed devices wait for given times; the formulas'
times are those of the virtual clock. On two cores an untrained dit runs in a server; its passes are measured by its
trace, and frames by a client."""
import argparse
import csv
import http.client
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

STEPS, FRAMES, BLOCKS = 4, 6, 6
APART = ["--context-frames", "1", "--context", "clean", "--decoder-apart"]
TIMED = [(6, 6, "0.01:0.03", 149, 0.12), (6, 2, "0.01:0.03", 149, 0.12), (12, 4, "0.01:0.03", 298, 0.12),
         (6, 2, "0.01:0.05", 119, 0.15), (6, 2, "0.01:0.03", 300, 0.06)]
MODEL = ["dit", "--layers", "3", "--width", "64", "--heads", "4", "--side", "12", "--frames", str(FRAMES), *APART,
         "--decoder", "32768"]


def timed(options, clock, row):
    frames, first, times, rate, wait = row
    command = [options.bin / "actorrun", "--quiet", *clock, "--clip-order", "stream", "--devices", "timed:2", "--stages", "2",
               "--cost", f"F={times}", "--denoise", str(STEPS), "--clips", f"3x{first + 20 * frames}", "--first-frames",
               str(first), "--frame-rate", str(rate), "--frame-wait", str(wait), "--report", "r.json", "dit", "--frames",
               str(frames), *APART, "--decoder", "64"]
    subprocess.run(command, check=True)
    clip = json.load(open("r.json"))["clips"][0]
    blocks = clip["blocks"]
    pace = (blocks[-1]["frame"] - blocks[3]["frame"]) / (blocks[-1]["seconds"] - blocks[3]["seconds"])
    return blocks[0]["seconds"] * 1e3, pace, clip["late_frames"]


def ask(port, first):
    """Returns the seconds after which each frame came."""
    body = {"class": 3, "frames": first + (BLOCKS - 1) * FRAMES, "first_frames": first, "format": "jsonl"}
    connection = http.client.HTTPConnection("127.0.0.1", port)
    begun, times = time.monotonic(), []
    connection.request("POST", "/v1/videos", json.dumps(body))
    answer = connection.getresponse()
    for line in answer:
        if b'"end"' not in line:
            times.append(time.monotonic() - begun)
    return times


def passes(options):
    """Returns the network's and the decoder's seconds for the last BLOCKS blocks. A tick whose frames are done is the
    last of its block's STEPS ticks."""
    out = subprocess.run([options.bin / "actortrace", "rows", "s.trace"], check=True, capture_output=True, text=True).stdout
    rows = [r for r in csv.DictReader(out.splitlines(), delimiter="\t") if r["class"] == "F"]
    rows.sort(key=lambda r: (int(r["step"]), int(r["microbatch"])))
    network, decoder = ([r for r in rows if r["device"] == device] for device in "01")

    def seconds(part):
        return sum(int(r["end_ns"]) - int(r["start_ns"]) for r in part) * 1e-9

    done = [i for i, r in enumerate(network) if int(r["rows"]) > 0][-BLOCKS:]
    decoded = [r for r in decoder if int(r["rows"]) > 0][-BLOCKS:]
    return [seconds(network[i + 1 - STEPS:i + 1]) for i in done], [seconds([r]) for r in decoded]


def served(options, first):
    command = [options.bin / "actorserve", "--port", "0", "--denoise", str(STEPS), "--clip-order", "stream", "--stages", "2",
               "--devices", "cpu:2x1", "--trace", "s.trace", "--init", "w.safetensors", *MODEL]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    port = int(re.search(r":(\d+)", server.stdout.readline())[1])
    times = [ask(port, first) for _ in range(2)][-1]
    server.terminate()
    server.wait()
    network, decoder = passes(options)
    middle = [sorted(part[2:])[len(part[2:]) // 2] for part in (network, decoder)]
    pace = (BLOCKS - 3) * FRAMES / (times[-1] - times[first + FRAMES])
    return network[0] + decoder[0], FRAMES / max(middle), times[0], pace, middle


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        print("timed devices\nn\tn0\tfirst frame, ms\tpredicted\tframes/s\tpredicted\tlate\tpredicted")
        for row in TIMED:
            (first, pace, late), (want, fast, miss) = timed(options, [], row), timed(options, ["--clock", "virtual"], row)
            print(f"{row[0]}\t{row[1]}\t{first:.2f}\t{want:.2f} ({100 * (first / want - 1):+.1f} %)\t{pace:.1f}\t{fast:.1f} "
                  f"({100 * (pace / fast - 1):+.1f} %)\t{late}\t{miss}")
        data = pathlib.Path(__file__).resolve().parents[2] / "examples/digits.u8"
        subprocess.run([options.bin / "actorrun", "--quiet", "--steps", "1", "--save", "w.safetensors", *MODEL, "--batch", "1",
                        "--data", data], check=True)
        print("two cores\nn\tn0\tU, V of a block, ms\tfirst frame, ms\tpredicted\tframes/s\tpredicted")
        for first in (FRAMES, 3, 1):
            wait, fast, came, pace, middle = served(options, first)
            print(f"{FRAMES}\t{first}\t{middle[0] * 1e3:.1f}, {middle[1] * 1e3:.1f}\t{came * 1e3:.1f}\t{wait * 1e3:.1f} "
                  f"({100 * (came / wait - 1):+.1f} %)\t{pace:.1f}\t{fast:.1f} ({100 * (pace / fast - 1):+.1f} %)")


main()
