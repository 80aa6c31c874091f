#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# CUDA graphs change how a job's kernels are launched, not what they compute: losses have the same
# bits with and without graphs, whichever slots rotate. The report gives the number of firings that
# ran as graphs, and the durations of calls, which --profile reads.
# labels: outside
set -euo pipefail
# shellcheck source=tests/support/emulated.sh
source "$SLUICE_SOURCE/tests/support/emulated.sh"

model=(gpt --layers 1 --width 8 --heads 1 --context 4 --batch 8 --lr 1e-3 --warmup 3
       --data "$SLUICE_SOURCE/tests/reference/tokens.u16")
run() { # GRAPHS REPORT OPTIONS...
  local graphs=$1 report=$2
  shift 2
  SLUICE_CUDA_GRAPHS=$graphs "$actorrun" --microbatches 8 --steps 3 --quiet \
    --report "$work/$report" "$@" "${model[@]}"
}
replayed() { grep -o '"replayed_firings":[^,]*' "$work/$1" | grep -o '[0-9]*$'; }
alike() { # OPTIONS...
  run 0 without "$@"
  run 1 with "$@"
  cmp <(hexes with) <(hexes without) || fail "$*: graphs change the losses"
  (($(hexes with | wc -l) >= 3)) || fail "$*: no losses"
  (($(replayed without) == 0)) || fail "$*: there are graphs that nobody wants"
  (($(replayed with) >= 5)) || fail "$*: only $(replayed with) firings were graphs"
}

alike --devices cuda
alike --devices cuda:0,0 --schedule zb-h1 --jitter 100
SLUICE_EMULATED_GPUS=2 alike --devices cuda --data-parallel 2 --microbatches 2 --steps 4
alike --devices cuda --stages 2 --pieces 2 --schedule seq1f1b --microbatches 4
SLUICE_EMULATED_GUARD=1 run 1 guarded --devices cuda
run auto auto --devices cuda
cmp <(hexes auto) <(hexes guarded) || fail "the trial of graphs changes the losses"

# The report has the durations of calls.
grep -q '"ops":.*\[{' <(tr -d '\n\t' <"$work/auto") || fail "no call was timed"
"$actorrun" --devices cuda --stages 2 --microbatches 8 --steps 1 --quiet --profile "$work/auto" \
  --report "$work/profiled" "${model[@]}"
grep -q '"durations":.*"profile"' "$work/profiled" || fail "--profile is not used"
