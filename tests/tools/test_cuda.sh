#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# actorrun on emulated GPUs: losses equal those of the CPU except for the last bits. They have the
# same bits on one GPU, four stages of one GPU, several GPUs and several processes, with any timing.
# Missing or wrong things are reported.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/emulated.sh
source "$SLUICE_SOURCE/tests/support/emulated.sh"

model=(gpt --layers 2 --width 16 --heads 2 --context 8 --batch 2 --lr 1e-3 --vocab 259
       --data "$SLUICE_SOURCE/tests/reference/tokens.u16")
run() { # REPORT OPTIONS...
  local report=$1
  shift
  "$actorrun" "${patient[@]}" --microbatches 2 --steps 2 --quiet --report "$work/$report" "$@" "${model[@]}"
}

run cpu
run one --devices cuda
near cpu one 1e-5
run four --devices cuda:0,0,0,0 --schedule zb-h1 --jitter 100
same one four
SLUICE_EMULATED_GPUS=2 run two --devices cuda --stages 4 --quota h2d=1 --quota d2h@3=1
same one two
run processes --devices cuda -n 2 --stages 2 # through the host: NCCL does not take a GPU twice
same one processes
SLUICE_EMULATED_GPUS=2 run grid --devices cuda --microbatches 1 --data-parallel 2 \
  --tensor 2 --shard optimizer
near cpu grid 1e-5
# Transfers between GPUs of one process share a lane of slots. --dry-run assumes one GPU per device.
"$actorrun" --devices cuda --data-parallel 2 --shard parameters --nccl channels --dry-run \
  --plan "$work/plan" "${model[@]}" >"$work/out"
for what in reduce param; do
  grep -q "^register $what[^ ]*>device:1.* shares $what[^ ]*>device:1" "$work/plan" ||
    fail "no lane of $what between GPUs"
done
run pieces --devices cuda --stages 2 --pieces 2 --schedule seq1f1b
near cpu pieces 1e-5

# Without peer access data are copied between GPUs: no kernel dereferences the other GPU's
# addresses, and a note says so once.
apart() {
  SLUICE_EMULATED_PEERS=0 SLUICE_EMULATED_GUARD=1 SLUICE_EMULATED_GPUS=2 run "$@" 2>"$work/err"
  [[ $(grep -c "GPUs 0 and 1 cannot access each other's memory" "$work/err") == 1 ]] ||
    fail "GPUs apart: $(cat "$work/err")"
}
apart two_apart --devices cuda --stages 4
same one two_apart
apart tensor_apart --devices cuda --microbatches 1 --tensor 2
near cpu tensor_apart 1e-5
apart pieces_apart --devices cuda --stages 2 --pieces 2 --schedule seq1f1b
same pieces pieces_apart
apart shards_apart --devices cuda --microbatches 1 --data-parallel 2 --shard parameters --dtype bf16

# The same with bf16 tensors. On the tensor axis sums of rounded parts have other bits.
run bf16 --devices cuda --dtype bf16
grep -q '"tensors":.*"bf16"' "$work/bf16" || fail "tensors are not bf16"
near cpu bf16 1e-3
run bf16_four --devices cuda:0,0,0,0 --dtype bf16 --schedule zb-h1 --jitter 100
same bf16 bf16_four
run bf16_processes --devices cuda -n 2 --stages 2 --dtype bf16
same bf16 bf16_processes
for again in selective full; do
  run again --devices cuda --recompute $again
  same one again
  run again --devices cuda --recompute $again --dtype bf16
  near bf16 again 1e-4
done
run bf16_pieces --devices cuda --stages 2 --pieces 2 --schedule seq1f1b --dtype bf16
near cpu bf16_pieces 1e-3
SLUICE_EMULATED_GPUS=2 run bf16_grid --devices cuda --microbatches 1 --data-parallel 2 \
  --tensor 2 --shard optimizer --dtype bf16
near cpu bf16_grid 1e-3
SLUICE_EMULATED_GPUS=2 run bf16_shards --devices cuda --microbatches 1 --data-parallel 2 \
  --shard parameters --dtype bf16
near cpu bf16_shards 1e-3
same bf16_shards shards_apart

# A step is reported only after all of its losses, each copied separately, have arrived.
for seed in 1 2 3 4 5 6; do
  SLUICE_EMULATED_SEED=$seed run parts --devices cuda:0,0 --data-parallel 2 --microbatches 1 --jitter 50
  ((seed > 1)) || cp "$work/parts" "$work/parts_1"
  same parts_1 parts
done
"$actorrun" --devices cuda:0,0 --data-parallel 2 --dry-run --plan "$work/plan" "${model[@]}" \
  >"$work/out"
grep -q '^actor report:loss .* out report/' "$work/plan" &&
  grep -q '^actor report:step .* in .*,report/' "$work/plan" ||
  fail "a step can be reported before its losses"

