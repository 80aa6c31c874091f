#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Gives every option of actorrun to one process of two only. All processes have to reject the job
# or, if the option is private to a process, all have to succeed, in bounded time. A script that
# lets only rank 0 write files must not hang.
# labels: more
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

export SLUICE_KEY=0123456789abcdefghij0123456789abcdefghij
data=$reference/text.txt
job=(--stages 2 --microbatches 2 --steps 2 --lora '*c_attn*=2' "${patient[@]}")
model=(gpt --layers 2 --width 16 --heads 2 --context 16 --batch 4 --data "$data")
ends 0 "$actorrun" --stages 2 --steps 1 --quiet --report profile.json --save init.safetensors "${model[@]}"
ends 0 "$actorrun" --steps 1 --quiet --lora '*c_attn*=2' --save-adapter adapter "${model[@]}"
printf '0: F0 F1 B0 B1\n1: F0 B0 F1 B1\n' >order
printf '0: 0 1\n1: 0 1\n' >paths
echo 'seed = 5' >own.toml

# A value for each option; "-" if it is a flag.
declare -A value=(
  [devices]=cpu:1 [nccl]=off [stages]=3 [chunks]=2 [placement]=loop [data-parallel]=2 [sequence]=2
  [sequence-attention]=ring [sequence-states]=exchange [sequence-layout]=zigzag [expert-parallel]=2 [expert-tensor]=1 [routing]=balanced [expert-placement]=order [expert-replicas]=0
  [expert-rows]=2 [tensor]=2 [layout]=data,tensor [assign]=1,0 [vocab-parallel]=- [vocab-barriers]=1 [parallel]=2
  [shard]=optimizer [sbp]=h.0.attn.c_attn.weight=B,B [grain]=layer [exchange]=inline [boundary]=scattered [recompute]=full [optimizer]=sgd
  [lr-schedule]=constant [group]='h.*:lr=0.1' [freeze]='wpe*' [frozen]=fp32 [lora]='*c_proj*=2' [adapter]=adapter
  [microbatches]=1 [pieces]=2 [cut]=balanced [piece-order]=layers [schedule]=gpipe [backward]=split [order]=order
  [paths]=paths [skip]=0.2 [swap]=- [look-ahead]=1 [quota]=act=2 [home]=act=disk [offload]=activations=0
  [update]=host [host-memory]=1G [disk]=. [memory]=1G [clock]=virtual [cost]=F=1 [machine]=a100-sxm-80gb
  [profile]=profile.json [dtype]=bf16 [exact]=- [exact-leaf]=32 [seed]=2 [version]=- [help]=- [config]=own.toml [print-config]=-
  [auto]=- [activations]=2 [steps]=3 [shuffle]=5 [eval]=$data [eval-every]=1 [eval-rows]=8 [patience]=1 [best]=loss
  [init]=init.safetensors [init-new]='wpe*' [upcycle]=- [save]=s [save-paths]=p [tokenizer]=none.json [save-adapter]=sa [checkpoint]=c [every]=1 [keep]=1
  [resume]=- [resume-with]=lr [processes]=2 [restarts]=1 [heartbeat-timeout]=20 [rdzv-endpoint]=127.0.0.1:9
  [nnodes]=2 [node-rank]=1 [rdzv-id]=x [log]=l.csv [logprobs]=l.jsonl [report]=r.json [trace]=t [plan]=plan.txt [dry-run]=- [show-sbp]=- [print-after]=gradients
  [certify]=steps.jsonl [recheck]=profile.json [show-placement]=- [generate]=2 [prompt]=a [chat]=a [chat-system]=a [chat-template]=chatml [learn]=all [long-chats]=drop [show-data]=- [temperature]=0
  [epochs]=0.5 [rl]=grpo:group=2 [prompts]=$data [reward]=length:3 [reward-seconds]=5 [rollout-ahead]=1 [reward-failed]=drop [max-tokens]=4
  [preferences]=$data [dpo]=beta=0.2 [teacher]=. [distill]=kl:top=2
  [ranges]=2 [families]=- [clips]=1 [denoise]=2 [guidance]=2 [clip-order]=stream [first-frames]=1 [frame-rate]=5 [frame-wait]=1
  [video]=v.y4m [planes]=2..4 [stop]=a [answers]=a.jsonl [workers]=1 [jitter]=1 [watchdog]=20 [check-finite]=- [quiet]=-)
