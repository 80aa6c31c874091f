#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# actortune for emulated GPUs: plans that it finds on modelled devices hold for GPUs, and its
# commands make these plans.
# labels: outside
set -euo pipefail
# shellcheck source=tests/support/emulated.sh
source "$SLUICE_SOURCE/tests/support/emulated.sh"

model=(gpt --layers 4 --width 16 --heads 2 --context 8 --batch 8 --vocab 259
       --data "$reference/tokens.u16")
tune() {
  ends 0 "${actorrun%actorrun}actortune" --devices cuda:0,0 --stages 2 --microbatches 4 \
    --schedule 1f1b --effort 10 --csv f.csv "$@" "${model[@]}"
}

for machine in "" --machine=h100-sxm-80gb; do
  tune ${machine:+"$machine"}
  (($(wc -l <f.csv) > 2)) || fail "$machine: there is something to choose from"
  while read -r row; do
    hash=$(cut -d, -f10 <<<"$row") command=${row##*,\"actorrun }
    read -ra words <<<"${command%\"}"
    ends 0 "$actorrun" "${words[@]}" --dry-run
    says "plan $hash" out
  done < <(tail -n +2 f.csv)
done
