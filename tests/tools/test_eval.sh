#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --eval: the loss on other data equals the loss of a run that starts with the same weights there,
# on any devices and schedule. Training does not change. The best checkpoint is kept, and a run that
# stops improving ends.
# labels: more
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

train=$reference/text.txt other=$reference/tokens.u16
shape=(gpt --layers 4 --width 16 --heads 2 --context 16)
model=("${shape[@]}" --batch 8 --data "$train")
run() { ends 0 "$actorrun" --quiet "$@"; }
evals() { grep -o '"eval_hex":[^,]*' "$1" | grep -o '0x[^"]*'; }

# The evaluation takes the first 32 rows: 16 microbatches of 2.
run --steps 4 --microbatches 4 --report plain.json --save w.safetensors "${model[@]}"
run --steps 1 --microbatches 16 --init w.safetensors --report want.json "${shape[@]}" --batch 32 \
  --data "$other"
want=$(hexes want.json | grep -o '0x[^"]*')
printf '0: F0 F0 B0 F0 B0 F0 B0 B0\n1: F1 B1 F1 B1 F1 B1 F1 B1\n' >order
near() { python3 -c 'import sys; a, b = map(float.fromhex, sys.argv[1:3]); sys.exit(abs(a - b) > float(sys.argv[3]))' "$@"; }
every 5 "--stages 2 -n 2 --heartbeat-timeout 30" "" "--stages 4 --schedule zb-h1" "--stages 2 --schedule zb-v" \
  "--recompute full" "--stages 2 --order derive -n 2 --heartbeat-timeout 30" "--grain layer" \
  "--schedule auto --stages 2" "--jitter 50" "--stages 2 --order order" "--checkpoint c --every 4"
for way in "${some[@]}"; do
  # shellcheck disable=SC2086
  run --steps 4 --microbatches 4 --eval "$other" --eval-every 4 --eval-rows 32 --report r.json $way "${model[@]}"
  [ "$(evals r.json)" = "$want" ] || fail "$way: $(evals r.json), not $want"
  cmp -s <(hexes plain.json) <(hexes r.json) || fail "$way: training is another with it"
done
every 4 "--tensor 2 --data-parallel 2 --stages 2 -n 2 --heartbeat-timeout 30" "--pieces 2 --stages 2" \
  "--data-parallel 2" "--data-parallel 2 --shard gradients" \
  "--data-parallel 2 --shard parameters -n 2 --heartbeat-timeout 30" "--tensor 2" \
  "--data-parallel 2 --shard parameters" "--data-parallel 2 --shard parameters --tensor 2 --grain layer"
for way in "${some[@]}"; do
  # shellcheck disable=SC2086
  run --steps 4 --microbatches 4 --eval "$other" --eval-every 4 --eval-rows 32 --report r.json $way "${model[@]}"
  near "$(evals r.json)" "$want" 1e-5 || fail "$way: $(evals r.json), not $want"
done

# By default an evaluation takes every row once, with any batch size and in any number of
# evaluations. Its loss equals that of one training step over all rows. This holds on other grids
# and in pieces too, where the last microbatch is partial.
rows=$(python3 -c 'import os, sys; print((os.path.getsize(sys.argv[1]) // 2 - 1) // 16)' "$other")
run --steps 1 --init w.safetensors --report whole.json "${shape[@]}" --batch "$rows" --data "$other"
whole=$(hexes whole.json | grep -o '0x[^"]*')
evaluated() { python3 -c 'import json; print(json.load(open("r.json"))["evaluated"])'; }
way_to() { # way_to OPTION...: evaluates w.safetensors
  run --steps 1 --init w.safetensors --eval "$other" --eval-every 1 --lr 0 --report r.json "$@"
}
every 2 20 4 64 28
for batch in "${some[@]}"; do
  way_to --microbatches 4 "${shape[@]}" --batch $batch --data "$train"
  near "$(evals r.json)" "$whole" 2e-6 || fail "--batch $batch: $(evals r.json), not $whole"
  [ "$(evaluated)" = "{'rows': $rows}" ] || fail "--batch $batch: $(evaluated), not $rows rows"
done
every 3 "--data-parallel 2 --shard parameters" "--pieces 2 --stages 2" "--stages 2 -n 2 --heartbeat-timeout 30"
for way in "${some[@]}"; do
  # shellcheck disable=SC2086
  way_to --microbatches 2 $way "${shape[@]}" --batch 28 --data "$train"
  near "$(evals r.json)" "$whole" 1e-5 || fail "$way: $(evals r.json), not $whole"
done
head -c $((2 * (16 * 5 + 1))) "$other" >five.u16
run --steps 1 --init w.safetensors --report whole.json "${shape[@]}" --batch 5 --data five.u16
for more in "--eval five.u16" "--eval $other --eval-rows 5"; do
  # shellcheck disable=SC2086
  run --steps 2 --init w.safetensors $more --eval-every 1 --lr 0 --report r.json "${shape[@]}" --batch 8 --data "$train"
  near "$(evals r.json | head -n 1)" "$(hexes whole.json | grep -o '0x[^"]*')" 2e-6 || fail "five rows of eight: $(evals r.json)"
  [ "$(evals r.json | sort -u | wc -l)" -eq 1 ] || fail "each evaluation is the same: $(evals r.json)"
  [ "$(evaluated)" = "{'rows': 5}" ] || fail "$(evaluated), not five rows"
