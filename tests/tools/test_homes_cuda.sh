#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Registers of GPUs that are offloaded to host memory, or through it to disk, change no loss.
# labels: unthreaded more
# needs: zeromq
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

# A window of weights, with any home and any --update.
deep=(gpt --layers 7 "${model[@]:3}")
ends 0 "$actorrun" "${job[@]}" --report deep.json "${deep[@]}"
every 4 "weights=disk --home act=host" "weights=host" "weights=host --update host" "weights=disk --update every:2"
for away in "${some[@]}"; do
  # shellcheck disable=SC2086
  ends 0 "$actorrun" "${job[@]}" --home $away --quota weights=1 --report window.json --plan window.plan \
    "${deep[@]}"
  same deep.json window.json
  grep -q '^register param.*quota weights=1 ' window.plan || fail "$away: no window"
done

# The bits of the parameters do not depend on which side updates them. If the host does, only
# gradients and parameters are moved: 8 bytes per value.
ends 0 "$actorrun" "${job[@]}" --update host --report update.json "${model[@]}"
same kept.json update.json
ends 0 "$actorrun" "${job[@]}" --update every:2 --home state=disk --quota fill=1 --quota spill=1 \
  --report every.json "${model[@]}"
same kept.json every.json
moved() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["runtime"]["moved_bytes_per_step"]["host"])' "$1"; }
values=$(sed -n 's/^gpt: \([0-9,]*\) parameters.*/\1/p' <("$actorrun" "${job[@]}" --update host --dry-run "${model[@]}") | tr -d ,)
more=$(($(moved update.json) - $(moved kept.json))) # except the clip factor, which is not moved
((more <= 8 * values && more > 8 * values - 16)) || fail "$more bytes for $values values"
ends 2 "$actorrun" --update host --steps 1 --devices cpu "${model[@]}"
says "update host: cpu devices cannot leave updates to the host" err
ends 2 "$actorrun" --update every:0 "${job[@]}" "${model[@]}"
says "update every:0: must be device, host or every:K" err

ends 0 "$actorrun" "${job[@]}" -n 2 --home act=host --report apart.json "${model[@]}"
same kept.json apart.json
