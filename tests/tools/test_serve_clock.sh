#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# actorserve --arrivals plays the requests of a file, on the virtual clock and in real time. Errors
# name the file or the option.
# labels: outside
# needs: libevent
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need python3
actorserve=$bin/actorserve
small=(gpt --layers 2 --width 16 --heads 2 --context 64 --vocab 50)

python3 - >come.jsonl <<'PY'
import json
for i in range(40):
    print(json.dumps({"time": 0.01 * i, "prompt": 3 + 7 * i % 29, "answer": 2 + i % 9, "id": str(i)}))
PY

# Repeated runs are identical. A tick of two stages takes 2 x 10 ms and yields one token per
# sequence.
ends 0 "$actorserve" --clock virtual --arrivals come.jsonl --stages 2 --tick 0.01,0,0,0 --report one.json --trace one.trace "${small[@]}"
cp out first
ends 0 "$actorserve" --clock virtual --arrivals come.jsonl --stages 2 --tick 0.01,0,0,0 --report two.json "${small[@]}"
cmp first out || fail "the virtual clock gives the same each time"
cmp one.json two.json || fail "so do reports"
python3 - <<'PY'
import json
r = json.load(open("one.json"))
assert r["answered"] == 40 and r["refused"] == 0 and r["clock"] == "virtual", r
assert r["tokens"] == sum(2 + i % 9 for i in range(40)), r
assert 0.02 <= r["ttft_seconds"]["p50"] <= r["ttft_seconds"]["p99"] <= 0.05, r
assert 0.02 <= r["tpot_seconds"]["p50"] <= r["tpot_seconds"]["p99"] <= 0.0301, r
assert len(r["bubbles"]) == 2 and 0 < r["bubbles"][0] < 0.5 and r["pages_most"] > 0, r
PY
ends 0 "$bin/actortrace" show one.trace

# With the log of ticks, the trace shows the rows of prompts and answers of each tick, and the
# number of preceding positions.
ends 0 "$actorserve" --clock virtual --arrivals come.jsonl --tick 0.01,0,0,0 --report told.json --trace told.trace --log told "${small[@]}"
ends 0 "$bin/actortrace" rows --log told told.trace
python3 - <<'PY'
import json
head, *lines = [l.rstrip("\n").split("\t") for l in open("out")]
passes = [dict(zip(head, l)) for l in lines if l[head.index("class")] == "F"]
r = json.load(open("told.json"))
took = [p for p in passes if p["rows"] != "-"]
assert len(took) == r["ticks"] and sum(int(p["rows"]) for p in took) == r["rows"], (len(took), r)
assert took[0]["behind"] == "0" and max(int(p["sequences"]) for p in took) > 1, took
assert 0 < sum(int(p["chunk_rows"]) for p in took) <= r["rows_prompt"], r
PY
ends 0 "$bin/actortrace" show --log told told.trace
says "answers alone" out
says "chunks too" out
ends 0 "$bin/actortrace" svg --log told told.trace
ends 2 "$bin/actortrace" rows --log nowhere told.trace
says "nowhere" err
: >nothing
ends 2 "$bin/actortrace" rows --log nothing told.trace
says "nothing belongs to another run" err
ends 0 "$actorserve" --clock virtual --arrivals come.jsonl --machine h100-sxm-80gb "${small[@]}"

# In real time, on devices that sleep, no request is faster than the devices.
ends 0 "$actorserve" --devices timed:2 --arrivals come.jsonl --stages 2 --tick 0.01,0,0,0 --report real.json "${small[@]}"
python3 - <<'PY'
import json
r, v = json.load(open("real.json")), json.load(open("one.json"))
assert r["answered"] == 40 and r["tokens"] == v["tokens"] and r["clock"] == "real", r
assert r["ttft_seconds"]["p50"] > 0.0199 and r["tpot_seconds"]["p50"] > 0.0199, r
PY

refused() { # WHAT WORDS...: WORDS have to be rejected with WHAT
  local what=$1
  shift
  ends 2 "$actorserve" "$@" "${small[@]}"
  grep -qF -- "$what" err || fail "\"$(<err)\" does not say \"$what\""
}
refused "needs --arrivals FILE" --clock virtual
refused "these devices hold no values" --devices timed
refused "must be four numbers of seconds" --clock virtual --arrivals come.jsonl --tick 1,2,3
refused "must be four numbers of seconds" --clock virtual --arrivals come.jsonl --tick 1,2,3,-4
refused "must be four numbers of seconds" --clock virtual --arrivals come.jsonl --tick 1,2,3,4,
refused "must be four numbers of seconds" --clock virtual --arrivals come.jsonl --tick 1,2,3,4,-5
refused "must be four numbers of seconds" --clock virtual --arrivals come.jsonl --tick 1,2,3,4,5,6
refused "--chunks" --clock virtual --arrivals come.jsonl --chunks cut
refused "nowhere" --clock virtual --arrivals nowhere
for line in '{' '[1]' '{"prompt":1,"answer":1}' '{"time":-1,"prompt":1,"answer":1}' '{"time":1,"prompt":0,"answer":1}' \
  '{"time":1,"prompt":1.5,"answer":1}' '{"time":1,"prompt":1}' '{"time":0,"prompt":1,"answer":1}'; do
  printf '%s\n' '{"time":0.5,"prompt":1,"answer":1}' "$line" >bad.jsonl
  refused "bad.jsonl, line 2" --clock virtual --arrivals bad.jsonl
