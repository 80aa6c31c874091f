#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A bit flip in one gradient on one of four devices is detected. --recheck of that step on one
# device, from the previous checkpoint, names the parameter. The steps before it match.
# labels: outside
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

model=("$SLUICE_SOURCE/tests/tools/flip.c" --clip 0 --data "$reference/text.txt")
run=("$actorrun" --quiet --exact)
SLUICE_FLIP=3 ends 0 "${run[@]}" --data-parallel 4 --steps 4 --certify flipped.jsonl --checkpoint kept --every 1 \
  --keep 9 "${model[@]}"
ends 0 "${run[@]}" --steps 2 --recheck flipped.jsonl "${model[@]}"

# Recomputes step 3 from the checkpoint of step 2.
rm -r kept/*3* kept/*4*
ends 2 "${run[@]}" --steps 4 --checkpoint kept --resume --recheck flipped.jsonl "${model[@]}"
says 'step 3: embedding differs from flipped.jsonl' err
says 'and 2 more of' err # its two optimizer moments

SLUICE_FLIP=3 ends 0 "${run[@]}" --steps 4 --stages 2 --recheck flipped.jsonl "${model[@]}"
echo "the flip is found"
