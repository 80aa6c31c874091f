#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# actorserve --speculate answers as it does without, greedily, sampled, with penalties and to a grammar; by fewer ticks
# where texts repeat themselves; it is counted, logged and replayed; what cannot be is refused by name.
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
model=(--init bytes.safetensors gpt --layers 2 --width 32 --heads 2 --context 256)

# serve WORDS...: it runs as $pid, and is asked at $url
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
# answers FILE: to all bodies, one by one, without what differs between runs
answers() {
  for body in "${bodies[@]}"; do curl -sS "$url/completions" -d "$body"; done |
    sed -E 's/"id": ?"[^"]*"|"created": ?[0-9]+/-/g' >"$1"
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

# refused TEXT WORDS...
refused() {
  local text=$1
  shift
  ends 2 "$actorserve" "$@"
  says "$text" err
}
refused "--speculate magic: drafts are of ngram" --speculate magic "${model[@]}"
refused "G from 1 to 16" --speculate ngram:tokens=17 "${model[@]}"
refused "G from 1 to 16" --speculate ngram:tokens=4,soon "${model[@]}"
shape=(--layers 1 --width 32 --heads 2 --context 64)
ends 0 "$actorrun" --quiet --steps 1 --save states.safetensors hybrid --data "$reference/text.txt" "${shape[@]}"
ends 2 "$actorserve" --speculate ngram --init states.safetensors hybrid "${shape[@]}"
says "hybrid keeps states" err
echo "--speculate: fewer ticks, the same answers"
