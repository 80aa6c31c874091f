#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Processes of one job that were started with different update settings reject each other before the
# first step, because the plan's hash covers these settings.
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

export SLUICE_KEY=0123456789abcdefghij0123456789abcdefghij
model=(gpt --layers 2 --width 16 --heads 2 --context 16 --batch 4 --data "$reference/tokens.u16")
MASTER_PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
export MASTER_PORT MASTER_ADDR=127.0.0.1 WORLD_SIZE=2

# rank N WORDS...: starts process N of two in the background.
rank() {
  RANK=$1 "$actorrun" --stages 2 --steps 2 "${patient[@]}" "${model[@]}" "${@:2}" >"rank$1" 2>&1 &
  pids[$1]=$!
  to_end+=($!)
}
refuses() {
  rank 0
  rank 1 "$@"
  for n in 0 1; do
    wait "${pids[n]}" && fail "process $n trains with other settings: $*"
    grep -q "^step" "rank$n" && fail "process $n begins with other settings: $*"
    grep -q "process 1" "rank$n" || fail "process $n does not say who differs: $(cat "rank$n")"
  done
}

rank 0
rank 1
wait "${pids[0]}" && wait "${pids[1]}" || fail "two that agree: $(cat rank0 rank1)"
refuses --lr 2e-3
refuses --clip 0.5
refuses --beta1 0.8

# One process searches for a schedule and the other does not: neither waits forever.
model+=(--batch 8)
for who in 0 1; do
  for n in 0 1; do
    words=(--microbatches 4)
    ((n == who)) && words+=(--schedule auto)
    rank $n "${words[@]}"
  done
  for n in 0 1; do
    wait "${pids[n]}" && fail "process $n runs, though process $who has searched alone"
    grep -q -- "--schedule auto" "rank$n" || fail "auto in process $who: $(cat "rank$n")"
  done
done

# With --dry-run only process 0 searches for a plan.
for n in 0 1; do rank $n --microbatches 4 --schedule auto --activations 0.01 --dry-run; done
status=0
wait "${pids[0]}" || status=$?
((status == 3)) && grep -q "no schedule of 2 devices" rank0 || fail "process 0 looks: $status: $(cat rank0)"
wait "${pids[1]}" && [[ ! -s rank1 ]] || fail "process 1 looks, too: $(cat rank1)"
