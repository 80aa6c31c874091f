#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks that two builds make the same plans: prints the plan of each command below with both
# actorruns and compares them byte by byte:
#
#   tests/compare_plans.sh OLD/bin/actorrun NEW/bin/actorrun
#
# Use it for changes that should only move code. --fields ignores the plan's hash, for changes to
# what the hash covers.
set -uo pipefail
hash=cat
if [[ ${1-} == --fields ]]; then
  hash='sed s/^plan.[0-9a-f]*:/plan/'
  shift
fi
(($# == 2)) || { echo "usage: $0 [--fields] ACTORRUN ACTORRUN" >&2; exit 2; }
old=$(realpath "$1") new=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)
text=$here/reference/text.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

gpt=(gpt --data "$text" --layers 4 --width 64 --heads 4 --context 32 --batch 16)
llama=(llama --data "$text" --layers 4 --width 64 --heads 4 --context 32 --batch 16)
commands=0 different=0

# Prints a build's output and plan for a command, without the planning time.
plan_of() {
  local build=$1 out=$2
  shift 2
  { "$build" --dry-run --plan "$out.plan" "$@" 2>&1 | sed -E 's/in [0-9.]+ m?s$//' | $hash
    cat "$out.plan"; } >"$out" 2>/dev/null
  rm -f "$out.plan"
}

compare() {
  plan_of "$old" "$work/old" "$@"
  plan_of "$new" "$work/new" "$@"
  commands=$((commands + 1))
  cmp -s "$work/old" "$work/new" && grep -q ^plan "$work/new" && return
  different=$((different + 1))
  echo "different: actorrun $*"
  diff "$work/old" "$work/new" | head -6
}

for schedule in gpipe 1f1b zb-h1 interleaved zb-h2 zb-v seq1f1b; do
  for more in "" "--pieces 2" "--recompute full" "-n 2" "--data-parallel 2 --grain layer"; do
    compare --stages 2 --microbatches 8 --schedule $schedule $more "${gpt[@]}"
  done
done
for shard in optimizer gradients parameters; do
  for processes in 1 2 4; do
    compare --data-parallel 4 --microbatches 4 --shard $shard -n $processes "${llama[@]}"
  done
  compare --stages 2 --data-parallel 2 --tensor 2 --microbatches 4 --shard $shard "${gpt[@]}"
done
for more in "--pieces 4 --cut balanced" "--quota act=6 --quota act@1=2" "--recompute selective" \
            "--quota param=2 --quota grad=2" "--quota pool=12" "--order derive"; do
  compare --stages 4 --microbatches 8 $more "${llama[@]}"
done
compare --tensor 4 --show-sbp "${gpt[@]}"
compare --parallel 4 "${llama[@]}"
compare --stages 4 --microbatches 8 --schedule auto --memory 64M "${gpt[@]}"
compare --stages 2 --microbatches 4 --checkpoint "$work/kept" --every 2 "${gpt[@]}"
compare --devices cuda --stages 2 --data-parallel 2 --microbatches 4 --dtype bf16 "${gpt[@]}"
compare --devices cuda --stages 2 --tensor 2 --microbatches 4 -n 2 "${llama[@]}"
compare --clock virtual --stages 8 --microbatches 32 --schedule zb-h1 --cost F=1,B=1,W=1 pipeline
compare --devices timed:4 --machine h100-sxm-80gb --stages 4 --microbatches 16 "${llama[@]}"

echo "$commands commands, $different different"
((different == 0))
