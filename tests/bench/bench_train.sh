#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compares training speed with PyTorch on a GPT of 6 layers, width 384, 6 heads, context
# 256, batch 8, vocabulary 256. Sluice and PyTorch alternate, pair by pair, so that other
# load on the machine affects both. Every value is the median over the pairs.
#
#   bench_train.sh [-n PAIRS] [-s STEPS] [-d fp32|bf16] [-t THREADS] [-c on|off]
#                  [-- ACTORRUN OPTIONS...]
#
# THREADS and `-c` (torch.compile) apply to PyTorch. The words after `--` are passed to
# actorrun, which is taken from $SLUICE_BUILD (build/release). Without PyTorch only
# Sluice runs. Needs python3. Prints `case<TAB>value<TAB>unit` lines:
#
#   sluice.tokens, torch.tokens   tokens/s of the median step
#   sluice.cpu, torch.cpu         processor time of all threads per token, which
#                                 a busy machine affects least
#   sluice.peak_rss, ...          peak resident memory, libraries included
#   ratio.tokens, ratio.cpu       speedup of Sluice, pair by pair
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${SLUICE_BUILD:-$here/../../build/release}
pairs=3 steps=6 dtype=fp32 threads=$(nproc) compile=on
while getopts n:s:d:t:c: option; do
  case $option in
  n) pairs=$OPTARG ;; s) steps=$OPTARG ;; d) dtype=$OPTARG ;;
  t) threads=$OPTARG ;; c) compile=$OPTARG ;; *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[[ -x $build/bin/actorrun ]] || { echo "bench_train: no $build/bin/actorrun" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
head -c 4000000 /dev/urandom | base64 >"$work/text"

# Trains on random text, as PyTorch trains on random tokens: a step's cost does not depend on them.
sluice() {
  "$build/bin/actorrun" --quiet --steps $((steps + 1)) --dtype "$dtype" --report "$work/report" \
    "$@" gpt --layers 6 --width 384 --heads 6 --context 256 --batch 8 --data "$work/text"
  python3 - "$work/report" <<'PY'
import json, statistics, sys
r = json.load(open(sys.argv[1]))
o = r["model_options"]
tokens = o["batch"] * o["context"]
steps = r["steps"][1:]
print("tokens", tokens / statistics.median(s["seconds"] for s in steps))
print("cpu", statistics.median(s["cpu_seconds"] for s in steps) / tokens * 1e6)
print("peak_rss", r["runtime"]["peak_resident_bytes"] / 2**20)
print("start", r["runtime"]["start_seconds"])
PY
}

pytorch() {
  python3 "$here/bench_torch.py" --dtype "$dtype" --threads "$threads" --compile "$compile" \
    --steps "$steps" --warmup 2 2>/dev/null | sed -nE 's/^.*\.(median|cpu|peak_rss)\t([^\t]*).*/\1 \2/p' |
    sed 's/^median/tokens/'
}

have_torch=false
python3 -c 'import torch' 2>/dev/null && have_torch=true
for ((i = 0; i < pairs; i++)); do
  sluice "$@" | sed "s/^/$i sluice /"
  if $have_torch; then pytorch | sed "s/^/$i torch /"; fi
done >"$work/figures"

python3 - "$work/figures" <<'PY'
import collections, statistics, sys
found = collections.defaultdict(dict)
for line in open(sys.argv[1]):
    pair, who, what, value = line.split()
    found[who, what][pair] = float(value)
units = {"tokens": "tokens/s", "cpu": "us/token", "peak_rss": "MiB", "start": "s"}
for (who, what), values in sorted(found.items()):
    print(f"{who}.{what}\t{statistics.median(values.values()):.4g}\t{units[what]}")
for what, up in (("tokens", 1), ("cpu", -1)):
    ours, theirs = found["sluice", what], found["torch", what]
    ratios = [(ours[p] / theirs[p]) ** up for p in ours if p in theirs]
    if ratios:
        print(f"ratio.{what}\t{statistics.median(ratios):.3f}\ttimes")
PY
