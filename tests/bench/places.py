#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the assignments that actortune plan finds where links differ with all assignments.

    SLUICE_BUILD=build/release tests/bench/places.py [--devices 6] [--seeds 1-20] [--most 3000]

Each seed draws a grid, the devices of a host, and pairs of devices with links of their own. actorrun predicts a step
for one assignment of each arrangement of links, on the virtual clock. Seeds with more than --most arrangements are left
out. Exits with 1 if a step of the found assignment is longer than the shortest.
"""
import argparse
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = ["gpt", "--layers", "8", "--width", "384", "--heads", "6", "--context", "128", "--vocab", "512", "--batch", "24"]


def draw_case(devices, seed):
    draw = random.Random(seed)
    grids = [(p, t, d) for p in range(1, devices + 1) for t in (1, 2, 3) for d in range(1, 7) if p * t * d == devices]
    grid = draw.choice([g for g in grids if g[0] <= 8])
    per_host = draw.choice([n for n in (2, 3, 4) if devices % n == 0])
    pairs = draw.sample(list(itertools.combinations(range(devices), 2)), draw.randint(1, devices))
    return grid, per_host, {pair: draw.choice([1e9, 5e9, 2e11]) for pair in pairs}


def arrangements(devices, per_host, links):
    """Returns one assignment of each class with equal links between places."""
    found = {}
    for way in itertools.permutations(range(devices)):
        hosts = {}
        view = [hosts.setdefault(d // per_host, len(hosts)) for d in way]
        view += [links.get((min(way[a], way[b]), max(way[a], way[b]))) for a in range(devices) for b in range(a)]
        found.setdefault(tuple(view), way)
    return list(found.values())


def step_seconds(folder, grid, assign):
    stages, tensor, data = grid
    report = folder + "/report.json"
    subprocess.run([os.environ["SLUICE_BUILD"] + "/bin/actorrun", "--clock", "virtual", "--machine", folder + "/machine.json",
                    "--stages", str(stages), "--tensor", str(tensor), "--data-parallel", str(data), "--microbatches", "4",
                    "--steps", "2", "--quiet", "--report", report, "--assign", assign, *MODEL], check=True)
    with open(report) as file:
        return json.load(file)["predicted"]["step_seconds"]


def planned(folder, devices, grid):
    fix = "stages={},tensor={},data={},microbatches=4,schedule=1f1b,recompute=none,shard=nothing".format(*grid)
    out = subprocess.run([os.environ["SLUICE_BUILD"] + "/bin/actortune", "plan", "--devices", f"timed:{devices}", "--machine",
                          folder + "/machine.json", "--fix", fix, "--points", "1", "--threads", "1", *MODEL],
                         check=True, capture_output=True, text=True).stdout
    said = re.search(r"--assign (\S+)", out)
    return said[1] if said else f"0-{devices - 1}"


def compare(folder, devices, seed, most):
    """Prints the row of a seed and returns whether its assignment is as good as any."""
    grid, per_host, links = draw_case(devices, seed)
    ways = arrangements(devices, per_host, links)
    if len(ways) > most:
        return True
    with open(HERE + "/../../machines/h100-sxm-80gb.json") as file:
        machine = json.load(file)
    machine.update(devices_per_host=per_host, links=[
        {"from": a, "to": b, "seconds": 1e-6, "bytes_per_second": rate} for (a, b), rate in links.items()])
    with open(folder + "/machine.json", "w") as file:
        json.dump(machine, file)
    began = time.monotonic()
    assign = planned(folder, devices, grid)
    took = time.monotonic() - began
    found = step_seconds(folder, grid, assign)
    best = min(step_seconds(folder, grid, ",".join(map(str, way))) for way in ways)
    print(f"| {seed} | {grid[0]} x {grid[1]} x {grid[2]}, {per_host} a host | {len(ways)} | {1e3 * found:.4f} ms | "
          f"{1e3 * best:.4f} ms | {took:.1f} s |", flush=True)
    return found <= best * (1 + 1e-9)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--devices", type=int, default=6)
    options.add_argument("--seeds", default="1-20", help="FIRST-LAST")
    options.add_argument("--most", type=int, default=3000, help="largest number of arrangements to try")
    o = options.parse_args()
    first, last = map(int, o.seeds.split("-"))
    print("| seed | stages x tensor x data | arrangements | found | shortest | search |\n"
          "| --- | --- | --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        good = [compare(folder, o.devices, seed, o.most) for seed in range(first, last + 1)]
    sys.exit(not all(good))


main()
