#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `ctl trace` records what a run or a server does between two moments while it runs, in one process
# or several. The file reads like any trace; impossible requests are rejected with a reason.
# labels: outside
# needs: zeromq libevent
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need curl

actortrace=$bin/actortrace
small=(--layers 2 --width 16 --heads 2 --context 64)
listens() { # PID
  for _ in $(seq 2400); do [[ -S $work/sluice-$(id -u)/$1 ]] && return; sleep 0.05; done
  fail "process $1 cannot be asked"
}
# refused TEXT WORDS...: `ctl WORDS` has to fail with TEXT.
refused() {
  ends 2 "$actorrun" ctl "$pid" "${@:2}"
  grep -q -- "$1" err || fail "${*:2}: $(<err)"
}

# A run of two processes, addressed through its launcher. The trace has firings of both, and none
# from before it began.
"$actorrun" -n 2 --stages 2 --microbatches 2 --steps 1000000 --quiet "${patient[@]}" gpt "${small[@]}" --batch 4 \
  --data "$reference/tokens.u16" >/dev/null 2>&1 &
pid=$!
to_end+=("$pid")
until "$actorrun" status "$pid" >out 2>err && grep -q "firings" out; do kill -0 "$pid" || fail "the run has ended"; sleep 0.05; done
refused "trace off: no trace is being recorded" trace off
ends 1 "$actorrun" ctl "$pid" trace nowhere/live.trace
ends 0 "$actorrun" ctl "$pid" trace
[[ $(<out) == off ]] || fail "$(<out)"
ends 0 "$actorrun" ctl "$pid" trace live.trace
refused "is still being recorded; end it with trace off" trace other.trace
ends 0 "$actorrun" ctl "$pid" trace
[[ $(<out) == */live.trace ]] || fail "$(<out)"
sleep 0.5
ends 0 "$actorrun" ctl "$pid" trace off
grep -Eq '/live.trace: [0-9]+ firings' out || fail "$(<out)"
ends 0 "$actortrace" rows live.trace
for actor in F0 F1 B0 B1; do grep -q "$actor" out || fail "no $actor in $(head -3 out)"; done
ends 0 "$actortrace" show live.trace
# The page begins with the trace, not with the run.
ends 0 "$actortrace" page live.trace
grep -q 'const begin = firings.count ? firings.start\[0\] : 0' out || fail "the page does not begin with the first firing"
ends 0 "$actorrun" ctl "$pid" trace live.trace # again, overwriting the file
ends 0 "$actorrun" ctl "$pid" trace off
kill "$pid"
wait "$pid" || :

# The trace of a server has the requests made while it was on, and no others. A prompt of 40 tokens
# is processed in chunks of 8 rows.
ends 0 "$actorrun" --quiet --steps 2 --save bytes.safetensors gpt --data "$reference/text.txt" "${small[@]}"
background "$bin/actorserve" --port 0 --rows 8 --init bytes.safetensors gpt "${small[@]}"
until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended"; sleep 0.01; done
url=$(<out)
url=${url##* }
listens "$pid"
ask() { curl -sS "$url/completions" -d "{\"prompt\":\"$1\",\"max_tokens\":3}" >answer; }
ask "0123456789"
"$actorrun" ctl "$pid" trace busy.trace
ask "0123456789012345678901234567890123456789"
"$actorrun" ctl "$pid" trace off >told
ask "0123456789"
ends 0 "$actortrace" rows busy.trace
[[ $(sed -n $'s/.*\tF0\t//p' out | tr '\n' ' ') == "8 8 8 8 8 1 1 " ]] || fail "not five chunks and two tokens: $(<out)"
kill -INT "$pid"
wait "$pid"
