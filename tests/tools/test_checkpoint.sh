# SPDX-License-Identifier: Apache-2.0
# A run that ended through its user, a full disk or a kill resumes from its checkpoint with the same
# curve, bit for bit, on any number of stages.
# labels: first more
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

model="gpt --layers 4 --width 32 --heads 2 --context 32 --batch 4 --data $reference/tokens.u16"

extra=""

# Sanitizers make everything slower, so the test does less.
kills_wanted=6 layouts=("--quota param=2" "--schedule zb-v" "--pieces 4" "--dtype bf16") resumed_on=(1 2 4) again=(11 14 17 20)
[[ ! ${SLUICE_LONG-} ]] || kills_wanted=20
if sanitized; then kills_wanted=2 layouts=("--pieces 4"); fi
if brief; then resumed_on=(2) again=(14 20); fi

run() { ends "$1" "$actorrun" --microbatches 4 "${@:2}" $model $extra; }

refused() {
  local status=$1 text=$2
  shift 2
  run "$status" "$@"
  says "$text" err
}

# curve REPORT...: prints step and loss of consecutive reports.
curve() {
  local r
  for r; do grep -oE '"(step|loss_hex)":[^,]*' "$r"; done
}

# same WHAT REPORT...: the consecutive reports have to equal the uninterrupted run.
same() {
  local what=$1 full=$2
  shift 2
  cmp -s <(curve "$full") <(curve "$@") || fail "$what: not the uninterrupted curve"
}

# ends_as FULL REPORT: the report has to equal the end of the uninterrupted run.
ends_as() {
  local lines
  lines=$(curve "$2" | wc -l)
  cmp -s <(curve "$1" | tail -n "$lines") <(curve "$2")
}

whole() { ls "$1" | grep -cE '^step-[0-9]+$'; }

# ---- the command line ------------------------------------------------------------------
refused 2 "--resume: needs --checkpoint DIR" --resume
refused 2 "--every: needs --checkpoint DIR" --every 5
refused 2 "--every 0: must be between" --checkpoint x --every 0
refused 2 "--checkpoint: timed devices hold no values" --devices timed:2 --checkpoint x
refused 2 "--checkpoint: cannot make the folder no/such/x" --checkpoint no/such/x

# ---- the uninterrupted run -------------------------------------------------------------
run 0 --steps 20 --stages 4 --report full.json --save full.safetensors
run 0 --steps 20 --stages 4 --report a.json --save a.safetensors --checkpoint c --every 6
same "a run that keeps checkpoints" full.json a.json
cmp -s full.safetensors a.safetensors || fail "its weights are the same"
[ "$(ls c | tr '\n' ' ')" = "latest step-18 step-20 " ] || fail "the newest two stay: $(ls c)"
[ "$(cat c/latest)" = step-20 ] || fail "latest names the newest"
[ "$(ls c/step-18 | wc -l)" -eq 5 ] || fail "a shard a stage, and the manifest"
for word in '"seed"' '"plan_hash"' '"per_step"' '"philox4x32-10"' '"lr"' '"fnv1a64"'; do
  says "$word" c/step-18/manifest.json
done

# ---- resuming --------------------------------------------------------------------------
rm -rf c
run 0 --steps 9 --stages 4 --report a.json --checkpoint c --every 4 --resume
says "no checkpoint in c yet: starting from step 0" out
refused 2 "step-9 of an earlier run exists; resume (--resume) to continue from it" --checkpoint c --steps 12
for stages in "${resumed_on[@]}"; do
  cp -r c c$stages
  run 0 --steps 20 --stages $stages --report b.json --save b.safetensors --checkpoint c$stages \
    --every 4 --resume
  says "resuming from c$stages/step-9, written by 4 stages" out
  same "4 stages resumed on $stages" full.json a.json b.json
  cmp -s full.safetensors b.safetensors || fail "resumed on $stages: its weights are the same"
  run 0 --steps 20 --stages $stages --checkpoint c$stages --resume
  says "nothing left to do" out
done
cp -r c more
for steps in "${again[@]}"; do # repeatedly, each time with another plan
  run 0 --steps $steps --stages $((1 + steps % 4)) --report $steps.json --checkpoint more --every 1 \
    --resume --schedule gpipe --jitter 20
