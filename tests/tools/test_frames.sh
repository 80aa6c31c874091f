#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Prompts with frames (sl_frames, sl_splice): a model of images and text learns from examples and
# from its own rollouts. Each step encodes the frames of a prompt once, or with apart=1 once per
# answer and per model that reads them. With --exact losses, parameters and answers have the same
# bits on stages, devices and processes. Invalid frames are rejected with an error that names them.
# labels: outside
# needs: zeromq
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

python3 "$SLUICE_SOURCE/examples/make_which_digit.py" . 3 512 || fail "no data"
model=("$SLUICE_SOURCE/examples/which_digit.c" --frames frames.npy --each 3 --width 32 --layers 1 --warmup 0 --lr 3e-3)
learn=("${model[@]}" --data tokens.npy --batch 16)

# Examples: the loss falls and has the same hash on any grid.
ends 0 "$actorrun" --quiet --exact --steps 12 --certify one.jsonl --save first.safetensors "${learn[@]}"
python3 -c '
import json
losses = [json.loads(line).get("loss") for line in open("one.jsonl")]
losses = [float.fromhex(x) if isinstance(x, str) else x for x in losses if x is not None]
assert losses[-1] < 0.7 * losses[0], losses' || fail "the loss does not fall"
for grid in "--stages 2 --microbatches 2" "--data-parallel 2"; do
  # shellcheck disable=SC2086
  ends 0 "$actorrun" --quiet --exact --steps 3 $grid --recheck one.jsonl "${learn[@]}"
done

# Rollouts: frames are encoded once, and the result does not depend on the grid.
rl=(--rl grpo:group=4,kl=0.05 --prompts prompts.jsonl --reward exact --stop '\n' --max-tokens 2 --init first.safetensors)
model+=(--batch 16)
exact=("$actorrun" --quiet --exact --steps 3 "${rl[@]}")
ends 0 "${exact[@]}" --certify rl.jsonl --answers rl.answers.jsonl --log rl.csv "${model[@]}"
frames() { # FILE FRAMES: every step has encoded this many frames
  python3 -c '
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))
assert rows and all(float(row["frames"]) == float(sys.argv[2]) for row in rows), [row["frames"] for row in rows]
assert all(float(row["ratio_off"]) == 0 for row in rows), rows' "$1" "$2" || fail "$1: not $2 frames"
}
frames rl.csv 12
for grid in "--stages 2" "--microbatches 4 --stages 2" "--data-parallel 2" "--data-parallel 4" "--recompute full --jitter 50" "-n 2 --stages 2"; do
  # shellcheck disable=SC2086
  ends 0 "${exact[@]}" $grid "${patient[@]}" --recheck rl.jsonl --answers other.jsonl --log other.csv "${model[@]}"
  cmp -s rl.answers.jsonl other.jsonl || fail "$grid: other answers"
  frames other.csv 12
done
ends 0 "${exact[@]}" --rl grpo:group=4,kl=0.05,apart=1 --recheck rl.jsonl --answers other.jsonl --log other.csv "${model[@]}"
cmp -s rl.answers.jsonl other.jsonl || fail "apart: other answers"
frames other.csv 144
# Two devices that split sequences encode 8 and 7 of a prompt's 15 frames, and learn the same bits
# as one device.
python3 "$SLUICE_SOURCE/examples/make_which_digit.py" wide 15 16 || fail "no data"
wide=("$actorrun" --quiet --exact --exact-leaf 32 --steps 2 "${rl[@]:0:2}" --prompts wide/prompts.jsonl --reward length:1
  --max-tokens 2 --log other.csv)
model_of_wide=("${model[@]:0:1}" --frames wide/frames.npy --each 15 --width 32 --layers 1 --warmup 0 --lr 3e-3 --batch 8)
ends 0 "${wide[@]}" --certify wide.jsonl --answers wide.answers.jsonl "${model_of_wide[@]}"
frames other.csv 30
ends 0 "${wide[@]}" --sequence 2 --recheck wide.jsonl --answers other.jsonl "${model_of_wide[@]}"
cmp -s wide.answers.jsonl other.jsonl || fail "--sequence 2: other answers"
frames other.csv 30

