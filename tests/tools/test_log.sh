#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --log: each step's loss as a CSV table, as JSON objects and as TensorBoard events, also for a
# resumed run. --report during a run.
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

model=(gpt --layers 2 --width 16 --heads 2 --context 16 --batch 4 --data "$reference/text.txt")
run() { ends 0 "$actorrun" --quiet --microbatches 2 "$@" "${model[@]}"; }

# compare REPORT...: the logs have to match the reports, one after another.
compare() {
  python3 - "$@" <<'END' || fail "the logs are not the reports: $*"
import csv, glob, json, math, struct, sys
steps = [s for path in sys.argv[1:] for s in json.load(open(path))["steps"]]
want = [(s["step"] + 1, s["loss"], s["grad_norm"], s["lr"]) for s in steps]
near = lambda a, b: a[0] == b[0] and all(math.isclose(x, y, rel_tol=1e-6) for x, y in zip(a, b))
def check(what, rows):
    assert len(rows) == len(want) and all(map(near, rows, want)), (what, rows, want)
table = list(csv.DictReader(open("l.csv")))
check("csv", [(int(r["step"]), float(r["loss"]), float(r["grad_norm"]), float(r["lr"])) for r in table])
assert all(float(r["tokens_per_second"]) > 0 for r in table)
objects = [json.loads(line) for line in open("l.jsonl")]
check("jsonl", [(o["step"], o["loss"], o["grad_norm"], o["lr"]) for o in objects])

def crc(data):
    sum = 0xffffffff
    for byte in data:
        sum ^= byte
        for _ in range(8):
            sum = sum >> 1 ^ (0x82f63b78 if sum & 1 else 0)
    sum ^= 0xffffffff
    return ((sum >> 15 | sum << 17) + 0xa282ead8) & 0xffffffff
def fields(data):
    at = 0
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        key = varint()
        if key & 7 == 0: yield key >> 3, varint(); continue
        n = {1: 8, 5: 4}.get(key & 7) or varint()
        yield key >> 3, data[at:at + n]
        at += n
curves = {}
for path in sorted(glob.glob("tb/events.out.tfevents.*")):
    data, first = open(path, "rb").read(), True
    while data:
        n, = struct.unpack("<Q", data[:8])
        record = data[12:12 + n]
        assert struct.unpack("<I", data[8:12])[0] == crc(data[:8])
        assert struct.unpack("<I", data[12 + n:16 + n])[0] == crc(record)
        data = data[16 + n:]
        event = dict(fields(record))
        assert abs(struct.unpack("<d", event[1])[0] - __import__("time").time()) < 86400
        if first:
            assert event[3] == b"brain.Event:2"
            first = False
            continue
        value = dict(fields(dict(fields(event[5]))[1]))
        curves.setdefault(event[2], {})[value[1].decode()] = struct.unpack("<f", value[2])[0]
check("events", [(s, c["loss"], c["grad_norm"], c["lr"]) for s, c in sorted(curves.items())])
END
}

logs=(--log l.csv --log l.jsonl --log tb)
run --steps 7 "${logs[@]}" --report a.json
compare a.json
rm -r tb
run --steps 6 --stages 2 -n 2 "${patient[@]}" "${logs[@]}" --report a.json
compare a.json

# A run that logged steps after its last checkpoint, crashed, and resumes.
rm -r tb
run --steps 4 --checkpoint c "${logs[@]}" --report a.json
printf '5,1,1,1,1,1,\n' >>l.csv
printf '{"step": 5, "loss": 1}\n{"step": 6, "lo' >>l.jsonl
sleep 1 # event file names contain seconds
run --steps 9 --checkpoint c --resume "${logs[@]}" --report b.json
compare a.json b.json
echo "something else" >l.csv
ends 2 "$actorrun" --steps 12 --checkpoint c --resume --log l.csv "${model[@]}" --microbatches 2
says "--log l.csv: the existing file is not a log that a run can continue" err
ends 2 "$actorrun" --log no/such/l.csv "${model[@]}"
says "--log: cannot write no/such/l.csv: No such file" err

# A constant rate has no warm-up but its own; the model's default has one of 20 steps.
rates() { # COUNT: the rates of the first steps, as parts of --lr
  python3 -c 'import csv; print(*("%g" % (float(r["lr"]) / 0.5) for r in csv.DictReader(open("lr.csv"))))'
}
for case in "1 1 1=--lr-schedule constant" "0.25 0.5 0.75=--lr-schedule constant:warmup=4" "0.05 0.1 0.15=" \
  "1 1 1=--lr-schedule constant --warmup 0"; do
  # shellcheck disable=SC2086
  run --steps 3 --log lr.csv --lr 0.5 ${case#*=}
  [[ $(rates) == "${case%%=*}" ]] || fail "${case#*=}: rates $(rates)"
done
ends 2 "$actorrun" --lr-schedule constant --warmup 7 "${model[@]}"
says "--lr-schedule constant: has no --warmup; constant:warmup=7 has" err

# The report exists before the run ends.
rm -rf c
background "$actorrun" --quiet --steps 1000000 --checkpoint c --every 20 --report live.json "${model[@]}"
for _ in $(seq 600); do [ -s live.json ] && break; sleep 0.1; done
python3 - <<'END' || fail "no report of a run that goes on"
import json
report = json.load(open("live.json"))
assert report["ended"] == "running" and len(report["steps"]) % 20 == 0 and report["steps"]
END
kill -INT "$pid"
status=0
wait "$pid" || status=$?
((status == 1)) || fail "stopped: status $status"
says '"stopped"' live.json
to_end=()
