#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --layout: which axes connect neighbouring devices. Losses have the same bits with any layout. The
# bytes between processes, the step time on modelled hosts and the bytes between them follow from
# which devices share a host. Bad layouts are rejected with an error that names them.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
gpt=(gpt --layers 4 --width 32 --heads 4 --context 32 --batch 8 --data "$reference/tokens.u16")
run() {
  ends 0 timeout 100 "$actorrun" --quiet --steps 2 --report r.json "$@" "${gpt[@]}"
}
number() { # NAME after the key BEHIND
  sed -n "/\"$2\"/,\$p" r.json | grep -oE "\"$1\":\s*[0-9.e-]+" | sed -n '1s/.*://p'
}

# ---- the same bits; checkpoints resume with another layout --------------------------------------------
grid=(--stages 2 --data-parallel 2 --tensor 2 --microbatches 2)
run "${grid[@]}" --checkpoint c --every 2
want=$(hexes r.json)
for way in "tensor,data,stage" "stage,data,tensor -n 2" "data,stage,tensor --jitter 20"; do
  # shellcheck disable=SC2086
  run "${grid[@]}" "${patient[@]}" --layout $way
  [ "$(hexes r.json)" = "$want" ] || fail "--layout $way: other losses"
done
run "${grid[@]}" --steps 4
want=$(hexes r.json | tail -2)
run "${grid[@]}" --steps 4 --layout stage,tensor,data --resume --checkpoint c
[ "$(hexes r.json)" = "$want" ] || fail "a run that goes on with another layout has other losses"

# ---- bytes between processes ---------------------------------------------------------------------------
# With two devices per process, only the traffic of the outer axis crosses processes.
for outer in data tensor; do
  [ $outer = data ] && layout=tensor,data || layout=data,tensor
  run -n 2 "${patient[@]}" --data-parallel 2 --tensor 2 --layout $layout
  sent=$(number sent_bytes_per_step runtime) moved=$(number $outer runtime)
  awk -v s="$sent" -v m="$moved" 'BEGIN { exit !(m > 0 && s >= m && s < 1.01 * m) }' ||
    fail "$layout: $sent bytes are sent, $moved moved along $outer"
done

# ---- modelled hosts of eight devices -------------------------------------------------------------------
seconds() { # LAYOUT
  ends 0 timeout 100 "$actorrun" --quiet --clock virtual --machine "$SLUICE_SOURCE/machines/h100-sxm-80gb.json" \
    --stages 2 --data-parallel 2 --tensor 8 --microbatches 4 --steps 2 --layout "$1" --report r.json gpt \
    --layers 2 --width 256 --heads 8 --context 512 --batch 32 --data "$reference/tokens.u16"
  number step_seconds steps
}
inside=$(seconds tensor,data,stage) across=$(seconds data,tensor,stage)
awk -v a="$inside" -v b="$across" 'BEGIN { exit !(a < 0.98 * b) }' ||
  fail "tensors exchanged inside a host take $inside s a step, across hosts $across s"

# ---- bytes between modelled hosts ------------------------------------------------------------------------
# With two devices per host, traffic along the innermost axis stays within a host and all other
# traffic leaves it. This also holds if one device stands for all of a grid.
sed 's/"devices_per_host": 8/"devices_per_host": 2/' "$SLUICE_SOURCE/machines/h100-sxm-80gb.json" >pairs.json
for data in 2 4; do
  for layout in tensor,data,stage data,tensor,stage stage,tensor,data; do
    ends 0 timeout 100 "$actorrun" --quiet --clock virtual --machine pairs.json --stages 2 --data-parallel $data --tensor 4 \
      --microbatches 2 --steps 1 --layout $layout --sbp 'head/linear.1=-,S2' --report r.json "${gpt[@]}"
    python3 - $layout $data <<'END' || fail "$layout: other bytes go from host to host"
import json, sys
r = json.load(open("r.json"))["predicted"]
moved, crossed = (r[name] for name in ("moved_bytes_per_step", "between_hosts_bytes_per_step"))
name = {"stage": "pipeline"}
axes, data = sys.argv[1].split(","), int(sys.argv[2])
size = {"stage": 2, "data": data, "tensor": 4}
assert (r["alike"] > 1) == (data == 4), r["alike"]
assert moved["pipeline"] > 0 and moved["data"] > 0 and moved["tensor"] > 0, moved
for i, axis in enumerate(axes):
    share = (size[axis] - 2) / (size[axis] - 1) if i == 0 else 1 # of the others of its row one is beside it
    want = share * moved[name.get(axis, axis)]
    assert abs(crossed[name.get(axis, axis)] - want) <= 0.02 * want, (axis, want, moved, crossed)
END
  done
done

# ---- bad layouts ---------------------------------------------------------------------------------------
refuse() { # LAYOUT WORDS
  ends 2 "$actorrun" "${grid[@]}" --layout "$1" "${gpt[@]}"
  says "$2" err
}
refuse data,tensor "axis stage is missing; --stages 2 has 2 devices along it"
refuse data,tensor,stage,data "axis data is listed twice"
refuse data,rows,stage "unknown axis 'rows': must be one of tensor, sequence, expert, data, stage"
refuse data,tensor,stage, "unknown axis ''"
