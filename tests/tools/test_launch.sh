#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `actorrun -n 4` runs one job in four processes. Their losses equal those of one process, an error
# is printed once, and a killed process ends the job with an error that names it. Ctrl-C ends the
# job cleanly, and --restarts resumes from the last checkpoint.
# labels: first
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

job=(--stages 4 --microbatches 4 "${patient[@]}")
model=(gpt --layers 4 --width 16 --heads 2 --context 16 --batch 8 --lr 1e-3
       --data "$reference/tokens.u16")
# Prints the processes of job $1.
children() { cat "/proc/$1/task/$1/children"; }

"$actorrun" "${job[@]}" --steps 8 --quiet --report "$work/one.json" "${model[@]}"
"$actorrun" -n 4 "${job[@]}" --steps 8 --report "$work/four.json" "${model[@]}" >"$work/out"
cmp <(hexes "$work/one.json") <(hexes "$work/four.json") || fail "the losses differ"
grep -q "^step 8/8 " "$work/out" || fail "the first process says nothing"

refuse() { # TEXT WORDS...
  local text=$1 status=0
  shift
  "$actorrun" "$@" >"$work/out" 2>&1 || status=$?
  ((status == 2)) || fail "$*: status $status"
  [[ $(grep -c . "$work/out") == 1 ]] || fail "$*: not one line: $(cat "$work/out")"
  grep -q -- "$text" "$work/out" || fail "$*: $(cat "$work/out")"
}
refuse "^actorrun: unknown option --stags" -n 4 --stags 2 "${model[@]}"
refuse "^actorrun: .*missing.u16" -n 4 "${job[@]}" gpt --data "$work/missing.u16"
refuse "between 1 and" -n 0 "${model[@]}"
refuse "needs a value" -n
refuse "heartbeat-timeout 0.5: must be between 1 and" -n 2 --heartbeat-timeout 0.5 "${model[@]}"
refuse "needs --rdzv-endpoint HOST:PORT" -n 2 --nnodes 2 "${model[@]}"
refuse "between 0 and 1" --rdzv-endpoint a:1 --nnodes 2 --node-rank 2 "${model[@]}"
refuse "not HOST:PORT" --rdzv-endpoint a --nnodes 2 "${model[@]}"
RANK=0 refuse "WORLD_SIZE is not set" "${model[@]}"
export SLUICE_KEY=0123456789abcdefghij0123456789abcdefghij
RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=9 \
  refuse "that torchrun started" -n 2 "${model[@]}"
unset SLUICE_KEY

# One process searches for a schedule for all and reports it.
"$actorrun" -n 4 "${job[@]}" --steps 8 --quiet --schedule auto --report "$work/auto.json" "${model[@]}"
cmp <(hexes "$work/one.json") <(hexes "$work/auto.json") || fail "auto: the losses differ"
status=0
"$actorrun" -n 4 "${job[@]}" --schedule auto --activations 0.01 "${model[@]}" >"$work/out" 2>&1 || status=$?
((status == 3)) || fail "auto with no room: status $status: $(cat "$work/out")"
grep -q "process 0 .*no schedule of 4 devices" "$work/out" || fail "who searched: $(cat "$work/out")"

# --dry-run prints the plan once.
"$actorrun" -n 4 "${job[@]}" --dry-run "${model[@]}" >"$work/out"
[[ $(grep -c "^gpt: " "$work/out") == 1 ]] || fail "--dry-run: $(cat "$work/out")"

# begin OPTIONS...: starts a long job in the background and waits for its first step.
begin() {
  : >"$work/out"
  "$actorrun" -n 4 "${job[@]}" --steps 1000000 "$@" "${model[@]}" >"$work/out" 2>"$work/err" &
  launcher=$!
  for _ in $(seq 300); do
    grep -q "^step " "$work/out" && return
    sleep 0.05
  done
  fail "nothing begins: $(cat "$work/err")"
}
finish() { # MILLISECONDS
  local status=0 start
  start=$(date +%s%3N)
  wait "$launcher" || status=$?
  (($(date +%s%3N) - start < $1)) || fail "it took longer than $1 ms to end"
  return $status
}

begin
read -r -a pids <<<"$(children "$launcher")"
((${#pids[@]} == 4)) || fail "not four processes: ${pids[*]}"
for pid in "${pids[@]}"; do
  tr '\0' ' ' <"/proc/$pid/cmdline" >"$work/words"
  grep -q "processes" "$work/words" && fail "the processes got our options: $(cat "$work/words")"
done
kill -9 "${pids[2]}"
status=0
finish 6000 || status=$?
((status == 1)) || fail "status $status after a kill"
[[ $(tail -n 1 "$work/err") == "actorrun: process 2 was killed by signal 9 (Killed)" ]] ||
  fail "the culprit is not named: $(cat "$work/err")"
for pid in "${pids[@]}"; do [[ ! -d /proc/$pid ]] || fail "process $pid is left"; done

begin --heartbeat-timeout 1.5
read -r -a pids <<<"$(children "$launcher")"
kill -STOP "${pids[3]}"
status=0
finish 6000 || status=$?
((status == 1)) || fail "status $status after a process was stopped"
tail -n 1 "$work/err" | grep -q "process 3 was stopped" || fail "the culprit is not named: $(cat "$work/err")"

# With a longer heartbeat timeout a process may stay stopped for longer.
begin
read -r -a pids <<<"$(children "$launcher")"
kill -STOP "${pids[3]}"
sleep 3
kill -CONT "${pids[3]}"
kill -INT "$launcher"
status=0
finish 8000 || status=$?
((status == 1)) || fail "Ctrl-C: status $status: $(cat "$work/err")"
[ ! -s "$work/err" ] || ! grep -q "ended with status" "$work/err" || fail "no culprit: $(cat "$work/err")"
grep -q "^stopped after step " "$work/out" || fail "Ctrl-C: $(tail -n 3 "$work/out")"

# Kills a process once; the restarted job finishes.
steps=60
"$actorrun" "${job[@]}" --steps $steps --quiet --report "$work/whole.json" "${model[@]}"
"$actorrun" -n 4 --restarts 2 "${job[@]}" --steps $steps --checkpoint "$work/run" --every 3 --jitter 2000 \
  --report "$work/restarted.json" "${model[@]}" >"$work/out" 2>"$work/err" &
launcher=$!
for _ in $(seq 300); do compgen -G "$work/run/step-*" >/dev/null && break; sleep 0.02; done
read -r -a pids <<<"$(children "$launcher")"
kill -9 "${pids[1]}"
finish 60000 || fail "--restarts: status $?: $(cat "$work/err")"
grep -q "^actorrun: restarting, 1 of 2, from the newest checkpoint$" "$work/err" ||
  fail "--restarts: $(cat "$work/err")"
# The losses after the restart equal the end of the uninterrupted run.
hexes "$work/restarted.json" >"$work/tail"
[[ -s $work/tail ]] || fail "nothing was run after the restart"
cmp <(hexes "$work/whole.json" | tail -n "$(grep -c . "$work/tail")") "$work/tail" ||
  fail "the losses differ after the restart"

status=0
"$actorrun" --restarts 2 "${job[@]}" --steps 2 --quiet gpt --data "$work/missing.u16" \
  2>"$work/err" || status=$?
((status == 2)) || fail "--restarts with a bad input: status $status"
if grep -q "restarting" "$work/err"; then fail "a bad input is no reason to start again"; fi
