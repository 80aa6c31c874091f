#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Milliseconds per token of a server at several contexts: a model all of whose blocks keep states, one where every second
# block has softmax attention with a window of 4,096 tokens, and one with softmax attention alone, all of one size. A request
# has a prompt of that many tokens; "prompt" is the time of one of these, as the server is asked first, and "token" that of
# the 32 tokens behind it, the best of three requests.
#   tests/bench/states.sh [CONTEXT...]
set -eu
cd "$(dirname "$0")/../.."
bin=${SLUICE_BIN:-build/release/bin} work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
contexts=("$@")
((${#contexts[@]})) || contexts=(1024 8192 32768 65536)
size=(--layers 6 --width 384 --heads 6)
printf '%8s %25s %25s %25s\n' "" states hybrid softmax
printf '%8s %12s %12s %12s %12s %12s %12s\n' context prompt token prompt token prompt token
for context in "${contexts[@]}"; do
  row=$(printf '%8d' "$context")
  for blocks in "--softmax-every 0" "--softmax-every 2 --window 4096" "--softmax-every 1"; do
    # shellcheck disable=SC2206
    kind=($blocks)
    "$bin/actorrun" --quiet --steps 0 --save "$work/w.safetensors" hybrid "${size[@]}" "${kind[@]}" \
      --context 64 --data README.md
    python3 - "$bin/actorserve" "$work/w.safetensors" "$context" "${size[@]}" "${kind[@]}" <<'END_OF_PYTHON' >"$work/ms"
import json, re, subprocess, sys, time, urllib.request
serve, weights, context, *size = sys.argv[1:]
n, tokens = int(context), 32
server = subprocess.Popen([serve, "--port", "0", "--init", weights, "hybrid", *size, "--context", str(n + tokens + 64)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
url = re.search(r"http://\S+", server.stdout.readline()).group(0)
times, prompts = [], []
try:
    for _ in range(3):
        body = {"prompt": [(7 * i) % 256 for i in range(n)], "max_tokens": tokens, "temperature": 0, "stream": True}
        begin = time.perf_counter()
        reply = urllib.request.urlopen(urllib.request.Request(url + "/completions", json.dumps(body).encode()))
        at = [time.perf_counter() for line in reply if line.startswith(b"data: {")]
        prompts.append((at[0] - begin) / n * 1e3)
        times.append((at[-1] - at[0]) / (len(at) - 1) * 1e3)
finally:
    server.kill()
print(f"{prompts[0]:12.3f} {min(times):12.2f}")
END_OF_PYTHON
    row+=" $(<"$work/ms")"
  done
  echo "$row"
done
