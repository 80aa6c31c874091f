#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --sequence: a context that exceeds any single device's budget, even with pieces, recomputation and
# disk, trains on two devices and on four. A checkpoint resumes on another grid. A forward pass
# alone moves a third of the bytes of ring attention. On the virtual clock contiguous positions have
# the expected efficiency, and zigzag is fully balanced. Impossible settings are rejected with an
# error that names them.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
run() { ends 0 timeout 100 "$actorrun" "${patient[@]}" --quiet --microbatches 1 --report r.json "$@"; }
losses() { grep -oE '"loss":[^,]*' "$1" | grep -oE '[0-9.]+$'; }
near() { # REPORT REPORT: losses differ by less than 1e-6, relatively
  paste <(losses "$1") <(losses "$2") |
    awk '{ d = $1 / $2 - 1; if (NF < 2 || d > 1e-6 || d < -1e-6) bad = 1 } END { exit bad || !NR }'
}
llama=(llama --layers 4 --width 32 --heads 4 --kv-heads 2 --context 1024 --batch 1
       --data "$reference/text.txt")

# ---- in 2 MiB ------------------------------------------------------------------------------------------
all=(--pieces 16 --piece-order layers --recompute full --home act=disk --home kv=disk --memory 2M --disk "$work")
run --steps 2 "${llama[@]}"
mv r.json one.json
for way in "--recompute full" "--pieces 16 --recompute full" "--pieces 16 --home act=disk" "${all[*]}"; do
  # shellcheck disable=SC2086
  ends 3 timeout 60 "$actorrun" --quiet --dry-run --microbatches 1 --memory 2M $way "${llama[@]}"
done
for way in "2 heads" "4 heads" "4 ring"; do
  # shellcheck disable=SC2086
  set -- $way
  run --steps 2 --sequence "$1" --sequence-attention "$2" --shard parameters "${all[@]}" "${llama[@]}"
  near r.json one.json || fail "on $1 devices, by $2, it learns something else"
done
losses r.json >homes
run --steps 2 --sequence 4 --sequence-attention ring --shard parameters --pieces 16 "${llama[@]}"
losses r.json | cmp - homes || fail "by ring homes change the losses"

# ---- another grid ----------------------------------------------------------------------------------------
small=(llama --layers 2 --width 32 --heads 4 --kv-heads 2 --context 33 --batch 4 --data "$reference/text.txt")
run --steps 6 --data-parallel 2 --tensor 2 "${small[@]}"
mv r.json whole.json
run --steps 3 --sequence 4 --sequence-attention heads --shard gradients --checkpoint c --every 3 "${small[@]}"
run --steps 6 --data-parallel 2 --sequence 2 --sequence-attention ring --shard parameters --resume --checkpoint c \
  "${small[@]}"
losses whole.json | tail -3 >want
losses r.json | paste - want | awk '{ d = $1 / $2 - 1; if (NF < 2 || d > 1e-6 || d < -1e-6) bad = 1 } END { exit bad || NR != 3 }' ||
  fail "a run that goes on with another grid has other losses"

run --steps 2 --sequence 2 --sequence-attention ring --pieces 3 --checkpoint p --every 1 "${small[@]}"
run --steps 6 -n 2 --sequence 2 --sequence-attention ring --pieces 3 --resume --checkpoint p "${small[@]}"
losses r.json >continued
run --steps 6 --sequence 2 --sequence-attention ring --pieces 3 "${small[@]}"
losses r.json | tail -4 | cmp - continued || fail "pieces do not go on with the same losses"

# ---- forward exchanges only -------------------------------------------------------------------------------
# If only the head is trained, attention has no backward pass.
there() { # BYTES DEVICES POSITIONS [OPTIONS]
  local want=$1 devices=$2 positions=$3
  shift 3
  run --steps 1 --sequence "$devices" --sequence-attention ring --freeze 'model.*' "$@" llama --layers 2 --width 64 \
    --heads 4 --kv-heads 2 --context "$positions" --batch 1 --data "$reference/text.txt"
  moved=$(sed -n '/"runtime"/,$p' r.json | grep -oE '"sequence":\s*[0-9]+' | grep -oE '[0-9]+$')
  [ "$moved" = "$want" ] || fail "$moved bytes are moved on the way there, not $want ($devices, $positions, $*)"
}
there 98304 2 256
# Of 8 runs of 257 positions, run r has 257 (r + 1) / 8 - 257 r / 8 positions: the last has one
# more.
there $((2 * 64 * 4 * (3 * 4 * 32 + 1 * 32 + 2 * 32 + 3 * 32))) 4 257
there $((2 * 64 * 4 * (3 * 257))) 4 257 --pieces 5
there $((2 * 64 * 4 * 257)) 2 257 --pieces 3 --sequence-layout contiguous

# ---- the virtual clock ------------------------------------------------------------------------------------
# Only arithmetic takes time, and nearly all of it is attention.
head -c 65600 /dev/zero | tr '\0' a >long.txt
python3 - "$SLUICE_SOURCE/machines/h100-sxm-80gb.json" "$actorrun" <<'END' || fail "efficiencies are not what they must be"
import json, subprocess, sys
machine = json.load(open(sys.argv[1]))
machine.update(flops_per_second={"f32": 1e12, "bf16": 1e12}, op_seconds=0)
for name in machine:
    if name.endswith("_efficiency"): machine[name] = 1
    if name.endswith("link_seconds"): machine[name] = 0
    if name.endswith("bytes_per_second"): machine[name] = 1e18
