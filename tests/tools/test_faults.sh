#!/bin/bash
# Whatever befalls a process of a job, at whatever moment: all the others stop within
# 3 s and say which one it was, no checkpoint is damaged, and the job goes on from the
# last one with the curve that it would have had.
#
#   test_faults.sh [KILLS [SEED]]
#
# The kills' moments are random. Prints a line for each fault: what it was, how long
# until the job had ended, and which step it went on from.
# labels: random outside
set -euo pipefail
kills=${1:-$((3 * ${SLUICE_SEEDS:-1}))} seed=${2:-$RANDOM}
RANDOM=$seed
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
echo "seed $seed"

steps=150 every=20
job=(--stages 4 --microbatches 4 --steps "$steps" --quiet)
model=(gpt --layers 4 --width 32 --heads 2 --context 32 --batch 4
       --data "$reference/tokens.u16")
curve() { # REPORT: step and loss, line by line
  grep -oE '"(step|loss_hex)":[^,]*' "$1" | grep -oE '[0-9]+$|0x[^"]*' | paste - -
}
now_ms() { echo $(($(date +%s%N) / 1000000)); }

"$actorrun" "${job[@]}" --report one.json "${model[@]}" >out 2>&1
curve one.json >one

# The processes of the job: children of the launcher.
members() { cat "/proc/$running/task/$running/children"; }

begin() { # options...
  rm -rf kept
  "$actorrun" -n 4 "${job[@]}" --checkpoint kept --every "$every" "$@" "${model[@]}" >out 2>&1 &
  running=$!
  to_end=("$running")
  for _ in $(seq 200); do
    read -ra pids < <(members) || true
    ((${#pids[@]} == 4)) && return
    sleep 0.01
  done
  fail "the job does not start"
}

# ended WHAT VICTIM SINCE_MS: the job ends in time, with status 1 and the culprit's name.
ended() {
  local status=0 took
  wait "$running" || status=$?
  to_end=()
  took=$(($(now_ms) - $3))
  if ((status == 0)) && [[ -e kept/step-$steps ]]; then # there was nothing left to do
    said="$1 of process $2 after the last step"
    return
  fi
  ((status == 1)) || fail "$1: status $status"
  grep -q "process $2\b" out || fail "$1: nobody names process $2"
  ((took < 3000 * patience)) || fail "$1: took $took ms"
  said="$1 of process $2: all ended after $took ms"
}

# What is kept is whole, and a run of another shape goes on from it as if nothing had been.
goes_on() {
  local from=0
  "$actorrun" --stages 2 --microbatches 4 --steps "$steps" --quiet --checkpoint kept --resume \
    --report rest.json "${model[@]}" >out 2>&1 || fail "it does not go on"
  ! grep -q "not whole" out || fail "a checkpoint is damaged"
  curve rest.json >rest || [[ -e kept/step-$steps ]] || fail "it goes on with nothing"
  from=$(head -n 1 rest | cut -f 1)
  tail -n "$(wc -l <rest)" one | cmp -s - rest || fail "the curve is another one from step $from"
  echo "$said, went on from step ${from:-$steps}"
}

# Under a sanitizer everything takes longer.
patience=1
grep -q SANITIZE:STRING=. "$SLUICE_BUILD/CMakeCache.txt" && patience=5

for _ in $(seq "$kills"); do
  begin
  sleep "$(printf '0.%03d' $((RANDOM % 900)))"
  victim=$((RANDOM % 4))
  since=$(now_ms)
  if ! kill -9 "${pids[$victim]}" 2>/dev/null; then # it had already done everything
    wait "$running" && to_end=()
    continue
  fi
  ended kill "$victim" "$since"
  goes_on
done

begin
sleep 0.4
since=$(now_ms)
kill -STOP "${pids[2]}"
ended stop 2 "$since"
goes_on

# One process may write no file as long as a shard is: its disk is full.
begin
for _ in $(seq 500); do [[ -e kept/step-$every ]] && break; sleep 0.01; done
prlimit --pid "${pids[1]}" --fsize=10000
ended "a full disk" 1 "$(now_ms)"
grep -qi "too large" out || fail "it does not say what was wrong"
goes_on
