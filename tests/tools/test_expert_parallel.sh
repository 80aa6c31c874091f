#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --expert-parallel: a run with experts on two processes continues bit for bit after one of them is
# killed. From a checkpoint with another number of devices per expert it continues up to rounding.
# On the virtual clock the bytes of exchanged rows are exact. A run that receives more rows than it
# has room for ends with their number. Invalid settings are rejected with an error that names them.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

small=(--layers 2 --width 32 --heads 4 --context 16 --batch 8)
model=(mixtral --data "$reference/text.txt" "${small[@]}" --experts 8 --expert-ffn 16)
run() { ends 0 timeout 100 "$actorrun" --quiet --microbatches 2 --report r.json "${patient[@]}" "$@" "${model[@]}"; }
losses() { grep -oE '"loss":[^,]*' "$1" | grep -oE '[0-9.]+$'; }
near() { # REPORT REPORT: the last three losses differ by less than 1e-6, relatively
  paste <(losses "$1" | tail -3) <(losses "$2" | tail -3) |
    awk '{ d = $1 / $2 - 1; if (NF < 2 || d > 1e-6 || d < -1e-6) bad = 1 } END { exit bad || NR != 3 }'
}

# ---- checkpoints ----------------------------------------------------------------------------------
run --steps 6 --data-parallel 4 --expert-parallel 4
mv r.json whole.json
run --steps 3 --data-parallel 4 --expert-parallel 4 --shard gradients --checkpoint c --every 3
for experts in 4 2 1; do
  cp -r c "c$experts"
  run --steps 6 --data-parallel 4 --expert-parallel $experts --checkpoint "c$experts" --resume
  near r.json whole.json || fail "a run that goes on with experts on $experts devices has other losses"
done
# Experts with a grid of their own: over all four devices, two per tensor half, or all.
run --steps 3 --data-parallel 2 --tensor 2 --expert-parallel 4 --checkpoint f --every 3
for experts in 4 2 1; do
  cp -r f "f$experts"
  run --steps 6 --data-parallel 2 --tensor 2 --expert-parallel $experts --expert-tensor 1 --checkpoint "f$experts" --resume
  near r.json whole.json || fail "a run that goes on with experts on $experts of all devices has other losses"
done
for files in -n1 -n2; do # with one file or several, the weights are the same
  run ${files/-n/-n } --steps 2 --data-parallel 2 --expert-parallel 2 --save "w$files.safetensors"
done
cmp w-n1.safetensors w-n2.safetensors || fail "two processes have other weights"

# A process is killed during training; the job continues from its last checkpoint.
background timeout 100 "$actorrun" -n 2 --restarts 1 --microbatches 2 --steps 60 --checkpoint k --every 5 --data-parallel 2 \
  --expert-parallel 2 --report killed.json "${patient[@]}" "${model[@]}"
for _ in $(seq 1200); do
  [ -e k/latest ] && break
  sleep 0.05
done
launcher=$(pgrep -P "$pid" | head -1)
victim=$(pgrep -P "$launcher" | tail -1)
kill -9 "$victim" || fail "the run had ended"
wait "$pid" || fail "the run has not gone on"
says "killed by signal 9" err
run -n 2 --steps 60 --data-parallel 2 --expert-parallel 2
hexes killed.json | tail -5 >got
hexes r.json | tail -5 | cmp - got || fail "after a kill it has other losses"

# ---- bytes ----------------------------------------------------------------------------------------
# 4 L M tokens k h 4 (EP-1)/EP, if all experts get the same number of rows.
for experts in 2 4; do
  ends 0 "$actorrun" --quiet --clock virtual --microbatches 2 --steps 2 --data-parallel 4 --expert-parallel $experts \
    --report r.json "${model[@]}"
  moved=$(sed -n '/"runtime"/,$p' r.json | grep -oE '"expert":\s*[0-9]+' | grep -oE '[0-9]+$' | head -1)
  [ "$moved" = $((4 * 2 * 2 * 64 * 2 * 32 * 4 * (experts - 1) / experts)) ] || fail "rows move $moved bytes"
