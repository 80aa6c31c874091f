#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Accuracy of a graph network in chunks with embeddings of the step before, beside training on the whole graph.

    graphs.py --actorrun build/release/bin/actorrun [--seeds 1-10] [--pieces 4,8] GRAPH...

GRAPH is a file of graph-tool's collection (`polblogs.gt.gz` of Debian's python3-graph-tool), whose vertex property
`value` is the class, or `karate`, which networkx ships. Edges lose their direction, and vertices without an edge are
left out. Each seed puts the vertices into another order, of which every tenth is labelled, and begins with other
weights. Orders grow from a random vertex, so that chunks are close-knit; with --shuffle they are random. Both ways of
training start from the same file and weights; the accuracy is that of the unlabelled vertices at the end, with the
weights saved and all vertices in one piece.
"""
import argparse
import gzip
import json
import os
import random
import statistics
import struct
import subprocess
import tempfile

GCN = os.path.dirname(os.path.abspath(__file__)) + "/../../examples/gcn.c"
# sizes of the scalar types of graph-tool's files, by number; 6: text; 7 to 12: lists of 0 to 5
SIZES = {0: 1, 1: 2, 2: 4, 3: 8, 4: 8, 5: 16}
CODES = {0: "B", 1: "h", 2: "i", 3: "q", 4: "d"}


class Reader:
    """Takes numbers from a little-endian file of graph-tool."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, bytes_):
        self.at += bytes_
        return self.data[self.at - bytes_:self.at]

    def number(self, bytes_=8):
        return int.from_bytes(self.take(bytes_), "little")

    def text(self):
        return self.take(self.number()).decode()

    def value(self, kind):
        if kind == 6:
            return self.text()
        if kind > 6:
            return [self.value(kind - 7) for _ in range(self.number())]
        part = self.take(SIZES[kind])
        return struct.unpack("<" + CODES[kind], part)[0] if kind in CODES else None


def read_gt(path):
    """Returns the classes of the vertices and the pairs of vertices with an edge."""
    with gzip.open(path) as file:
        r = Reader(file.read())
    if r.take(6) != "⛾ gt".encode() or r.number(1) != 1 or r.number(1) != 0:
        raise SystemExit(f"graphs.py: {path}: no little-endian file of graph-tool, version 1")
    r.text()
    r.number(1)
    n = r.number()
    size = next(s for s in (1, 2, 4, 8) if n <= 1 << 8 * s)
    pairs = [(i, r.number(size)) for i in range(n) for _ in range(r.number())]
    counts = {0: 1, 1: n, 2: len(pairs)}
    for _ in range(r.number()):
        kind, name = r.number(1), r.text()
        kind_of_value = r.number(1)
        values = [r.value(kind_of_value) for _ in range(counts[kind])]
        if (kind, name) == (1, "value"):
            names = sorted(set(values))
            return [names.index(v) for v in values], pairs
    raise SystemExit(f"graphs.py: {path}: vertices have no property `value`")


def karate():
    import networkx
    g = networkx.karate_club_graph()
    return [int(g.nodes[i]["club"] == "Officer") for i in g], list(g.edges)


def read(name):
    classes, pairs = karate() if name == "karate" else read_gt(name)
    pairs = {(min(p), max(p)) for p in pairs if p[0] != p[1]}
    kept = sorted({end for p in pairs for end in p})
    place = {vertex: i for i, vertex in enumerate(kept)}
    return [classes[i] for i in kept], sorted((place[x], place[y]) for x, y in pairs)


def grown(classes, pairs, seed):
    """Returns the vertices in an order that grows from a random one: next comes the vertex with the most of its edges
    to those before, so that chunks are close-knit."""
    draw = random.Random(seed)
    ends = [[] for _ in classes]
    for x, y in pairs:
        ends[x].append(y)
        ends[y].append(x)
    left, inside, order = set(range(len(classes))), [0] * len(classes), []
    while left:
        key = draw.random
        vertex = max(sorted(left), key=lambda i: (inside[i] / len(ends[i]), key()))
        left.remove(vertex)
        order.append(vertex)
        for end in ends[vertex]:
            inside[end] += 1
    return order


def shuffled(classes, pairs, seed):
    order = list(range(len(classes)))
    random.Random(seed).shuffle(order)
    return order


def write(path, classes, pairs, order):
    """Writes the graph with its vertices in this order."""
    place = {vertex: i for i, vertex in enumerate(order)}
    ends = [[] for _ in order]
    for x, y in pairs:
        ends[place[x]].append(place[y])
    with open(path, "w") as file:
        for i, vertex in enumerate(order):
            print(classes[vertex], *sorted(ends[i]), file=file)


def run(args, folder, *options):
    report = folder + "/report.json"
    subprocess.run([args.actorrun, "--quiet", "--devices", "cpu:1x1", "--report", report, *options, GCN, "--graph",
                    folder + "/graph", *args.model.split()], check=True)
    with open(report) as file:
        return json.load(file)


def accuracy(args, folder, seed, pieces):
    weights = folder + "/weights.safetensors"
    run(args, folder, "--seed", str(seed), "--steps", str(args.steps), "--pieces", str(pieces), "--lr-schedule",
        f"cosine:decay-steps={args.steps},warmup=10", "--save", weights)
    run_ = run(args, folder, "--steps", "1", "--init", weights, "--eval-every", "1", "--lr", "0")
    return run_["evaluations"][-1]["metrics"]["accuracy"]


def seeds(text):
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actorrun", required=True)
    parser.add_argument("--seeds", type=seeds, default=seeds("1-10"))
    parser.add_argument("--pieces", default="4,8")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--shuffle", action="store_true")
    parser.add_argument("--model", default="--layers 4 --width 32 --features 16 --lr 0.003")
    parser.add_argument("graphs", nargs="+", metavar="GRAPH")
    args = parser.parse_args()
    print("| graph | vertices, edges, classes | pieces | accuracy, mean and deviation | difference to one piece |\n"
          "| --- | --- | --- | --- | --- |", flush=True)
    for name in args.graphs:
        classes, pairs = read(name)
        whole = None
        for pieces in (1, *map(int, args.pieces.split(","))):
            found = []
            for seed in args.seeds:
                with tempfile.TemporaryDirectory() as folder:
                    write(folder + "/graph", classes, pairs, shuffled(classes, pairs, seed) if args.shuffle
                          else grown(classes, pairs, seed))
                    found.append(accuracy(args, folder, seed, pieces))
            whole = whole or found
            off = [x - y for x, y in zip(found, whole)]
            print(f"| {os.path.basename(name).split('.')[0]} | {len(classes)}, {len(pairs)}, {max(classes) + 1} | {pieces} | "
                  f"{statistics.mean(found):.4f}, {statistics.pstdev(found):.4f} | "
                  f"{statistics.mean(off):+.4f}, {statistics.pstdev(off):.4f} |", flush=True)


main()
