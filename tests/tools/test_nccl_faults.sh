#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A process with GPUs that dies, stalls, or whose NCCL fails, during setup or later, ends the job
# within seconds with an error that names it. GPUs and NCCL are emulated.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/emulated.sh
source "$SLUICE_SOURCE/tests/support/emulated.sh"
model=(gpt --layers 2 --width 16 --heads 2 --context 8 --batch 6 --lr 1e-3
       --data "$SLUICE_SOURCE/tests/reference/tokens.u16")
cd "$work"

# fault WHERE TEXT [OPTIONS...]: the run, of three stages if nothing else is said, has to fail within
# seconds with TEXT.
fault() {
  local status=0 begin=$SECONDS options=("${@:3}")
  ((${#options[@]})) || options=(-n 3 --stages 3)
  SLUICE_EMULATED_FAULT=$1 SLUICE_EMULATED_GPUS=3 SLUICE_NCCL_SECONDS=1 timeout 30 \
    "$actorrun" --microbatches 2 --steps 2 --quiet --devices cuda "${options[@]}" "${model[@]}" \
    >out 2>&1 || status=$?
  ((status == 1)) || fail "$1: status $status: $(cat out)"
  grep -q "$2" out || fail "$1: no '$2' in: $(cat out)"
  ((SECONDS - begin < 12)) || fail "$1: it took $((SECONDS - begin)) s"
}
fault 1:kill@init "process 1 was killed"
fault 1:kill@9 "process 1 was killed"
fault 1:stall@init "NCCL from process . (GPU .) to process . (GPU .): process [012] has not met it"
fault 1:error@init "NCCL from .*process 1.*remote error"
fault 2:error@8 "NCCL from .*process 2.*remote error"
fault 2:stall@8 "NCCL from process . (GPU .) to process . (GPU .): process [12] has"
fault 2:hang@8 "process 2 has"

# Members of a group, in several processes and in one.
three=(-n 3 --data-parallel 3)
group="NCCL among cuda:0 (process 0), cuda:1 (process 1), cuda:2 (process 2), at GPU ."
fault 1:kill@init "process 1 was killed" "${three[@]}"
fault 1:kill@3 "process 1 was killed" "${three[@]}"
fault 1:stall@init "$group: another member has not come for 1 s" "${three[@]}"
fault 2:stall@3 "$group: another member has not come for 1 s" "${three[@]}"
fault 2:error@3 "$group: .*remote error" "${three[@]}"
fault 0:stall@5 "NCCL among cuda:0, cuda:1, at GPU .: another member has not come for 1 s" \
  --data-parallel 2
