#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Training on chats learns their answers. Packed rows give the losses of one chat per row, on any
# grid and across a resume. A line that is not a chat is rejected with its number.
# labels: numbers long
# needs: pcre2
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

mkdir model
cp "$reference/tokenizers/smollm.json" model/tokenizer.json
python3 - "$reference/chats.json" <<'PY'
import json, random, sys
row = next(t for t in json.load(open(sys.argv[1]))["templates"] if t["name"] == "chatml")
json.dump({"eos_token": row["end"], "chat_template": row["template"]}, open("model/tokenizer_config.json", "w"))
random.seed(5)
def digits(n):
    return "".join(random.choice("0123456789") for _ in range(n))
def chat(*texts):
    return {"messages": [{"role": "assistant" if i % 2 else "user", "content": t} for i, t in enumerate(texts)]}
def write(name, chats):
    open(name, "w").write("".join(json.dumps(c) + "\n" for c in chats))
write("even.jsonl", [chat(digits(3), digits(5)) for _ in range(24)])
write("chats.jsonl", [chat(*(digits(random.randint(1, 9)) for _ in range(2 * random.randint(1, 3)))) for _ in range(48)])
write("held.jsonl", [chat(digits(3), digits(random.randint(1, 9))) for _ in range(10)])
write("facts.jsonl", [chat("What is %d?" % i, "It is %d%d." % (i, i)) for i in range(1, 9)])
PY
size=(--layers 2 --width 32 --heads 4 --vocab 700 --lr 3e-3 --warmup 0)
run=("$actorrun" --quiet --tokenizer model/tokenizer.json)

# losses FILE 'RUN OPTIONS' MODEL [MODEL OPTIONS...]: writes the losses of four steps to FILE.
losses() {
  # shellcheck disable=SC2086
  ends 0 "${run[@]}" --steps 4 --report report.json $2 "${@:3}" "${size[@]}"
  sed -n 's/.*"loss":[^0-9]*\([0-9.e+-]*\).*/\1/p' report.json >"$1"
  [[ $(wc -l <"$1") == 4 ]] || fail "${*:2}: four losses"
}
near() { paste "$1" "$2" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 2e-6 * $1) exit 1 }'; }

# A mixture with a balance loss learns chats, and reports its cross entropy without that loss.
ends 0 "${run[@]}" --steps 1 --eval held.jsonl --eval-every 1 --report r.json mixtral --data even.jsonl --context 64 --batch 4 "${size[@]}"
grep -q '"cross-entropy"' r.json || fail "a mixture's evaluation has no cross entropy"

# ---- packed rows and one chat per row -------------------------------------------------------------

# All chats have the same number of tokens, so a context has room for exactly one or four.
ends 0 "$actorrun" --tokenizer model/tokenizer.json --show-data llama --data even.jsonl --context 256 "${size[@]}"
long=$(sed -n 's/.*chat 1: \([0-9]*\) tokens.*/\1/p' out)
((long > 20)) || fail "a chat has $long tokens"
one=$((long - 1))
for model in gpt llama "llama --kv-heads 2 --window 9" "mixtral --aux-loss 0"; do
  # shellcheck disable=SC2206
  words=($model --data even.jsonl --positions 256)
  losses alone "" "${words[@]}" --context "$one" --batch 8
  losses packed "" "${words[@]}" --context $((4 * one)) --batch 2
  near alone packed || fail "$model: four chats in a row learn as four rows"
  losses padded "" "${words[@]}" --context $((4 * one + 7)) --batch 2
  near alone padded || fail "$model: padding at the end of a row does not count"
done

# With --exact, any grid has the same bits.
exact=("${run[@]}" --exact --exact-leaf 32 --steps 3)
chats=(llama --data chats.jsonl --context 128 --batch 4 "${size[@]}")
ends 0 "${exact[@]}" --certify exact.jsonl "${chats[@]}"
for grid in "--data-parallel 2 --microbatches 2" "--sequence 2 --sequence-attention ring" "--pieces 2 --tensor 2"; do
  # shellcheck disable=SC2086
  ends 0 "${exact[@]}" --recheck exact.jsonl $grid "${chats[@]}"
done

# The loss is the mean over answer tokens: the answer and its end, here 7 tokens of each chat and
# the newline.
ends 0 "${run[@]}" --steps 1 --logprobs probs.jsonl --report report.json llama --data even.jsonl --context 100 --batch 3 "${size[@]}"
python3 - "$one" <<'PY' || fail "the loss is not the mean over learned tokens"
import json, math, re, sys
rows = [json.loads(line.replace("NaN", "null").replace("nan", "null")) for line in open("probs.jsonl")]
values = [v for row in rows for v in row["logprobs"] if isinstance(v, (int, float)) and math.isfinite(v)]
loss = float(re.search(r'"loss":\s*([0-9.e+-]+)', open("report.json").read()).group(1))
sys.exit(not (values and abs(loss + sum(values) / len(values)) < 1e-4 * loss))
PY

