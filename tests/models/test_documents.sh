#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Documents packed in one row learn as if each had a separate row. With documents and windows the losses
# do not depend on how a model is cut and sharded.
# labels: numbers long
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

whole=(--layers 2 --width 32 --heads 4 --lr 3e-3)

# losses REPORT 'RUN OPTIONS' MODEL [MODEL OPTIONS...]: writes the losses of three steps to REPORT
losses() {
  # shellcheck disable=SC2086
  ends 0 "$actorrun" --quiet --steps 3 --report report.json $2 "${@:3}" "${size[@]}"
  sed -n 's/.*"loss":[^0-9]*\([0-9.e+-]*\).*/\1/p' report.json >"$1"
  [ "$(wc -l <"$1")" -eq 3 ] || fail "${*:2}: three losses"
}

# near A B: succeeds if the losses differ only by the order of sums
near() { paste "$1" "$2" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-6 * $1) exit 1 }'; }

# ---- packed and separate ---------------------------------------------------------------------------

for i in $(seq 20); do printf 'fifteen letters\nanother line is\nwhat comes here\nand then an end\n'; done >lines.txt
for model in "gpt --positions 64" "llama --positions 64" "hybrid --positions 64" mamba2 \
  "qwen3-next --mixers delta,full --feeds mlp --value-dim 16 --key-dim 8"; do
  # shellcheck disable=SC2206
  words=($model)
  size=("${whole[@]}")
  [ "$model" != mamba2 ] || size=(--layers 2 --width 32 --head-dim 8 --groups 2 --lr 3e-3)
  alone=("${words[@]}" --data lines.txt --context 16 --batch 12)
  packed=("${words[@]}" --data lines.txt --context 64 --batch 3)
  losses alone "" "${alone[@]}"
  losses packed "" "${packed[@]}" --document-end 10
  near alone packed || fail "$model: four documents in a row learn as four rows"
  losses joined "" "${packed[@]}"
  near alone joined && fail "$model: without documents a token sees those before"
done

# ---- schedules, cuts and grids ----------------------------------------------------------------------

size=("${whole[@]}")
text=(--data "$reference/text.txt" --context 48 --batch 8 --document-end 32)
for model in "gpt --window 7" "llama --kv-heads 2 --window 7" "hybrid --window 7" "hybrid --side-by-side --window 7" mamba2 \
  "qwen3-next --mixers delta,full --feeds mlp --value-dim 16 --key-dim 8"; do
  # shellcheck disable=SC2206
  words=($model "${text[@]}") more=()
  size=("${whole[@]}")
  [[ $model == gpt* || $model == llama* ]] || more=("--sequence 2" "--sequence 2 --pieces 3 --recompute full" "--pieces 24")
  [ "$model" != mamba2 ] || size=(--layers 2 --width 32 --head-dim 8 --groups 2 --lr 3e-3)
  losses plain "--microbatches 4" "${words[@]}"
  for run in "--stages 2 --schedule zb-h1" "--recompute full"; do
    losses other "--microbatches 4 $run" "${words[@]}"
    cmp -s plain other || fail "$model $run: other losses"
  done
  for run in "${more[@]}" "--data-parallel 2" "--tensor 2" "--pieces 3 --recompute full" \
             "--stages 2 --pieces 2 --cut balanced --schedule seq1f1b --tensor 2"; do
    losses other "--microbatches 4 $run" "${words[@]}"
    near plain other || fail "$model $run: other losses"
  done
done
size=("${whole[@]}")
ends 2 "$actorrun" --steps 1 gpt "${text[@]}" --window -3
says "window" err
