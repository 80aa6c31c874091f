#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Processes of one job that were started with different options reject each other before they begin,
# with an error that names the option and both values. So do processes that read other data or other
# weights under the same name.
# labels: more
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

export SLUICE_KEY=0123456789abcdefghij0123456789abcdefghij
job=(--stages 2 --microbatches 2 --steps 3 --quiet "${patient[@]}")
model=(gpt --layers 2 --width 16 --heads 2 --context 16 --batch 4)
data=$work/text.txt
cp "$reference/text.txt" "$data"
cp "$reference/text.txt" other.txt
"$actorrun" "${job[@]}" --save init.safetensors "${model[@]}" --data "$data"
cp init.safetensors init2.safetensors

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# process NUMBER FOLDER WORDS...: starts one process of two, as torchrun would.
process() (
  local rank=$1 folder=$2
  shift 2
  cd "$folder"
  RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
    MASTER_PORT=$port timeout 60 "$actorrun" "$@"
)

# Runs both processes and sets `status`. The arrays first, first_of_model, second and
# second_of_model have the options and model options that differ.
both() {
  port=$(free_port)
  status=(0 0)
  process 0 "$work" "${job[@]}" "${first[@]}" "${model[@]}" --data "$data" "${first_of_model[@]}" \
    >out 2>err &
  local pid=$!
  process 1 "${second_in:-$work}" "${job[@]}" "${second[@]}" "${model[@]}" --data "$data" \
    "${second_of_model[@]}" >out1 2>err1 || status[1]=$?
  wait $pid || status[0]=$?
}

# refused TEXT: both processes have to fail with TEXT.
refused() {
  both
  ((status[0] == 2 && status[1])) || fail "$1: ended with ${status[*]}"
  grep -qF -- "$1" err || fail "process 0 does not say: $1"
  grep -qF -- "$1" err1 || { cp err1 err; fail "process 1 does not say: $1"; }
}

none() { first=() second=() first_of_model=() second_of_model=(); }
# A brief test tries every fourth option.
turn=0
turns() { brief && ((turn++ % 4)); }
# Gives the option to process 1 only.
differs() { # TEXT OPTION...
  local text=$1
  shift
  ! turns || return 0
  none
  second=("$@")
  refused "$text"
}
model_differs() {
  local text=$1
  shift
  ! turns || return 0
  none
  second_of_model=("$@")
  refused "$text"
}

none
both
((status[0] == 0 && status[1] == 0)) || fail "alike they run: ${status[*]}"

model_differs "process 1 has --lr 0.02, process 0 has --lr 0.001: all processes" --lr 0.02
model_differs "process 1 has --beta1 0.5, process 0 has --beta1 0.9" --beta1 0.5
model_differs "process 1 has --beta2 0.5, process 0 has --beta2 0.9" --beta2 0.5
model_differs "process 1 has --weight-decay 0.5, process 0 has --weight-decay" --weight-decay 0.5
model_differs "process 1 has --warmup 7, process 0 has --warmup" --warmup 7
model_differs "process 1 has --clip 0.5, process 0 has --clip 1" --clip 0.5
model_differs "process 1 has --layers 3, process 0 has --layers 2" --layers 3
model_differs "process 1 has --data $data $work/other.txt, process 0 has --data $data" \
  --data "$work/other.txt"
differs "process 1 has --seed 2, process 0 has --seed 1" --seed 2
differs "process 1 has --init init.safetensors, process 0 has no --init" --init init.safetensors
differs "process 1 has --steps 5, process 0 has --steps 3" --steps 5
differs "process 1 has --save w, process 0 has no --save" --save w
differs "process 1 has --checkpoint c, process 0 has no --checkpoint" --checkpoint c
differs "process 1 has --trace t, process 0 has no --trace" --trace t
differs "process 1 has --microbatches 4, process 0 has --microbatches 2" --microbatches 4
differs "process 1 has --quota act=2, process 0 has no --quota" --quota act=2
none
first=(--save w)
refused "process 1 has no --save, process 0 has --save w"

