#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The host updates parameters of modelled devices: this takes time of its memory bandwidth, which
# its copies share. Without clipping no update waits for the norm.
# labels: unthreaded
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

actortrace=$bin/actortrace

# Devices whose arithmetic takes no time, four per host. The host has one socket with eight channels
# of DDR5-4800 (307.2 GB/s, from Intel's data sheets of the fourth generation of Xeon). Each device
# has a PCIe 5.0 x16 link (64 GB/s each way by its specification, of which four fifths are reached).
machine() { # COPY [UPDATES]
  python3 - "$@" >machine.json <<'PY'
import json, sys
print(json.dumps(dict(name="hosts", flops_per_second={"f32": 1e29}, flops_efficiency=1,
      bytes_per_second=1e29, bytes_efficiency=1, op_seconds=0, memory_bytes=1e18, link_seconds=0,
      link_bytes_per_second=0, devices_per_host=4, host_link_seconds=0, host_link_bytes_per_second=0,
      copy_bytes_per_second=float(sys.argv[1]), host_memory_bytes_per_second=307.2e9,
      **({"host_updates_per_second": float(sys.argv[2])} if len(sys.argv) > 2 else {}))))
PY
}
model=(gpt --layers 48 --width 5888 --heads 46 --context 16 --vocab 256 --batch 1)
job=(--devices timed:4 --stages 4 --clock virtual --machine machine.json --optimizer adamw:clip=0 --steps 3)
figure() { python3 -c 'import json, sys; print(eval(sys.argv[2], json.load(open(sys.argv[1]))))' "$@"; }
run() { ends 0 "$actorrun" "${job[@]}" "$@" --report "$report.json" "${model[@]}"; }
near() { # IS WANTED SHARE TEXT
  python3 -c 'import sys; a, b, s = map(float, sys.argv[1:4]); sys.exit(abs(a - b) > s * b)' "$1" "$2" "$3" ||
    fail "$4: $1 s, not $2 within $3"
}

# ---- the host's memory ----------------------------------------------------------------------
# Bytes per parameter that the host updates: the gradient, written (4); parameter and state, read
# and written, and the gradient, read (28); the parameter, read (4). Bytes per parameter that the
# device updates, with its state on the host: the state, read and written (16).
machine 51.2e9
values=$("$actorrun" "${job[@]}" --dry-run "${model[@]}" | sed -n 's/^gpt: \([0-9,]*\) parameters.*/\1/p' | tr -d ,)
report=host run --update host
seconds() { python3 -c "print($1 * $values / 307.2e9)"; } # BYTES
near "$(figure host.json step_seconds)" "$(seconds 36)" 0.03 "all on the host"
report=half run --update every:2
near "$(figure half.json step_seconds)" "$(seconds 18)" 0.03 "half on the host"
report=there run --update every:2 --home state=host
near "$(figure there.json step_seconds)" "$(seconds 26)" 0.03 "half on the host, all there"
report=device run --update device
near "$(figure device.json step_seconds)" 0 0 "nothing on the host"

# The traffic follows: 8 bytes, and 16 of state.
moved() { figure "$1.json" 'runtime["moved_bytes_per_step"]["host"]'; }
near "$(moved host)" "$((8 * values))" 0.001 "moved"
near "$(moved half)" "$((4 * values))" 0.001 "moved"
near "$(moved there)" "$((12 * values))" 0.001 "moved"

# 20e9 parameters on four H100s, of which the host updates half or all: 1.173 and 2.278 s were
# measured (Maurya et al., Middleware 2024).
near "$(python3 -c "print($(figure half.json step_seconds) / $values * 20e9)")" 1.173 0.06 "20B, a half"
near "$(python3 -c "print($(figure host.json step_seconds) / $values * 20e9)")" 2.278 0.06 "20B, all"

# ---- the host's cores ------------------------------------------------------------------------
# Cores that update 8.9e9 parameters a second (24 cores of a Xeon for each H100), beside copies. The
# paper also measured 1.296 s for half of the updates on the devices with all state on the host.
machine 51.2e9 8.9e9
cores() { python3 -c "print($1 * $values / 8.9e9)"; } # SHARE
report=host run --update host
near "$(figure host.json step_seconds)" "$(cores 1)" 0.06 "all on the host's cores"
near "$(python3 -c "print($(figure host.json step_seconds) / $values * 20e9)")" 2.278 0.055 "20B, all, by cores"
report=half run --update every:2
near "$(figure half.json step_seconds)" "$(cores .5)" 0.1 "half on the host's cores"
near "$(python3 -c "print($(figure half.json step_seconds) / $values * 20e9)")" 1.173 0.055 "20B, a half, by cores"
report=there run --update every:2 --home state=host
near "$(python3 -c "print($(figure there.json step_seconds) / $values * 20e9)")" 1.296 0.055 "20B, interleaved, by cores"
machine 51.2e9 1e12 # cores that never wait: the memory is the limit
report=host run --update host
python3 -c "import sys; sys.exit(not $(figure host.json step_seconds) >= .99 * $(seconds 28))" ||
  fail "updates are faster than the host's memory"

# ---- shards on the host -----------------------------------------------------------------------
# A device fetches the shards of a block when it gathers them: more blocks need no more memory.
fetched() { # BLOCKS
  "$actorrun" --dry-run --devices timed:2 --data-parallel 2 --shard parameters --update host --microbatches 2 gpt \
    --layers "$1" --width 256 --heads 4 --context 32 --vocab 256 --batch 4 |
    awk '$1 == "timed:0" && $3 ~ /B$/ && NF > 8 { print $2, $3 }'
}
[[ -n $(fetched 4) && $(fetched 4) == "$(fetched 8)" ]] || fail "more blocks fetch more: $(fetched 4), $(fetched 8)"

# ---- copies ------------------------------------------------------------------------------------
# Slow copies determine the time: 4 bytes for each device's quarter, in both directions at once.
machine 5e9
report=slow run --update host
near "$(figure slow.json step_seconds)" "$(python3 -c "print($values / 5e9)")" 0.15 "slow copies"

# ---- the norm ---------------------------------------------------------------------------------
small=(gpt --layers 4 --width 32 --heads 2 --context 16 --batch 4 --data "$reference/text.txt")
for clip in 0 1e9; do
  ends 0 "$actorrun" --stages 2 --microbatches 2 --steps 3 --optimizer adamw:clip=$clip \
    --report clip$clip.json "${patient[@]}" "${small[@]}"
done
[[ $(hexes clip0.json) == "$(hexes clip1e9.json)" ]] || fail "nothing is clipped, and other losses"
first_update() { # CLIP: prints when the first update begins and when the last backward pass ends, in a step
  ends 0 "$actorrun" --stages 2 --clock virtual --grain layer --steps 2 --optimizer "adamw:clip=$1" \
    --trace clip.trace "${small[@]}"
  "$actortrace" rows clip.trace | awk -F'\t' '$1 == 1 && $10 ~ /^update/ && (!u || $8 < u) { u = $8 }
    $1 == 1 && $3 == "B" && $9 > b { b = $9 } END { print (u < b ? "before" : "after") }'
}
[[ $(first_update 1) == after ]] || fail "an update does not wait for the norm"
[[ $(first_update 0) == before ]] || fail "all updates wait for the norm that clips nothing"
