# SPDX-License-Identifier: Apache-2.0
"""The cost of skewed routing on modelled devices, and what placement and replicas of hot experts save.

    tests/bench/replicas.py [--bin build/release/bin] [--experts E] [--devices D] [--skew S]

E experts have rows in proportion to 1 / (e + 1)^S (--routing zipf:S), on the virtual clock."""
import argparse
import json
import pathlib
import subprocess
import tempfile


def step(options, *how):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        subprocess.run([options.bin / "actorrun", "--quiet", "--clock", "virtual", "--machine", "h100-sxm-80gb",
                        "--devices", f"timed:{options.devices}", "--data-parallel", str(options.devices),
                        "--expert-parallel", str(options.devices), "--dtype", "bf16", "--report", report, "--steps", "2", *how,
                        "mixtral", "--layers", "2", "--width", "2048", "--heads", "16", "--context", "512", "--batch", "128",
                        "--experts", str(options.experts), "--top-k", "2", "--expert-ffn", "4096"], check=True)
        report = json.loads(report.read_text())
        return report["passes_seconds"], max(d["peak_bytes"]["parameters"] for d in report["devices"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--skew", type=float, default=1)
    options = parser.parse_args()
    print("routing\tplacement\treplicas\tms of passes\tparameters, MB")
    for routing in ("zipf:0", f"zipf:{options.skew}"):
        for placement, replicas in (("order", 0), ("load", 0), ("load", 8), ("load", 16), ("load", 32)):
            seconds, parameters = step(options, "--routing", routing, "--expert-placement", placement, "--expert-replicas",
                                       str(replicas))
            print(f"{routing}\t{placement}\t{replicas}\t{seconds * 1e3:.2f}\t{parameters / 1e6:.0f}", flush=True)


main()
