# SPDX-License-Identifier: Apache-2.0
# Tests actorrun and actortrace as a user meets them: what they print, which files they leave and
# how they end. test_actorrun_refused.sh tests what actorrun rejects.
# labels: first smoke
# needs: zeromq
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

small="--layers 2 --width 32 --heads 2 --context 32 --batch 4 --data $reference/tokens.u16"

# run STATUS WORDS...: actorrun has to end with STATUS.
run() { ends "$1" "$actorrun" "${@:2}"; }

# refused STATUS TEXT WORDS...: actorrun has to end with STATUS and one line that contains TEXT.
refused() {
  local status=$1 text=$2
  shift 2
  run "$status" "$@"
  says "$text" err
  [ "$(grep -c '^actorrun: ' err)" -eq 1 ] || fail "actorrun $*: one line says why"
}

# ---- a run and its output --------------------------------------------------------------
run 0 --steps 3 --stages 2 --microbatches 2 --report r.json --trace t.trace --save w.safetensors \
  --plan p.txt --init "$reference/hf_gpt2/model.safetensors" gpt $small
says "step 1/3  loss" out; says "step 3/3  loss" out; says "cpu:1" out
# At startup the run prints the model, the amount of data, and the device of each block.
begun() { grep -qxE "$1" out || fail "the start does not say: $1"; }
begun 'gpt: [0-9,]+ parameters; [0-9,]+ tokens in 1 file, [0-9,.]+ steps an epoch'
begun '  cpu:0 +[0-9.]+ [KM]iB  embedding h\.0'
begun '  cpu:1 +[0-9.]+ [KM]iB  h\.1 head'
says "bubble" out
run 0 --steps 2 gpt $small
begun '  cpu:0 +[0-9.]+ [KM]iB  embedding h\.0\.\.h\.1 head'
! grep -q bubble out || fail "one device has no bubble"
run 0 --steps 1 --quiet gpt $small
[ ! -s out ] || fail "--quiet says nothing"
run 0 --dry-run --stages 2 --chunks 2 --schedule interleaved --microbatches 2 --data-parallel 2 gpt $small --layers 6
begun '  cpu:0 to 1 +[0-9.]+ [KM]iB each  embedding h\.0(\.\.h\.1)? \| h\.[0-9](\.\.h\.[0-9])?'
run 0 --dry-run --devices timed:12 gpt $small --layers 10
begun 'gpt: [0-9,]+ parameters.*'
begun '  \.\.\. 5 more'
begun '  timed:11 +[0-9.]+ [KM]iB  head'
# The list of quotas distinguishes different registers of the same name.
run 0 --dry-run --stages 2 --chunks 2 --schedule v-min --microbatches 4 --eval $reference/tokens.u16 \
  --eval-every 1 --steps 2 --report q.json gpt $small --layers 4
begun 'quotas:.*  fwd@0=[0-9]+  .*  fwd@0=[0-9]+ \(evaluation\).*'
says '"part":' q.json
run 0 --dry-run --stages 4 --microbatches 8 --vocab-parallel --vocab-barriers 1 gpt $small --layers 4 --batch 8
begun 'quotas:.*  fwd@1=[0-9]+ \(vocabulary\)  .*  fwd@1=[0-9]+  .*'
awk '/^quotas:/ {for (i = 2; i <= NF; i++) if ($i !~ /^\(/) {
  split($i, q, "="); name = q[1] ($(i + 1) ~ /^\(/ ? $(i + 1) : ""); if (seen[name]++) exit 1}}' out ||
  fail "two quotas look alike: $(grep quotas: out)"
run 0 -n 2 --stages 2 --microbatches 2 --steps 2 gpt $small
says ' % of cpu:0  ' out
for field in model options plan_hash clock schedule quotas steps loss_hex bubble_fraction \
             step_seconds devices peak_activations peak_bytes firings plan_seconds start_seconds; do
  says "\"$field\"" r.json
done
[ "$(hexes r.json | wc -l)" -eq 3 ] || fail "the report has three losses"
[ -s p.txt ] || fail "the plan was written"
"$bin/actortrace" rows t.trace >rows 2>err || fail "actortrace rows"
[ "$(head -n 1 rows)" = "$(printf \
  'step\tdevice\tclass\tstage\tchunk\tmicrobatch\tpiece\tstart_ns\tend_ns\tactor')" ] ||
  fail "the rows have their header"
# Each of three steps has two forward and two backward passes on each of two devices.
for device in 0 1; do
  for class in F B; do
    n=$(awk -v d=$device -v c=$class -F'\t' '$2 == d && $3 == c' rows | wc -l)
    [ "$n" -eq 6 ] || fail "device $device has 6 firings of class $class, not $n"
  done
done
run 0 --steps 3 --microbatches 2 --report r1.json --init "$reference/hf_gpt2/model.safetensors" \
  gpt $small
