#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --rl distill: a model answers prompts and learns a teacher's probabilities at the tokens of its
# own answers. With --exact losses, parameters and answers are the same on any grid and after an
# interruption. Invalid options are rejected with an error that names them.
# labels: outside
# needs: zeromq
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

python3 - <<'PY'
import random
draw = random.Random(1)
with open("sums.txt", "w") as f:
    for _ in range(4000):
        a, b = draw.randrange(10), draw.randrange(10)
        f.write(f"{a}+{b}={a + b:02d}\n")
with open("prompts.jsonl", "w") as f:
    for a in range(10):
        for b in range(10):
            f.write('{"prompt": "%d+%d=", "answer": "%02d"}\n' % (a, b, a + b))
PY
before=200 steps=100
brief && before=20 steps=8
ends 0 "$actorrun" --quiet --steps "$before" --save teacher/ gpt --layers 2 --width 48 --heads 4 --vocab 128 --context 8 --batch 64 \
  --lr 3e-3 --data sums.txt
student=(gpt --layers 1 --width 32 --heads 2 --vocab 128 --context 8 --batch 32 --lr 3e-3 --warmup 0)
rl=(--rl distill --teacher teacher --distill kl:top=16 --prompts prompts.jsonl --max-tokens 3 --stop '\n' --shuffle 1)

# The divergence falls from 4 to below 0.2. Rewards are reported on request, and do not affect
# training.
ends 0 "$actorrun" --steps "$steps" "${rl[@]}" --reward exact --log told.csv --certify told.jsonl --save student/ "${student[@]}"
says "step $steps/$steps  reward 0" out
ends 0 "$actorrun" --quiet --steps "$steps" "${rl[@]}" --log log.csv --answers answers.jsonl --recheck told.jsonl "${student[@]}"
python3 - "$steps" <<'PY' || fail "what is logged"
import csv, json, sys
steps = int(sys.argv[1])
rows, told = (list(csv.DictReader(open(name))) for name in ("log.csv", "told.csv"))
kl = [float(row["kl"]) for row in rows]
assert all(abs(k - float(row["loss"])) < 1e-4 for k, row in zip(kl, rows)), "the loss is the divergence"
assert kl[-1] < kl[0] and (steps < 100 or (kl[0] > 3.5 and sum(kl[-5:]) / 5 < 0.2)), (kl[0], kl[-5:])
assert not {"reward", "dropped", "clipped", "ratio_off", "reward_seconds"} & set(rows[0]), rows[0]
assert "reward" in told[0] and "ratio_off" not in told[0], told[0]
answers = [json.loads(line) for line in open("answers.jsonl")]
assert len(answers) == 32 * steps and all(a["reward"] is None for a in answers), answers[0]
PY
cmp -s <(strings student/model.safetensors | grep -c teacher || :) <(echo 0) || fail "the student's folder has the teacher"

# With itself as teacher the divergence is 0, at any tokens.
ends 0 "$actorrun" --quiet --steps 1 "${rl[@]}" --distill kl:top=0 --log self.csv --init teacher gpt --batch 32 --context 8
python3 -c '
import csv
for row in csv.DictReader(open("self.csv")): assert abs(float(row["kl"])) < 1e-6, row' || fail "it differs from itself"

# With --exact the hash is the same on any grid.
exact=("$actorrun" --quiet --exact --steps 4 "${rl[@]}" --rl distill:group=2 --distill kl:top=8,temperature=2)
ends 0 "${exact[@]}" --certify one.jsonl --answers one.answers.jsonl "${student[@]}"
every 3 "--microbatches 4 --stages 2 --schedule zb-h1" "--data-parallel 2" "--tensor 2" "-n 2 --stages 2 --data-parallel 2"
for grid in "${some[@]}"; do
  # shellcheck disable=SC2086
  ends 0 "${exact[@]}" $grid "${patient[@]}" --recheck one.jsonl --answers other.jsonl "${student[@]}"
  cmp -s one.answers.jsonl other.jsonl || fail "$grid: other answers"
done
ends 0 "${exact[@]}" --steps 2 --checkpoint c --every 1 --answers other.jsonl "${student[@]}"
ends 0 "${exact[@]}" --stages 2 --checkpoint c --resume --recheck one.jsonl --answers other.jsonl "${student[@]}"
cmp -s one.answers.jsonl other.jsonl || fail "a resumed run has other answers"
# Answers sampled from older parameters.
every 2 distill:updates=2 "distill --rollout-ahead 1"
for how in "${some[@]}"; do
  # shellcheck disable=SC2086
  ends 0 "${exact[@]}" --rl $how --certify old.jsonl "${student[@]}"
  # shellcheck disable=SC2086
  ends 0 "${exact[@]}" --rl $how --data-parallel 2 --recheck old.jsonl "${student[@]}"
done

wrong() { # TEXT OPTION...
  local text=$1
  shift
  ends 2 "$actorrun" --steps 1 --prompts prompts.jsonl --max-tokens 3 "$@" "${student[@]}"
  says "$text" err
}
wrong '--rl distill: needs --teacher DIR' --rl distill
wrong '--rl grpo: cannot be combined with --teacher; use --rl distill' --rl grpo --reward exact --teacher teacher
wrong 'needs --rl METHOD' --teacher teacher
wrong '--rl: unknown key kl; the keys are group, top-p, ticks, updates, apart' --rl distill:kl=0.1 --teacher teacher
wrong "only the model's own answers" --rl distill --teacher teacher --distill kl:data=0.5
wrong '--distill js: must be kl, as in kl:top=64,temperature=1' --rl distill --teacher teacher --distill js
wrong '--preferences: cannot be combined with --rl: a run has one objective' --rl distill --preferences pairs.jsonl
wrong 'batch is 32 rows, must be a multiple of group, 5' --rl distill:group=5 --teacher teacher
wrong '--teacher nowhere: must be a Hugging Face folder' --rl distill --teacher nowhere
student+=(--vocab 130)
wrong 'rows of 8 tokens with a vocabulary of 128, but the model reads 32 rows of 8 with 130' --rl distill --teacher teacher
exit 0
