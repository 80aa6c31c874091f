#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --rl: a model learns from answers that a program or a built-in rule rewards, and rewards rise.
# With --exact the ratio of each update is 1 for every token. Losses, parameters and answers are the
# same, bit for bit, on stages, data-parallel devices, over processes, and after an interruption.
# Programs that exit, hang or write nonsense end the run with an error that names them, or discard
# the answer in question. Errors name the line of a bad prompt, or the bad option.
# labels: outside
# needs: zeromq
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

for i in 0 1 2 3 4 5 6 7 8 9; do echo "{\"prompt\": [$i, $(((i * 7 + 3) % 16)), 5], \"data\": {\"wanted\": 7}}"; done >prompts.jsonl
cat >reward.py <<'PY'
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    words = asked["answer"].split()
    print(sum(word == str(asked["data"]["wanted"]) for word in words) / 6, flush=True)
PY
model=(gpt --layers 2 --width 32 --heads 2 --vocab 16 --context 12 --batch 32 --warmup 0 --lr 3e-3)
rl=(--rl grpo:group=8,kl=0.01 --prompts prompts.jsonl --reward "python3 reward.py" --max-tokens 6 --shuffle 3)

# The model learns, and the run reports it.
steps=40
brief && steps=12
ends 0 "$actorrun" --steps "$steps" "${rl[@]}" --log log.csv --answers answers.html --save learned.safetensors \
  --report learned.json "${model[@]}"
says "step $steps/$steps  reward 0." out
python3 - "$steps" <<'PY' || fail "rewards do not rise"
import csv, sys
rows = list(csv.DictReader(open("log.csv")))
rewards = [float(row["reward"]) for row in rows]
assert len(rows) == int(sys.argv[1])
assert sum(rewards[-3:]) / 3 > 2 * sum(rewards[:3]) / 3 + 0.02, rewards
assert all(abs(float(row["ratio_off"])) < 1e-5 and float(row["dropped"]) == 0 for row in rows)
assert all(float(row["answer_tokens"]) == 6 and float(row["truncated"]) == 1 for row in rows)
assert float(rows[0]["kl"]) == 0 and float(rows[-1]["kl"]) > 0
PY
grep -q '<h2>Step 1 <small>mean reward' answers.html || fail "the page has no steps"
stored() { # FILE: number of values stored
  python3 -c '
import json, math, struct, sys
f = open(sys.argv[1], "rb")
header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
print(sum(math.prod(t["shape"]) for name, t in header.items() if name != "__metadata__"))' "$1"
}
weights() { # FILE CONDITION: on the bytes of weights that rollouts read in place and from copies
  python3 -c '
import json, sys
of = json.load(open(sys.argv[1]))["rollout_weights"]
assert eval(sys.argv[2], {}, {"in_place": of["in_place_bytes"], "copied": of["copied_bytes_per_step"]}), of' "$1" "$2" ||
    fail "$1: not $2"
}
weights learned.json 'copied == 0 and in_place == 4 * '"$(stored learned.safetensors)"

# The policy of --temperature T is softmax(logits / T): answers, loss and gradients have the bits of a model
# whose classifier is T times smaller (T a power of two), and ratios are 1.
llama=(llama --layers 1 --width 16 --heads 2 --vocab 16 --context 12 --batch 16)
warm=(--quiet --exact --steps 1 --rl grpo:group=8,kl=0.5 --prompts prompts.jsonl --max-tokens 6
  --reward "python3 reward.py" --freeze lm_head)