# Options that an option needs beside it to be accepted.
declare -A beside=(
  [every]='--checkpoint c2' [keep]='--checkpoint c3' [resume]='--checkpoint c4' [resume-with]='--checkpoint c5'
  [init-new]='--init init.safetensors' [upcycle]='--init init.safetensors'
  [patience]="--eval $data --eval-every 1" [best]="--eval $data --eval-every 1" [eval]='--eval-every 1'
  [eval-rows]="--eval $data --eval-every 1"
  [rl]="--prompts $data --reward length:3" [prompts]='--rl grpo:group=2 --reward length:3'
  [reward]="--rl grpo:group=2 --prompts $data" [reward-seconds]="--rl grpo:group=2 --prompts $data --reward length:3"
  [rollout-ahead]="--rl grpo:group=2 --prompts $data --reward length:3"
  [reward-failed]="--rl grpo:group=2 --prompts $data --reward length:3" [max-tokens]="--rl grpo:group=2 --prompts $data --reward length:3"
  [stop]="--rl grpo:group=2 --prompts $data --reward length:3" [answers]="--rl grpo:group=2 --prompts $data --reward length:3"
  [save-paths]='--skip 0.2' [swap]='--skip 0.2')

port=$((20000 + RANDOM % 9000))
# start RANK WORDS...: starts one process of the pair.
start() {
  local rank=$1
  shift
  RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
    "$actorrun" "$@" "${model[@]}" >"out$rank" 2>"err$rank" &
  pids[rank]=$!
  to_end+=($!)
}
runs() { kill -0 "${pids[$1]}" 2>/dev/null; }
# refused RANK: whether the process has failed. Process 1 does not print its steps.
refused() { ! runs "$1" && ! wait "${pids[$1]}" 2>/dev/null; }
# settle: waits until both have ended, or until one has ended before it met the other, which would
# wait for a minute. Sets status.
settle() {
  local i
  alone=-1
  for ((i = 0; i < 600; i++)); do
    if ! runs 0 && ! runs 1; then break; fi
    if ((i >= 10)) && ! runs 0 && ! grep -q 'process 1\|^step ' out0 err0; then alone=1; fi
    if ((i >= 10)) && refused 1 && ! grep -q 'process 0\|^step ' out1 err1; then alone=0; fi
    ((alone < 0)) || break
    sleep 0.05
  done
  ((i < 600)) || return 1
  ((alone < 0)) || kill -9 "${pids[$alone]}" 2>/dev/null || :
  status=(0 0)
  wait "${pids[0]}" 2>/dev/null || status[0]=$?
  wait "${pids[1]}" 2>/dev/null || status[1]=$?
}

"$actorrun" --help all >help.txt
mapfile -t options < <(sed -n 's/^  --\([a-z-]*\).*/\1/p' help.txt | sort -u)
((${#options[@]} > 90)) || fail "only ${#options[@]} options in the help"
for option in "${options[@]}"; do
  [[ -n ${value[$option]-} ]] || fail "a value of --$option is wanted here"
done
every 8 "${options[@]}"
for option in "${some[@]}"; do
  read -ra more <<<"${beside[$option]-}"
  first=("${job[@]}" "${more[@]}" "--$option")
  [[ ${value[$option]} == - ]] || first+=("${value[$option]}")
  port=$((port + 1)) pids=()
  start 0 "${first[@]}"
  start 1 "${job[@]}" "${more[@]}"
  settle || { cp err0 err; cp err1 out; fail "--$option on one process alone: the job hangs"; }
  to_end=()
  echo "--$option: ${status[*]}"
  cp err0 err; cp err1 out
  case $option in
  dry-run | show-sbp | print-after | show-placement | help | version | families | print-config) ((alone == 1)) || fail "--$option: ${status[*]}" ;;
  *) (((status[0] == 0) == (status[1] == 0))) || fail "--$option on one process alone: statuses ${status[*]}" ;;
  esac
done