done
printf '{"time":0,"prompt":65,"answer":1}\n' >long.jsonl
refused "arrival 1: the prompt has 65 tokens" --clock virtual --arrivals long.jsonl
: >empty.jsonl
refused "nobody comes" --clock virtual --arrivals empty.jsonl

# A closed loop takes its lengths from --lengths, or from --arrivals without its times.
loop=("$actorserve" --clock virtual --tick 0.01,0,0,0 --concurrency 3)
ends 0 "${loop[@]}" --lengths 5,10 --requests 9 --report loop.json "${small[@]}"
python3 - <<'PY'
import json
r = json.load(open("loop.json"))
assert r["answered"] == 9 and r["tokens"] == 90 and abs(r["seconds"] - 0.3) < 1e-6, r
assert abs(r["tpot_seconds"]["mean"] - 0.01) < 1e-6, r
PY
ends 0 "${loop[@]}" --lengths 5,10,0.5 --report vary.json "${small[@]}"
python3 -c 'import json; r = json.load(open("vary.json")); assert r["answered"] == 24 and r["tokens"] != 240, r'
ends 0 "${loop[@]}" --arrivals come.jsonl "${small[@]}"
refused "--lengths 5: must be two numbers" --clock virtual --concurrency 3 --lengths 5
refused "--lengths 5,0: must be two numbers" --clock virtual --concurrency 3 --lengths 5,0
refused "--lengths 5,9,1: must be two numbers" --clock virtual --concurrency 3 --lengths 5,9,1
refused "--lengths 5,9: needs --concurrency" --clock virtual --lengths 5,9
refused "--concurrency: needs --lengths" --clock virtual --concurrency 3
refused "--requests: cannot be combined" --clock virtual --concurrency 3 --arrivals come.jsonl --requests 4
refused "--lengths: cannot be combined" --clock virtual --concurrency 3 --arrivals come.jsonl --lengths 5,9

# Tables of a machine file lie beside it, one for each type, and only servers read them.
cat >table.json <<'JSON'
{"curves": {"linear_served": {"m": [1, 64], "n": [1], "k": [1], "seconds": [0.001, 0.002]},
            "attention_served": {"sequences": [1], "positions": [1], "seconds": [1e-9]},
            "attention_packed_served": "attention_served"}}
JSON
machine() { # SERVING
  echo '{"flops_per_second": {"f32": 1e12, "bf16": 1e12}, "flops_efficiency": 1, "bytes_per_second": 1e12,
    "bytes_efficiency": 1, "op_seconds": 0, "memory_bytes": 1e9, "link_seconds": 0, "link_bytes_per_second": 1e9,
    "serving": '"$1"'}' >own.json
}
machine '{"tick_seconds": 0.01, "joins_products": false, "tables": {"f32": ["table.json"]}}'
ends 0 "$actorserve" --clock virtual --machine own.json --concurrency 1 --lengths 1,2 --report own.out "${small[@]}"
machine '{"tables": {"f32": ["nowhere.json"]}}'
refused "nowhere.json" --clock virtual --machine own.json --concurrency 1 --lengths 1,2
machine '{"tables": {"f32": ["../table.json"]}}'
refused "own.json: serving.tables.f32[0]: must be a file of this folder" --clock virtual --machine own.json --concurrency 1 --lengths 1,2
machine '{"tick_second": 1}'
refused "tick_second" --clock virtual --machine own.json --concurrency 1 --lengths 1,2
machine '{"tables": {"f32": ["table.json"]}}'
sed 's/: "attention_served"/: "attention"/' table.json >t && mv t table.json
refused "attention is no curve before this one" --clock virtual --machine own.json --concurrency 1 --lengths 1,2

# Tables of training price its products, by names of a later table; a product faster than the peak is named and takes
# its arithmetic's time.
cat >products.json <<'JSON'
{"curves": {"linear_served": {"m": [1, 4096], "n": [1, 4096], "k": [1, 4096],
            "seconds": [1e-12, 3, 3, 3, 3, 3, 3, 3]}}}
