#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Stages on grids of devices as a user meets them: the same losses with any number of processes,
# reported traffic, status and traces, a user's own model, and error messages for impossible grids.
# labels: outside
# needs: zeromq
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
data=(--data "$reference/tokens.u16")
gpt=(gpt --layers 2 --width 16 --heads 4 --context 12 --batch 12 "${data[@]}")
llama=(llama --layers 2 --width 24 --heads 6 --kv-heads 3 --ffn 40 --context 12 --batch 12
       "${data[@]}")

# refused TEXT ARGUMENTS...: actorrun has to fail with a single line that contains TEXT.
refused() {
  local text=$1
  shift
  ends 2 timeout 60 "$actorrun" --quiet --steps 1 "$@"
  says "$text" err
  [ "$(wc -l <err)" -eq 1 ] || fail "actorrun $*: one line is enough"
}
run() { ends 0 timeout 60 "$actorrun" "${patient[@]}" --quiet --microbatches 2 --steps 4 "$@"; }
near() { # REPORT REPORT: losses differ by less than 1e-5, relatively
  paste <(grep -oE '"loss":[^,]*' "$1" | grep -oE '[0-9.]+$') \
        <(grep -oE '"loss":[^,]*' "$2" | grep -oE '[0-9.]+$') |
    awk '{ d = $1 / $2 - 1; if (d > 1e-5 || d < -1e-5) bad = 1 } END { exit bad || NR != 4 }'
}
# moved REPORT KIND: prints the bytes moved per step.
moved() {
  sed -n '/"runtime"/,/}/p' "$1" | grep -oE "\"$2\":[^,}]*" | grep -oE '[0-9.]+$'
}
sent() { grep -oE '"sent_bytes_per_step":[^,}]*' "$1" | grep -oE '[0-9.]+$'; }

# ---- losses in one process and in several -------------------------------------------
models() { [ "$1" = gpt ] && model=("${gpt[@]}") || model=("${llama[@]}"); }
# same MODEL PROCESSES GRID...: compares the grid with one device, and each number of processes with
# one process.
same() {
  local name=$1 many=$2
  shift 2
  models $name
  run "$@" --report a.json "${model[@]}"
  [[ $* == *pieces* ]] && base=$name.pieces || base=$name.one
  near a.json $base || fail "$name $*: other losses than one device's"
  for n in $many; do
    run -n $n "$@" --report b.json "${model[@]}"
    [ "$(hexes a.json)" = "$(hexes b.json)" ] || fail "$name $*: -n $n has other losses"
  done
}
for name in gpt llama; do
  models $name
  run --report $name.one "${model[@]}"
  run --pieces 2 --report $name.pieces "${model[@]}"
done
same gpt "2 3" --data-parallel 3 --shard parameters
same gpt "2 4" --stages 2 --tensor 2 --data-parallel 2 --shard gradients --schedule zb-v
same gpt "4" --tensor 4 --pieces 2 --schedule seq1f1b
same gpt "2" --parallel 2 --stages 2
same llama "2" --tensor 3 --pieces 2 --schedule seq1f1b
same llama "2 4" --stages 2 --tensor 2 --data-parallel 2 --shard optimizer --schedule zb-h1

# ---- traffic -------------------------------------------------------------------------------
run --tensor 2 --data-parallel 2 --stages 2 --report a.json "${gpt[@]}"
for kind in pipeline tensor data aside; do
  [ "$(moved a.json $kind)" != 0 ] || fail "nothing is moved for: $kind"
done
grep -q sent_bytes a.json && fail "one process sends nothing"
run -n 4 --data-parallel 4 --report a.json "${gpt[@]}"
[ "$(moved a.json pipeline)" = 0 ] && [ "$(moved a.json tensor)" = 0 ] ||
  fail "devices that share data alone have nothing else to move"
awk -v sent="$(sent a.json)" -v data="$(moved a.json data)" \
  'BEGIN { exit !(sent > data && sent < 1.5 * data) }' || fail "sent is what is moved, and alignment"

