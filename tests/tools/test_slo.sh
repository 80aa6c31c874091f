#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# actortune --slo finds the best possible server and prints the command that starts it. If no server
# meets the targets, it prints the closest one.
# labels: outside
# needs: libevent
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need python3
actorserve=$bin/actorserve
actortune=$bin/actortune
small=(gpt --layers 2 --width 16 --heads 2 --context 128 --vocab 50)
tick=(--tick 0.004,0,0.001,1e-6)

python3 - >come.jsonl <<'PY'
import json
for i in range(40):
    print(json.dumps({"time": 0.02 * i, "prompt": 3 + 17 * i % 61, "answer": 4 + 5 * i % 17}))
PY

# slo WORDS...: prints the result without the elapsed time.
slo() {
  ends 0 "$actortune" --arrivals come.jsonl "$@" "${small[@]}"
  sed -i 's/ tried in [0-9.]* s,/ tried,/' out
}
best() { awk '$1 == 1 && $2 ~ /^[0-9.]+$/ { print $2 }' out; }
command_of() { sed -n "s/^ *$1  actorserve //p" out; }

# The result equals an exhaustive search of a small space.
space=(--stages 2 --rows 8,32 --groups 1,3 --sequences 2,8 --quota kv=3 --quota kv=6 --admit recompute)
slo --slo ttft=2,tpot@90=16ms --threads 1 "${space[@]}" "${tick[@]}"
cp out one
for rows in 8 32; do for groups in 1 3; do for pages in 3 6; do for sequences in 2 8; do
  ends 0 "$actorserve" --clock virtual --arrivals come.jsonl --stages 2 --rows $rows --groups $groups --quota kv=$pages --sequences $sequences \
    --tick 0.002,0,0.0005,5e-7 --report "all.$rows.$groups.$pages.$sequences.json" "${small[@]}"
done; done; done; done
cp one out
python3 - "$(best)" <<'PY'
import glob, json, sys
all = [json.load(open(name)) for name in glob.glob("all.*.json")]
good = [r for r in all if r["ttft_seconds"]["p99"] <= 2 and r["tpot_seconds"]["p90"] <= 0.016]
assert len(all) == 16 and 0 < len(good) < 16, (len(all), len(good))
best = max(r["tokens_per_second"] for r in good)
assert sys.argv[1] == "%.4g" % best, (sys.argv[1], best)
PY

# The printed command gives exactly that server, and the number of threads does not matter.
read -ra words <<<"$(command_of 1)"
ends 0 "$actorserve" --report told.json "${words[@]}"
cp one out
python3 - "$(best)" <<'PY'
import json, sys
r = json.load(open("told.json"))
assert sys.argv[1] == "%.4g" % r["tokens_per_second"], r
assert r["ttft_seconds"]["p99"] <= 2 and r["tpot_seconds"]["p90"] <= 0.016, r
PY
slo --slo ttft=2,tpot@90=16ms --threads 3 "${space[@]}" "${tick[@]}"
cmp one out || fail "three threads find something else"
says "instead of" out

# More memory gives more choices.
last=0
for memory in 80K 130K 1M; do
  slo --slo ttft=9 --stages 1 --rows 8,16 --memory $memory "${tick[@]}"
  python3 -c 'import sys; sys.exit(not float(sys.argv[1]) >= float(sys.argv[2]))' "$(best)" "$last" ||
    fail "with $memory it is $(best), and $last with less"
  last=$(best)
done

