#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Attackers that connect to every port of a job from start to end, and hold 1,200 connections,
# change nothing: the job continues with the same losses. On one host no other host can reach a
# port. A limit on open files that is too low for a job is reported with an error that names it, and
# so is a small /dev/shm.
# labels: outside more first
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

model=(gpt --layers 4 --width 16 --heads 2 --context 16 --batch 8 --lr 1e-3
       --data "$reference/tokens.u16")
steps=20
[[ ! ${SLUICE_LONG-} ]] || steps=60
job=(--stages 4 --microbatches 8 --steps $steps --jitter 2000 --quiet "${patient[@]}")
"$actorrun" "${job[@]}" --report one.json "${model[@]}"

bothered() { # TRANSPORTS
  (
    ulimit -n 1024
    SLUICE_TRANSPORTS=$1 exec "$actorrun" -n 4 "${job[@]}" --report many.json "${model[@]}"
  ) >out 2>err &
  local launcher=$! strangers
  to_end+=("$launcher")
  (ulimit -Sn 4096; exec python3 "$SLUICE_SOURCE/tests/support/strangers.py" "$launcher" 127.0.0.1) \
    >strangers &
  strangers=$!
  to_end+=("$strangers")
  wait "$launcher" || fail "$1: strangers ended the job"
  wait "$strangers"
  echo "$1: $(cat strangers)"
  grep -q ": [1-9][0-9]* connections to [1-9]" strangers || fail "$1: nobody was bothered"
  cmp <(hexes one.json) <(hexes many.json) || fail "$1: strangers change the losses"
}
bothered memory,tcp
bothered tcp
bothered encrypted

# Ports listen on loopback only.
listens_at() { # PID
  awk -v files="$(find "/proc/$1/fd" -printf '%l ' 2>/dev/null)" \
    '$4 == "0A" && index(files, "socket:[" $10 "]") { print $2 }' \
    "/proc/$1/net/tcp" "/proc/$1/net/tcp6" 2>/dev/null || :
}
background "$actorrun" -n 2 --stages 2 --steps 100000 --jitter 2000 --quiet "${model[@]}"
launcher=$pid
seen=0
for _ in $(seq 60); do
  for pid in $(cat "/proc/$launcher/task/$launcher/children"); do
    for at in $(listens_at "$pid"); do
      [[ $at == 0100007F:* ]] || fail "it listens at $at"
      seen=$((seen + 1))
    done
  done
  sleep 0.03
done
((seen)) || fail "it was not seen to listen at all"
kill "$launcher"
wait "$launcher" || :

# Errors name the limits.
small=(--stages 2 --steps 2 --quiet "${model[@]}")
for files in 8 14 20 24 32 48; do
  (ulimit -n $files; ends 2 "$actorrun" -n 2 "${small[@]}")
  says "the limit is $files (ulimit -n)" err
done
(ulimit -n 64; ends 0 "$actorrun" -n 2 "${small[@]}")
(ulimit -Sn 24; ends 0 "$actorrun" -n 2 "${small[@]}") # the job raises the soft limit
if unshare -m true 2>/dev/null; then
  # UCX 1.13 fails, and the error explains why; 1.18 falls back to another transport and trains the
  # same.
  status=0
  unshare -m bash -c 'mount -t tmpfs -o size=64k none /dev/shm && exec "$@"' - \
    timeout 100 "$actorrun" -n 2 --report "$work/full.json" "${small[@]}" >"$work/out" 2>"$work/err" || status=$?
  case $status in
    0)
      ends 0 "$actorrun" -n 2 --report "$work/roomy.json" "${small[@]}"
      full=$(grep -o '"loss_hex":[^,]*' "$work/full.json") || fail "no losses with a full /dev/shm"
      [[ $full == "$(grep -o '"loss_hex":[^,]*' "$work/roomy.json")" ]] || fail "other losses with a full /dev/shm: $full"
      ;;
    1) says "/dev/shm has 64.0 KiB left" err ;;
    *) fail "a full /dev/shm: status $status: $(<"$work/err")" ;;
  esac
  SLUICE_TRANSPORTS=tcp ends 0 unshare -m bash -c \
    'mount -t tmpfs -o size=64k none /dev/shm && exec "$@"' - "$actorrun" -n 2 "${small[@]}"
fi
ends 2 env SLUICE_TRANSPORTS=udp "$actorrun" -n 2 "${small[@]}"
says "SLUICE_TRANSPORTS=udp" err
