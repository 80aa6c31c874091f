#!/bin/bash
# Registers of GPUs live in the host's memory, or on disk by way of it, and no loss changes.
set -euo pipefail
# shellcheck source=tests/support/emulated.sh
source "$SLUICE_SOURCE/tests/support/emulated.sh"

model=(gpt --layers 5 --width 8 --heads 2 --context 8 --batch 4 --data "$reference/text.txt")
job=(--devices cuda --stages 2 --microbatches 4 --steps 2 --quota act=4 --grain layer "${patient[@]}")
ends 0 "$actorrun" "${job[@]}" --report kept.json "${model[@]}"
for home in host disk; do
  ends 0 "$actorrun" "${job[@]}" --home act=$home --report $home.json --plan $home.plan "${model[@]}"
  same kept.json $home.json
  grep -q "^actor spill:.*>$home " $home.plan || fail "nothing goes to $home"
done
ends 0 "$actorrun" "${job[@]}" --home act=host --home act@h.1=disk --report both.json "${model[@]}"
same kept.json both.json
ends 0 "$actorrun" "${job[@]}" -n 2 --home act=host --report apart.json "${model[@]}"
same kept.json apart.json
