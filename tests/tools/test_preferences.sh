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

# The chat template renders prompts together with their answers: what it writes around an answer
# belongs to the answer.
python3 - <<'PY'
import json
ask = lambda text: [{"role": "user", "content": text}]
say = lambda text: [{"role": "assistant", "content": text}]
with open("chats.jsonl", "w") as f:
    for i in range(8):
        print(json.dumps({"prompt": ask(f"What is {i}?"), "chosen": say("A number."), "rejected": say("No.")}), file=f)
with open("texts.jsonl", "w") as f:
    for i in range(8):
        prompt = f"<|im_start|>user\nWhat is {i}?<|im_end|>\n<|im_start|>assistant\n"
        print(json.dumps({"prompt": prompt, "chosen": "A number.<|im_end|>\n", "rejected": "No.<|im_end|>\n"}), file=f)
PY
mkdir plain chat
cp "$reference/tokenizers/smollm.json" plain/tokenizer.json
cp "$reference/tokenizers/smollm.json" chat/tokenizer.json
wide=(llama --layers 1 --width 16 --heads 2 --vocab 700 --context 96 --batch 4)
run --steps 4 --certify chats.c --tokenizer chat/tokenizer.json --chat-template chatml --preferences chats.jsonl "${wide[@]}"
run --steps 4 --certify texts.c --tokenizer plain/tokenizer.json --preferences texts.jsonl "${wide[@]}"
cmp -s chats.c texts.c || fail "messages are not the text of their template"
cat >think.jinja <<'EOT'
{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' and loop.last %}<think>

</think>

{% endif %}{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}
EOT
sed 's/"chosen": "/&<think>\\n\\n<\/think>\\n\\n/; s/"rejected": "/&<think>\\n\\n<\/think>\\n\\n/' texts.jsonl >thoughts.jsonl
run --steps 4 --certify chats.c --tokenizer chat/tokenizer.json --chat-template think.jinja --preferences chats.jsonl "${wide[@]}"
run --steps 4 --certify texts.c --tokenizer plain/tokenizer.json --preferences thoughts.jsonl "${wide[@]}"
cmp -s chats.c texts.c || fail "what the template writes around an answer is left out"

# Errors name the line.
refused() {
  local text=$1
  shift
  ends 2 "$actorrun" --steps 2 --quiet "$@"
  says "$text" err
}
line() { { head -3 pairs.jsonl; echo; echo "$1"; } >bad.jsonl; }
bad() { line "$1"; refused "bad.jsonl:5: $2" --preferences bad.jsonl "${model[@]}"; }
bad '{"prompt": "a", "chosen": "b"}' 'rejected is missing'
bad '{"prompt": "a", "chosen": 3, "rejected": "b"}' 'chosen: wanted a text, like the prompt'
bad '{"prompt": "a", "chosen": [{"role": "user", "content": "b"}], "rejected": "b"}' 'chosen: wanted a text'
bad '{"prompt": 7, "chosen": "b", "rejected": "b"}' 'prompt: wanted a text or an array of messages'
bad '{"prompt": "a", "chosen"' 'not JSON'
bad '[1]' 'expected an object'
bad '{"prompt": "", "chosen": "b", "rejected": "b"}' 'the prompt has no tokens'
bad '{"prompt": "a", "chosen": "", "rejected": "b"}' 'an answer has no tokens'
bad '{"prompt": "0123456789", "chosen": "01234567", "rejected": "b"}' 'prompt and chosen answer are 18 tokens, of which a row with a context of 16 has room for 17'
bad '{"prompt": [{"role": "user", "content": "a"}], "chosen": "b", "rejected": "c"}' 'the prompt is a list of messages, but there is no chat template'
chat_line() {
  line "$1"
  refused "bad.jsonl:5: $2" --preferences bad.jsonl --tokenizer chat/tokenizer.json --chat-template chatml "${wide[@]}"
}
chat_line '{"prompt": [{"role": "user", "content": "a"}], "chosen": [{"role": "user", "content": "b"}], "rejected": "c"}' \
  'chosen: must be a text, or one message of the assistant'
chat_line '{"prompt": [{"role": "user", "content": "a"}], "chosen": [{"role": "assistant", "content": "b", "masked": 1}], "rejected": "c"}' \
  'chosen[0]: the key "masked" is not understood'
chat_line '{"prompt": [{"role": "user", "content": "a"}], "chosen": "b", "rejected": "c", "margin": 2}' 'the key "margin" is not understood'
line '{"prompt": "é", "chosen": "b", "rejected": "c"}'
refused 'bad.jsonl:5: token 195 is not in the vocabulary of 128' --preferences bad.jsonl "${model[@]}" --vocab 128
line '{"prompt": "0123456789", "chosen": "01234567", "rejected": "b"}'
ends 0 "$actorrun" --steps 1 --preferences bad.jsonl --dpo long=drop "${model[@]}" --batch 2
says '3 preferences (1 more are longer than the context)' out
: >none.jsonl
refused 'none.jsonl: no pairs' --preferences none.jsonl "${model[@]}"
refused 'cannot open gone.jsonl' --preferences gone.jsonl "${model[@]}"
refused '--preferences: cannot be combined with --pieces: the loss needs the probabilities of whole answers, over all positions' "${pairs[@]}" --pieces 2 "${model[@]}"
refused '--preferences: cannot be combined with --sequence: the loss needs the probabilities of whole answers, over all positions' "${pairs[@]}" --sequence 2 "${model[@]}"
refused '(mean) makes a loss without classes to split over the stages, like losses of preferences' "${pairs[@]}" \
  --vocab-parallel --stages 2 "${model[@]}"
refused '--preferences: replaces --data; give one of them' "${pairs[@]}" "${model[@]}" --data pairs.jsonl
refused 'a microbatch must have an even number of rows' "${pairs[@]}" --microbatches 8 "${model[@]}"
refused '--dpo: needs --preferences FILE' --dpo beta=1 "${model[@]}"
refused '--dpo beta=x: must be KEY=VALUE' --dpo beta=x "${pairs[@]}" "${model[@]}"
refused '--dpo gamma=1: must be KEY=VALUE,... with the keys beta, smoothing, long, each in its range' --dpo gamma=1 "${pairs[@]}" "${model[@]}"
