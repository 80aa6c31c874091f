#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# actortune --home auto: the frontier includes plans that offload or recompute registers, and is
# never worse than without. Each command makes the plan that is shown, to the byte.
# labels: unthreaded
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

cat >machine.json <<'JSON'
{"flops_per_second": {"f32": 1e12}, "flops_efficiency": 1, "bytes_per_second": 1e11, "bytes_efficiency": 1,
 "op_seconds": 1e-6, "memory_bytes": 1e15, "link_seconds": 0, "link_bytes_per_second": 0,
 "copy_bytes_per_second": 1e10, "host_memory_bytes_per_second": 4e10,
 "disk_read_bytes_per_second": 2e9, "disk_write_bytes_per_second": 2e9}
JSON
model=(llama --layers 6 --width 32 --heads 2 --context 128 --vocab 64 --batch 8)
tune=("$bin/actortune" --devices timed:2 --stages 2 --machine machine.json --microbatches 4 --schedule
      "1f1b,zb-h1" --effort 300 --points 40 --quiet)

ends 0 "${tune[@]}" --json kept.json "${model[@]}"
ends 0 "${tune[@]}" --home auto --home act@head=device --json auto.json "${model[@]}"
says "--home act=host" out
grep -q -- "--home auto" out && fail "a command that searches is no plan"
python3 - "$actorrun" <<'PY'
import json, subprocess, sys
kept, auto = (json.load(open(name))["points"] for name in ("kept.json", "auto.json"))
best = lambda points, bytes: min([p["step_seconds"] for p in points if p["memory_bytes"] <= bytes], default=1e9)
for p in kept:
    assert best(auto, p["memory_bytes"]) <= p["step_seconds"] * (1 + 1e-9), p["command"]
assert min(p["memory_bytes"] for p in auto) < min(p["memory_bytes"] for p in kept), "nothing is saved"
assert any("act=host" in p["command"] for p in auto), "no plan has a home"
for p in auto:
    out = subprocess.run([sys.argv[1], "--clock", "virtual", "--report", "r.json", "--steps", "3"] + p["words"],
                         capture_output=True, text=True)
    assert not out.returncode, (p["command"], out.stderr)
    report = json.load(open("r.json"))
    assert report["plan_hash"] == p["plan_hash"], p["command"]
    assert max(d["peak_bytes"]["total"] for d in report["devices"]) == p["memory_bytes"], p["command"]
PY

ends 2 "${tune[@]}" --home auto --host-memory lots "${model[@]}"
says "--host-memory lots: not a size such as 64G" err
ends 2 "${tune[@]}" --home auto --home kv=tape "${model[@]}"
says "home kv=tape: must be device, host, disk or peer:N, not 'tape'" err