json.dump(machine, open("machine.json", "w"))
for P in 2, 4, 8:
    for layout, want in ("contiguous", P / 2 / (P - 1 / 2)), ("zigzag", 1):
        subprocess.run([sys.argv[2], "--quiet", "--clock", "virtual", "--devices", f"timed:{P}", "--machine",
                        "machine.json", "--steps", "2", "--sequence", str(P), "--sequence-attention", "ring",
                        "--sequence-layout", layout, "--report", "r.json", "llama", "--layers", "1", "--width",
                        "16", "--heads", "1", "--kv-heads", "1", "--ffn", "16", "--context", "65536", "--batch",
                        "1", "--data", "long.txt"], check=True)
        report = json.load(open("r.json"))
        busy = [d["busy_seconds"] for d in report["devices"]]
        got = sum(busy) / P / report["step_seconds"]
        assert abs(got - want) < 0.003, (P, layout, got, want)
END

# ---- choice by cost -----------------------------------------------------------------------------------------
# The planner takes the faster way on the virtual clock, also if four devices share two key/value
# heads; which one that is depends on the links.
python3 - "$SLUICE_SOURCE/machines/h100-sxm-80gb.json" "$actorrun" <<'END' || fail "auto is not what takes least time"
import json, subprocess, sys
machine = json.load(open(sys.argv[1]))
def step(way, rate, seconds, kv_heads, pieces):
    machine.update(host_link_bytes_per_second=rate, host_link_seconds=seconds)
    json.dump(machine, open("machine.json", "w"))
    subprocess.run([sys.argv[2], "--quiet", "--clock", "virtual", "--devices", "timed:4", "--machine",
                    "machine.json", "--steps", "2", "--sequence", "4", "--sequence-attention", way, "--pieces",
                    pieces, "--report", "r.json", "llama", "--layers", "1", "--width", "512", "--ffn", "512",
                    "--heads", "8", "--kv-heads", kv_heads, "--context", "4096", "--batch", "1", "--data",
                    "long.txt"], check=True)
    return json.load(open("r.json"))["step_seconds"]
for want, *case in (("ring", 4.5e11, 3e-6, "2", "1"), ("heads", 4.5e11, 1e-4, "2", "1"),
                    ("heads", 2e10, 1e-7, "8", "4"), ("ring", 2e10, 1e-7, "2", "4")):
    took = {way: step(way, *case) for way in ("heads", "ring", "auto")}
    assert took["auto"] == min(took.values()) == took[want], (want, case, took)
END
ends 0 "$actorrun" --dry-run --show-sbp --sequence 4 llama --kv-heads 1 --layers 1 --width 32 --heads 4 --context 64 \
  --batch 1 --data "$reference/text.txt" >sbp
grep -q "the runner-up has attention by heads: .* MB received instead of" out sbp || fail "it is not said what heads would take"

# ---- impossible settings ------------------------------------------------------------------------------------
refuse() { # TEXT ARGUMENTS...
  local text=$1
  shift
  ends 2 timeout 60 "$actorrun" --quiet --steps 1 "$@" "${small[@]}"
  says "$text" err
}
refuse "op h.0/attention.1 (attention) cannot be split by heads over 5 sequence-parallel devices" \
  --sequence 5 --sequence-attention heads
refuse "has too few positions" --sequence 34 --sequence-attention ring
refuse "unknown sequence attention 'rows'" --sequence 2 --sequence-attention rows
refuse "unknown sequence layout 'odd'" --sequence 2 --sequence-layout odd
refuse "sequence layout zigzag: needs --sequence-attention ring" --sequence 2 --sequence-attention heads \
  --sequence-layout zigzag
ends 2 timeout 60 "$actorrun" --quiet --steps 1 --sequence 2 --sequence-layout zigzag mamba2 --data "$reference/text.txt" --layers 1 \
  --width 16 --head-dim 8 --state 4 --context 32 --batch 4
says "it reads positions in order, as --sequence-layout contiguous has them" err
refuse "has too few positions" --sequence 4 --sequence-attention ring --pieces 5

# Pieces of different lengths: each device has at least as many positions of the longer piece, in
# both layouts.
for case in "--sequence 4 --sequence-layout zigzag --pieces 3:31" "--sequence 5 --sequence-layout contiguous --pieces 2:15"; do
  odd=(llama --layers 1 --width 20 --heads 5 --vocab 256 --batch 2 --context "${case##*:}" --data "$reference/text.txt")
  ends 0 "$actorrun" --quiet --steps 2 --log one.csv "${odd[@]}"
  # shellcheck disable=SC2086
  ends 0 "$actorrun" --quiet --steps 2 --log cut.csv ${case%:*} "${odd[@]}"
  python3 - <<'PY' || fail "$case: other losses or norms"
import csv
for a, b in zip(csv.DictReader(open("one.csv")), csv.DictReader(open("cut.csv")), strict=True):
    for name in ("loss", "grad_norm"):
        assert abs(float(a[name]) - float(b[name])) < 1e-5, (a, b)
PY
done
