#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two hosts and a link of 5 ms between them: a run behaves as the virtual clock predicts for that
# link, and deeper quotas hide the latency as predicted. When the link is cut both hosts stop within
# 3 s with an error that names the other.
# labels: outside
# needs: zeromq
set -euo pipefail
source "$SLUICE_SOURCE/tests/support/hosts.sh"
hosts_enter "$@"

# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
hosts_start 5000 1000 || fail "the hosts do not come up"

cost=F=0.01,B=0.01,W=0.01,comm=0.005
step() { sed -nE '/"predicted"/q; s/^\t"step_seconds":\t([0-9.e-]+),?$/\1/p' "$1"; }
both() { # WORDS...: runs process 0 on hosta, in the foreground, and process 1 on hostb
  local by_hand=(timeout 60 "$actorrun" --rdzv-endpoint hosta:29400 --nnodes 2 -n 1 --quiet)
  on hostb "${by_hand[@]}" --node-rank 1 "$@" pipeline >"$work/b" 2>&1 &
  other=$!
  on hosta "${by_hand[@]}" --node-rank 0 --report "$work/real.json" "$@" pipeline >"$work/a" 2>&1
}

# Prints the measured over the predicted step time, in thousandths.
compare() { # SCHEDULE
  local words=(--devices timed:2 --stages 2 --microbatches 8 --steps 6 --schedule "$1" --cost "$cost")
  "$actorrun" "${words[@]}" --clock virtual --quiet --report "$work/virtual.json" pipeline
  both "${words[@]}" || fail "$1: $(cat "$work/a" "$work/b")"
  wait "$other" || fail "$1: $(cat "$work/b")"
  predicted=$(step "$work/virtual.json") measured=$(step "$work/real.json")
  awk -v p="$predicted" -v m="$measured" 'BEGIN { printf "%d\n", 1000 * m / p }'
}

# Repeats the measurement, because the machine may be busy.
as_predicted() { # SCHEDULE
  local ratio try
  for try in 1 2 3 4; do
    ratio=$(compare "$1") || exit
    echo "$1: $ratio thousandths of the predicted step, try $try"
    ((ratio >= 950 && ratio <= 1150)) && return
  done
  fail "$1 takes $ratio thousandths of what was predicted"
}
as_predicted 1f1b
shallow=$(step "$work/real.json")
as_predicted eager-1f1b
deep=$(step "$work/real.json")
awk -v s="$shallow" -v d="$deep" 'BEGIN { exit !(d < 0.95 * s) }' ||
  fail "deeper quotas hide the latency: $deep s, $shallow s"

both --devices timed:2 --stages 2 --microbatches 8 --steps 100000 --cost "$cost" &
job=$!
for _ in $(seq 100); do [[ -s $work/b || -s $work/a ]] && break; sleep 0.02; done
sleep 0.5
start=$(date +%s%N)
hosts_cut
status=0
wait $job || status=$?
took=$((($(date +%s%N) - start) / 1000000))
((status == 1)) || fail "cut: status $status: $(cat "$work/a")"
((took < 3000)) || grep -q SANITIZE:STRING=. "$SLUICE_BUILD/CMakeCache.txt" || fail "cut: $took ms"
grep -q "process 1 on host hostb" "$work/a" || fail "hosta does not know: $(cat "$work/a")"
for _ in $(seq 100); do grep -q actorrun "$work/b" && break; sleep 0.02; done
grep -q "process 0 on host hosta" "$work/b" || fail "hostb does not know: $(cat "$work/b")"
echo "a cut link: both hosts stopped after $took ms"
