#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# actorserve --speculate gives the same answers as without: greedy, sampled, with penalties and with
# a grammar. Repetitive texts need fewer ticks. Drafts are counted, logged and replayed. Invalid
# settings are rejected with an error that names them. The same holds for drafts of a smaller model,
# whose acceptance follows from its share of correct tokens.
# labels: outside
# needs: libevent
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need curl
need python3
actorserve=$bin/actorserve

ends 0 "$actorrun" --quiet --steps 20 --save bytes.safetensors gpt --data "$reference/text.txt" --layers 2 --width 32 --heads 2 \
  --context 256 --batch 4 --lr 1e-2 --warmup 0
ends 0 "$actorrun" --quiet --steps 20 --save small/ gpt --data "$reference/text.txt" --layers 1 --width 16 --heads 2 \
  --context 128 --batch 4 --lr 1e-2 --warmup 0
model=(--init bytes.safetensors gpt --layers 2 --width 32 --heads 2 --context 256)

# serve WORDS...: starts a server as $pid, with its API at $url.
serve() {
  background "$actorserve" --port 0 "$@"
  until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended"; sleep 0.01; done
  url=$(<out)
  url=${url##* }
}
drained() {
  kill -INT "$pid"
  wait "$pid" || fail "it ends with status $?"
}
count() { curl -sS "${url%/v1}/metrics" | sed -n "s/^sluice_$1 //p"; }

bodies=(
  '{"prompt":"the cat and the dog, the cat and the ","max_tokens":120,"temperature":0,"logprobs":3}'
  '{"prompt":"the cat and the dog, the cat and the ","max_tokens":80,"temperature":1.2,"seed":7}'
  '{"prompt":"aaaaaaaaaaaa","max_tokens":80,"temperature":0.8,"seed":7,"repetition_penalty":1.1,"frequency_penalty":0.1}'
  '{"prompt":"aaaaaaaaaaaa","max_tokens":80,"temperature":0.8,"seed":8,"guided_regex":"(ab[a-f]c|xyz){8,20}"}'
  '{"prompt":"one two one two one ","max_tokens":100,"temperature":0,"stop":["zzz"],"n":2}'
)
# answers FILE: requests all bodies one by one, without fields that differ between runs.
answers() {
  for body in "${bodies[@]}"; do curl -sS "$url/completions" -d "$body"; done |
    sed -E 's/"id": ?"[^"]*"|"created": ?[0-9]+/-/g' >"$1"
}

# together FILE: requests all bodies concurrently.
together() {
  local i asks=()
  for i in "${!bodies[@]}"; do
    curl -sS "$url/completions" -d "${bodies[i]}" >"answer.$i" &
    asks+=($!)
  done
  wait "${asks[@]}"
  for i in "${!bodies[@]}"; do cat "answer.$i"; done | sed -E 's/"id": ?"[^"]*"|"created": ?[0-9]+/-/g' >"$1"
}

serve --report plain.json "${model[@]}"
answers plain
drained
serve --speculate ngram:tokens=5,match=2,always --log ticks --report drafts.json "${model[@]}"
answers drafts
cmp plain drafts || fail "answers differ with drafts"
(($(count draft_rounds_total) > 10)) || fail "drafts are counted"
(($(count drafts_accepted_total) <= $(count drafted_total))) || fail "accepted ones are drafted"
drained
python3 - plain.json drafts.json <<'PY' || fail "reports: $(cat plain.json drafts.json)"
import json, sys
plain, drafts = (json.load(open(f)) for f in sys.argv[1:])
assert drafts["drafts_accepted"] > 50 and drafts["tokens"] == plain["tokens"] and not plain["drafted"], drafts
assert drafts["ticks"] < plain["ticks"] - drafts["drafts_accepted"] / 2, (plain, drafts)
PY
grep -Eq '^1:[0-9]+\+1 1~[1-5]$' ticks || fail "drafts are in the log: $(head ticks)"
serve --speculate ngram:tokens=5,match=2,always --replay ticks --log again "${model[@]}"
answers replayed
cmp plain replayed || fail "answers differ when ticks are replayed"
drained
cmp ticks again || fail "ticks differ when they are replayed"
serve --speculate ngram "${model[@]}"
answers drafts
cmp plain drafts || fail "answers differ where drafts must pay"
drained

serve --speculate draft:small/:tokens=4,always --log ticks --report model.json "${model[@]}"
answers drafts
cmp plain drafts || fail "answers differ with a draft model"
grep -Eq "draft model small/: weights [0-9.]+ KiB, context 128 tokens, KV cache [0-9]+ pages; " err || fail "its memory is not told"
drained
python3 - plain.json model.json <<'PY' || fail "reports: $(cat plain.json model.json)"
import json, sys
plain, model = (json.load(open(f)) for f in sys.argv[1:])
right, rounds = model["drafts_accepted"], model["draft_rounds"]
a = right / model["drafts_checked"]
expected = sum(a**g for g in range(5))
assert model["tokens"] == plain["tokens"] and model["drafted"] <= 4 * rounds, model
assert a > 0.2 and abs((1 + right / rounds) / expected - 1) < 0.2, (a, 1 + right / rounds, expected)
assert model["draft"]["tokens"] >= model["drafted"] and model["draft"]["pages_used"] == 0, model["draft"]
print(f"--speculate draft: {a:.0%} right, {1 + right / rounds:.2f} tokens a round of 4, expected {expected:.2f}")
PY
serve --speculate draft:small/:tokens=4,always --replay ticks --log again "${model[@]}"
answers replayed
cmp plain replayed || fail "answers differ when ticks with a draft model are replayed"
drained
cmp ticks again || fail "ticks with a draft model differ when they are replayed"
serve --speculate draft:small/:tokens=4,always "${model[@]}"
together drafts
cmp plain drafts || fail "answers differ with a draft model, all at once"
drained
serve --speculate draft:small/ -n 2 --stages 2 "${model[@]}"
together drafts
cmp plain drafts || fail "answers differ where a draft model must pay"
drained

# A block that predicts ahead, of a model with states.
python3 "$reference/model_folder.py" "$reference/models/ahead_qwen3_5_text.json" random
ends 0 "$actorrun" --quiet --init random --steps 60 --save own/ decoder --data "$reference/text.txt" --context 64 --batch 8 \
  --lr 3e-3 --warmup 0 --ahead 1
serve own/
answers plain
drained
serve --speculate ahead:tokens=3,always --log ticks --report ahead.json own/
answers drafts
cmp plain drafts || fail "answers differ with a block that predicts ahead"
grep -Eq "states [0-9.]+ KiB of each answer, times 4; " err || fail "the memory of states is not told"
drained
python3 - ahead.json <<'PY' || fail "the block's drafts are wrong: $(cat ahead.json)"
import json, sys
ahead = json.load(open(sys.argv[1]))
print(f"--speculate ahead: {1 + ahead['drafts_accepted'] / ahead['draft_rounds']:.2f} tokens a round")
sys.exit(ahead["drafts_accepted"] < ahead["draft_rounds"] / 10)
PY
serve --speculate ahead:tokens=3,always --replay ticks --log again own/
answers replayed
cmp plain replayed || fail "answers differ when ticks with a block that predicts ahead are replayed"
drained
cmp ticks again || fail "ticks with a block that predicts ahead differ when they are replayed"
serve --speculate ahead -n 2 --stages 2 own/
together drafts
cmp plain drafts || fail "answers differ with a block that predicts ahead, over processes"
drained

# refused TEXT WORDS...: WORDS have to be rejected with TEXT.
refused() {
  local text=$1
  shift
  ends 2 "$actorserve" "$@"
  says "$text" err
}
refused "--speculate ahead: needs the folder or GGUF file" --speculate ahead "${model[@]}"
refused "--speculate ahead: " --speculate ahead small/
refused "in ahead:tokens=G,always G must be 1 to 16" --speculate ahead:tokens=17 own/
refused "--speculate magic: must begin with ngram, ahead or draft:PATH" --speculate magic "${model[@]}"
refused "draft:PATH names the draft model" --speculate draft "${model[@]}"
echo '{"time": 0, "prompt": 10, "answer": 5}' >arrivals
refused "not supported on devices that compute nothing" --clock virtual --arrivals arrivals --machine a100-sxm-80gb \
  --speculate draft:small/ "${model[@]}"
refused "always G must be 1 to 16" --speculate draft:small/:tokens=0 "${model[@]}"
refused "always G must be 1 to 16" --speculate draft:small/:match=3 "${model[@]}"
refused "always G must be 1 to 16" --speculate draft:small/:tokens=2,soon "${model[@]}"
for path in nowhere bytes.safetensors; do
  ends 2 "$actorserve" --speculate "draft:$path" "${model[@]}"
  says "--speculate draft:$path: it is neither a Hugging Face folder nor a GGUF file" err
done
ends 0 "$actorrun" --quiet --steps 1 --save other/ gpt --data "$reference/text.txt" --layers 1 --width 16 --heads 2 --vocab 300
refused "the draft model: the vocabularies differ: model gpt has 300 tokens, model gpt has 256" --speculate draft:other/:always "${model[@]}"
ends 3 "$actorserve" --speculate draft:small/ --memory 350K --rows 8 --sequences 1 --quota kv=4 "${model[@]}"
says "the draft model: device cpu:0 needs" err
refused "always G must be 1 to 16" --speculate ngram:tokens=17 "${model[@]}"
refused "always G must be 1 to 16" --speculate ngram:tokens=4,soon "${model[@]}"
# Two tokenizers of the same size, in which two tokens are swapped.
for name in words others; do
  ends 0 "$actorrun" --quiet --steps 1 --tokenizer "$reference/tokenizers/smollm.json" --save $name/ llama --data "$reference/text.txt" \
    --layers 1 --width 16 --heads 2 --context 32 --batch 2 --vocab 768
  cp "$reference/tokenizers/smollm.json" $name/tokenizer.json
done
python3 - <<'PY'
import json
text = json.load(open("others/tokenizer.json"))
vocab = text["model"]["vocab"]
by_id = sorted(vocab, key=vocab.get)
first, second = by_id[300], by_id[301]
vocab[first], vocab[second] = vocab[second], vocab[first]
json.dump(text, open("others/tokenizer.json", "w"))
PY
refused "--speculate draft:others/: token 300 is" --speculate draft:others/ words/
serve --speculate draft:words/:always words/
curl -sS "$url/completions" -d '{"prompt":"one two","max_tokens":20}' | grep -q '"completion_tokens": *20' || fail "a model that drafts for itself"
drained
ends 0 "$actorrun" --quiet --steps 1 --save states/ mamba2 --data "$reference/text.txt" --layers 1 --width 32 --head-dim 16 --groups 1 \
  --state 8 --context 64
serve "${model[@]}"
answers plain
drained
serve --speculate draft:states/:tokens=4,always "${model[@]}"
answers drafts
cmp plain drafts || fail "answers differ with a draft model that has states"
drained
echo "--speculate: fewer ticks, the same answers"