[ "$(hexes r.json)" = "$(hexes r1.json)" ] || fail "two stages give one stage's losses"

# ---- pieces of sequences ---------------------------------------------------------------
run 0 --steps 3 --microbatches 2 --pieces 3 --report r3.json gpt $small
run 0 --steps 3 --microbatches 2 --pieces 3 --stages 2 --schedule zb-h1 --report r4.json gpt $small
[ "$(hexes r3.json)" = "$(hexes r4.json)" ] || fail "pieces give the same bits on two stages"
tr -d ' \t\n' <r4.json | grep -q '"piece_lengths":\[11,11,10\]' || fail "the report has the lengths"

# Where the CPU has bf16, or SLUICE_CPU_BF16 enables it, bf16 losses are close to fp32 losses and do
# not depend on the stages. Elsewhere they equal the fp32 losses.
near() { # FILE FILE SHARE
  paste <(grep -o '"loss":[^,]*' "$1") <(grep -o '"loss":[^,]*' "$2") |
    awk -v share="$3" '{d = $2 - $4; if (d < 0) d = -d; if (d > share * $4) exit 1}'
}
for emulate in 0 1; do
  export SLUICE_CPU_BF16=$emulate
  for stages in 1 2; do
    run 0 --steps 3 --dtype bf16 --stages $stages --microbatches 2 --report b$stages.json \
      --init "$reference/hf_gpt2/model.safetensors" gpt $small
  done
  [ "$(hexes b1.json)" = "$(hexes b2.json)" ] || fail "two stages give one stage's losses in bf16"
  near b1.json r1.json 0.002 || fail "losses in bf16 are near those in fp32"
  if grep -q '"products":.*"f32"' b1.json; then
    [ "$(hexes b1.json)" = "$(hexes r1.json)" ] || fail "without bf16 it is fp32"
    says "note: --dtype bf16: these devices have no bf16 products; fp32 is used" err
  else
    [ "$(hexes b1.json)" != "$(hexes r1.json)" ] || fail "bf16 is something else than fp32"
  fi
done
unset SLUICE_CPU_BF16

# In fp32 the losses hardly depend on which code multiplies: a library, or bf16 tiles (in plain code
# where the CPU has no tiles).
for products in library tiles; do
  export SLUICE_CPU_FP32=$products
  for stages in 1 2; do
    run 0 --steps 3 --stages $stages --microbatches 2 --report $products$stages.json \
      --init "$reference/hf_gpt2/model.safetensors" gpt $small
  done
  [ "$(hexes ${products}1.json)" = "$(hexes ${products}2.json)" ] || fail "two stages give one stage's losses ($products)"
done
unset SLUICE_CPU_FP32
near tiles1.json library1.json 1e-6 || fail "losses on tiles are those of the library"
[ "$(hexes tiles1.json)" != "$(hexes library1.json)" ] || fail "tiles multiply in an order of their own"
refused 2 "--dtype fp16: must be one of fp32, bf16" --dtype fp16 gpt $small

# Weights that are saved, loaded and saved again do not change.
run 0 --steps 0 --init w.safetensors --save w2.safetensors gpt $small
cmp -s w.safetensors w2.safetensors || fail "loading and saving gives the same file"

# ---- bad traces ------------------------------------------------------------------------
trace_refused() {
  "$bin/actortrace" "${@:3}" >out 2>err
  [ $? -eq "$1" ] || fail "actortrace ${*:3}: not status $1"
  says "$2" err
}
trace_refused 2 "no command"
trace_refused 2 "unknown command lines" lines t.trace
trace_refused 2 "takes one FILE" rows
trace_refused 2 "nowhere.trace" rows nowhere.trace
trace_refused 2 "is not a Sluice trace" rows r.json
head -c 40 t.trace >cut.trace
trace_refused 2 "cut.trace is truncated" rows cut.trace
head -c $(($(wc -c <t.trace) - 100)) t.trace >cut.trace
trace_refused 0 "newest firings are missing" rows cut.trace
[ "$(wc -l <out)" -eq $(($(wc -l <rows) - 2)) ] || fail "all whole firings are there"

# ---- users' own graphs -----------------------------------------------------------------
run 0 --steps 300 --report r.json "$SLUICE_SOURCE/examples/spiral.c"
awk -F'[:,]' '/"loss":/ {last = $2} END {exit !(last < 0.3)}' r.json ||
  fail "the spirals are learned"
run 0 --steps 2 --stages 2 "$SLUICE_SOURCE/models/gpt.c" $small
cc -shared -fPIC -I"$SLUICE_SOURCE/include" -o spiral.so "$SLUICE_SOURCE/examples/spiral.c" -lm
run 0 --steps 2 spiral.so
run 0 --steps 2 ./spiral.so --activation relu
refused 2 "spiral: --activation is tanh or relu" spiral.so --activation step
refused 2 "has no f32 output \"logits\"" --steps 1 --generate 3 spiral.so

