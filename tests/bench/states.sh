#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Milliseconds per token of a server at several contexts: a model all of whose blocks keep states, and
# one of the same size with softmax attention. A request has a prompt of that many tokens; what is
# told is the time of 32 tokens behind it.
#   tests/bench/states.sh [CONTEXT...]
set -eu
cd "$(dirname "$0")/../.."
bin=${SLUICE_BIN:-build/release/bin} work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
contexts=("$@")
((${#contexts[@]})) || contexts=(1024 4096 16384)
size=(--layers 6 --width 384 --heads 6)
printf '%10s %14s %14s\n' context "states, ms" "softmax, ms"
for context in "${contexts[@]}"; do
  row=$(printf '%10d' "$context")
  for every in 0 1; do
    "$bin/actorrun" --quiet --steps 0 --save "$work/w.safetensors" hybrid "${size[@]}" --softmax-every $every \
      --context 64 --data README.md
    python3 - "$bin/actorserve" "$work/w.safetensors" "$context" "$every" "${size[@]}" <<'END_OF_PYTHON' >"$work/ms"
import json, re, subprocess, sys, time, urllib.request
serve, weights, context, every, *size = sys.argv[1:]
n, tokens = int(context), 32
server = subprocess.Popen([serve, "--port", "0", "--init", weights, "hybrid", *size, "--softmax-every", every, "--context",
                           str(n + tokens + 64)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
url = re.search(r"http://\S+", server.stdout.readline()).group(0)
times = []
try:
    for _ in range(3):
        body = {"prompt": [(7 * i) % 256 for i in range(n)], "max_tokens": tokens, "temperature": 0, "stream": True}
        reply = urllib.request.urlopen(urllib.request.Request(url + "/completions", json.dumps(body).encode()))
        at = [time.perf_counter() for line in reply if line.startswith(b"data: {")]
        times.append((at[-1] - at[0]) / (len(at) - 1) * 1e3)
finally:
    server.kill()
print(f"{min(times):14.2f}")
END_OF_PYTHON
    row+=" $(<"$work/ms")"
  done
  echo "$row"
done