# A token has the same weight in any microbatch, also where held-out chats do not fill one.
data=(--data chats.jsonl --context 72 --batch 12)
losses once "" llama "${data[@]}"
for many in 2 3 6 12; do
  losses other "--microbatches $many" llama "${data[@]}"
  near once other || fail "$many microbatches: other losses"
done
held() { # FILE BATCH WORD...
  ends 0 "${run[@]}" --steps 1 --eval held.jsonl --eval-every 1 --log "$1.jsonl" "${@:3}" llama --data chats.jsonl --lr 1e-12 --context 40 --batch "$2" "${small_size[@]}"
  sed -n 's/.*"eval_loss":[^0-9]*\([0-9.e+-]*\).*/\1/p' "$1.jsonl" >"$1"
  [[ $(wc -l <"$1") == 1 ]] || fail "one evaluation"
}
small_size=(--layers 2 --width 32 --heads 4 --vocab 700 --warmup 0)
held rows1 1
held rows4 4
held rows5 5 --data-parallel 5
near rows1 rows4 && near rows1 rows5 || fail "evaluations count tokens"
held first3 1 --eval-rows 3
held first32 2 --eval-rows 3
near first3 first32 || fail "evaluations of some rows count tokens"

# ---- grids ------------------------------------------------------------------------------------------

data=(--data chats.jsonl --context 72 --batch 8)
for model in gpt "llama --kv-heads 2"; do
  # shellcheck disable=SC2206
  words=($model "${data[@]}")
  losses plain "--microbatches 4" "${words[@]}"
  for how in "--stages 2 --schedule zb-h1" "--recompute full" "-n 2 --stages 2"; do
    losses other "--microbatches 4 $how" "${words[@]}"
    cmp -s plain other || fail "$model $how: other losses"
  done
  for how in "--data-parallel 2" "--tensor 2" "--pieces 3" "--sequence 2" "--data-parallel 2 --shard parameters" \
             "--stages 2 --pieces 2 --schedule seq1f1b --tensor 2"; do
    losses other "--microbatches 4 $how" "${words[@]}"
    near plain other || fail "$model $how: other losses"
  done
done
# Block-sparse attention would choose blocks of other chats, so each chat has its own row.
for model in "llama --attend-blocks 0.5"; do
  # shellcheck disable=SC2206
  words=($model --data even.jsonl --batch 8)
  losses short "" "${words[@]}" --context "$one"
  losses long "" "${words[@]}" --context $((3 * one))
  near short long || fail "$model: a chat has a row of its own"
done

# ---- learning ---------------------------------------------------------------------------------------

small=("${size[@]}" --context 72 --batch 8)
ends 0 "${run[@]}" --steps 0 --save model/ llama "${small[@]}"
start=("$actorrun" --init model)
ends 0 "${start[@]}" --steps 150 --report report.json llama --data facts.jsonl --batch 2 --context 64 --lr 1e-2 --warmup 0
says '; 8 chats of ' out
python3 - <<'PY' || fail "the loss does not fall"
import re
losses = [float(x) for x in re.findall(r'"loss":\s*([0-9.e+-]+)', open("report.json").read())]
assert losses[0] > 5 and losses[-1] < 0.5, (losses[0], losses[-1])
PY

# An epoch covers all rows, in a new order each time. A resumed run has the same losses.
go=("${start[@]}" --quiet --epochs 3 --shuffle 7 --every 2)
ends 0 "${go[@]}" --checkpoint run1 --report report.json --eval held.jsonl --eval-every 2 llama "${data[@]}"
ends 0 "${go[@]}" --checkpoint run2 --epochs 0 --steps 2 --lr-schedule constant llama "${data[@]}"
ends 0 "${go[@]}" --checkpoint run3 --report first.json --lr-schedule constant llama "${data[@]}"
ends 0 "${go[@]}" --checkpoint run2 --resume --report second.json --lr-schedule constant llama "${data[@]}"
hexes first.json >first
hexes second.json >second
[[ $(wc -l <first) -gt 4 ]] && cmp -s <(tail -n +3 first) second || fail "a run that goes on has other losses"
ends 2 "${go[@]}" --checkpoint run2 --resume --lr-schedule constant --learn all llama "${data[@]}"
says "--learn" err
sed 's/1/2/' chats.jsonl >changed.jsonl
cp chats.jsonl kept.jsonl
cp changed.jsonl chats.jsonl
ends 2 "${go[@]}" --checkpoint run2 --resume --lr-schedule constant llama "${data[@]}"
says "chats.jsonl" err
cp kept.jsonl chats.jsonl