# ---- generation ------------------------------------------------------------------------
run 0 --steps 0 --init w.safetensors --generate 10 --prompt "The " --temperature 0 gpt $small
[ "$(wc -c <out)" -eq 15 ] || fail "a prompt of 4, 10 more, a new line"
cp out first
run 0 --steps 0 --init w.safetensors --generate 10 --prompt "The " --temperature 0 gpt $small
cmp -s out first || fail "the likeliest text is always the same"
refused 2 "must be a list of smaller numbers" --steps 0 --generate 2 --prompt words gpt $small --vocab 300
run 0 --steps 0 --generate 40 --prompt "1 2,299" llama $small --vocab 300
[ "$(wc -w <out)" -eq 43 ] || fail "numbers for a vocabulary that is not bytes"

# ---- failed runs -----------------------------------------------------------------------
cp w.safetensors kept.safetensors
refused 1 "step" --steps 20 --save w.safetensors --report r.json gpt $small --lr 1e30 --clip 0 \
  --warmup 0
says "the loss of step 2, microbatch 0, is" err
cmp -s w.safetensors kept.safetensors || fail "values that are not finite are not saved"
says '"failed"' r.json
(ulimit -f 8; trap '' XFSZ; refused 1 "w.safetensors" --steps 1 --save w.safetensors gpt $small) ||
  exit 1
cmp -s w.safetensors kept.safetensors || fail "a full disk leaves the old file"
[ -z "$(find . -name '*.tmp.*')" ] || fail "temporaries are left"
refused 1 "No space left on device" --steps 1 --save /dev/full gpt $small

# ---- Ctrl-C ----------------------------------------------------------------------------
background "$actorrun" --steps 1000000 --stages 2 --microbatches 2 --save stopped.safetensors gpt $small
for _ in $(seq 600); do grep -q "step 1/" out && break; sleep 0.1; done
kill -INT $pid
status=0
wait $pid || status=$?
((status == 1)) || fail "Ctrl-C ends a run with status 1, not $status"
says "stopped after step" out
run 0 --steps 0 --init stopped.safetensors --save w2.safetensors gpt $small
cmp -s stopped.safetensors w2.safetensors || fail "what was saved is whole"

# ---- a terminal ------------------------------------------------------------------------
script -qec "'$bin/actorrun' --steps 40 gpt $small" /dev/null >out 2>err </dev/null ||
  fail "a run on a terminal"
says "$(printf '\r')step 40/40" out
[ "$(grep -c 'step ' out)" -le 2 ] || fail "one line is drawn again and again"

# ---- no data ---------------------------------------------------------------------------
# On large grids one device of each stage is simulated for all of them; no data is needed.
large="--layers 4 --width 256 --heads 8 --context 64 --batch 64"
run 0 --dry-run --clock virtual --machine a100-sxm-80gb --stages 2 --tensor 8 --data-parallel 8 \
  --microbatches 4 gpt $large
says "timed:64-127" out; says "a step takes" out; says "flop/s a device" out
says "tensor   links carry" out; says "data     links carry" out; says "pipeline links carry" out
says "stands for the 64 of its stage" out
run 0 --clock virtual --machine a100-sxm-80gb --tensor 2 --data-parallel 2 --steps 2 \
  --report r.json gpt $large
says '"moved_bytes_per_step"' r.json; says '"alike":	1' r.json
run 0 --clock virtual --stages 4 --microbatches 4 --steps 3 --cost F=1,B=2,W=0 --report r.json \
  gpt $small
says '"virtual"' r.json
run 0 --devices timed:2 --microbatches 2 --steps 3 --cost F=0.001,B=0.002,W=0 gpt $small
run 0 --devices null:2 --microbatches 2 --steps 3 gpt $small
run 0 --dry-run --stages 4 --microbatches 4 --clock virtual --cost F=1,B=1,W=1 --report clock.json gpt $small
run 2 --dry-run --report nowhere/dry.json gpt $small
says nowhere/dry.json err
run 0 --dry-run --stages 4 --microbatches 4 --report dry.json gpt $small
python3 - <<'P' || fail "a dry run's report is not what its plan says"
import json
dry, clock = json.load(open("dry.json")), json.load(open("clock.json"))
for r in dry, clock:
    assert r["ended"] == "planned" and r["steps"] == [] and r["plan_hash"] and r["quotas"], r["ended"]
    assert len(r["devices"]) == 4 and all(d["peak_bytes"]["total"] > 0 for d in r["devices"]), r["devices"]
assert "predicted" not in dry and clock["predicted"]["step_seconds"] > 0 and clock["predicted"]["bubble_fraction"] > 0
P
says "The plan finishes" out; says "parameters" out
run 0 --show-placement --devices cpu:2x1
says "cpu:1" out
echo "all as it should be"
