#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --preferences: a model learns to prefer the chosen answers, from its log-probabilities relative to
# a fixed reference. The bits are the same over stages, processes, devices and after a resume.
# Errors name their cause.
# labels: outside
# needs: zeromq pcre2
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

python3 - <<'PY'
import json, random
r = random.Random(1)
word = lambda letters, least, most: "".join(r.choice(letters) for _ in range(r.randint(least, most)))
for name, count in ("pairs.jsonl", 64), ("held.jsonl", 32):
    with open(name, "w") as f:
        for _ in range(count):
            p = word("abcdefgh", 2, 8)
            print(json.dumps({"prompt": p + "=", "chosen": p[::-1][:3], "rejected": word("cdefgh", 2, 5)}), file=f)
PY
pairs=(--preferences pairs.jsonl)
model=(gpt --layers 2 --width 32 --heads 2 --context 16 --batch 8 --lr 3e-3)
# last FILE COLUMN: prints the last value of a column of a log.
last() {
  awk -F, -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i; next } $c != "" { v = $c } END { print v }' "$1"
}
first() { awk -F, -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i; next } { print $c; exit }' "$1"; }
holds() { awk "BEGIN { exit !($1) }" || fail "$1 does not hold"; }
run() { ends 0 "$actorrun" --quiet "${patient[@]}" "$@"; }

# In the first step model and reference are equal. Later the model tells held-out answers apart,
# which it could not before.
ends 0 "$actorrun" --steps 120 --log all.csv --report r.json --eval held.jsonl --eval-every 60 "${pairs[@]}" --microbatches 2 "${model[@]}"
says 'parameters, and 34,176 of a frozen model; 64 preferences' out
[[ $(first all.csv loss) == 0.69314718* && $(first all.csv preference_margin) == 0 ]] || fail "the first step is not of equal models"
holds "$(last all.csv preference_accuracy) >= 0.8 && $(last all.csv preference_margin) > 0.3"
holds "$(last all.csv chosen_reward) > $(last all.csv rejected_reward)"
holds "$(last all.csv eval_preference_accuracy) >= 0.75 && $(last all.csv eval_loss) < 0.65"
grep -q '"last_figures":.*"preference_accuracy"' <(tr -d '\n\t' <r.json) || fail "the report has no accuracy"

# The bits are the same on any layout.
exact() { run --exact --steps 6 --certify "$@" "${pairs[@]}" "${model[@]}"; }
exact one.jsonl --microbatches 2
for layout in "--stages 2 --microbatches 2" "--stages 2 --schedule zb-h1 --microbatches 4" "-n 2 --stages 2 --microbatches 2" \
  "--data-parallel 2" "--data-parallel 2 -n 2" "--tensor 2" "--microbatches 2 --recompute full" "--microbatches 2 --shard parameters --data-parallel 2"; do
  read -ra words <<<"$layout"
  exact other.jsonl "${words[@]}"
  cmp -s one.jsonl other.jsonl || fail "$layout learns something else"
done
grep -q reference one.jsonl && fail "the certificate has the reference"

# Pairs stay together: three over two devices, not over four.
odd=(gpt --layers 1 --width 32 --heads 2 --context 16 --batch 6)
run --steps 2 --log one.csv "${pairs[@]}" "${odd[@]}"
run --steps 2 --log two.csv --data-parallel 2 "${pairs[@]}" "${odd[@]}"
holds "($(last one.csv loss) - $(last two.csv loss)) ^ 2 < 1e-12"
ends 2 "$actorrun" --steps 1 --data-parallel 4 "${pairs[@]}" "${odd[@]}"
says '6 rows of embedding/source.1 cannot be split over 4 data-parallel devices: 2 rows each stay together' err

# A resumed run continues like one that was not interrupted, and keeps the original reference.
again=(--shuffle 3 --microbatches 2 "${pairs[@]}")
run --exact --steps 3 --checkpoint c "${again[@]}" "${model[@]}"
run --exact --steps 6 --checkpoint c --resume --save resumed/ --stages 2 "${again[@]}" "${model[@]}"
run --exact --steps 6 --save whole/ "${again[@]}" "${model[@]}"
cmp -s resumed/model.safetensors whole/model.safetensors || fail "a resumed run ends elsewhere"
strings whole/model.safetensors | grep -q reference && fail "the model's folder has the reference"
ends 2 "$actorrun" --steps 9 --checkpoint c --resume "${again[@]}" --dpo beta=0.5 "${model[@]}"
says '--dpo is beta=0.5' err
sed 1d pairs.jsonl >fewer.jsonl
ends 2 "$actorrun" --steps 9 --checkpoint c --resume --shuffle 3 --microbatches 2 --preferences fewer.jsonl "${model[@]}"
says fewer.jsonl err

# The initial weights are the reference too. Adapters and frozen parameters need no second copy.
run --steps 1 --log init.csv --init whole/ "${pairs[@]}" --batch 8 --lr 3e-3 gpt
[[ $(first init.csv preference_margin) == 0 ]] || fail "the reference is not what the model begins with"
ends 0 "$actorrun" --steps 30 --log lora.csv --lora 'h.*=4' "${pairs[@]}" "${model[@]}" --lr 1e-2
grep -q 'frozen model' out && fail "adapters have a second copy of the model"
[[ $(first lora.csv preference_margin) == 0 ]] || fail "the reference has adapters"
holds "$(last lora.csv preference_accuracy) > 0.6"
ends 0 "$actorrun" --dry-run --freeze 'h.0' "${pairs[@]}" "${model[@]}"
says 'and 21,472 of a frozen model' out

# A quota that repeats the default is raised like the default, until the plan can finish.
stuck=(--preferences pairs.jsonl --home weights=disk --tensor 3 --schedule zb-v gpt-oss --layers 8 --width 16 --heads 4 --context 64 --batch 4)
for quota in "" "--quota between=2"; do
  # shellcheck disable=SC2086 # two words
  ends 0 "$actorrun" --dry-run $quota "${stuck[@]}"
  says "note: --quota between@0=3, without which the plan could not finish" err
done