ends 0 "$actorrun" --quiet --steps 0 "${rl[@]}" --save plain.safetensors "${llama[@]}"
python3 - <<'PY' || fail "the classifier was not divided"
import json, struct
f = open("plain.safetensors", "rb").read()
size = struct.unpack("<Q", f[:8])[0]
head, data = json.loads(f[8:8 + size]), bytearray(f[8 + size:])
begin, end = head["lm_head.weight"]["data_offsets"]
values = struct.unpack("<%df" % ((end - begin) // 4), data[begin:end])
data[begin:end] = struct.pack("<%df" % len(values), *(value / 2 for value in values))
open("halved.safetensors", "wb").write(f[:8 + size] + data)
PY
ends 0 "$actorrun" "${warm[@]}" --init plain.safetensors --temperature 2 --log warm.csv --answers warm.jsonl "${llama[@]}"
ends 0 "$actorrun" "${warm[@]}" --init halved.safetensors --log halved.csv --answers halved.jsonl "${llama[@]}"
cmp warm.jsonl halved.jsonl || fail "--temperature 2 does not draw from softmax(logits / 2)"
python3 - <<'PY' || fail "--temperature 2 does not learn softmax(logits / 2)"
import csv
warm, halved = (next(csv.DictReader(open(name))) for name in ("warm.csv", "halved.csv"))
assert float(warm["ratio_off"]) == 0 and float(warm["grad_norm"]) > 0, warm
for column in "loss", "grad_norm", "entropy", "kl":
    assert warm[column] == halved[column], (column, warm, halved)
PY

# With --exact the hash is the same on any grid.
exact=("$actorrun" --quiet --exact --steps 4 "${rl[@]}")
ends 0 "${exact[@]}" --certify one.jsonl --answers one.answers.jsonl --log one.csv "${model[@]}"
python3 -c '
import csv
for row in csv.DictReader(open("one.csv")): assert float(row["ratio_off"]) == 0 == float(row["clipped"]), row' || fail "a ratio is not 1"

# Rollouts of every family have training's numbers: sinks, latents, states, experts.
families=("llama --heads 2 --kv-heads 1 --ffn 24" "mixtral --heads 2 --experts 3" "qwen-moe --heads 2 --experts 3"
  "gpt-oss --heads 2 --kv-heads 1 --experts 3" "deepseek --heads 2 --experts 3 --latent 8 --nope-dim 8 --rope-dim 4 --value-dim 6"
  "mamba2 --head-dim 8 --state 8" "hybrid --heads 2 --kv-heads 1"
  "qwen3-next --heads 2 --key-dim 8 --value-dim 8 --experts 3")
for family in "${families[@]}"; do
  # shellcheck disable=SC2086
  ends 0 "$actorrun" --quiet --exact --steps 1 "${rl[@]}" --log family.csv $family --layers 2 --width 16 --vocab 16 --context 12 --batch 8
  python3 -c 'import csv
for row in csv.DictReader(open("family.csv")): assert float(row["ratio_off"]) == 0, row' || fail "$family: a ratio is not 1"
done
ends 2 "${exact[@]}" hybrid --spikes 3 --layers 1 --width 16 --heads 2 --vocab 16 --context 12 --batch 8
says 'rollouts do not support op h.0/quantize.1 (quantize), weights rounded to int8' err
[[ $(wc -l <one.answers.jsonl) == 128 ]] || fail "answers are missing"

# Answers of a byte model are valid UTF-8, whatever bytes it samples, in the file and for the
# program.
printf '%s\n' '{"prompt": "one"}' '{"prompt": [200, 111]}' >texts.jsonl
ends 0 "$actorrun" --quiet --steps 1 --rl grpo:group=8 --prompts texts.jsonl --max-tokens 8 --answers texts.answers.jsonl \
  --reward "python3 -c 'import json, sys
for line in sys.stdin.buffer: print(len(json.loads(line.decode())[\"answer\"]), flush=True)'" \
  gpt --layers 1 --width 8 --heads 1 --context 12 --batch 16
python3 - <<'PY' || fail "answers are not UTF-8"
import json
lines = [json.loads(line) for line in open("texts.answers.jsonl", "rb").read().decode().splitlines()]
assert {line["prompt"] for line in lines} == {"one", "\ufffdo"}, lines
assert all(len(line["answer"]) <= 8 for line in lines) and any("\ufffd" in line["answer"] for line in lines), lines
PY
# A stop token that ends a prompt is part of the text of the prompt; one that ends an answer is not.
printf '%s\n' '{"prompt": "who?"}' >asked.jsonl
ends 0 "$actorrun" --quiet --steps 1 --rl grpo:group=8 --prompts asked.jsonl --stop '?' --max-tokens 8 --answers asked.answers.jsonl \
  --reward "while read -r line; do echo 1; done" gpt --layers 1 --width 8 --heads 1 --context 12 --batch 256
python3 - <<'PY' || fail "the stop token of a prompt"
import json
lines = [json.loads(line) for line in open("asked.answers.jsonl", "rb").read().decode().splitlines()]
assert {line["prompt"] for line in lines} == {"who?"}, lines[0]
ended = [line for line in lines if not line["truncated"]]
assert ended and all("?" not in line["answer"] for line in ended), ended[:3]
PY
for grid in "--stages 2" "--microbatches 4 --stages 2 --schedule zb-h1" "--data-parallel 2" "--recompute full --jitter 50" \
  "-n 2 --stages 2 --microbatches 2" "--stages 2 --data-parallel 2 --microbatches 2" "-n 2 --data-parallel 2" \
  "--tensor 2" "-n 2 --tensor 2 --microbatches 2" "-n 2 --data-parallel 2 --shard parameters"; do
  # shellcheck disable=SC2086
  ends 0 "${exact[@]}" $grid "${patient[@]}" --recheck one.jsonl --answers other.jsonl --report other.json "${model[@]}"
  cmp -s one.answers.jsonl other.jsonl || fail "$grid: other answers"
done
weights other.json 'copied > 0 and in_place == 0' # each device gathers the shards
# With several updates per rollout, or rollouts ahead of training, ratios move away from 1 as
# answers age.
for how in "--rl grpo:group=8,kl=0.01,updates=2" "--rollout-ahead 1"; do
  # shellcheck disable=SC2086
  ends 0 "${exact[@]}" $how --certify old.jsonl --answers old.answers.jsonl --log old.csv "${model[@]}"
  # shellcheck disable=SC2086
  ends 0 "${exact[@]}" $how -n 2 --data-parallel 2 "${patient[@]}" --recheck old.jsonl --answers other.jsonl "${model[@]}"
  cmp -s old.answers.jsonl other.jsonl || fail "$how: other answers on two processes"
  # shellcheck disable=SC2086
  ends 0 "${exact[@]}" $how --steps 2 --checkpoint "c$how" --every 2 --answers other.jsonl "${model[@]}"
  # shellcheck disable=SC2086
  ends 0 "${exact[@]}" $how --stages 2 --checkpoint "c$how" --resume --recheck old.jsonl --answers other.jsonl "${model[@]}"
  cmp -s old.answers.jsonl other.jsonl || fail "$how: a resumed run has other answers"
  python3 -c '
import csv, sys
off = [float(row["ratio_off"]) for row in csv.DictReader(open("old.csv"))]
young = [0, 2] if "updates" in sys.argv[1] else [0]
for step, value in enumerate(off): assert (value == 0) == (step in young), off' "$how" || fail "$how: ratios"
done
ends 2 "${exact[@]}" --rl grpo:group=8,updates=2 --checkpoint d --every 3 "${model[@]}"
says '--every 3: must be a multiple of the 2 updates per rollout (updates)' err
ends 2 "${exact[@]}" --rollout-ahead 2 --checkpoint d "${model[@]}"
says 'not supported with checkpoints, which hold at most two versions of the parameters' err
# With sequence parallelism each device has logits only where its part has answers; the losses
# agree.
near=("$actorrun" --quiet --steps 3 "${rl[@]}" --max-tokens 4)
wide=("${model[@]}" --context 32)
ends 0 "${near[@]}" --log one.csv "${wide[@]}"
for how in heads ring; do
  ends 0 "${near[@]}" --log shared.csv --sequence 2 --sequence-attention "$how" "${wide[@]}"
  python3 -c '
import csv
one, shared = (list(csv.DictReader(open(name))) for name in ("one.csv", "shared.csv"))
for a, b in zip(one, shared):
    for name in "loss", "grad_norm": assert abs(float(a[name]) - float(b[name])) < 2e-5 * max(1, float(a["grad_norm"])), (a, b)' ||
    fail "shared sequences: other losses"
done
ends 0 "${near[@]}" --sequence 2 --print-after shard "${wide[@]}"
grep -q 'linear.*f32\[32, 8, 16\]' out || fail "no logits of 8 positions a device"
! grep -q 'f32\[32, 16, 16\]' out || fail "logits of all positions"
# Interrupted, and resumed on another grid.
ends 0 "${exact[@]}" --steps 2 --checkpoint c --every 1 --answers other.jsonl "${model[@]}"
ends 0 "${exact[@]}" --stages 2 --checkpoint c --resume --recheck one.jsonl --answers other.jsonl "${model[@]}"
cmp -s one.answers.jsonl other.jsonl || fail "a resumed run has other answers"
ends 2 "${exact[@]}" --checkpoint c --resume --max-tokens 5 "${model[@]}"
says 'max-tokens' err

# Other models, and built-in rewards.
printf '%s\n' '{"prompt": "ab", "answer": "b"}' '{"prompt": "ba", "answer": "a"}' >texts.jsonl
texts=(--prompts texts.jsonl --max-tokens 4 --stop '\n')
for reward in exact 'regex:[a-m]*' length:2; do
  ends 0 "$actorrun" --quiet --steps 2 --rl grpo:group=4 "${texts[@]}" --reward "$reward" \
    llama --layers 2 --width 32 --heads 2 --vocab 256 --context 10 --batch 8
done
ends 0 "$actorrun" --quiet --steps 2 --rl grpo:group=4 "${texts[@]}" --reward length:2 --lora 'layers.*.self_attn=2' \
  hybrid --layers 2 --width 32 --heads 2 --vocab 256 --context 10 --batch 8

# Failing reward programs.
one=("$actorrun" --quiet --steps 2 "${rl[@]}")
ends 1 "${one[@]}" --reward 'head -3 >/dev/null; exit 4' "${model[@]}"
says 'head -3 >/dev/null; exit 4 ended with status 4, for an answer of step 1' err
ends 1 "${one[@]}" --reward 'while read -r line; do echo well; done' "${model[@]}"
says 'wrote "well" instead of a number, for an answer of step 1' err
for failed in end drop; do
  ends 1 "${one[@]}" --reward-failed "$failed" --reward 'while read -r line; do echo 1; echo 0; done' "${model[@]}"
  says 'wrote more numbers than there were answers' err
done
ends 1 "${one[@]}" --reward-failed drop --reward 'echo 2026; while read -r line; do echo 1; done' "${model[@]}"
says 'wrote more numbers than there were answers' err
ends 1 "${one[@]}" --reward 'sleep 100' --reward-seconds 0.3 "${model[@]}"
says 'sleep 100 took more than 0.3 seconds, for an answer of step 1' err
ends 1 "${one[@]}" --reward 'exec >&-; sleep 100' "${model[@]}"
says 'closed its output and did not end, for an answer of step 1' err
ends 1 "${one[@]}" --reward 'exec <&-; sleep 100' --reward-seconds 0.3 "${model[@]}"
says 'took more than 0.3 seconds' err
ends 1 "${one[@]}" -n 2 --stages 2 "${patient[@]}" --reward 'exit 4' "${model[@]}"
says 'exit 4 ended with status 4' err
ends 0 "${one[@]}" --reward-failed drop --log drop.csv --reward \
  'n=0; while read -r line; do n=$((n + 1)); [ $n -lt 9 ] || exit 5; echo $n; done' "${model[@]}"
says 'exit 5; echo $n; done ended with status 5: an answer of step 1 is dropped' err
python3 -c '
import csv
for row in csv.DictReader(open("drop.csv")): assert 0 < float(row["dropped"]) < 0.2, row' || fail "what is dropped is not counted"

# Rollouts start as soon as the parameters are updated, without waiting for the rewards of the
# previous step. A step has time for rollouts and rewards, one after the other. The end of a step
# may be seen late.
ends 0 "$actorrun" --quiet --steps 4 "${rl[@]}" --log slow.csv --reward \
  'n=0; while read -r line; do n=$((n + 1)); [ $((n % 32)) != 0 ] || sleep 0.3; echo 1; done' "${model[@]}"
python3 -c '
import csv
rows = list(csv.DictReader(open("slow.csv")))[1:]
answers, rewards, seconds = (sum(float(row[name]) for row in rows) for name in ("answer_seconds", "reward_seconds", "seconds"))
assert 0 < answers and rewards > 0.85 and answers + rewards < seconds + 0.3, (answers, rewards, seconds)' || fail "seconds of answers"

# Invalid options and prompts.
wrong() { # TEXT OPTION...
  local text=$1
  shift
  ends 2 "$actorrun" --steps 1 "${rl[@]}" "$@" "${model[@]}"
  says "$text" err
}
wrong '--rl ppo: the method must be grpo or distill' --rl ppo
wrong '--rl: unknown key groups; the keys are group' --rl grpo:groups=3
wrong '--rl: group=1: must be a whole number from 2' --rl grpo:group=1
wrong 'batch is 32 rows, must be a multiple of group, 5' --rl grpo:group=5
wrong '--rl: cannot be combined with --pieces' --pieces 2
wrong '--rl: cannot be combined with --eval' --eval prompts.jsonl
wrong '--reward exact: prompt 1 has no "answer"' --reward exact
wrong '--reward length:x: N in length:N must be a whole number of tokens' --reward length:x
wrong '--reward-failed ignore: must be end or drop' --reward-failed ignore
wrong '--answers a.txt: must end in .jsonl or .html' --answers a.txt
wrong 'rollouts: not supported with --vocab-parallel' --stages 2 --vocab-parallel
wrong '--stop: "ab" is 2 tokens; it must be a single token' --stop ab
printf '%s\n' '{"prompt": [1, 2]}' '{"prompt": {}}' >bad.jsonl
wrong '--prompts bad.jsonl:2: "prompt" has the wrong type' --prompts bad.jsonl
printf '%s\n' '{"prompt": [1, 99]}' >bad.jsonl
wrong 'prompt 1 has token 99, but the vocabulary has 16 tokens' --prompts bad.jsonl
printf '%s\n' '{"prompt": [1' >bad.jsonl
wrong 'bad.jsonl:1' --prompts bad.jsonl
: >bad.jsonl
wrong '--prompts bad.jsonl: the file is empty' --prompts bad.jsonl
printf '%s\n' '{"prompt": [1,2,3,4,5,6,7,8,9,10,11,12]}' >bad.jsonl
wrong 'prompt 1 has 12 tokens: must have at least 1, and fewer than the context of 12' --prompts bad.jsonl
printf '%s\n' '{"messages": [{"role": "user", "content": "a"}]}' >bad.jsonl
wrong 'messages need a tokenizer and its chat template' --prompts bad.jsonl
for alone in "--rollout-ahead 1" "--prompts prompts.jsonl" "--reward exact" "--answers a.jsonl"; do
  # shellcheck disable=SC2086
  ends 2 "$actorrun" --steps 1 $alone "${model[@]}" --data prompts.jsonl
  says "needs --rl METHOD" err
done
ends 2 "$actorrun" --steps 1 --rl grpo --prompts prompts.jsonl "${model[@]}"
says '--rl: needs --reward PROGRAM' err
exit 0
