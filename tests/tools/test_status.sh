#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `actorrun status` shows the state of running jobs, of one process or several, through any of them.
# A process that does not answer is shown as silent and delays nothing. A client that disconnects
# does no harm, and leftovers of dead runs are removed.
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"


model=(gpt --layers 4 --width 16 --heads 2 --context 16 --batch 8 --lr 1e-3
       --data "$reference/tokens.u16")
job=(--stages 4 --microbatches 8 --steps 1000000 --quiet "${patient[@]}")
sockets=$work/sluice-$(id -u)
status() { "$actorrun" status "$@" >"$work/out" 2>"$work/err"; }

# until_says TEXT ARGUMENTS...: repeats the request until the answer has a line with TEXT and no
# process is too busy to answer.
until_says() {
  local text=$1
  shift
  for _ in $(seq 100); do
    status "$@" && grep -q -- "$text" "$work/out" && ! grep -q " silent\|silent\":.true" "$work/out" &&
      return
    sleep 0.1
  done
  fail "status $*: no \"$text\": $(cat "$work/out" "$work/err")"
}
says() { grep -q -- "$1" "$work/out" || fail "no \"$1\": $(cat "$work/out")"; }
refuse() { # TEXT ARGUMENTS...
  local text=$1 got=0
  shift
  status "$@" || got=$?
  ((got == 2)) || fail "status $*: exit $got"
  grep -q -- "$text" "$work/err" || fail "status $*: $(cat "$work/err")"
}

status
says "this user has no job running on this machine"
# A socket folder that other users may enter is not trusted, and the output contains no control
# characters for a terminal.
need python3
mkdir -m 777 "$sockets"
chmod 777 "$sockets"
cat >"$work/stranger.py" <<'END'
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen(8)
open(sys.argv[1] + ".ready", "w")
while True:
    c = s.accept()[0]
    c.recv(100)
    c.sendall(b'{"pid": 1, "model": "a\\u001b[31mb\\u009b2J", "job": "\\u001b]0;x", "devices": [], "processes": []}\n'
              if sys.argv[2] == "json" else b"\x1b[2Jplain\n")
    c.close()
END
stranger() { # KIND: acts as process $$
  rm -f "$sockets"/*
  python3 "$work/stranger.py" "$sockets/$$" "$1" &
  to_end+=($!)
  stranger=$!
  for _ in $(seq 200); do [[ ! -e $sockets/$$.ready ]] || break; sleep 0.02; done
}
stranger json
refuse "this user has no run with process id $$ ($sockets: not a directory that only this user can access)" $$
status
says "this user has no job running on this machine"
chmod 700 "$sockets"
status $$ || :
status
! grep -q $'\x1b\|\xc2\x9b' "$work/out" || fail "what a terminal acts on is shown"
says 'a\\x1b\[31mb'
kill -9 $stranger
stranger text
"$actorrun" ctl $$ quota >"$work/out"
! grep -q $'\x1b' "$work/out" || fail "what a terminal acts on is shown"
kill -9 $stranger
if ((EUID == 0)); then # a socket of another user, in our folder
  rm -f "$sockets"/*
  python3 - "$sockets" $$ "$work/stranger.py" <<'END' &
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1] + "/" + sys.argv[2])
os.setuid(65534)
s.listen(8)
while True:
    try: s.accept()[0].sendall(b"{}\n")
    except OSError: pass # who asked has left
END
  to_end+=($!)
  for _ in $(seq 200); do [[ ! -S $sockets/$$ ]] || break; sleep 0.02; done
  sleep 0.2
  refuse "process $$ belongs to another user" $$
  kill -9 $! || :
fi
rm -rf "$sockets"
refuse "this user has no run with process id 1 " 1
refuse "one: not a process id" one
refuse "Usage: actorrun status" --all

"$actorrun" "${job[@]}" --checkpoint "$work/run" --every 5 "${model[@]}" &
alone=$!
to_end+=("$alone")
until_says "checkpoint of step [0-9]*[05] in $work/run" "$alone"
says "^$alone  gpt  1f1b, 4 devices$"
says "^step [0-9]*/1000000  loss [0-9.]*  [0-9]* tokens/s  bubble [0-9]* %$"
says "^running for .* left; "
says "^ *0  .* $alone  cpu:0 .. cpu:3 "
for device in 0 1 2 3; do says "^cpu:$device  .* \(runs\|waits\|ready\) .* [0-9]*\.[0-7]"; done

"$actorrun" -n 4 --schedule zb-h1 "${job[@]}" "${model[@]}" >"$work/log" 2>&1 &
launcher=$!
to_end+=("$launcher")
# Asks the launcher first, then each process.
until_says "^step .*loss" "$launcher"
says "gpt  zb-h1, 4 devices in 4 processes, started by actorrun"
pids=$(sed -nE 's/^ *[0-3]  [^ ]+ +([0-9]+)  cpu:.*/\1/p' "$work/out")
[[ $(wc -w <<<"$pids") == 4 ]] || fail "not four processes: $(cat "$work/out")"
for pid in $pids; do until_says "^$pid  gpt  zb-h1" "$pid"; done
until_says '"left_seconds":' --json "$launcher"
says '"sent_bytes":.[1-9]'
[[ $(grep -c '"steps_begun"' "$work/out") == 4 ]] || fail "--json: $(cat "$work/out")"
for key in model schedule step loss loss_hex tokens_per_second bubble left_seconds plan_hash; do
  says "^.\"$key\":"
done

# Two jobs, each listed once.
until_says "^[0-9]*  gpt  zb-h1"
[[ $(grep -c "gpt" "$work/out") == 2 ]] || fail "not two jobs: $(cat "$work/out")"
until_says '"jobs":' --json

# A stopped process is silent.
read -r -a four <<<"$(tr '\n' ' ' <<<"$pids")"
for _ in 1 2 3 4 5; do
  kill -STOP "${four[2]}"
  status "${four[1]}" || :
  kill -CONT "${four[2]}"
  grep -q "process 2 is silent" "$work/out" && break
  sleep 1
done
says "process 2 is silent"
says "^ *2 .*cpu:2 .*silent"

# A client that does not wait for the answer does no harm: it disconnects immediately, is
# interrupted with Ctrl-C, or gives up on a stopped process, which answers later.
hang_up() { # PID: sends its socket a request and disconnects before it is read
  python3 - "$sockets/$1" <<'END'
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b"status\n")
s.close()
END
}
for pid in "$alone" "${four[0]}" "${four[3]}"; do
  for _ in 1 2 3; do hang_up "$pid"; done
  kill -STOP "$pid"
  hang_up "$pid"
  "$actorrun" status "$pid" >/dev/null 2>&1 &
  asks=$!
  sleep 0.1
  kill -INT "$asks"
  kill -KILL "$asks"
  wait "$asks" || :
  kill -CONT "$pid"
  until_says "^$pid  gpt" "$pid"
done
kill -0 "$alone" && kill -0 "$launcher" || fail "to be asked ends a run"

# Leftovers of dead runs are removed.
kill -9 "$alone"
wait "$alone" || :
[[ -S $sockets/$alone ]] || fail "no socket was left behind"
status
[[ ! -e $sockets/$alone ]] || fail "a dead run's socket stays"
if grep -q "1f1b" "$work/out"; then fail "a dead run is shown: $(cat "$work/out")"; fi
refuse "this user has no run" "$alone"