# Files with the same names and other contents.
mkdir elsewhere
sed 's/e/a/' other.txt >elsewhere/other.txt
none
first_of_model=(--data other.txt)
second_of_model=(--data other.txt)
second_in=$work/elsewhere refused "process 1 has other.txt with "
cp init.safetensors elsewhere/w
"$actorrun" "${job[@]}" --save w --seed 3 "${model[@]}" --data "$data"
none
first=(--init w) second=(--init w)
second_in=$work/elsewhere refused "process 1 has w with "

# Adapters with the same name, and an adapter folder that only one process would write.
adapters=(--lora '*c_attn*=2')
"$actorrun" "${job[@]}" "${adapters[@]}" --save-adapter a "${model[@]}" --data "$data"
cp -r a elsewhere/a
"$actorrun" "${job[@]}" "${adapters[@]}" --seed 3 --save-adapter a "${model[@]}" --data "$data"
none
first=(--adapter a) second=(--adapter a)
second_in=$work/elsewhere refused "process 1 has a/adapter_model.safetensors with "
none
first=("${adapters[@]}" --save-adapter b) second=("${adapters[@]}")
refused "process 1 has no --save-adapter, process 0 has --save-adapter b"

# Files that several processes write together have to be in one folder; the job checks this before
# the first step.


apart() { # TEXT OPTION...
  local text=$1
  shift
  none
  first=("$@") second=("$@")
  rm -rf "$work/c" "$work/elsewhere/c"
  second_in=$work/elsewhere refused "$text"
  ! grep -q '^step' out || fail "$1: after steps"
  [[ -z $(find "$work" -name '.sluice-*') ]] || fail "$1: leaves files"
}
apart "--checkpoint c: process 1 writes to a different folder of that name than process 0: all processes need a shared folder" \
  --checkpoint c --every 1
mkdir elsewhere/f elsewhere/b
apart "--save w2: process 1 writes to a different folder of that name" --save w2
apart "--save f/: process 1 writes to a different folder of that name" --save f/
apart "--save-adapter b: process 1 writes to a different folder of that name" "${adapters[@]}" --save-adapter b
none
first=(--save "$work/w3") second=(--save "$work/w3")
second_in=$work/elsewhere both
((status[0] == 0 && status[1] == 0)) || fail "one folder, by its whole name: ${status[*]}"
cmp <(cat init2.safetensors) "$work/w3" || fail "what both have saved is another model"

# Model files with the same name that draw other values, or have other code.
model_file() { # FOLDER SCALE CODE
  cat >"$1/m.c" <<END
#include <sluice/sluice.h>
static float rate(const sl_optimizer *o, int64_t step) { (void)o, (void)step; return 1e-3f * $3; }
static const sl_option options[] = {{"data", SL_OPTION_LIST, NULL, "\`FILE\`", 0, 0}, {0}};
static sl_status build(sl_graph *g, const sl_args *args) {
  sl_tensor *next, *ids = sl_tokens(g, sl_arg_text(args, "data"), sl_microbatch_rows(g, 4), 16, 256, &next);
  sl_tensor *t = sl_param(g, SL_TYPE(SL_F32, 256, 8), SL_UNIFORM(0.5f), "t");
  sl_tensor *x = sl_embedding(g, ids, t);
  sl_block(g, "head");
  sl_tensor *h = sl_param(g, SL_TYPE(SL_F32, 256, 8), SL_NORMAL($2), "h");
  sl_train(g, sl_cross_entropy(g, sl_linear(g, x, h, NULL), next),
           &(sl_optimizer){.lr = 1e-3f, .rate = rate});
  return sl_graph_status(g);
}
SL_MODEL(m, "m", options, build);
END
}
model=(m.c)
model_file . 0.02f 1
model_file elsewhere 0.02f 1
none
second_in=$work/elsewhere both
((status[0] == 0 && status[1] == 0)) || { cp err1 err; fail "one model file, twice: ${status[*]}"; }
model_file elsewhere 0.03f 1
second_in=$work/elsewhere refused "process 1 has the initial values of h normal 0.0299999993, process 0 has the initial"
model_file elsewhere 0.02f 2
second_in=$work/elsewhere refused "process 1 has m.c with "