done
same "resumed again and again" full.json a.json "${again[@]/%/.json}"

for options in "${layouts[@]}"; do
  rm -rf c
  run 0 --stages 2 --steps 8 $options --report f.json
  run 0 --stages 2 --steps 3 $options --report a.json --checkpoint c --every 2
  run 0 --stages 2 --steps 8 $options --report b.json --checkpoint c --every 2 --resume
  same "with $options" f.json a.json b.json
done

run 0 --steps 20 --stages 4 --report a.json --checkpoint two --every 1 --quota store=2 --jitter 50
same "two slots to store from" full.json a.json

# ---- settings that must not change -----------------------------------------------------
rm -rf c
run 0 --steps 3 --checkpoint c
extra="--lr 2e-3"
refused 2 "--lr is 0.002, but c/step-3 was made with 0.001" --checkpoint c --resume
extra="--batch 8"
refused 2 "--batch is 8, but c/step-3 was made with 4" --checkpoint c --resume
extra=""
refused 2 "--seed is 2, but c/step-3 was made with 1" --checkpoint c --resume --seed 2
refused 2 "--microbatches is 2, but" --checkpoint c --resume --microbatches 2
refused 2 "--quota param is 2, but" --checkpoint c --resume --quota param=2
"$actorrun" --checkpoint c --resume --microbatches 4 llama --data "$reference/tokens.u16" \
  >out 2>err && fail "another model"
says "the model is llama, but c/step-3 was made with gpt" err

sed 's/e/a/' "$reference/text.txt" >mine.txt
rm -rf c
"$actorrun" --steps 3 --quiet --checkpoint c gpt --layers 1 --width 16 --heads 2 --context 16 \
  --batch 4 --data mine.txt
cp "$reference/text.txt" mine.txt
refused_data() { # words
  "$actorrun" --steps 5 --quiet --checkpoint c --resume gpt --layers 1 --width 16 --heads 2 \
    --context 16 --batch 4 --data mine.txt >out 2>err && fail "with $1"
  says "$2" err
}
refused_data "other data of the same size" \
  "cannot resume: mine.txt holds different data than when c/step-3 was made"
echo more >>mine.txt
refused_data "more data" "bytes, but c/step-3 was made when it had"
sed 's/e/a/' "$reference/text.txt" >mine.txt
"$actorrun" --steps 5 --quiet --checkpoint c --resume gpt --layers 1 --width 16 --heads 2 \
  --context 16 --batch 4 --data mine.txt || fail "with the same again"

# ---- damage ----------------------------------------------------------------------------
rm -rf c
run 0 --steps 8 --stages 2 --checkpoint c --every 4
mv c whole
every 3 "truncate -s -1 c/step-8/stage-000.safetensors" "rm c/step-8/stage-001.safetensors" \
  "rm c/step-8/manifest.json" "sed -i s/0.001/0.002/ c/step-8/manifest.json" \
  "dd if=/dev/zero of=c/step-8/stage-001.safetensors bs=1 seek=5000 count=9 conv=notrunc"
for harm in "${some[@]}"; do
  rm -rf c
  cp -r whole c
  $harm 2>err || fail "$harm"
  run 0 --steps 20 --stages 2 --report b.json --checkpoint c --every 4 --resume
  says "checkpoint step-8 is incomplete and is skipped" err
  says "resuming from c/step-4" out
  ends_as full.json b.json || fail "$harm: not the curve"
  [ -d c/step-8.damaged ] || fail "it is set aside"
done
for step in c/step-[0-9]*[0-9]; do : >$step/manifest.json; done
refused 2 "none of the 2 checkpoints in c is complete" --checkpoint c --resume --steps 30

# ---- one run at a time; Ctrl-C ---------------------------------------------------------
rm -rf c
background "$actorrun" --steps 1000000 --stages 2 --microbatches 4 --checkpoint c --every 1000000 \
  --report a.json $model