done
ends 0 "$actorrun" --steps 2 --init w.safetensors --eval five.u16 --eval-every 1 "${shape[@]}" --batch 8 --data "$train"
says "evaluated 2 times, 5 rows each" out

# Messages are so long that the receiver fetches them into slots that other actors have just read.
run --steps 4 --microbatches 4 --data-parallel 2 --shard parameters -n 2 "${patient[@]}" \
  gpt --layers 2 --width 64 --heads 2 --context 64 --batch 8 --data "$train"

# Steps with an evaluation or checkpoint in between count in the mean; only the first step, a
# warm-up, does not.
run --steps 8 --microbatches 4 --eval "$other" --eval-every 4 --checkpoint shown --every 4 --trace shown.trace "${model[@]}"
ends 0 "$bin/actortrace" show shown.trace
says "mean of steps 1 to 7" out

# Several evaluations differ, because training goes on. A resumed run has the same ones.
run --steps 12 --microbatches 4 --eval "$other" --eval-every 2 --report r.json "${model[@]}"
[ "$(evals r.json | sort -u | wc -l)" -eq 6 ] || fail "each has another loss: $(evals r.json)"
rm -rf c
run --steps 6 --microbatches 4 --eval "$other" --eval-every 2 --checkpoint c --every 2 --report a.json \
  "${model[@]}"
run --steps 12 --microbatches 4 --eval "$other" --eval-every 2 --checkpoint c --every 2 --resume \
  --stages 2 --report b.json "${model[@]}"
cmp -s <(evals r.json) <(evals a.json; evals b.json) || fail "resumed it evaluates others"

# The best checkpoint is kept, and the run ends when the loss stops improving.
rm -rf c
ends 0 "$actorrun" --steps 4000 -n 2 --stages 2 "${patient[@]}" --eval "$other" --eval-every 10 --every 10 \
  --patience 3 --checkpoint c --log l.csv --report r.json "${model[@]}" --lr 0.03
says "no smaller loss in " out
python3 - <<'END' || fail "the best is not what the report says"
import csv, json, os
report, best = json.load(open("r.json")), json.load(open("c/best/eval.json"))
first = min(report["evaluations"], key=lambda e: e["loss"])
assert (best["step"], best["loss"]) == (first["steps"], first["loss"]), (best, first)
assert json.load(open("c/best/manifest.json"))["checkpoint"]["step"] == best["step"]
last = report["evaluations"][-1]["steps"]
assert last - best["step"] >= 30 and len(report["steps"]) < 4000
rows = [(int(r["step"]), float(r["eval_loss"])) for r in csv.DictReader(open("l.csv")) if r["eval_loss"]]
assert [s for s, _ in rows] == [e["steps"] for e in report["evaluations"]]
assert all(abs(x - e["loss"]) < 1e-6 for (_, x), e in zip(rows, report["evaluations"]))
END
mkdir again
cp -r c/best again/"step-$(sed 's/.*"step": \([0-9]*\).*/\1/' c/best/eval.json)"
ends 0 "$actorrun" --quiet --steps 4000 --patience 1 --eval "$other" --eval-every 10 --every 10 --checkpoint again \
  --resume "${model[@]}" --lr 0.03

refused() {
  local text=$1
  shift
  ends 2 "$actorrun" "$@"
  says "$text" err
}
# A fixed order of passes, with an evaluation in every step.
run --steps 3 --microbatches 4 --eval "$other" --eval-every 1 --report a.json "${model[@]}"
run --steps 3 --microbatches 4 --eval "$other" --eval-every 1 --report b.json --stages 2 --order order "${model[@]}"
cmp -s <(evals a.json) <(evals b.json) || fail "in a fixed order it evaluates others"

# Gathered parameters exist only briefly in an evaluation, as in passes: the plan has one more lane
# for every two.
lanes() { grep '^register gather' "$1" | grep -vc ' shares '; }
for way in nothing evaluated; do
  more=()
  [ $way = nothing ] || more=(--eval "$other" --eval-every 4)
  run --steps 1 --microbatches 4 --data-parallel 2 --shard parameters --plan $way.plan --dry-run "${more[@]}" "${model[@]}"
done
(($(lanes evaluated.plan) * 2 == $(lanes nothing.plan) * 3)) || fail "$(lanes evaluated.plan) lanes, $(lanes nothing.plan) without"

refused "--patience: needs --eval FILE, or --eval-every N for rows that the model's data holds out" --patience 3 "${model[@]}"
refused "--eval-every 100: the run ends earlier, with --steps 20, and would evaluate nothing" --eval x --steps 20 "${model[@]}"
refused "--eval-every 30: must be a multiple of --every 20" --eval x --eval-every 30 --checkpoint d --every 20 \
  "${model[@]}"
refused "no.txt: No such file" --eval no.txt "${model[@]}"
head -c 12 "$train" >small.txt
refused "small.txt" --eval small.txt "${model[@]}"
refused "--eval-rows: needs --eval FILE, or --eval-every N for rows that the model's data holds out" --eval-rows 3 "${model[@]}"