# ---- lengths and samples ------------------------------------------------------------------------------

show() { ends "$1" "$actorrun" --tokenizer model/tokenizer.json --show-data "${@:2}" "${size[@]}"; }
show 0 llama --data chats.jsonl --context 256
says '48 chats of ' out
says 'what stands in ⟦⟧ is learned' out
says '<|im_start|>assistant' out
[[ $(grep -c '^── chat' out) == 3 ]] || fail "three samples"
python3 - <<'PY' || fail "answers are marked"
import json, re
text, chats = open("out").read().split("is learned\n")[1], [json.loads(line) for line in open("chats.jsonl")][:3]
marked = re.findall("⟦(.*?)⟧", text, re.S)
wanted = [m["content"] + "<|im_end|>\n" for c in chats for m in c["messages"] if m["role"] == "assistant"]
assert marked == wanted, (marked, wanted)
PY
show 0 llama --data chats.jsonl --context 30
says ' longer than --context cut' out
show 0 --long-chats drop llama --data chats.jsonl --context 30
says ' left out' out
show 2 --long-chats refuse llama --data chats.jsonl --context 30
says 'tokens, but a row has room for 30 and the target after it (--context); use --long-chats cut or drop' err
show 2 --long-chats drop llama --data chats.jsonl --context 10
says 'no chat is left to learn' err
show 0 --learn all llama --data chats.jsonl --context 256
show 0 --chat-template zephyr llama --data chats.jsonl --context 256
says '<|assistant|>' out
mkdir folder
cp chats.jsonl folder/a.jsonl
cp held.jsonl folder/b.jsonl
show 0 llama --data folder --context 256
says '58 chats of ' out

# ---- rejected chats -----------------------------------------------------------------------------------

bad() { # LINE WORD...: puts LINE after six good lines
  head -6 chats.jsonl >bad.jsonl
  printf '%s\n' "$1" >>bad.jsonl
  ends 2 "${run[@]}" --steps 1 llama --data bad.jsonl --context 72 "${size[@]}"
  says 'bad.jsonl:7: ' err
  says "$2" err
}
bad '{"messages": [' 'bad.jsonl:7: '
bad '{"messages": [{"role": "usr", "content": "a"}]}' 'unknown role "usr"'
bad '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]}' 'the answer is empty'
bad '{"instruction": "a", "output": "b"}' 'it has "instruction", "output"'
bad '"text"' 'each line must be an object, but this is a text'
printf '{%% for m in messages %%}{%% if m.content == "boom" %%}{{ raise_exception("not this") }}{%% endif %%}{{ m.content }}{%% endfor %%}' >own.jinja
run+=(--chat-template own.jinja)
bad '{"messages": [{"role": "user", "content": "boom"}, {"role": "assistant", "content": "b"}]}' 'it says: not this'
run=("$actorrun" --quiet --tokenizer model/tokenizer.json)
refused() { # WORD COMMAND...
  ends 2 "${@:2}" "${size[@]}"
  says "$1" err
}
refused 'chats need the model'"'"'s tokenizer' "$actorrun" --steps 1 llama --data chats.jsonl
refused 'either all or none are of chats' "${run[@]}" --steps 1 llama --data chats.jsonl --data "$reference/text.txt"
refused 'both must be chats, or neither' "${run[@]}" --steps 100 --eval "$reference/text.txt" llama --data chats.jsonl --context 72
refused 'not with chats, each of which is a document already' "${run[@]}" --steps 1 llama --data chats.jsonl --document-end 3
refused '--learn: needs chats:' "${run[@]}" --steps 1 --learn all llama --data "$reference/text.txt"
refused '--learn some: must be one of answers, all' "${run[@]}" --steps 1 --learn some llama --data chats.jsonl
refused '--show-data: needs chats:' "${run[@]}" --show-data llama --data "$reference/text.txt"
cp chats.jsonl table.csv
cp chats.jsonl list.json
refused '.csv files are not read' "${run[@]}" --steps 1 llama --data table.csv
refused '.json files are not read' "${run[@]}" --steps 1 llama --data list.json
ends 2 "${run[@]}" --steps 1 "$SLUICE_SOURCE/examples/decay.c" --data chats.jsonl
says 'the model reads texts only' err