JSON
echo '{"curves": {"linear": "linear_served", "linear_b": "linear_served", "linear_w": "linear_served"}}' >names.json
train() { # TRAINING
  machine '{}'
  sed -i 's/"serving": {}/"training": '"$1"'/' own.json
  timeout -s KILL 60 "$bin/actorrun" --dry-run --clock virtual --machine own.json gpt --layers 1 --width 64 --batch 1 >out 2>err
}
train '{"tables": {"f32": ["products.json", "names.json"]}}' || fail "training by tables"
says "products.json: curves: linear_served: 1 of its products take less time than their arithmetic" err
says "number 1 of seconds, 1e-12 s instead of 2e-12" err
grep -qE "a step takes [0-9.]+ s " out || fail "products of training do not take the table's seconds"
train '{"tables": {"bf16": ["products.json", "names.json"]}}' || fail "tables of another type"
grep -qE "a step takes [0-9.]+ .s " out || fail "products in f32 take the seconds of bf16"
train '{"tables": {"f32": ["names.json"]}}' && fail "a name without a curve"
says "linear_served is no curve before this one" err
train '{"op_seconds": 1}' && fail "training has tables only"
says "training.op_seconds: unknown key" err

# Weights in FP8 take a byte each, on devices that compute nothing; others refuse them.
for dtype in bf16 fp8; do
  ends 0 "$actorserve" --clock virtual --machine h100-sxm-80gb --dtype $dtype --concurrency 3 --lengths 5,20 \
    --rows 8 --report $dtype.json llama --layers 2 --width 4096 --heads 32 --context 64 --vocab 50
done
python3 - <<'PY'
import json
bf16, fp8 = (json.load(open(f + ".json"))["tpot_seconds"]["mean"] for f in ("bf16", "fp8"))
assert 0.4 * bf16 < fp8 < 0.9 * bf16, (bf16, fp8)
PY
ends 0 "$actorserve" --clock virtual --machine h100-sxm-80gb --dtype fp8 --concurrency 3 --lengths 5,9 --rows 7 \
  mixtral --layers 1 --width 30 --heads 3 --expert-ffn 7 --experts 5 --top-k 3 --context 64 --vocab 51
for option in dtype kv; do
  ends 2 "$actorserve" --$option fp8 --init nowhere "${small[@]}"
  says "--$option fp8: only devices that compute nothing" err
done

# Keys and values in FP8 take half the pages' bytes, and answers read them in less time.
for kv in bf16 fp8; do
  ends 0 "$actorserve" --clock virtual --machine a100-sxm-80gb --dtype bf16 --kv $kv --concurrency 30 --lengths 900,90 \
    --rows 1000 --quota kv=600 --report kv-$kv.json llama --layers 2 --width 4096 --heads 32 --context 1024 --vocab 50
done
ends 0 "$actorserve" --clock virtual --machine h100-sxm-80gb --dtype fp8 --kv fp8 --concurrency 3 --lengths 5,9 --rows 7 \
  deepseek --layers 2 --width 36 --heads 3 --context 64 --vocab 51
python3 - <<'PY'
import json
bf16, fp8 = (json.load(open("kv-" + f + ".json"))["tpot_seconds"]["mean"] for f in ("bf16", "fp8"))
assert 0.5 * bf16 < fp8 < 0.9 * bf16, (bf16, fp8)
PY

# A client sends its next request when it has its answer, and the engine has a prompt some time later.
machine '{"tick_seconds": 0.01, "answer_seconds": 0.5, "request_token_seconds": 0.1}'
ends 0 "$actorserve" --clock virtual --machine own.json --concurrency 2 --lengths 5,3 --requests 6 --report late.json \
  "${small[@]}"
python3 - <<'PY'
import json
r = json.load(open("late.json"))
assert r["answered"] == 6 and 1.01 <= r["ttft_seconds"]["mean"] <= 1.02, r
assert 3 * 1.03 <= r["seconds"] <= 3 * 1.04, r
PY

# Calls that the machine's tables do not cover are named once, with what was taken instead.
ends 0 "$actorserve" --clock virtual --machine h100-sxm-80gb --dtype bf16 --concurrency 2 --lengths 50,5 --rows 64 \
  --report notes.json deepseek --layers 3 --context 128 --vocab 300001
says "attention_latent_served has no table: the longer of arithmetic and traffic is taken" out
says "linear_served: n 300001 is far beyond its table, which ends at 65536: extrapolated" out
[ "$(grep -c "has no table" out)" = 1 ] || fail "$(<out)"
python3 -c 'import json; assert "attention_latent_served" in json.load(open("notes.json"))["notes"]'
ends 0 "$actorserve" --clock virtual --machine h200-sxm-141gb --dtype bf16 --concurrency 2 --lengths 50,5 --rows 64 "${small[@]}"
grep "table" out && fail "a machine without tables is not held to them"
:
