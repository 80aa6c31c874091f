#!/bin/bash
# Whatever befalls a process of a job, at whatever moment: all the others stop within
# 3 s and say which one it was, no checkpoint is damaged, and the job goes on from the
# last one with the curve that it would have had.
#
#   test_faults.sh [KILLS [SEED]]
#
# The kills' moments are random. Prints a line for each fault: what it was, how long
# until the job had ended, and which step it went on from. The 3 s are counted in ticks of a
# process that sleeps and computes: where others have the cores, they come late as all does.
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
python3 - >ticks <<'END' &
import time
while True:
    time.sleep(0.075)
    end = time.thread_time() + 0.025
    while time.thread_time() < end: pass
    print(flush=True)
END
clock=$!
disown "$clock"
to_end=("$clock")
now_ticks() { wc -l <ticks; }

"$actorrun" "${job[@]}" --report one.json "${model[@]}" >out 2>&1
curve one.json >one

# The processes of the job: children of the launcher.
members() { cat "/proc/$running/task/$running/children"; }

begin() { # options...
  rm -rf kept
  pids=()
  "$actorrun" -n 4 "${job[@]}" --checkpoint kept --every "$every" "$@" "${model[@]}" >out 2>&1 &
  running=$!
  to_end=("$clock" "$running")
  for _ in $(seq 3000); do
    read -ra pids < <(members) || true
    ((${#pids[@]} == 4)) && return
    sleep 0.01
  done
  fail "the job does not start"
}

count_from_now() { since=$(now_ms) tick=$(now_ticks); }

# befalls WHAT VICTIM COMMAND...: the command does it to a process of the job. Fails if there is no
# such process any more.
befalls() {
  what=$1 victim=$2
  count_from_now
  "${@:3}" 2>/dev/null
}

# The job ends in time, with status 1 and the culprit's name.
ended() {
  local status=0 took ticks
  wait "$running" || status=$?
  to_end=("$clock")
  took=$(($(now_ms) - since)) ticks=$(($(now_ticks) - tick))
  if ((status == 0)) && [[ -e kept/step-$steps ]]; then # there was nothing left to do
    said="$what of process $victim after the last step"
    return
  fi
  ((status == 1)) || fail "$what: status $status"
  grep -q "process $victim\b" out || fail "$what: nobody names process $victim"
  ((ticks <= 30 * patience)) || fail "$what: took $took ms, $ticks ticks"
  said="$what of process $victim: all ended after $took ms"
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
  begin "${patient[@]}"
  sleep "$(printf '0.%03d' $((RANDOM % 900)))"
  victim=$((RANDOM % 4))
  if ! befalls kill "$victim" kill -9 "${pids[$victim]}"; then # it had already done everything
    wait "$running" && to_end=("$clock")
    continue
  fi
  ended
  goes_on
done

begin
sleep 0.4
befalls stop 2 kill -STOP "${pids[2]}" || fail "it does not run long enough to be stopped"
ended
goes_on

# One process may write no file as long as a shard is: its disk is full. It finds that with the next
# checkpoint.
begin "${patient[@]}" --jitter 2000
for _ in $(seq 6000); do [[ -e kept/step-$every ]] && break; sleep 0.01; done
befalls "a full disk" 1 prlimit --pid "${pids[1]}" --fsize=10000
while ! compgen -G "kept/*.tmp" >found && kill -0 "$running" 2>/dev/null; do sleep 0.01; done
count_from_now
ended
grep -qi "too large" out || fail "it does not say what was wrong"
goes_on
