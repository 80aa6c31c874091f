#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Notes and warnings of a run: parameters in two slots change what is learned, and a machine file
# was measured on a busy machine. Also, contexts of millions of tokens overflow nothing.
# labels: unthreaded long
set -u
. "$SLUICE_SOURCE/tests/support/tool.sh"

gpt=(gpt --layers 4 --width 32 --heads 2 --context 16 --batch 8 --data "$reference/tokens.u16")

# ---- parameters in two slots ----------------------------------------------------------------------------

says_delay() { # STAGES OPTIONS...: the report and the note have to list these stages
  local stages=$1 note=
  shift
  ends 0 timeout 60 "$actorrun" --steps 1 --quiet --report r.json "$@" "${gpt[@]}"
  python3 - "$stages" <<'P' || fail "$*: the report has not stages $stages"
import json, sys
report, stages = json.load(open("r.json")), json.loads(sys.argv[1])
two = [q["stage"] for q in report["quotas"] if q["name"] == "param" and q["slots"] == 2]
assert report["delayed_update_stages"] == stages == two, (report["delayed_update_stages"], two)
P
  [[ $stages == "[]" ]] || note=$(tr -d '[]' <<<"$stages")
  [[ -z $note ]] || grep -q "note: parameters of stages* $note have two slots .*so results differ" err || fail "$*: no note: $(<err)"
  [[ $note ]] || ! grep -q "two slots" err || fail "$*: a note of nothing: $(<err)"
}
says_delay "[0, 1]" --stages 2 --quota param=2
says_delay "[0]" --stages 2 --quota param@0=2 --quota param@1=1
says_delay "[1]" --stages 2 --quota param=1,2
says_delay "[0]" --data-parallel 2 --microbatches 2 --quota param=2
says_delay "[]" --stages 2 --quota grad=2 --quota act=2
says_delay "[]" --stages 2 --quota param=1
ends 0 timeout 60 "$actorrun" --dry-run --stages 2 --quota param=2 "${gpt[@]}"
says "so results differ" err
says "param@0=2  " out

# ---- a machine file measured on a busy machine ----------------------------------------------------------------

measured() { # SPREAD
  cat >box.json <<J
{"flops_per_second": {"f32": 1e11}, "flops_efficiency": 1, "bytes_per_second": 1e10, "bytes_efficiency": 1, "op_seconds": 1e-6,
 "memory_bytes": 1e12, "link_seconds": 0, "link_bytes_per_second": 0, "devices_per_host": 2$1}
J
}
warns() { # TOOL WORDS...
  local tool=$1
  shift
  ends 0 timeout 60 "$bin/$tool" "$@" "${gpt[@]}"
  [[ $(grep -c "warning: --machine box.json: .* (spread 2.3: " err) == 1 ]]
}
all() { # COMMAND: checks all tools
  $1 warns actorrun --dry-run --machine box.json --devices cpu:2x1 --stages 2 || fail "$1 actorrun: $(<err)"
  $1 warns actorrun --steps 1 --quiet --machine box.json --devices cpu:2x1 --stages 2 || fail "$1 a run: $(<err)"
  $1 warns actortune plan --machine box.json --devices timed:2 || fail "$1 actortune plan: $(<err)"
  $1 warns actorrun --auto --steps 1 --quiet --machine box.json --devices cpu:2x1 || fail "$1 --auto: $(<err)"
}
not() { ! "$@"; }
measured ', "spread": 2.3'
all ""
for spread in '' ', "spread": 0.02'; do
  measured "$spread"
  all not
done
measured ', "spread": -1'
ends 2 "$actorrun" --dry-run --machine box.json --devices cpu:2x1 "${gpt[@]}"
says "box.json: spread: " err

# ---- contexts of millions ------------------------------------------------------------------------------------------

long() { # CONTEXT OPTIONS...: prints bytes of a device, and flops and bytes moved of a step
  local context=$1
  shift
  ends 0 timeout 100 "$actorrun" --clock virtual --devices timed:8 --machine h100-sxm-80gb --memory 1000T --sequence 8 --steps 2 --quiet \
    --report r.json "$@" --layers 1 --width 512 --heads 8 --vocab 1024 --batch 1 --context "$context"
  python3 -c 'import json; r = json.load(open("r.json"))
print(r["devices"][0]["peak_bytes"]["total"], r["predicted"]["flops_per_step"], r["predicted"]["moved_bytes_per_step"]["sequence"])'
}
for model in llama gpt; do
  for way in "--recompute full" "--pieces 8 --cut balanced" "--sequence-attention heads"; do
    # shellcheck disable=SC2086
    read -r bytes flops moved <<<"$(long 983040 $way $model)"
    # shellcheck disable=SC2086
    read -r bytes16 flops16 moved16 <<<"$(long 15728640 $way $model)"
    python3 -c "import sys; sys.exit(not (15 < $bytes16 / $bytes < 16.5 and 200 < $flops16 / $flops < 257 and 15 < $moved16 / $moved < 16.5))" ||
      fail "$model $way: 16 times the context takes $bytes16 of $bytes bytes, $flops16 of $flops flop, $moved16 of $moved bytes moved"
  done
done
ends 2 "$actorrun" --dry-run --clock virtual llama --width 1048576 --heads 16384 --batch 1024 --context 268435456
says "which is not a possible shape" err
