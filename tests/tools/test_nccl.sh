#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Emulated GPUs of several processes send to each other through emulated NCCL, and those of a stage
# sum and gather by its collectives. Losses equal those of one process and those of sums of parts,
# bit for bit, with any timing. The calls are issued in an order that cannot deadlock, and the
# checker detects an order that can.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/emulated.sh
source "$SLUICE_SOURCE/tests/support/emulated.sh"
order=$SLUICE_BUILD/tests/nccl_order
draw "$@"

model=(gpt --layers 2 --width 16 --heads 2 --context 8 --batch 6 --lr 1e-3
       --data "$SLUICE_SOURCE/tests/reference/tokens.u16")
run() { # REPORT OPTIONS...
  local report=$1
  shift
  timeout 60 "$actorrun" "${patient[@]}" --microbatches 2 --steps 2 --quiet --report "$work/$report" "$@" \
    "${model[@]}" || fail "$*: status $?"
}

# ---- losses and order -----------------------------------------------------------------

# check NAME PROCESSES GPUS OPTIONS...: runs the job and checks its recorded calls.
check() {
  local name=$1 processes=$2 gpus=$3
  shift 3
  seed=$((seed + 1))
  mkdir "$work/$name.record"
  SLUICE_EMULATED_SEED=$seed SLUICE_EMULATED_GPUS=$gpus SLUICE_EMULATED_RECORD=$work/$name.record \
    run "$name" --devices cuda -n "$processes" "$@"
  "$order" "$work/$name.record"/* >"$work/out" || fail "$name: $(cat "$work/out")"
  echo "$name: $(cat "$work/out")"
}

run one --devices cuda
check two 2 2 --stages 2
same one two
check three 3 3 --stages 3 --schedule zb-h1 --jitter 200
same one three
check four 4 4 --stages 4 --schedule gpipe --jitter 100
same one four
# Sanitizers make everything slower, so the test does less.
if ! grep -q '^SLUICE_SANITIZE:STRING=.' "$SLUICE_BUILD/CMakeCache.txt"; then
  check loop 2 2 --stages 2 --chunks 2 --schedule interleaved
  same one loop
  SLUICE_EMULATED_GPUS=4 run halves --devices cuda --stages 2 --data-parallel 2
  check grid 2 4 --stages 2 --data-parallel 2
  same halves grid
fi

# ---- collectives ---------------------------------------------------------------------------

# collects NAME PROCESSES GPUS OPTIONS...: as check, and the losses are those of sums of parts.
collects() {
  local name=$1 gpus=$3
  check "$@"
  grep -qE '[[:space:]](reduce|scatter|gather)[[:space:]]' "$work/$name.record"/* ||
    fail "$name: no collective"
  shift 3
  SLUICE_EMULATED_GPUS=$gpus run "$name.parts" --devices cuda --nccl channels "$@"
  same "$name.parts" "$name"
}
run cpu --devices cpu:3
collects three.data 3 3 --data-parallel 3
near three.data cpu 1e-5
collects shards 1 2 --data-parallel 2 --shard parameters --jitter 100 --check-finite
near shards cpu 1e-5
if ! grep -q '^SLUICE_SANITIZE:STRING=.' "$SLUICE_BUILD/CMakeCache.txt"; then
  collects both 2 4 --data-parallel 2 --tensor 2
  near both cpu 1e-5
  collects pipeline 1 4 --tensor 2 --stages 2 --chunks 2 --schedule interleaved
  near pipeline cpu 1e-5
fi

# Fewer bytes are sent for tensors that every device would read whole.
moved() { jq .runtime.moved_bytes_per_step.data "$work/$1"; }
(($(moved three.data) < $(moved three.data.parts))) ||
  fail "collectives move $(moved three.data) bytes, parts $(moved three.data.parts)"

# ---- when NCCL is used -------------------------------------------------------------------

several=(--devices cuda -n 2 --stages 2)
cd "$work"
SLUICE_EMULATED_GPUS=1 run host "${several[@]}" # one GPU cannot be both ends
same one host
SLUICE_EMULATED_GPUS=2 run off "${several[@]}" --nccl off
same one off
SLUICE_EMULATED_NCCL=none SLUICE_EMULATED_GPUS=2 run none "${several[@]}"
same one none
status=0
SLUICE_EMULATED_NCCL=none "$actorrun" "${several[@]}" --nccl on "${model[@]}" >out 2>&1 || status=$?
((status == 2)) && grep -q "libnccl.so.2 was not found" out || fail "--nccl on: $status: $(cat out)"

# The search for a schedule uses the same links.
for schedule in 1f1b auto; do
  SLUICE_EMULATED_GPUS=2 ends 0 "$actorrun" "${several[@]}" --microbatches 2 --nccl on \
    --schedule $schedule --dry-run --plan $schedule.plan "${model[@]}"
  grep -q '^queue direct@0>1 ' $schedule.plan || fail "$schedule: links go over the host"
done

# ---- the checker ---------------------------------------------------------------------------

# Damages a record of run "two" with an awk program; the checker has to detect it.
plant() { # TEXT AWK-PROGRAM: TEXT is the checker's message
  rm -rf planted
  cp -r two.record planted
  local first
  first=$(ls planted | head -1)
  awk -F'\t' -v OFS='\t' "$2" "two.record/$first" >"planted/$first"
  cmp -s "two.record/$first" "planted/$first" && fail "nothing was planted: $2"
  if "$order" planted/* >out; then fail "not seen: $2"; fi
  grep -q "$1" out || fail "$2: $(cat out)"
}
plant "not the next number" '{ n += $1 == last || NR == 1; last = NR == 1 ? $1 : last }
                             $1 == last && n == 2 { held = $0; next } { print }
                             $1 == last && n == 3 && held { print held; held = "" }'
plant "another size" 'NR == 4 { $6++ } { print }'
plant "nobody meets it" 'NR > 1 { print held } { held = $0 }'
plant "under way" 'NR == 6 { $10 = 1 } { print }'
plant "two threads" 'NR % 2 { $8++ } { print }'
plant "another stream" 'NR == 8 { $9 = "0x1" } { print }'
rm -rf two.record
cp -r three.data.record two.record
plant "another size" 'NR == 4 { $6++ } { print }'
plant "another kind" 'NR == 4 { $4 = "scatter" } { print }'
plant "nobody meets it" 'NR > 1 { print held } { held = $0 }'
printf '%s\n' $'a\t0\t0\tsend\t1\t4\t1\t1\ts\t0' $'b\t1\t0\trecv\t0\t4\t1\t1\ts\t0' >left
printf '%s\n' $'b\t0\t1\tsend\t1\t4\t1\t2\ts\t0' $'a\t1\t1\trecv\t0\t4\t1\t2\ts\t0' >right
if "$order" left right >out; then fail "a circle was not seen"; fi
grep -q "waits in a circle" out || fail "a circle: $(cat out)"