# A plan needs no GPU. Copies are actors with quotas.
"$actorrun" --devices cuda --stages 2 --dry-run --plan "$work/plan" "${model[@]}" >"$work/out"
grep -q '^register .* quota h2d=' "$work/plan" || fail "nothing is copied to the device"
grep -q '^actor copy:report.* C on d2h@1 ' "$work/plan" || fail "losses do not leave by a copy"
grep -q '^cuda:0 host' "$work/out" || fail "the host's memory is not shown: $(cat "$work/out")"

# Saving and resuming move values in both directions; the host never dereferences a device address.
export SLUICE_EMULATED_GUARD=1
"$actorrun" --devices cuda --steps 1 --quiet --save "$work/w.safetensors" "${model[@]}"
"$actorrun" --steps 1 --quiet --init "$work/w.safetensors" "${model[@]}"
run resumed --devices cuda --stages 2 --checkpoint "$work/points" --every 1
run again --devices cuda --checkpoint "$work/points" --resume --steps 3
[[ $(hexes again | wc -l) == 1 ]] || fail "--resume did not go on"
unset SLUICE_EMULATED_GUARD

# A failed device ends the run with an error that names it and an actor.
for n in 1 40; do
  status=0
  SLUICE_EMULATED_BROKEN=$n timeout 60 "$actorrun" --devices cuda --stages 2 --microbatches 2 \
    --steps 2 --quiet "${model[@]}" >"$work/out" 2>&1 || status=$?
  grep -q "actor .* on cuda:[01]: GPU 0 failed, noticed after .*: an illegal memory access" "$work/out" &&
    ((status == 1)) || fail "a device failed: status $status: $(cat "$work/out")"
done

# A plan that does not fit is rejected before any allocation, unless --memory overrides the limit.
status=0
SLUICE_EMULATED_FREE=215000 "$actorrun" --devices cuda --microbatches 2 --steps 1 --quiet "${model[@]}" \
  >"$work/out" 2>&1 || status=$?
grep -q "device cuda:0 needs .* but its budget is 210 KiB; .* would fit: --recompute full" "$work/out" &&
  ((status == 3)) || fail "too little memory: status $status: $(cat "$work/out")"
SLUICE_EMULATED_FREE=215000 run enough --devices cuda --memory 1G
same one enough

# --check-finite names the first value that is not finite. It changes nothing except that ops are
# not fused.
ends 1 "$actorrun" --steps 9 --quiet --devices cuda --check-finite "${model[@]}" --lr 1e30 --clip 0
grep -qE ", run by actor [FBU][0-9.]* in step [12], microbatch 0, made element [0-9]+ of output [0-9], f[0-9]*\[.*, -?(nan|inf)" err ||
  fail "where it began"
run look --devices cuda --check-finite --dtype bf16
SLUICE_CUDA_FUSE=0 run plain --devices cuda --dtype bf16
same look plain

# An evaluation gives the loss of a run that starts with these weights, also with padded rows of
# logits.
narrow=(--quiet --devices cuda --dtype bf16)
ends 0 "$actorrun" "${narrow[@]}" --steps 2 --eval "$SLUICE_SOURCE/tests/reference/text.txt" --eval-every 2 --eval-rows 4 \
  --save w.safetensors --report a.json "${model[@]}"
model[10]=4 model[-1]=$SLUICE_SOURCE/tests/reference/text.txt # of 4 rows
ends 0 "$actorrun" "${narrow[@]}" --steps 1 --microbatches 2 --init w.safetensors --report b.json \
  "${model[@]}"
model[10]=2 model[-1]=$SLUICE_SOURCE/tests/reference/tokens.u16
found=$(grep -o '"eval_hex":[^,}]*' a.json | grep -o '0x[^"]*')
[[ $found == "$(hexes b.json | grep -o '0x[^"]*')" ]] || fail "evaluated it is $found, but $(hexes b.json)"

refuse() { # TEXT WORDS...
  local text=$1 status=0
  shift
  "$actorrun" --steps 1 "$@" "${model[@]}" >"$work/out" 2>&1 || status=$?
  ((status == 2)) || fail "$*: status $status: $(cat "$work/out")"
  grep -q -- "$text" "$work/out" || fail "$*: $(cat "$work/out")"
}
SLUICE_EMULATED_GPUS=-1 refuse "no NVIDIA driver: install one.* or use --devices cpu" --devices cuda
SLUICE_EMULATED_GPUS=0 refuse "no usable GPU.* or use --devices cpu" --devices cuda
refuse "there is no GPU 3: there is 1" --devices cuda:0,3
refuse "3 GPUs for 2 stages" --devices cuda:0,0,0 --stages 2
refuse "must be cpu" --devices cuda:
refuse "must be cpu" --devices cuda:-1
refuse "must be cpu" --devices cuda:0,
refuse "unknown quota h2d@7" --devices cuda --quota h2d@7=2
refuse "unknown quota h2d; this plan of" --quota h2d=2
refuse "virtual" --devices cuda --clock virtual
actorrun=$SLUICE_BUILD/bin/actorrun
refuse "has no CUDA: use --devices cpu, or rebuild with -DSLUICE_CUDA=ON" --devices cuda