# ---- status and traces -----------------------------------------------------------------------
"$actorrun" --quiet --steps 1000000 --microbatches 2 --data-parallel 2 --tensor 2 \
  --shard parameters "${gpt[@]}" >log 2>&1 &
pid=$!
to_end+=($pid)
for _ in $(seq 100); do
  "$actorrun" status $pid >out 2>err && grep -q "loss" out && break
  sleep 0.1
done
says "gpt  1f1b, 4 devices" out
for d in 0 1 2 3; do says "cpu:$d " out; done
"$actorrun" ctl $pid quota act.b=2 >out 2>err || fail "ctl quota act.b=2: status $?"
"$actorrun" ctl $pid quota >out 2>err || fail "ctl quota: status $?"
says "act.b@0#3    2 of at most" out
"$actorrun" ctl $pid quota gather=3 >out 2>err && fail "what shares slots keeps them"
says "no quota gather" err
kill -INT $pid
status=0
wait $pid || status=$?
((status == 1)) || fail "a run that is stopped ends with status 1, not $status"
to_end=()

run --data-parallel 2 --tensor 2 --shard parameters --trace t.trace "${gpt[@]}"
for command in show page svg rows reasons chrome perfetto; do
  "$bin/actortrace" $command t.trace >$command 2>err || fail "actortrace $command: status $?"
  [ -s $command ] || fail "actortrace $command says nothing"
done
says "4 steps of 2 microbatches" show
says "One more slot would save" show # needs a replay of the plan, including its lanes
for actor in "join" "sum" "update"; do grep -q "	$actor" rows || fail "rows: no $actor"; done
[ "$(cut -f2 rows | sort -u | grep -c '^[0-3]$')" -eq 4 ] || fail "rows: not four devices"
run -n 2 --data-parallel 2 --trace u.trace "${gpt[@]}"
"$bin/actortrace" show u.trace >show 2>err || fail "actortrace show of two processes"
says "send:" <(grep -o "send:" <("$bin/actortrace" rows u.trace) | head -1)

# ---- a user's own model ------------------------------------------------------------------------
cat >own.c <<'END'
#include <sluice/sluice.h>
static sl_status infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = in[0];
  return SL_OK;
}
static void twice(const sl_call *call) {
  const float *x = call->in[0];
  float *y = call->out[0];
  for (int64_t i = 0; i < sl_type_elements(&call->in_type[0]); i++) y[i] = 2 * x[i];
}
/* y = 2 x: its row promises PROMISE */
static const sl_op op_twice = {
    .name = "twice", .min_in = 1, .max_in = 1, .nout = 1, .infer = infer, .kernels = SL_CPU_KERNEL(twice),
    .cut = &(const sl_op_cut){.pieces = PROMISE},
    .grad = {{.op = &op_twice, .cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}}};
static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx;
  float *x = out[0];
  int32_t *y = out[1];
  for (int i = 0; x && i < 6 * 6; i++) x[i] = (float)((i * 7 + (int)tick->number) % 5);
  for (int i = 0; y && i < 6; i++) y[i] = i % 3;
}
static sl_status build(sl_graph *g, const sl_args *args) {
  (void)args;
  static sl_type types[2];
  static sl_source source;
  types[0] = SL_TYPE(SL_F32, 6, 6), types[1] = SL_TYPE(SL_I32, 6);
  source = (sl_source){.nout = 2, .types = types, .fill = fill};
  sl_tensor *data[2];
  sl_block(g, "all");
  sl_data(g, &source, data);
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, 16, 6), SL_NORMAL(0.1f), "w1");
  sl_tensor *v = sl_param(g, SL_TYPE(SL_F32, 3, 16), SL_NORMAL(0.1f), "w2");
  sl_tensor *h = sl_linear(g, data[0], w, NULL), *t = NULL;
  sl_apply(g, &op_twice, NULL, 1, &h, 0, &t);
  sl_train(g, sl_cross_entropy(g, sl_linear(g, t, v, NULL), data[1]), NULL);
  return sl_graph_status(g);
}
SL_MODEL(own, "a linear map, an op of one's own, another", NULL, build);
END
sed 's/PROMISE/SL_PIECES_REFUSED/' own.c >silent.c
sed 's/PROMISE/SL_PIECES_ELEMENTS/' own.c >open.c
run --report one.json silent.c
run --report a.json --tensor 2 silent.c
near a.json one.json || fail "an op without promises is run by every device"
refused "silent.c:36: op all/twice.1 (twice) has no rule for 2 data-parallel devices that have" \
  --data-parallel 2 silent.c
