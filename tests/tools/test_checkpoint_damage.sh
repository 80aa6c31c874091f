#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Damages checkpoints: flipped bits, truncation, wrong lengths, missing or replaced files. The run
# has to detect the damage and either fall back to the previous checkpoint, with the same losses, or
# reject the checkpoint.
#
#   test_checkpoint_damage.sh [SEED [COUNT]]
# labels: random
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need python3

draw "$@"
sanitized && each=5 || each=20
count=${2:-$((each * ${SLUICE_SEEDS:-1}))}
words=(--steps 10 --microbatches 2 gpt --layers 4 --width 16 --heads 2 --context 8 --batch 4
       --data "$reference/tokens.u16")
ends 0 "$actorrun" --stages 4 --report full.json "${words[@]}"
ends 0 "$actorrun" --stages 2 --checkpoint c --every 4 --report part.json --steps 8 "${words[@]:2}"
python3 "$SLUICE_SOURCE/tests/support/damage_checkpoints.py" "$actorrun" c full.json "$count" \
  "$seed" "${words[@]}" >said || fail "$(cat said)"
cat said
