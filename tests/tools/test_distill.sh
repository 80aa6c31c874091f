#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --teacher: a small model learns the probabilities of a larger one, with the same bits over stages
# and processes. Invalid settings are rejected with an error that names them.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

data=(--data "$reference/text.txt")
ends 0 "$actorrun" --quiet --steps 150 --save teacher/ gpt --layers 3 --width 48 --heads 4 --context 32 --batch 8 --lr 3e-3 "${data[@]}"
student=(gpt --layers 2 --width 32 --heads 2 --context 32 --batch 8 --lr 3e-3 "${data[@]}")
learn() { ends 0 "$actorrun" --quiet "${patient[@]}" --teacher teacher "$@" "${student[@]}"; }
column() { awk -F, -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i; next } $c != "" { v = $c } END { print v }' "$1"; }
holds() { awk "BEGIN { exit !($1) }" || fail "$1 does not hold"; }

# The divergence falls from 3.5 to below 0.4, on the training data and on held-out text. Only the
# student is saved.
learn --steps 120 --distill kl:top=16 --log d.csv --eval "$reference/text.txt" --eval-every 60 --eval-rows 16 --save student/
holds "$(awk -F, 'NR == 2 { print $2 }' d.csv) > 3"
holds "$(column d.csv loss) < 0.4 && $(column d.csv eval_kl) < 0.4"
cmp -s <(strings student/model.safetensors | grep -c teacher || :) <(echo 0) || fail "the student's folder has the teacher"

# With itself as teacher the divergence is 0 from the start.
ends 0 "$actorrun" --quiet --steps 1 --log self.csv --init teacher --teacher teacher --distill kl:top=0 gpt --batch 8 --context 32 "${data[@]}"
holds "$(column self.csv loss) < 1e-6 && $(column self.csv loss) > -1e-6"

# The bits are the same on any layout, also with more stages than the teacher has blocks.
learn --exact --steps 4 --certify one.jsonl --distill kl:top=8,data=0.25,temperature=2
for layout in "--stages 2 --microbatches 2" "--stages 4 --microbatches 4 -n 2" "--data-parallel 2"; do
  read -ra words <<<"$layout"
  learn --exact --steps 4 --certify other.jsonl --distill kl:top=8,data=0.25,temperature=2 "${words[@]}"
  cmp -s one.jsonl other.jsonl || fail "$layout learns something else"
done
learn --steps 4 --log whole.csv
learn --steps 4 --log pieces.csv --pieces 2
holds "$(column whole.csv loss) - $(column pieces.csv loss) < 1e-5 && $(column pieces.csv loss) - $(column whole.csv loss) < 1e-5"

# A resumed run continues like one that was not interrupted.
learn --steps 3 --checkpoint c
learn --steps 6 --checkpoint c --resume --certify resumed.jsonl
learn --steps 6 --certify straight.jsonl
cmp -s <(tail -1 resumed.jsonl) <(tail -1 straight.jsonl) || fail "a resumed run ends elsewhere"

longer=(gpt --layers 1 --width 16 --heads 2 --context 64 --batch 8 "${data[@]}")
refused() {
  local text=$1
  shift
  ends 2 "$actorrun" --steps 2 --quiet "$@"
  says "$text" err
}
refused '--distill: needs --teacher DIR' --distill kl "${student[@]}"
refused '--distill js: must be kl, as in kl:top=64,temperature=1' --teacher teacher --distill js "${student[@]}"
refused '--distill top=x: must be KEY=VALUE' --teacher teacher --distill kl:top=x "${student[@]}"
refused '--teacher nowhere: must be a Hugging Face folder' --teacher nowhere "${student[@]}"
refused 'the teacher: gpt: --positions 32 is less than --context 64' --teacher teacher "${longer[@]}"
refused 'with a vocabulary of 256, but the model reads 8 rows of 32 with 300' --teacher teacher "${student[@]}" --vocab 300
refused '--teacher: cannot be combined with --preferences: a run has one objective' --teacher teacher --preferences x "${student[@]}"
