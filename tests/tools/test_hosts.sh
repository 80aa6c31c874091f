#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Jobs over two hosts with a network between them, started by hand on each host. All processes agree
# on their numbers, the meeting point and the key. The losses equal those of one process, also while
# strangers attack the ports.
# labels: outside
# needs: zeromq
set -euo pipefail
source "$SLUICE_SOURCE/tests/support/hosts.sh"
hosts_enter "$@"

# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
hosts_start 200 1000 || fail "the hosts do not come up"

job=(--stages 4 --microbatches 4 --steps 5 "${patient[@]}")
model=(gpt --layers 4 --width 16 --heads 2 --context 16 --batch 8 --lr 1e-3
       --data "$reference/tokens.u16")
"$actorrun" "${job[@]}" --quiet --report "$work/one.json" "${model[@]}"

by_hand=(timeout 60 "$actorrun" --rdzv-endpoint hosta:29400 --nnodes 2 -n 2 "${job[@]}")
on hostb "${by_hand[@]}" --node-rank 1 --report "$work/b.json" "${model[@]}" >"$work/b" 2>&1 &
other=$!
on hosta "${by_hand[@]}" --node-rank 0 --report "$work/a.json" "${model[@]}" >"$work/a" 2>&1 ||
  fail "by hand, hosta: $(cat "$work/a" "$work/b")"
wait $other || fail "by hand, hostb: $(cat "$work/b")"
cmp <(hexes "$work/one.json") <(hexes "$work/a.json") || fail "by hand: the losses differ"

# A process on hostb that does not belong to the job attacks the ports on hosta from start to end.
for transports in memory,tcp encrypted; do
  export SLUICE_TRANSPORTS=$transports
  on hostb "${by_hand[@]}" --node-rank 1 --jitter 3000 --report "$work/b.json" "${model[@]}" \
    >"$work/b" 2>&1 &
  other=$!
  on hosta "${by_hand[@]}" --node-rank 0 --jitter 3000 --report "$work/a.json" "${model[@]}" \
    >"$work/a" 2>&1 &
  job_a=$!
  on hostb python3 "$SLUICE_SOURCE/tests/support/strangers.py" $job_a hosta >"$work/strangers" &
  strangers=$!
  wait $job_a || fail "$transports, bothered, hosta: $(cat "$work/a" "$work/b")"
  wait $other || fail "$transports, bothered, hostb: $(cat "$work/b")"
  wait $strangers
  echo "$transports: $(cat "$work/strangers")"
  grep -q ": [1-9][0-9]* connections to [1-9]" "$work/strangers" || fail "nobody was bothered"
  cmp <(hexes "$work/one.json") <(hexes "$work/a.json") || fail "$transports: the losses differ"
done
unset SLUICE_TRANSPORTS

# Checks the environment of the processes on hostb, which wait because hosta does not answer.
on hostb "${by_hand[@]}" --node-rank 1 --rdzv-id seen "${model[@]}" --steps 100000 \
  >/dev/null 2>&1 &
other=$!
for _ in $(seq 100); do # processes may end during the loop
  { cat /proc/[0-9]*/environ 2>/dev/null || true; } | tr '\0' '\n' | grep '^SLUICE_' |
    sort -u >"$work/told"
  grep -q SLUICE_PROCESS=2 "$work/told" && grep -q SLUICE_PROCESS=3 "$work/told" && break
  sleep 0.05
done
for told in PROCESS=2 PROCESS=3 PROCESSES=4 LOCAL=0 LOCAL=1 LOCALS=2 ENDPOINT=hosta:29400 JOB=seen; do
  grep -q "^SLUICE_$told\$" "$work/told" || fail "by hand: no $told in $(cat "$work/told")"
done
kill $other
wait $other || true