for _ in $(seq 600); do grep -q "step 1/" out && break; sleep 0.1; done
"$actorrun" --checkpoint c --resume $model >out2 2>err2 && fail "two runs in one directory"
says "another run writes to the directory c" err2
kill -INT $pid
status=0
wait $pid || status=$?
((status == 1)) || fail "Ctrl-C ends a run with status 1, not $status"
step=$(sed -n 's/^stopped after step \([0-9]*\) of .*/\1/p' out)
[ "$(cat c/latest)" = "step-$step" ] || fail "Ctrl-C writes the step it was at, $step"
run 0 --steps $((step + 5)) --stages 1 --report b.json --checkpoint c --resume
run 0 --steps $((step + 5)) --stages 2 --report f.json
same "after Ctrl-C" f.json a.json b.json

# ---- a full disk -----------------------------------------------------------------------
rm -rf c
run 0 --steps 4 --stages 2 --checkpoint c
(ulimit -f 40; trap '' XFSZ; refused 1 "c/step-6.tmp/stage-00" --steps 20 --stages 2 --checkpoint c \
  --every 2 --resume) || exit 1
[ "$(ls c | tr '\n' ' ')" = "latest step-4 " ] || fail "a full disk leaves what was there: $(ls c)"
run 0 --steps 20 --stages 2 --report b.json --checkpoint c --every 2 --resume
ends_as full.json b.json || fail "and is gone on from"
if unshare -rm true 2>/dev/null; then
  mkdir disk
  unshare -rm bash -c "mount -t tmpfs -o size=1800k none disk &&
    $bin/actorrun --steps 20 --stages 2 --microbatches 4 --checkpoint disk/c --every 2 \
      --keep 9 --report b.json $model; echo status \$?; ls disk/c" >out 2>err
  says "status 1" out
  says "No space left on device" err
  grep -q "\.tmp" out && fail "a full disk leaves no temporaries"
  grep -q "^step-2$" out || fail "and what was written before"
fi

# ---- values that are not finite --------------------------------------------------------
rm -rf c
extra="--lr 1e30 --clip 0 --warmup 0"
run 1 --steps 20 --checkpoint c --every 1 --keep 9
extra=""
grep -q 'actorrun: the loss of step\|actorrun: tensor .* is not finite' err || fail "the reason"
# No stored value has an exponent of all ones.
for shard in c/step-*/stage-*.safetensors; do
  [ -e "$shard" ] || continue
  header=$(od -An -t u8 -N 8 "$shard" | tr -d ' ')
  od -An -v -t f4 -j $((8 + header)) "$shard" | grep -q 'nan\|inf' && fail "$shard has them"
done

# ---- kill -9 ---------------------------------------------------------------------------
# Kills endless runs at random moments, repeatedly. Runs that resume from their checkpoints have to
# follow the curve.
rm -rf c
length=0
for seed in $(seq $kills_wanted); do
  background "$actorrun" --steps 1000000 --stages $((1 + seed % 4)) --microbatches 4 --checkpoint c --every 1 \
    --jitter 300 --resume $model
  RANDOM=$seed
  # waits until it trains; one run in four is killed while it starts
  [ $((seed % 4)) -eq 0 ] || for _ in $(seq 600); do grep -q "^step" out && break; sleep 0.02; done
  sleep "0.$(printf %03d $((RANDOM % 400)))"
  kill -9 $pid || fail "kill $seed: the run had ended"
  wait $pid 2>/dev/null
  [ -d c ] || continue
  rm -rf probe
  cp -r c probe
  [ "$(whole probe)" -le 3 ] || fail "kill $seed: $(ls probe)"
  step=$(sed s/step-// probe/latest 2>/dev/null)
  end=$((${step:-0} + 5))
  if [ $end -gt $length ]; then
    length=$((end + 40))
    run 0 --steps $length --stages 2 --report full.json
  fi
  run 0 --steps $end --stages 2 --report b.json --checkpoint probe --every 50 --resume
  grep -q "is incomplete" err && fail "kill $seed: a checkpoint was damaged"
  # a kill before the new checkpoint is named in `latest` means one step less
  [ "$(curve b.json | paste - - | wc -l)" -ge 4 ] || fail "kill $seed: steps are missing"
  curve b.json | paste - - | grep -qvxFf <(curve full.json | paste - -) && fail "kill $seed: not the curve"
  [ $end -le 100 ] || rm -rf c # starts afresh, so that the first checkpoint is tested more than once
done
echo "all as it should be"
