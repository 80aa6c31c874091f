#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compares the training speed of several processes with PyTorch on Gloo. Pipelines of 2 and 4
# stages run against torch.distributed.pipelining, each with 1F1B and with zb-v. Data parallelism
# over 2 processes runs against DistributedDataParallel. The model is a GPT of 8 layers, width 256,
# context 128, with 16 sequences a step; pipelines use 8 microbatches. The cases alternate, round by
# round, so that other load on the machine affects all of them. Every value is the median over the
# rounds.
#
#   bench_ranks.sh [-n ROUNDS] [-s STEPS] [CASE...]      CASE: pipeline2 pipeline4 zero2 zero4 data2
#
# Sluice's build is in $SLUICE_BUILD (build/release); $PYTHON (python3) has to provide PyTorch, or
# only Sluice runs. Prints `case<TAB>value<TAB>unit` lines:
#
#   CASE.processes, CASE.threads  tokens/s of the median step: one process per device, or one for all
#   CASE.torch                    tokens/s of PyTorch's median step
#   CASE.processes.ratio, ...     speedup over PyTorch, round by round
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${SLUICE_BUILD:-$here/../../build/release} python=${PYTHON:-python3}
rounds=3 steps=6
while getopts n:s: option; do
  case $option in n) rounds=$OPTARG ;; s) steps=$OPTARG ;; *) exit 2 ;; esac
done
shift $((OPTIND - 1))
cases=("$@")
((${#cases[@]})) || cases=(pipeline2 pipeline4 zero2 zero4 data2)
[[ -x $build/bin/actorrun ]] || { echo "bench_ranks: no $build/bin/actorrun" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
head -c 400000 /dev/urandom | base64 >"$work/text"
model=(--layers 8 --width 256 --heads 8 --context 128 --batch 16)

sluice() {
  "$build/bin/actorrun" --quiet --steps $((steps + 2)) --report "$work/report" "$@" \
    gpt "${model[@]}" --data "$work/text"
  "$python" - "$work/report" <<'PY'
import json, statistics, sys
print(16 * 128 / statistics.median(s["seconds"] for s in json.load(open(sys.argv[1]))["steps"][2:]))
PY
}

pytorch() { "$python" "$here/torch_ranks.py" "$@" "${model[@]}" --steps "$steps"; }

have_torch=false
"$python" -c 'import torch' 2>/dev/null && have_torch=true

figure() { echo "$1 $2 $3"; } # round, name, value
run_case() { # round, case
  local n=${2//[!0-9]/} way=${2%%[0-9]*} options
  case $way in
  pipeline) options=(--stages "$n" --microbatches 8) ;;
  zero) options=(--stages "$n" --microbatches 8 --schedule zb-v) ;;
  data) options=(--data-parallel "$n") ;;
  *) echo "bench_ranks: no case $2" >&2; exit 2 ;;
  esac
  figure "$1" "$2.processes" "$(sluice -n "$n" "${options[@]}")"
  figure "$1" "$2.threads" "$(sluice "${options[@]}")"
  if $have_torch; then figure "$1" "$2.torch" "$(pytorch "$way" --ranks "$n")"; fi
}

for ((i = 0; i < rounds; i++)); do
  for case in "${cases[@]}"; do run_case "$i" "$case"; done
done >"$work/figures"

"$python" - "$work/figures" <<'PY'
import collections, statistics, sys
found = collections.defaultdict(dict)
for line in open(sys.argv[1]):
    turn, name, value = line.split()
    found[name][turn] = float(value)
for name, values in found.items():
    print(f"{name}\t{statistics.median(values.values()):.4g}\ttokens/s")
for name, values in found.items():
    case, way = name.split(".")
    theirs = found.get(case + ".torch", {})
    if way != "torch" and theirs:
        print(f"{name}.ratio\t{statistics.median(values[t] / theirs[t] for t in theirs):.3f}\ttimes")
PY
