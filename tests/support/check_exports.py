# SPDX-License-Identifier: Apache-2.0
"""Reads exports of actortrace with independent readers.

    check_exports.py rows|chrome|svg|perfetto FILE ROWS

ROWS is the output of `actortrace rows`: every export must contain its firings.
Exits with 1 and a line with the failed claim, or with 77 if a reader is not
installed.
"""
import collections
import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree


def check(condition, claim):
    if not condition:
        print("FAILED: " + claim, file=sys.stderr)
        raise SystemExit(1)


def read_rows(path):
    with open(path) as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    check(lines[0] == "step device class stage chunk microbatch piece start_ns end_ns actor".split(),
          "the header line")
    rows = [dict(zip(lines[0], line)) for line in lines[1:]]
    for row in rows:
        for name in row:
            if name not in ("class", "actor"):
                row[name] = int(row[name])
    return rows


def check_rows(rows):
    check(rows, "there are firings")
    by_actor = collections.Counter((r["actor"], r["step"]) for r in rows)
    for (actor, step), count in by_actor.items():
        check(count == by_actor[actor, 0], "%s fires as often in step %d as in step 0" % (actor, step))
    for row in rows:
        check(row["end_ns"] >= row["start_ns"] and row["class"] in "FBWUCL", "a sane row: %s" % row)


def check_nesting(spans, where):
    """Checks that spans of one track nest or follow each other."""
    stack = []
    for start, end in sorted(spans, key=lambda s: (s[0], -s[1])):
        while stack and stack[-1] <= start:
            stack.pop()
        check(not stack or end <= stack[-1], "the slices of %s nest" % (where,))
        stack.append(end)


def check_chrome(path, rows):
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    kinds = collections.defaultdict(list)
    for event in events:
        kinds[event["ph"]].append(event)
    slices = kinds["X"]
    nano = lambda us: round(us * 1000)
    got = sorted((e["pid"], e["cat"], nano(e["ts"]), nano(e["ts"] + e["dur"]), e["name"],
                  e["args"]["step"], e["args"]["microbatch"]) for e in slices)
    want = sorted((r["device"], r["class"], r["start_ns"], r["end_ns"], r["actor"], r["step"],
                   r["microbatch"]) for r in rows)
    check(got == want, "every firing is a slice")
    tracks = collections.defaultdict(list)
    for e in slices:
        tracks[e["pid"], e["tid"]].append((nano(e["ts"]), nano(e["ts"] + e["dur"])))
    for track, spans in tracks.items():
        check_nesting(spans, track)
    named = {(e["pid"], e["tid"]) for e in kinds["M"] if e["name"] == "thread_name"}
    check(set(tracks) <= named, "every thread has a name")
    starts = {e["id"]: e for e in kinds["s"]}
    ends = {e["id"]: e for e in kinds["f"]}
    check(starts and set(starts) == set(ends), "every arrow has two ends")
    for id, start in starts.items():
        check(start["ts"] <= ends[id]["ts"], "an arrow goes forwards")
        check(any(a <= nano(start["ts"]) <= b for a, b in tracks[start["pid"], start["tid"]]),
              "an arrow leaves from a slice")
    check(any(e["name"] == "bytes in use" and e["args"]["value"] > 0 for e in kinds["C"]),
          "there is a counter of bytes")
    check(all(e["args"]["value"] >= 0 for e in kinds["C"]), "no counter goes below zero")


def check_svg(path, rows):
    root = xml.etree.ElementTree.parse(path).getroot()
    check(root.tag == "{http://www.w3.org/2000/svg}svg", "it is an SVG")
    check(len(root.findall("{http://www.w3.org/2000/svg}rect")) > 20, "it has rectangles")
    text = "".join(root.itertext())
    for device in {r["device"] for r in rows}:
        check("timed:%d" % device in text, "device %d has its name" % device)


def check_perfetto(path, rows):
    try:
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
    except ImportError:
        return check_perfetto_raw(path, rows)
    trace = Trace()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())
    tracks, open_slices, got, flows = {}, {}, [], collections.Counter()
    counters = set()
    spans = collections.defaultdict(list)
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            d = packet.track_descriptor
            check(d.uuid not in tracks and (not d.parent_uuid or d.parent_uuid in tracks),
                  "tracks come after their parents")
            tracks[d.uuid] = d
        if not packet.HasField("track_event"):
            continue
        e = packet.track_event
        check(e.track_uuid in tracks, "an event is on a track")
        if e.type == TrackEvent.TYPE_SLICE_BEGIN:
            check(e.track_uuid not in open_slices, "slices of a track do not overlap")
            open_slices[e.track_uuid] = (packet.timestamp, e)
            flows.update(e.flow_ids)
        elif e.type == TrackEvent.TYPE_SLICE_END:
            start, begin = open_slices.pop(e.track_uuid)
            notes = {n.name: n.int_value for n in begin.debug_annotations}
            got.append((begin.categories[0], start, packet.timestamp, begin.name, notes["step"],
                        notes["microbatch"]))
            spans[e.track_uuid].append((start, packet.timestamp))
        else:
            check(e.type == TrackEvent.TYPE_COUNTER and e.counter_value >= 0, "a counter: %s" % e)
            counters.add(tracks[e.track_uuid].name)
    want = sorted((r["class"], r["start_ns"], r["end_ns"], r["actor"], r["step"], r["microbatch"])
                  for r in rows)
    check(sorted(got) == want, "every firing is a slice")
    check(not open_slices, "every slice ends")
    for uuid, slices in spans.items():
        check_nesting(slices, tracks[uuid].name)
    check(flows and min(flows.values()) >= 2, "every flow has two ends")
    check("bytes in use" in counters and any("slots of" in c for c in counters), "there are counters")


def check_perfetto_raw(path, rows):
    """Reads the file without Perfetto's own classes, as any protobuf reader can."""
    if not shutil.which("protoc"):
        print("neither perfetto's Python package nor protoc is installed")
        raise SystemExit(77)
    with open(path, "rb") as file:
        text = subprocess.run(["protoc", "--decode_raw"], stdin=file, capture_output=True, check=True,
                              text=True).stdout
    lines = text.splitlines()
    check(lines.count("    9: 1") == lines.count("    9: 2") == len(rows), "every firing is a slice")
    for row in rows[:200]:
        check('    23: "%s"' % row["actor"] in lines, "%s is there" % row["actor"])


rows = read_rows(sys.argv[3])
if sys.argv[1] == "rows":
    check_rows(rows)
else:
    {"chrome": check_chrome, "svg": check_svg, "perfetto": check_perfetto}[sys.argv[1]](sys.argv[2], rows)