# --goodput finds the highest rate: at that rate the server meets the target, and well above it does
# not.
slo --slo ttft=200ms --goodput --stages 1 --rows 16 --groups 1 --quota kv=40 --admit recompute "${tick[@]}"
read -ra words <<<"$(command_of 1)"
ends 0 "$actorserve" --report at.json "${words[@]}"
rate=${words[*]}
rate=${rate#*--rate }
rate=${rate%% *}
ends 0 "$actorserve" --report beyond.json "${words[@]}" --rate "$(python3 -c "print(1.3 * $rate)")"
python3 - <<'PY'
import json
at, beyond = json.load(open("at.json")), json.load(open("beyond.json"))
assert at["ttft_seconds"]["p99"] <= 0.2 < beyond["ttft_seconds"]["p99"], (at, beyond)
PY

# Tick times from a report: ticks with few rows take equally long.
cat >ticks.json <<'J'
{"tick_corners": {"rows": [1, 4, 5, 13], "seconds": [0.01, 0.01, 0.02, 0.06], "position": 0, "pair": 0}}
J
printf '{"time": 0, "prompt": %s, "answer": 1}\n' 4 5 9 >three.jsonl
ends 0 "$actorserve" --clock virtual --arrivals three.jsonl --rows 9 --tick ticks.json --report three.json "${small[@]}"
python3 - <<'PY'
import json
r = json.load(open("three.json"))
assert abs(r["seconds"] - 0.08) < 1e-6, r  # two ticks of 9 rows
PY
# Tick times are also measured, for any number of rows. test_serve_virtual tests the search itself,
# because other load disturbs measured times.
cat >fast.json <<'J'
{"tick_corners": {"rows": [1, 4, 5, 16], "seconds": [2e-3, 2e-3, 4e-3, 8e-3], "position": 0, "pair": 0}}
J
ends 0 "$actorserve" --devices timed:1 --tick fast.json --rows 16 --measure took.json "${small[@]}"
python3 - <<'PY'
import json
r = json.load(open("took.json"))["tick_corners"]
assert r["rows"][:5] == [1, 2, 3, 4, 5] and r["rows"][-1] == 16 and max(r["seconds"]) > 1e-3, r
assert r["pick"] >= 0 and abs(sum(r["spread"]) / len(r["spread"]) - 1) < 1e-6, r
PY
ends 0 "$actorserve" --clock virtual --arrivals three.jsonl --tick took.json "${small[@]}"
ends 2 "$actorserve" --devices timed:2 --stages 2 --measure took.json "${tick[@]}" "${small[@]}"
says "needs one stage" err
ends 2 "$actorserve" --clock virtual --measure took.json "${tick[@]}" "${small[@]}"
says "--clock virtual" err
slo --slo ttft=9 --stages 2 --tick ticks.json
says "--tick ticks.json" out

# No server meets the targets, or fits.
ends 3 "$actortune" --slo ttft=1ms --arrivals come.jsonl --stages 1 --rows 16 "${tick[@]}" "${small[@]}"
says "no server meets --slo ttft=1ms; the nearest is --stages 1" err
ends 3 "$actortune" --slo ttft=9 --arrivals come.jsonl --stages 1 --memory 1K "${tick[@]}" "${small[@]}"
says "no server fits in 1.0 KiB: the smallest needs" err

refused() { # WHAT WORDS...: WORDS have to be rejected with WHAT
  local what=$1
  shift
  ends 2 "$actortune" "$@" "${small[@]}"
  grep -qF -- "$what" err || fail "\"$(<err)\" does not say \"$what\""
}
some=(--arrivals come.jsonl "${tick[@]}")
refused "needs levels" --slo "" "${some[@]}"
refused "e2e=1: must be ttft" --slo e2e=1 "${some[@]}"
refused "ttft: not ttft=SECONDS" --slo ttft "${some[@]}"
refused "ttft@101=1: not a percentage" --slo ttft@101=1 "${some[@]}"
refused "tpot=-1: not a time above 0" --slo ttft=1,tpot=-1 "${some[@]}"
refused "ttft@99=2: is given twice" --slo ttft=1,ttft@99=2 "${some[@]}"
refused "needs --arrivals FILE" --slo ttft=1 "${tick[@]}"
refused "needs --tick or --machine" --slo ttft=1 --arrivals come.jsonl
refused "nowhere" --slo ttft=1 --arrivals nowhere "${tick[@]}"
refused "--sequences" --slo ttft=1 --sequences 8..4 "${some[@]}"
refused "--groups 65" --slo ttft=1 --groups 65 "${some[@]}"
refused "--admit" --slo ttft=1 --admit never "${some[@]}"
refused "--quota act=3" --slo ttft=1 --quota act=3 "${some[@]}"
refused "--rows" --slo ttft=1 --rows 8..4 "${some[@]}"
refused "one: not JSON" --slo ttft=1 --arrivals come.jsonl --tick one
echo '{"ticks": 1}' >bad.json
refused "no \"tick_corners\"" --slo ttft=1 --arrivals come.jsonl --tick bad.json
echo '{"tick_corners": {"rows": [2, 1], "seconds": [1, 1], "position": 0, "pair": 0}}' >bad.json
refused "tick_corners.rows: rows must increase" --slo ttft=1 --arrivals come.jsonl --tick bad.json
echo '{"tick_corners": {"rows": [1], "seconds": [1], "position": 0, "pair": 0, "spread": [1, -1]}}' >bad.json
refused "tick_corners.spread[1]: expected a number" --slo ttft=1 --arrivals come.jsonl --tick bad.json
echo '{"tick_corners": {"rows": [1, 2], "seconds": [1], "position": 0, "pair": 0}}' >bad.json
refused "tick_corners.seconds: must have as many numbers as rows" --slo ttft=1 --arrivals come.jsonl --tick bad.json
echo '{"tick_corners": [1]}' >bad.json
refused "tick_corners: expected an object" --slo ttft=1 --arrivals come.jsonl --tick bad.json
printf '{"time":0,"prompt":129,"answer":1}\n' >long.jsonl
refused "arrival 1: the prompt has 129 tokens" --slo ttft=1 --arrivals long.jsonl "${tick[@]}"

# ---- a machine, several devices ----------------------------------------------------------------

llama=(llama --layers 4 --width 512 --heads 8 --kv-heads 2 --ffn 1024 --vocab 1000 --context 2048)
loop=(--machine h100-sxm-80gb --dtype bf16 --kv bf16 --concurrency 12 --lengths 300,40,0.1 --requests 48)
# serve WORDS...: searches servers for the closed loop.
serve() {
  ends 0 "$actortune" serve "${loop[@]}" "$@" "${llama[@]}"
  sed -i 's/ tried in [0-9.]* s/ tried/' out
}
# told N: runs the command of row N and compares tokens per second and percentiles with the row.
told() {
  local row tokens
  row=$(awk -v n="$1" '$1 == n && $2 ~ /^[0-9.e+]+$/' out | head -1)
  read -ra words <<<"$(command_of "$1")"
  cp out searched
  ends 0 "$actorserve" --report told.json "${words[@]}"
  cp searched out
  tokens=$(python3 -c 'import json; print("%.4g" % json.load(open("told.json"))["tokens_per_second"])')
  [[ " $row " == *" $tokens "* ]] || fail "row $1 is \"$row\", but its command gives $tokens tokens/s"
}

# Any number of devices: each row is what its command prints, whatever its servers are.
for devices in 1 3 5 7; do
  serve --slo ttft=1,tpot=50ms --devices timed:$devices --points 3
  told 1
done
told 2
serve --devices timed:3 --stages 1 --replicas 3
told 1
serve --devices timed:5 --prefill 1,2 --stages 1 --tensor 1,2 --replicas 1
told 1
grep -qE "prefill +[12] instead of +[12]" out || fail "the second choice of --prefill is not shown"
serve --slo energy --devices timed:4
says "mJ" out

# The search with bounds finds what trying everything finds, but for 1 %.
draw
python3 - "$seed" >loads <<'PY'
import random, sys
draw = random.Random(int(sys.argv[1]))
for i in range(3):
    print(draw.choice([2, 4, 8, 16]), "%d,%d,0.2" % (draw.randint(20, 900), draw.randint(5, 80)), draw.choice([1, 3, 4]))
PY
while read -r clients lengths devices; do
  words=(--machine h100-sxm-80gb --dtype bf16 --concurrency "$clients" --lengths "$lengths" --requests $((3 * clients))
    --devices timed:"$devices" --rows 256,512 --points 1 "${llama[@]}")
  ends 0 "$actortune" serve "${words[@]}"
  found=$(awk '$1 == 1 && $2 ~ /^[0-9.e+]+$/ { print $4 }' out)
  ends 0 "$actortune" serve --exhaustive "${words[@]}"
  python3 - "$found" "$(awk '$1 == 1 && $2 ~ /^[0-9.e+]+$/ { print $4 }' out)" <<'PY' || fail "$clients clients, $lengths, $devices devices: $found tokens/s per device, but $(best) is possible"
import sys
found, best = map(float, sys.argv[1:])
sys.exit(not 0.985 * best <= found <= 1.001 * best)
PY
done <loads

# A load that nothing holds: the limit that fails, and by how much. A model that does not fit.
ends 3 "$actortune" serve --slo tpot=0.001ms --devices timed:2 "${loop[@]}" "${llama[@]}"
grep -qE 'no server meets --slo tpot=0.001ms; the nearest is .* tpot@99 .* s of 1e-06 \([0-9.e+]+ times\)' err || fail "$(<err)"
ends 3 "$actortune" serve --slo tpot=1 --devices timed:2 --memory 2M "${loop[@]}" "${llama[@]}"
says "no server fits in 2.0 MiB: the smallest needs" err

serve_refused() { # WHAT WORDS...
  local what=$1
  shift
  ends 2 "$actortune" serve "$@" "${llama[@]}"
  grep -qF -- "$what" err || fail "\"$(<err)\" does not say \"$what\""
}
serve_refused "--concurrency and --lengths" --machine h100-sxm-80gb
serve_refused "a closed loop has no rate" --goodput "${loop[@]}"
serve_refused "needs a --machine whose file has" --slo energy --arrivals come.jsonl "${tick[@]}"
serve_refused "--prefill 1: needs --machine" --prefill 1 --arrivals come.jsonl "${tick[@]}"
serve_refused "fits 2 devices" --devices timed:2 --tensor 4 "${loop[@]}"
serve_refused "--tensor 4..2" --tensor 4..2 "${loop[@]}"
serve_refused "--replicas x" --replicas x "${loop[@]}"

# Several servers of actorserve.
fleet=("$actorserve" --clock virtual "${loop[@]}")
ends 0 "${fleet[@]}" --report one.json "${llama[@]}"
ends 0 "${fleet[@]}" --replicas 3 --report three.json "${llama[@]}"
ends 0 "${fleet[@]}" --prefill 2,tensor=2,rows=256 --report apart.json "${llama[@]}"
says "per token" out
python3 - <<'PY'
import json
one, three, apart = (json.load(open(n + ".json")) for n in ("one", "three", "apart"))
assert (one["devices"], three["devices"], apart["devices"]) == (1, 3, 5), (one, three, apart)
assert one["tokens"] == three["tokens"] == apart["tokens"], (one["tokens"], three["tokens"], apart["tokens"])
assert three["tokens_per_second"] > one["tokens_per_second"], (three, one)
assert apart["tpot_seconds"]["mean"] < one["tpot_seconds"]["mean"] and len(apart["bubbles"]) == 2, apart
for r in (one, three, apart):
    least, most = 70 * r["devices"] * r["seconds"], 700 * r["devices"] * r["seconds"]
    assert least <= r["joules"] <= most * 1.001, r
PY
for words in "--replicas 2 --trace t" "--prefill 1 --log l" "--replicas 2 --speculate ngram"; do
  # shellcheck disable=SC2086
  ends 2 "${fleet[@]}" $words "${llama[@]}"
  says "cannot be combined with" err
done
ends 2 "${fleet[@]}" --prefill two "${llama[@]}"
says "--prefill two: must be a number of servers" err
ends 2 "${fleet[@]}" --prefill 1,width=3 "${llama[@]}"
says "--prefill 1,width=3" err
ends 2 "${fleet[@]}" --prefill 1,rows=0 "${llama[@]}"
says "--prefill 1,rows=0" err
ends 2 "$actorserve" --devices timed:1 --replicas 2 "${loop[@]}" "${llama[@]}"
says "on --clock virtual" err
printf '{"name": "x", "flops_per_second": {"f32": 1e12}, "flops_efficiency": 1, "bytes_per_second": 1e12, "bytes_efficiency": 1, "op_seconds": 0, "memory_bytes": 1e12, "link_seconds": 0, "link_bytes_per_second": 1e9, "energy": {"idle_watts": 9, "busy_watts": 3}}' >odd.json
ends 2 "$actorserve" --clock virtual --machine odd.json --concurrency 1 --lengths 3,3 "${llama[@]}"
says "busy_watts must be above 0 and at least idle_watts" err
