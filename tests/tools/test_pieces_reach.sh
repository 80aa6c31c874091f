#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Eight times the context fits into the same memory, in pieces: all pieces go through a block before
# the next block starts. Block inputs, attention outputs, keys and values are stored on disk, and
# the rest is recomputed. With `full` as argument it uses the sizes of docs/memory.md, which takes
# minutes.
# labels: outside
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

if [[ ${1:-} == full ]]; then
  model=(llama --layers 32 --width 128 --heads 4 --kv-heads 1 --batch 1)
  memory=147 fits=2048
else
  model=(llama --layers 10 --width 64 --heads 4 --kv-heads 1 --batch 1)
  memory=14 fits=512
fi
far=$((8 * fits)) steps=2 library=64 # MiB for the program itself
again=(--recompute full)
pieces=(--pieces 16)
away=("${again[@]}" "${pieces[@]}" --piece-order layers --home act=disk --home kv=disk --disk "$PWD")
for _ in $(seq 40); do cat "$reference/text.txt"; done >text.txt
model+=(--data text.txt)
[[ $(stat -fc %T .) =~ ^(tmpfs|ramfs)$ ]] && skip "$PWD is in memory"

# ---- what fits ---------------------------------------------------------------------------------
ends 0 "$actorrun" --dry-run --memory ${memory}M "${again[@]}" "${model[@]}" --context $fits
ends 3 "$actorrun" --dry-run --memory ${memory}M "${again[@]}" "${model[@]}" --context $((2 * fits))
ends 0 "$actorrun" --dry-run --memory ${memory}M "${away[@]}" "${model[@]}" --context $far
grep "^cpu:0" out

# ---- cost ----------------------------------------------------------------------------------------
cat >watch.py <<'END_OF_PYTHON'
import resource, subprocess, sys
status = subprocess.run(sys.argv[2:]).returncode
use = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as out:
    print(use.ru_maxrss, file=out)
sys.exit(status)
END_OF_PYTHON
run=(--steps $steps --quiet --memory)
ends 0 python3 watch.py use "$actorrun" "${run[@]}" ${memory}M "${away[@]}" --report away.json \
  "${model[@]}" --context $far
ends 0 "$actorrun" "${run[@]}" 64G "${pieces[@]}" --report kept.json "${model[@]}" --context $far

cat >compare.py <<'END_OF_PYTHON'
import json, sys
resident, memory = map(int, sys.argv[1:])
kept, away = (json.load(open(name)) for name in ("kept.json", "away.json"))
for a, b in zip(kept["steps"], away["steps"], strict=True):
    assert a["loss_hex"] == b["loss_hex"], f"losses {a['loss']} and {b['loss']}"
def step(report): return report["steps"][-1]["seconds"]
print("losses %s; resident %.0f MiB of %d; to and from disk %.1f MiB a step" %
      (away["steps"][-1]["loss_hex"], resident / 1024, memory,
       away["runtime"]["moved_bytes_per_step"]["disk"] / 2**20))
print("a step takes %.3f s, with everything in memory %.3f s: %.2f times" %
      (step(away), step(kept), step(away) / step(kept)))
assert resident * 1024 <= memory << 20, "it had more memory"
END_OF_PYTHON
read -r resident <use
python3 compare.py "$resident" $((memory + library)) || fail "it is not as planned"