for grid in "--data-parallel 2" "--data-parallel 3 --tensor 2 --shard parameters" "--tensor 3"; do
  run --report a.json $grid open.c
  near a.json one.json || fail "open.c $grid: other losses than one device's"
done

# ---- impossible grids ----------------------------------------------------------------------------
refused "cannot be split over 7 devices: its output 0, i32[6, 12], has too few rows" \
  --data-parallel 7 --microbatches 2 "${gpt[@]}"
refused "h.0/attention_packed.1" --tensor 5 --sbp h.0/attention_packed.1=-,S2 "${gpt[@]}"
refused "4 units" --tensor 5 --sbp h.0/attention_packed.1=-,S2 "${gpt[@]}"
refused "transformer.wte.weight" --tensor 300 --sbp transformer.wte.weight=-,S0 "${gpt[@]}"
refused "256 units" --tensor 300 --sbp transformer.wte.weight=-,S0 "${gpt[@]}"
refused "--shard optimizer: needs several devices per stage, by --data-parallel or --sequence" --shard optimizer \
  "${gpt[@]}"
refused "--shard half: must be one of nothing, optimizer" --data-parallel 2 --shard half "${gpt[@]}"
refused "--recompute all: must be one of none, selective, full, whole" --recompute all "${gpt[@]}"
refused "--grain fine: must be one of pass, layer" --tensor 2 --grain fine "${gpt[@]}"
refused "no parameter or op is called transformer.wtf.weight; the nearest are transformer.wte" \
  --tensor 2 --sbp transformer.wtf.weight=-,S0 "${gpt[@]}"
refused "no parameter or op is called h.9/add.1" --data-parallel 2 --sbp h.9/add.1=S0,- "${gpt[@]}"
refused "not NAME=DATA,TENSOR" --tensor 2 --sbp transformer.wte.weight=S0 "${gpt[@]}"
refused "not NAME=DATA,TENSOR" --tensor 2 --sbp transformer.wte.weight=-,X "${gpt[@]}"
refused "transformer.wte.weight f32[256, 16] cannot lie as P" --tensor 2 \
  --sbp transformer.wte.weight=-,P "${gpt[@]}"
refused "a stage has one device along the tensor axis (--tensor)" --data-parallel 2 \
  --sbp transformer.wte.weight=-,S0 "${gpt[@]}"
refused "a stage has one device along the data axis (--data-parallel)" --tensor 2 \
  --sbp h.0/add.1=S0,- "${gpt[@]}"
refused "h.0/add.1 lies as S0 along the data axis, and cannot as S1" --data-parallel 2 \
  --sbp h.0/add.1=S1,- "${gpt[@]}"
refused "--shard decides how parameters lie" --data-parallel 2 --sbp transformer.wte.weight=S0,- \
  "${gpt[@]}"
refused "3 cpu devices were given, but 1 pipeline stages of 2 devices each need 2" \
  --devices cpu:3 --tensor 2 "${gpt[@]}"
refused "4 cpu devices were given, but 2 pipeline stages of 4 devices each need 8" \
  --devices cpu:4 --tensor 2 --data-parallel 2 --stages 2 "${gpt[@]}"
refused "5 processes are too many for 4 pipeline devices" -n 5 --tensor 2 --stages 2 "${gpt[@]}"
refused "--data-parallel 0: must be between 1 and" --data-parallel 0 "${gpt[@]}"
refused "at most 65536 devices can share a stage" --data-parallel 65536 --tensor 65536 "${gpt[@]}"
refused "devices each are more than the maximum of 65536 devices" --data-parallel 65536 --stages 65536 "${gpt[@]}"
refused "--parallel 2 replaces --data-parallel and --tensor: give one or the other" --parallel 2 --tensor 2 "${gpt[@]}"
echo "grids: fine"
