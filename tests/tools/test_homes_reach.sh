#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Eight times the context fits into the same memory without recomputation, because values for the
# backward pass wait on disk. Where cgroups are available, the kernel enforces the memory limit. The
# test prints resident memory and the bytes read and written. With `full` as argument it uses the
# sizes of docs/memory.md, which takes minutes.
# labels: outside
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

if [[ ${1:-} == full ]]; then
  model=(llama --layers 32 --width 128 --heads 4 --kv-heads 1 --batch 1)
  memory=604 fits=2048 steps=2
else
  model=(llama --layers 32 --width 64 --heads 4 --kv-heads 1 --batch 1)
  memory=56 fits=256 steps=2
fi
far=$((8 * fits)) library=64 # MiB for the program itself
homes=(--home act=disk --quota fill=1 --disk "$PWD")
for _ in $(seq 40); do cat "$reference/text.txt"; done >text.txt
model+=(--data text.txt)

[[ $(stat -fc %T .) =~ ^(tmpfs|ramfs)$ ]] && skip "$PWD is in memory"
# If the file system does not support O_DIRECT, reads may come from the page cache.
direct=$(python3 -c 'import os
try: os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_DIRECT); print(1)
except OSError: print(0)')

# ---- what fits ---------------------------------------------------------------------------------
ends 0 "$actorrun" --dry-run --memory ${memory}M "${model[@]}" --context $fits
ends 3 "$actorrun" --dry-run --memory ${memory}M "${model[@]}" --context $((2 * fits))
ends 0 "$actorrun" --dry-run --memory ${memory}M "${homes[@]}" "${model[@]}" --context $far
grep "^cpu:0" out

# ---- enforced limit -----------------------------------------------------------------------------
group=/sys/fs/cgroup/memory/sluice.$$
held() { # COMMAND...: runs it in the group
  (echo "$BASHPID" >"$group/cgroup.procs" && exec "$@")
}
limit() { # limits a group of processes, if the kernel permits it
  [[ $(stat -fc %T /sys/fs/cgroup 2>/dev/null) == cgroup2fs ]] && group=/sys/fs/cgroup/sluice.$$
  mkdir "$group" 2>/dev/null || return 1
  local bytes=$(((memory + library) << 20))
  if [[ -e $group/memory.limit_in_bytes ]]; then
    echo $bytes >"$group/memory.limit_in_bytes"
  elif [[ -e $group/memory.max ]]; then
    echo $bytes >"$group/memory.max" && echo 0 >"$group/memory.swap.max"
  else
    rmdir "$group"
    return 1
  fi 2>/dev/null
  held true 2>/dev/null || { rmdir "$group" && return 1; }
}
if limit; then
  trap 'rmdir "$group"; end_test' EXIT
  echo "held to $memory + $library MiB by $group"
else
  held() { "$@"; }
  echo "no cgroup can be made here: only what is resident is looked at"
fi

cat >watch.py <<'END_OF_PYTHON'
import resource, subprocess, sys
status = subprocess.run(sys.argv[2:]).returncode
use = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as out:
    print(use.ru_maxrss, use.ru_inblock * 512, use.ru_oublock * 512, file=out)
sys.exit(status)
END_OF_PYTHON
run=(--steps $steps --quiet --memory)
ends 0 "$actorrun" "${run[@]}" 64G --report kept.json "${model[@]}" --context $far
ends 0 held python3 watch.py use "$actorrun" "${run[@]}" ${memory}M "${homes[@]}" \
  --report moved.json "${model[@]}" --context $far
cmp -s <(hexes kept.json) <(hexes moved.json) || fail "other losses"

read -r resident bytes_read bytes_written <use
cat >compare.py <<'END_OF_PYTHON'
import json, sys
resident, was_read, was_written, memory, steps, direct = map(int, sys.argv[1:])
kept, moved = (json.load(open(name)) for name in ("kept.json", "moved.json"))
planned = moved["runtime"]["moved_bytes_per_step"]["disk"] * steps // 2
print("resident %.0f MiB; read %.1f MiB, written %.1f MiB of %.1f MiB planned each way" %
      (resident / 1024, was_read / 2**20, was_written / 2**20, planned / 2**20))
def step(report):
    times = sorted(s["seconds"] for s in report["steps"][1:])
    return times[len(times) // 2]
print("a step takes %.3f s, with everything in memory %.3f s: %.2f times" %
      (step(moved), step(kept), step(moved) / step(kept)))
assert resident * 1024 <= memory << 20, "it had more memory"
for name, was in (("read", was_read), ("written", was_written)) if direct else ():
    assert 0.99 * planned <= was <= 1.01 * planned + (1 << 20), "%s: %d of %d" % (name, was, planned)
END_OF_PYTHON
python3 compare.py "$resident" "$bytes_read" "$bytes_written" $((memory + library)) $steps "$direct" ||
  fail "it is not as planned"