done
for grid in "2 2 4" "2 4 2" "4 2 8" "4 2 1"; do # all devices planned, or one standing for all
  read -r data tensor experts <<<"$grid"
  for machine in "" "--machine h100-sxm-80gb --layout data,tensor,expert,stage"; do
    # shellcheck disable=SC2086
    ends 0 "$actorrun" --quiet --clock virtual --microbatches 2 --steps 2 --data-parallel "$data" --tensor "$tensor" \
      --expert-parallel "$experts" --expert-tensor 1 $machine --report r.json "${model[@]}"
    moved=$(sed -n '/"runtime"/,$p' r.json | grep -oE '"expert":\s*[0-9]+' | grep -oE '[0-9]+$' | head -1)
    [ "$moved" = $((4 * 2 * 2 * 64 * 2 * 32 * 4 * (experts - 1) / experts)) ] || fail "on $grid rows move $moved bytes"
  done
done

# ---- rejected settings ----------------------------------------------------------------------------
refused() { # STATUS NAMED WORDS...
  local status=$1 named=$2
  shift 2
  ends "$status" timeout 100 "$actorrun" --quiet --microbatches 2 --steps 1 "$@"
  grep -qE -- "$named" err || fail "the message does not name $named"
}
refused 2 "op h\.[01]/.*rows come to device [0-3] of the stage for its experts .* room for 32: --expert-rows" \
  --data-parallel 4 --expert-parallel 4 --expert-rows 1 "${model[@]}"
refused 2 "op h\.[01]/.*rows come to device [0-3] of the stage for its experts .* room for 32: --expert-rows" \
  --data-parallel 2 --tensor 2 --expert-parallel 4 --expert-rows 1 "${model[@]}"
refused 2 "expert-parallel 3: must divide the 4 devices of --data-parallel 2 and --tensor 2" --data-parallel 2 --tensor 2 \
  --expert-parallel 3 "${model[@]}"
refused 2 "expert-parallel 4: .*grouped_linear.* has only 3 experts" --data-parallel 2 --tensor 2 --expert-parallel 4 \
  "${model[@]}" --experts 3
refused 2 "expert-parallel 2: the tokens of h.*too few positions, and too few rows" --data-parallel 4 --tensor 2 \
  --expert-parallel 2 --expert-tensor 1 "${model[@]}" --context 1
refused 2 "expert-tensor 2: must be 1 .*--tensor .4." --data-parallel 2 --tensor 4 \
  --expert-parallel 2 --expert-tensor 2 "${model[@]}"
refused 2 "expert-tensor 2: .*if --expert-parallel divides" --data-parallel 2 --tensor 2 --expert-parallel 4 \
  --expert-tensor 2 "${model[@]}"
refused 2 "expert-parallel 4: not with --parallel 4, which leaves the grid open" --parallel 4 --expert-parallel 4 "${model[@]}"
refused 2 "expert-parallel 3: must divide --data-parallel 4" --data-parallel 4 --expert-parallel 3 "${model[@]}"
refused 2 "expert-rows 0.5: must be at least 1" --data-parallel 4 --expert-parallel 4 --expert-rows 0.5 "${model[@]}"
refused 2 "expert-rows 2: needs --expert-parallel" --data-parallel 4 --expert-rows 2 "${model[@]}"
refused 2 "expert-parallel 4: .*grouped_linear.* has only 3 experts" --data-parallel 4 --expert-parallel 4 "${model[@]}" \
  --experts 3
refused 2 "expert-parallel 2: the model has no experts" --data-parallel 2 --expert-parallel 2 llama \
  --data "$reference/text.txt" "${small[@]}"
refused 2 "axis expert is missing" --data-parallel 2 --expert-parallel 2 --layout data,stage "${model[@]}"
refused 2 "of 8 devices|too few rows" --data-parallel 8 --expert-parallel 2 "${model[@]}"
