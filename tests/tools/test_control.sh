#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Changing a run's quotas while it trains does not change its losses. Impossible changes are
# rejected with a reason, and runs of other users cannot be reached. With several processes any of
# them takes the request, and either all change or none.
# labels: first
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

model=(gpt --layers 4 --width 16 --heads 2 --context 16 --batch 8 --lr 1e-3
       --data "$reference/tokens.u16")
run=("$actorrun" --stages 4 --microbatches 8 --quiet)
endless=(--steps 1000000)
listens() { # PID
  for _ in $(seq 2400); do [[ -S $work/sluice-$(id -u)/$1 ]] && return; sleep 0.05; done
  fail "process $1 cannot be asked"
}
# An undisturbed run of the same number of steps has to have the same losses as the steered run.
same_as_alone() {
  local steps
  steps=$(hexes "$work/steered.json" | grep -c .) || fail "no step was done"
  "${run[@]}" --steps "$steps" --report "$work/alone.json" "${model[@]}"
  cmp <(hexes "$work/alone.json") <(hexes "$work/steered.json") || fail "the losses differ"
}

# stopped PID WHICH: the process has to end with the status of an interrupted run.
stopped() {
  local got=0
  wait "$1" || got=$?
  ((got == 1)) || fail "$2 was stopped and ended with $got"
}

"${run[@]}" "${endless[@]}" --jitter 1000 --report "$work/steered.json" "${model[@]}" &
pid=$!
to_end+=("$pid")
listens "$pid"
ctl=("$actorrun" ctl "$pid")

grep -q '^act.b@1 .*3 of at most' <<<"$("${ctl[@]}" quota)" || fail "the quotas are not shown"
changed=0
for quota in act=8 act=1 act.b@1=2 act=5 load=1 act.b@0=6 act=2; do
  "${ctl[@]}" quota "$quota" >"$work/answer" 2>&1 && changed=$((changed + 1))
  grep -q "$quota" "$work/answer" || fail "$quota: $(cat "$work/answer")"
  sleep 0.05
done
((changed >= 3)) || fail "only $changed changes were taken"

refuse() { # TEXT STATUS REQUEST...
  local text=$1 status=$2 got=0
  shift 2
  "${ctl[@]}" "$@" >"$work/answer" 2>&1 || got=$?
  ((got == status)) || fail "$*: status $got, not $status"
  grep -q -- "$text" "$work/answer" || fail "$*: $(cat "$work/answer")"
}
kill "$pid"
stopped "$pid" "the run"
same_as_alone
[[ ! -e $work/sluice-$(id -u)/$pid ]] || fail "the socket is left behind"
refuse "this user has no run with process id" 2 quota

# Impossible requests are rejected.
"${run[@]}" "${endless[@]}" "${model[@]}" >/dev/null 2>&1 &
pid=$!
to_end+=("$pid")
ctl=("$actorrun" ctl "$pid")
listens "$pid"
refuse "can have 1 to" 2 quota act=1000
refuse "at least one slot" 2 quota act.b@2=0
refuse "must be a number" 2 quota act.b@1=4294967298
refuse "no quota h2d" 2 quota h2d=2
refuse "change one quota at a time" 2 quota act.b=2,3
refuse "no quota nothing" 2 quota nothing=3
refuse "must be NAME=N" 2 quota act
refuse "unknown command" 2 stop
kill "$pid"
wait "$pid" || :

# Four processes get random changes through random processes for as long as they run.
run=("$actorrun" -n 4 --stages 4 --microbatches 8 --schedule zb-h1 --quiet "${patient[@]}")
"${run[@]}" "${endless[@]}" --jitter 4000 --report "$work/steered.json" "${model[@]}" &
launcher=$!
to_end+=("$launcher")
sockets() { find "$work/sluice-$(id -u)" -type s -printf '%f\n'; }
for _ in $(seq 2400); do [[ $(sockets | grep -c .) == 4 ]] && break; sleep 0.05; done
mapfile -t pids < <(sockets)
((${#pids[@]} == 4)) || fail "not four sockets: ${pids[*]}"

ctl=("$actorrun" ctl "$launcher")
"${ctl[@]}" quota act.b@1=2 >"$work/answer" || fail "the launcher is not known: $(cat "$work/answer")"
grep -q "^process 1: act.b@1 2" "$work/answer" || fail "who changed what: $(cat "$work/answer")"
for pid in "${pids[@]}"; do
  ctl=("$actorrun" ctl "$pid")
  refuse "can have 1 to" 2 quota act=1000
  "${ctl[@]}" quota >"$work/quotas"
  grep -q "^act.b@1 .*2 of at most" "$work/quotas" || fail "after a refusal: $(cat "$work/quotas")"
done

draw "$@"
changed=0
RANDOM=$((seed % 32768))
while kill -0 "$launcher" 2>/dev/null; do
  name=act.b
  ((RANDOM % 2)) && name=act.w
  quota=$name@$((RANDOM % 4))=$((RANDOM % 8 + 1))
  if "$actorrun" ctl "${pids[RANDOM % 4]}" quota "$quota" >"$work/answer" 2>&1; then
    changed=$((changed + 1))
    ((changed != 12)) || kill "$launcher" # requests also arrive while the run ends
    [[ $(grep -c "^process" "$work/answer") == 4 ]] || fail "$quota: $(cat "$work/answer")"
  else
    grep -q "this user has no run\|has not answered\|does not answer\|cannot finish\|wait" "$work/answer" ||
      fail "$quota: $(cat "$work/answer")"
  fi
  sleep 0.05
done
stopped "$launcher" "the run of four processes"
((changed >= 12)) || fail "only $changed changes were taken by four processes"
same_as_alone
