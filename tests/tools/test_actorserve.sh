#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# actorserve returns what actorrun --generate and --chat write, for a Hugging Face folder and for
# weights in a file. Whatever cannot be served is rejected with an error that names it.
# labels: outside
# needs: libevent pcre2 utf8proc
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need curl
need python3
actorserve=$bin/actorserve

small=(--layers 1 --width 16 --heads 2 --context 64)
ends 0 "$actorrun" --quiet --steps 10 --tokenizer "$reference/tokenizers/smollm.json" --save model/ llama \
  --data "$reference/text.txt" "${small[@]}" --vocab 700 --lr 1e-2 --warmup 0
cp "$reference/tokenizers/smollm.json" model/tokenizer.json
python3 - "$reference/chats.json" >model/tokenizer_config.json <<'PY'
import json, sys
row = next(t for t in json.load(open(sys.argv[1]))["templates"] if t["name"] == "chatml")
print(json.dumps({"bos_token": {"content": row["begin"]}, "eos_token": row["end"], "chat_template": row["template"]}))
PY
ends 0 "$actorrun" --quiet --steps 10 --save bytes.safetensors gpt --data "$reference/text.txt" "${small[@]}" --lr 1e-2

# serve WORDS...: starts a server as $pid, with its API at $url.
serve() {
  background "$actorserve" --port 0 "$@"
  until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended"; sleep 0.01; done
  url=$(<out)
  url=${url##* }
}
drained() {
  local got=0
  kill -INT "$pid"
  wait "$pid" || got=$?
  ((got == 0)) || fail "it ends with status $got"
}
ask() { curl -sS "$url/$1" -d "$2"; } # PATH BODY
told() { grep -q "$2" <<<"$(curl -sS "${url%/v1}/$1")"; } # PATH PATTERN
field() { python3 -c 'import json, sys; print(eval("json.load(sys.stdin)" + sys.argv[1]), end="")' "$1"; }
# same TEXT FILE: FILE has to contain TEXT and a newline.
same() { [[ "$1" == "$(<"$2")" ]] || fail "\"$1\" is not what actorrun writes: $(<"$2")"; }

# Completions and chats, whole and streamed.
ends 0 "$actorrun" --quiet --init model --steps 0 --generate 9 --temperature 0 --prompt "Hello 12" llama --context 64
cp out continued
ends 0 "$actorrun" --quiet --init model --steps 0 --generate 9 --temperature 0 --chat "Hi" llama --context 64
cp out chatted
mkdir model/additional_chat_templates
printf '{{ tools[0].function.name }} {{ messages[0].content }}' >model/additional_chat_templates/tool_use.jinja
ends 0 "$actorrun" --quiet --init model --steps 0 --save kept/ llama --context 64
cmp model/additional_chat_templates/tool_use.jinja kept/additional_chat_templates/tool_use.jinja || fail "a template for tools goes along"
serve --log ticks --trace ran.trace --report ran.json --access-log access model
text=$(ask completions '{"model":"model","prompt":"Hello 12","max_tokens":9,"temperature":0}' | field '["choices"][0]["text"]')
same "Hello 12$text" continued
chat='"messages":[{"role":"user","content":"Hi"}],"max_tokens":9,"temperature":0'
same "$(ask chat/completions "{$chat}" | field '["choices"][0]["message"]["content"]')" chatted
text=$(ask chat/completions "{$chat,\"stream\":true}" | sed -n 's/^data: {/{/p' | python3 -c '
import json, sys
print("".join(c["delta"].get("content", "") for e in map(json.loads, sys.stdin) for c in e["choices"]), end="")')
same "$text" chatted
text=$(ask chat/completions "{$chat,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"look\"}}]}" | field '["choices"][0]["message"]["content"]')
[[ $text == "$(ask completions '{"prompt":"look Hi","max_tokens":9,"temperature":0}' | field '["choices"][0]["text"]')" ]] ||
  fail "with tools, the template for them is taken: $text"
[[ $(ask completions '{"prompt":[1,2],"max_tokens":3,"logprobs":0}' | field '["choices"][0]["logprobs"]["token_logprobs"][2] < 0') == True ]] ||
  fail "tokens have logarithms of probabilities"
a=$(ask completions '{"prompt":"a","seed":5,"max_tokens":9}' | field '["choices"]')
[[ $a == "$(ask completions '{"prompt":"a","seed":5,"max_tokens":9}' | field '["choices"]')" ]] ||
  fail "the same seed, the same answer"
python3 - "$url" <<'PY' || fail "penalties, biases and the best of several"
import json, sys, urllib.request

def ask(**fields):
    body = json.dumps(dict(prompt=[1, 2], **fields)).encode()
    return json.load(urllib.request.urlopen(sys.argv[1] + "/completions", body))

def mean(choice):
    logprobs = choice["logprobs"]["token_logprobs"]
    return sum(logprobs) / len(logprobs)

plain = ask(max_tokens=24, temperature=0, ignore_eos=True)["choices"][0]
for change in ({"repetition_penalty": 50}, {"frequency_penalty": 2, "presence_penalty": 2}):
    other = ask(max_tokens=24, temperature=0, ignore_eos=True, **change)["choices"][0]
    assert other["text"] != plain["text"], (plain, other)
only = ask(max_tokens=5, temperature=1, logit_bias={"65": 100}, ignore_eos=True, seed=3)["choices"][0]
assert len(set(only["text"])) == 1, only
alone = ask(max_tokens=24, temperature=1, seed=4, min_p=1, ignore_eos=True)["choices"][0]
assert alone["text"] == plain["text"], "min_p 1 leaves the likeliest"
four = ask(max_tokens=8, temperature=1, seed=7, n=4, logprobs=0)["choices"]
best = ask(max_tokens=8, temperature=1, seed=7, n=2, best_of=4, logprobs=0)["choices"]
order = sorted(four, key=mean, reverse=True)
assert [c["text"] for c in best] == [c["text"] for c in order[:2]] and [c["index"] for c in best] == [0, 1], (four, best)
assert ask(max_tokens=8, temperature=1, seed=7, best_of=4)["choices"][0]["text"] == order[0]["text"]
PY
[[ $(ask completions '{"prompt":[700]}' | field '["error"]["message"]') == *"700"*"vocabulary of 700"* ]] ||
  fail "a token that there is not"
told health ok || fail "it is well"
told metrics '^sluice_ended_total{end="length"} [1-9]' || fail "it counts"
ends 1 "$actorserve" --port "$(sed -E 's,.*:([0-9]+)/.*,\1,' out)" model
grep -qE -- "--host 127.0.0.1 --port [0-9]+: cannot listen:" err || fail "a port in use is named"
drained
grep -qE '^[0-9-]+T[0-9:]+Z 127.0.0.1 "POST /v1/completions" 200 [0-9.]+$' access || fail "the access log: $(head -3 access)"
grep -qE '"POST /v1/completions" 400 ' access || fail "it has what was refused"
grep -qE '"GET /health" 200 ' access || fail "and what is asked of the server"

# Model names.
serve --served-model-name first,second model
[[ $(curl -sS "$url/models" | field '["data"][1]["id"]') == second ]] || fail "both names are told"
for name in first second; do
  [[ $(ask completions '{"model":"'$name'","prompt":[1],"max_tokens":1}' | field '["model"]') == first ]] || fail "it is called $name"
  [[ $(curl -sS "$url/models/$name" | field '["id"]') == "$name" ]] || fail "there is a model $name"
done
[[ $(ask completions '{"model":"model","prompt":[1]}' | field '["error"]["code"]') == model_not_found ]] || fail "and by no other name"
drained
grep -qE 'sluice: first: weights [0-9.]+ [KM]iB, context 64 tokens, KV cache [0-9]+ pages' err || fail "it says what it serves: $(<err)"

# With an adapter the server writes what the model writes with that adapter. An adapter of another
# model is rejected with an error that names it.
ends 0 "$actorrun" --quiet --init model --steps 9 --lora 'model.layers.*.mlp.up_proj=2' --save-adapter low llama --data "$reference/text.txt" \
  --context 64 --lr 0.3 --warmup 0
ends 0 "$actorrun" --quiet --init model --adapter low --steps 0 --generate 9 --temperature 0 --prompt "Hello 12" llama --context 64
cmp -s out continued && fail "the adapter says nothing"
cp out adapted
serve --adapter low model
text=$(ask completions '{"prompt":"Hello 12","max_tokens":9,"temperature":0}' | field '["choices"][0]["text"]')
same "Hello 12$text" adapted
drained
ends 2 "$actorserve" --adapter nowhere model
says "nowhere/adapter_config.json" err
ends 0 "$actorrun" --quiet --steps 1 --lora 'model.layers.*.mlp.up_proj=2' --save-adapter other llama --data "$reference/text.txt" \
  --layers 1 --width 32 --heads 2 --context 64
ends 2 "$actorserve" --adapter other model
says "up_proj.lora_A.weight is F32[2, 32], but the model needs f32[2, 16]" err
ends 2 "$actorserve" --adapter "$reference/lora_gpt2" model
says "matches no weight of a linear map" err

# The server leaves a trace and a report.
python3 - ran.json <<'PY' || fail "the report: $(<ran.json)"
import json, sys
x = json.load(open(sys.argv[1]))
assert x["ticks"] > 0 and x["rows"] > x["tokens"] and x["devices"][0]["peak_bytes"]["parameters"] > 0, x
PY
"$bin/actortrace" rows ran.trace >rows || fail "there is a trace"
(($(wc -l <rows) > 10)) || fail "it has $(wc -l <rows) rows"

# Prompts that share a prefix share its whole pages, and get the same answers as without sharing.
ids=$(python3 -c 'print([i * i % 700 for i in range(130)])')
longer=(--init model/model.safetensors llama "${small[@]:0:6}" --context 256 --positions 256 --vocab 700)
cached='["usage"]["prompt_tokens_details"]["cached_tokens"]'
serve --prefix-caching off --report apart.json "${longer[@]}"
twice="{\"prompt\":$ids,\"max_tokens\":3,\"n\":2,\"seed\":4}"
alone=$(ask completions "$twice" | field '["choices"]')
[[ $(ask completions "$twice" | field "$cached") == 0 ]] || fail "nothing is shared where that is off"
drained
serve --report shared.json "${longer[@]}"
[[ $(ask completions "$twice" | field "$cached") == 0 ]] || fail "the first of all shares nothing"
again=$(ask completions "$twice")
[[ $(field "$cached" <<<"$again") == 128 ]] || fail "two pages of two are shared: $again"
[[ $(field '["choices"]' <<<"$again") == "$alone" ]] || fail "$again is not $alone"
told metrics '^sluice_rows_shared_total 384$' || fail "three of four share two pages"
drained
python3 - apart.json shared.json <<'PY' || fail "reports: $(cat apart.json shared.json)"
import json, sys
apart, shared = (json.load(open(f)) for f in sys.argv[1:])
assert apart["rows_shared"] == 0 and shared["rows_shared"] == 384 and shared["pages_shared"] == 6, (apart, shared)
assert shared["rows"] == apart["rows"] - 384, (apart, shared)
PY
ends 2 "$actorserve" --prefix-caching maybe model
grep -q "prefix-caching" err || fail "$(<err)"

# --log records the ticks, and --replay repeats them: the prompt of eight tokens, then one token at
# a time.
[[ $(head -2 ticks | tr '\n' ' ') =~ ^1:0\+([0-9]+)\ 1:([0-9]+)\+1\ $ ]] && ((BASH_REMATCH[1] == BASH_REMATCH[2])) ||
  fail "the first ticks are $(head -2 ticks)"
sed -E '1s/^1:0\+([0-9]+)$/1:0+1/; 1q' ticks >slowly
n=${BASH_REMATCH[1]}
for ((i = 1; i < n; i++)); do echo "1:$i+1" >>slowly; done
serve --replay slowly --log again model
text=$(ask completions '{"prompt":"Hello 12","max_tokens":9,"temperature":0}' | field '["choices"][0]["text"]')
same "Hello 12$text" continued
head -n "$n" again | cmp -s - slowly || fail "replayed: $(<again)"
drained

# --replay also repeats disconnects, even though no client hangs up now: the server drops the client
# after the same number of tokens and then answers the next request.
printf '%s\n' "1:0+$n" "1:$n+1" "1:$((n + 1))+1" "x1:$((n + 2)) 2:0+$n" "2:$n+1" "x2:$((n + 1)) 3:0+$n" >left
ask_left() { ask completions "{\"prompt\":\"Hello 12\",\"max_tokens\":9,\"temperature\":0,\"stream\":$1}"; }
serve --prefix-caching off --replay left --log again model
got=0
ask_left true >pieces 2>/dev/null || got=$?
((got == 18)) || fail "the replay hangs up on the first client, not $got"
[[ $(grep -c '"text":' pieces) == 2 && $(<pieces) != *DONE* ]] || fail "it has two tokens: $(<pieces)"
got=0
ask_left false >whole 2>/dev/null || got=$?
((got == 52)) && [[ ! -s whole ]] || fail "and on the second, not $got: $(<whole)"
same "Hello 12$(ask_left false | field '["choices"][0]["text"]')" continued
told metrics '^sluice_hung_up_total 2$' || fail "both are counted"
head -n 6 again | cmp -s - left || fail "replayed: $(<again)"
drained

# The replay fails on a line that cannot belong to the run.
for line in 1:5+3 1:-4+2; do
  echo "$line" >wrong
  serve --replay wrong model
  { ask completions '{"prompt":"Hello 12","max_tokens":2}' 2>gone || echo '"error", as it has ended'; } |
    grep -q '"error"' || fail "replay of $line"
  ! wait "$pid" || fail "a model that has failed ends well"
  grep -q "wrong: line 1 takes ${line#*+} rows" err || fail "what is wrong with $line"
done
echo 0:0+1 >wrong # fails before any request
ends 2 "$actorserve" --port 0 --replay wrong model
grep -q "wrong: line 1 takes 1 rows from row 0 of request 0" err || fail "what is wrong with request 0"

# Two stages on two devices give the same text, one token at a time, with pages for one sequence
# only, under concurrent requests.
serve --stages 2 --rows 3 --groups 2 --sequences 2 --quota kv=1 --queue 8 --context 64 model
several='{"prompt":"Hello 12","max_tokens":9,"temperature":0,"n":5}'
for text in $(ask completions "$several" | field '["choices"]' | python3 -c '
import sys
print(*(c["text"].encode().hex() for c in eval(sys.stdin.read())))'); do
  same "Hello 12$(python3 -c 'import sys; sys.stdout.buffer.write(bytes.fromhex(sys.argv[1]))' "$text")" continued
done
drained

# Two tensor-parallel devices on each stage do too. Each holds the pages of its heads and its rows
# of all weights.
serve --stages 2 --tensor 2 --report shared.json model
text=$(ask completions '{"prompt":"Hello 12","max_tokens":9,"temperature":0}' | field '["choices"][0]["text"]')
same "Hello 12$text" continued
drained
[[ $(field '["devices"][1]["peak_bytes"]["parameters"]' <shared.json) -lt \
   $(($(field '["devices"][0]["peak_bytes"]["parameters"]' <ran.json) / 3)) ]] || fail "devices have parts: $(<shared.json)"

# With weights on disk, except one block at a time and the table, the server needs less memory and
# gives the same text.
deep=(--devices cpu:1x1 --sequences 2 --rows 8 --quota kv=2 --init deep.safetensors)
words=(gpt --layers 8 --width 32 --heads 4 --context 64)
ends 0 "$actorrun" --quiet --steps 1 --save deep.safetensors "${words[@]}" --data "$reference/text.txt"
greedy='{"prompt":"Hello 12","max_tokens":9,"temperature":0}'
serve "${deep[@]}" "${words[@]}"
text=$(ask completions "$greedy" | field '["choices"][0]["text"]')
drained
ends 3 "$actorserve" --port 0 "${deep[@]}" --memory 500K "${words[@]}"
says "needs" err
# The sizes that would fit do, alone, and the next larger ones do not.
ends 3 "$actorserve" --quiet --lengths 4,2 --concurrency 1 --requests 1 --memory 400K --init bytes.safetensors gpt "${small[@]}"
[[ $(<err) =~ "these would fit: --quota kv="([0-9]+)", --sequences "([0-9]+) ]] || fail "the advice: $(<err)"
pages=${BASH_REMATCH[1]} sequences=${BASH_REMATCH[2]}
for more in 0 1; do
  for size in "--quota kv=$((pages + more))" "--sequences $((sequences + more))"; do
    # shellcheck disable=SC2086
    ends $((3 * more)) "$actorserve" --quiet --lengths 4,2 --concurrency 1 --requests 1 --memory 400K $size --init bytes.safetensors gpt \
      "${small[@]}"
  done
done
serve "${deep[@]}" --memory 500K --weights disk --quota weights=1 "${words[@]}"
[[ "$(ask completions "$greedy" | field '["choices"][0]["text"]')" == "$text" ]] || fail "answers are other ones"
drained
ends 2 "$actorserve" --port 0 --quota weights=1 model
says "--quota weights=1: needs --weights disk" err
ends 2 "$actorserve" --port 0 --home act=disk model
says "--home act: a server can move only weights, those of experts, and tables, off the device" err
ends 2 "$actorserve" --port 0 "${deep[@]}" --weights disk --disk nowhere "${words[@]}"
says "nowhere" err

# A model with a custom recurrent op: its states are stored in pages, which are shared, evicted and
# recomputed.
ends 0 "$actorrun" --quiet --steps 10 --save decay.safetensors "$SLUICE_SOURCE/examples/decay.c" --data "$reference/text.txt" --lr 3e-3
long=$(head -c 100 "$reference/text.txt" | tr -c '[:alnum:]' ' ')
ends 0 "$actorrun" --quiet --init decay.safetensors --steps 0 --generate 20 --temperature 0 --prompt "$long" \
  "$SLUICE_SOURCE/examples/decay.c" --data "$reference/text.txt"
cp out continued.decay
serve --rows 5 --sequences 4 --quota kv=2 --init decay.safetensors "$SLUICE_SOURCE/examples/decay.c" --data "$reference/text.txt"
[[ $(ask completions "{\"prompt\":\"$long\",\"max_tokens\":20,\"temperature\":0,\"n\":4}" |
  field '["choices"]' | python3 -c 'import sys; print(*{c["text"] for c in eval(sys.stdin.read())})') == \
  "$(tail -c +101 continued.decay)" ]] || fail "recurrences go on otherwise: $(<continued.decay)"
drained

# Two processes: the first one listens, and the trace covers both.
serve -n 2 "${patient[@]}" --stages 2 --trace both.trace model
text=$(ask completions '{"prompt":"Hello 12","max_tokens":9,"temperature":0}' | field '["choices"][0]["text"]')
same "Hello 12$text" continued

# Each process reports the status of both, and can lower the number of pages in use.
ends 0 "$actorrun" status --json "$pid"
[[ $(field '["serving"]["tokens"]' <out) == 9 ]] || fail "$(<out)"
second=$(field '["processes"][1]["pid"]' <out)
ends 0 "$actorrun" status "$pid"
grep -q "^0 of 64 pages used on each of 2 stages; .* 9 tokens" out || fail "$(<out)"
ends 0 "$actorrun" ctl "$second" quota kv=1
says "kv=1" out
ends 0 "$actorrun" ctl "$pid" quota
grep -q "^kv  *1 of at most 64 pages on each stage" out || fail "$(<out)"
ends 2 "$actorrun" ctl "$pid" quota kv=65
says "quota kv=65: pages=65: must be from 1 to 64" err
ends 2 "$actorrun" ctl "$pid" quota act=2
says "quota act=2: kv=N, rows=N" err
text=$(ask completions '{"prompt":"Hello 12","max_tokens":9,"temperature":0}' | field '["choices"][0]["text"]')
same "Hello 12$text" continued
drained
"$bin/actortrace" svg --step 0 --steps 9 both.trace >picture || fail "there is a figure of both"
grep -q ">rows, max [1-9]" picture || fail "it has the rows of what passes from stage to stage"
"$bin/actortrace" rows both.trace | cut -f 2-4 >rows
for stage in 0 1; do
  grep -qx "$stage"$'\tF\t'"$stage" rows || fail "no pass of process $stage is in the trace"
done

# A model without a tokenizer takes bytes as tokens.
ends 0 "$actorrun" --quiet --init bytes.safetensors --steps 0 --generate 9 --temperature 0 --prompt "And the" gpt "${small[@]}"
cp out continued
serve --init bytes.safetensors gpt "${small[@]}"
text=$(ask completions '{"prompt":"And the","max_tokens":9,"temperature":0}' | field '["choices"][0]["text"]')
same "And the$text" continued
[[ $(ask chat/completions "{$chat}" | field '["error"]["message"]') == *"no tokenizer"* ]] || fail "nobody can chat with it"
drained

# refused NAMED WORDS...
refused() {
  local named=$1
  shift
  ends 2 "$actorserve" --port 0 "$@"
  grep -qF -- "$named" err || fail "the message names $named"
}
mkdir empty
refused "gpt: needs weights: give --init FILE" gpt
refused "actorserve: nosuch.gguf: no such file" nosuch.gguf
ends 0 "$actorrun" --quiet --steps 1 --save long/ gpt --layers 1 --width 8 --heads 1 --context 256 --data "$reference/text.txt"
refused "kv=2 is too small: one sequence of 256 tokens needs kv=4; a context of 128 would fit" --quota kv=2 long/
refused "--init x: model has weights of its own" --init x model
refused "unknown option --microbatches" --microbatches 2 model
refused "unknown option --steps" --steps 2 model
refused "--chat-template klingon: must be a file, or one of chatml, " --chat-template klingon model
refused "--served-model-name a,,b: a name is empty" --served-model-name a,,b model
ends 2 "$actorserve" --port 0 --access-log /no/such/log model
grep -qF -- "--access-log: cannot write /no/such/log: No such file" err || fail "a log that cannot be written is named: $(<err)"
refused "--tool-parser klingon: must be auto, none, or one of gpt-oss, qwen3-coder, hermes" --tool-parser klingon model
refused "reasoning-parser" --reasoning-parser klingon model
refused "--chat-template: the model has no tokenizer" --chat-template chatml --init bytes.safetensors gpt "${small[@]}"
refused "empty/config.json" empty
refused "cannot open nothing" --replay nothing model
refused "--memory lots: not a size" --memory lots model
ends 3 "$actorserve" --port 0 --memory 10K model
grep -q "budget is 10.0 KiB" err || fail "what does not fit is refused"
refused "--devices null:1: these devices hold no values" --devices null:1 model
refused "--quota act.b=2: a server has only the quotas" --quota act.b=2 model
refused "--admit sometimes: must be one of reserve, recompute" --admit sometimes model
refused "--host nowhere.invalid" --host nowhere.invalid model

# A write error ends the server with status 1 and a message that names the file; the same holds for
# standard output.
for output in log trace report; do
  serve --$output /dev/full model
  ask completions '{"prompt":"a","max_tokens":2}' >said
  kill -INT "$pid" 2>/dev/null || :
  ! wait "$pid" || fail "--$output /dev/full ends well"
  says "/dev/full" err
done
got=0
"$actorserve" --port 0 model >/dev/full 2>err || got=$?
((got == 1)) && says "standard output" err
echo '{"time": 0, "prompt": 3, "answer": 4}' >one.jsonl
for words in "--log /dev/full" "--trace /dev/full" "--report /dev/full"; do
  # shellcheck disable=SC2086
  ends 1 "$actorserve" --quiet --clock virtual --tick 1e-3,0,0,0 --arrivals one.jsonl $words model
  says "/dev/full" err
done

# The API key comes from a file or a variable, and requests need it. A server that listens on other
# interfaces without a key warns.
echo "se-cret" >key
serve --api-key-file key --host 127.0.0.1 model
[[ $(curl -s -o said -w '%{http_code}' "$url/models") == 401 ]] || fail "nobody asks without the key"
[[ $(curl -s -o said -w '%{http_code}' -H 'Authorization: Bearer se-cret' "$url/models") == 200 ]] || fail "with it"
tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q "se-cret" && fail "the key is told to others"
drained
SLUICE_API_KEY=other serve --host 0.0.0.0 model
[[ $(curl -s -o said -w '%{http_code}' "http://127.0.0.1:${url##*:}/models") == 401 ]] || fail "the variable says the key"
! grep -q "warning" err || fail "there is a key: $(<err)"
drained
serve --host 0.0.0.0 model
drained
says "warning: --host 0.0.0.0 without a key" err
: >nokey
printf 'a b\n' >spaces
for words in "--api-key-file nokey" "--api-key-file spaces" "--api-key-file nowhere" "--api-key-file key --api-key k" \
  "--request-memory 1M" "--cors nothing" "--cors http://a/b"; do
  # shellcheck disable=SC2086
  ends 2 "$actorserve" --port 0 $words model
  says "$(cut -d" " -f1 <<<"$words" | cut -c3-)" err
done

# Requests with different cache salts do not share prefixes.
serve "${longer[@]}"
salted() { ask completions "{\"prompt\":$ids,\"max_tokens\":1,\"cache_salt\":$1}" | field "$cached"; }
[[ "$(salted '"a"') $(salted '"b"') $(salted '"a"') $(salted null) $(salted '"b"') $(salted null)" == "0 0 128 0 128 128" ]] ||
  fail "salts keep prefixes apart"
drained