# The model learns to read digits: on held-out images it answers correctly far more often than by
# chance, and more often after GRPO.
right() { # WEIGHTS: the share of correct sampled answers
  ends 0 "$actorrun" --quiet --steps 1 --init "$1" --rl grpo:group=2 "${ask[@]}" --prompts digits/held_out.jsonl --log "$1.csv" \
    "${digits[@]}" --batch 512 --lr 1e-9
  python3 -c 'import csv, sys; print(next(csv.DictReader(open(sys.argv[1])))["reward"])' "$1.csv"
}
if ! brief; then
  python3 "$SLUICE_SOURCE/examples/make_which_digit.py" digits || fail "no data"
  ask=(--reward exact --stop '\n' --max-tokens 2)
  digits=("$SLUICE_SOURCE/examples/which_digit.c" --frames digits/frames.npy)
  ends 0 "$actorrun" --quiet --steps 150 --save examples.safetensors "${digits[@]}" --data digits/tokens.npy
  ends 0 "$actorrun" --quiet --steps 80 --init examples.safetensors --rl grpo:group=8,kl=0.01 "${ask[@]}" \
    --prompts digits/prompts.jsonl --save answers.safetensors "${digits[@]}" --batch 64
  python3 -c '
import sys
examples, answers = map(float, sys.argv[1:])
assert examples > 0.35 and answers > examples + 0.07, (examples, answers)' \
    "$(right examples.safetensors)" "$(right answers.safetensors)" || fail "it does not learn to read digits"
fi

# Fewer frames than devices: some devices have none.
python3 "$SLUICE_SOURCE/examples/make_which_digit.py" few 2 16 || fail "no data"
few=("$actorrun" --quiet --exact --steps 2 "${rl[@]:0:2}" --prompts few/prompts.jsonl --reward length:1 --max-tokens 2)
model_of_few=("${model[@]:0:1}" --frames few/frames.npy --each 2 --width 32 --layers 1 --warmup 0 --lr 3e-3 --batch 16)
ends 0 "${few[@]}" --certify few.jsonl "${model_of_few[@]}"
ends 0 "${few[@]}" --data-parallel 4 --recheck few.jsonl "${model_of_few[@]}"

# Invalid frames.
bad() { # WHAT WORDS...: WORDS have to be rejected with WHAT
  ends 2 "$actorrun" --quiet --steps 1 "${rl[@]}" "${@:2}"
  says "$1" err
}
sed 's/, "frames": [^]]*]//' prompts.jsonl >none.jsonl
sed '2s/"frames": \[[0-9]*/"frames": [999999/' prompts.jsonl >many.jsonl
sed '3s/\[1, 1, /[1, /' prompts.jsonl >marks.jsonl
sed '4s/"frames": \[/"frames": [-1, /' prompts.jsonl >minus.jsonl
bad 'prompt 1 has 0 frames, but the model reads 3 per prompt' --prompts none.jsonl "${model[@]}"
bad 'prompt 2 has frame 999999, but the file has' --prompts many.jsonl "${model[@]}"
bad 'prompt 3 has 11 placeholders for encoder rows (token 1), but the encoder makes 12' --prompts marks.jsonl "${model[@]}"
bad 'minus.jsonl:4: "frames" must be an array of frame numbers' --prompts minus.jsonl "${model[@]}"
bad 'tokens.npy: not an array of frames, each f32[4, 16]' "${model[@]}" --frames tokens.npy
bad 'nothing.npy' "${model[@]}" --frames nothing.npy
ends 2 "$actorrun" --quiet --steps 1 "${rl[@]:0:10}" gpt --layers 1 --width 16 --heads 2 --vocab 128 --context 20 --batch 16
says 'prompt 1 has frames, but model gpt takes none' err
