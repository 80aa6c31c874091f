#!/bin/bash
# Processes of one job that were started with different options refuse each other before
# they begin: by the option's name, with both values. So do those that read other data under the
# same name, or other weights.
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

# process NUMBER FOLDER WORDS...: one of two, as torchrun would start it.
process() (
  local rank=$1 folder=$2
  shift 2
  cd "$folder"
  RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
    MASTER_PORT=$port timeout 60 "$actorrun" "$@"
)

# Sets status, of both; first and second hold what is different, as arrays: options, model options.
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

# refused TEXT: both end, and say so.
refused() {
  both
  ((status[0] == 2 && status[1])) || fail "$1: ended with ${status[*]}"
  grep -qF -- "$1" err || fail "process 0 does not say: $1"
  grep -qF -- "$1" err1 || { cp err1 err; fail "process 1 does not say: $1"; }
}

none() { first=() second=() first_of_model=() second_of_model=(); }
# On process 1 alone.
differs() { # TEXT OPTION...
  local text=$1
  shift
  none
  second=("$@")
  refused "$text"
}
model_differs() {
  local text=$1
  shift
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

# The same names, and other contents.
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
