#!/bin/bash
# Adapters that PEFT has saved train as PEFT trains them (reference/lora_*), on one device, over
# stages, grids, processes and emulated GPUs; they go on from checkpoints, are saved and loaded again,
# and merged give the same model; new ones leave the model as it is; what is wrong is named.
# labels: outside
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

gpt2=(gpt --layers 2 --width 32 --heads 2)
llama=(llama --layers 2 --width 32 --heads 4 --kv-heads 2 --ffn 88)
common=(--context 32 --batch 8 --lr 3e-3 --min-lr 3e-4 --warmup 4 --decay-steps 16
        --data "$reference/tokens.u16")

# near FILE REPORT [FROM]: the losses of a report are the file's, from a step on, within 1e-6
near() {
  awk -v from="${3-0}" '
    NR == FNR { want[$1] = $2; next }
    match($0, /"loss":[^,]*/) {
      v = substr($0, RSTART + 7, RLENGTH - 7) + 0; w = want[from + n++]
      if (v - w > 1e-6 * w || w - v > 1e-6 * w) { print from + n - 1, v, w; bad = 1 }
    }
    END { exit bad || !n }' "$1" "$2" >&2 || fail "$2 is not as PEFT has it"
}
# run [ACTORRUN OPTIONS...]: with the model of the case
run() { ends 0 "$actorrun" --quiet "${patient[@]}" --microbatches 4 "$@" "${model[@]}" "${common[@]}"; }
equal() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit d > 1e-6 * b || -d > 1e-6 * b }'; }
loss() { grep -o '"loss":[^,]*' "$1" | head -1 | cut -d: -f2; }

for case in gpt2 llama; do
  declare -n options=$case
  model=("${options[@]}")
  given=(--init "$reference/hf_$case/model.safetensors" --adapter "$reference/lora_$case")
  want=$reference/lora_$case/losses.txt
  run --steps 9 --report one.json "${given[@]}"
  near "$want" one.json
  for layout in "--stages 2 --schedule zb-h1" "--data-parallel 2 --shard optimizer" "--tensor 2" \
    "--data-parallel 2 --shard parameters" "--stages 2 -n 2 --checkpoint c --every 4"; do
    # shellcheck disable=SC2086
    run --steps 8 --report layout.json --save-adapter "$case.adapter" --save "$case.merged" $layout "${given[@]}"
    near "$want" layout.json
  done
  run --steps 9 --report more.json --checkpoint c --resume "${given[@]}"
  near "$want" more.json 8
  rm -rf c
  emulated=$SLUICE_BUILD/tests/emulated_actorrun
  if [[ -x $emulated ]]; then
    "$emulated" --quiet --microbatches 4 --devices cuda:0,0 --stages 2 --steps 8 --report gpu.json \
      "${given[@]}" "${model[@]}" "${common[@]}"
    near "$want" gpu.json
  fi
  # saved, loaded again, merged: one model
  base=(--init "$reference/hf_$case/model.safetensors")
  run --steps 1 --report loaded.json "${base[@]}" --adapter "$case.adapter"
  run --steps 1 --report merged.json --init "$case.merged"
  run --steps 1 --report base.json "${base[@]}"
  equal "$(loss loaded.json)" "$(loss merged.json)" || fail "merged is another model"
  equal "$(loss loaded.json)" "$(loss base.json)" && fail "the adapter says nothing"
  run --steps 1 --report new.json "${base[@]}" --lora '*_proj=2'
  equal "$(loss new.json)" "$(loss base.json)" || fail "a new adapter changes the model"
  run --steps 1 --save again.merged --save-adapter again.adapter "${base[@]}" --adapter "$case.adapter" --group 'lora_*:lr=0'
  cmp again.adapter/adapter_model.safetensors "$case.adapter/adapter_model.safetensors" ||
    fail "an adapter that is loaded and saved is another"
  run --steps 0 --generate 20 --temperature 0 "${base[@]}" --adapter "$case.adapter"
  cp out loaded.text
  run --steps 0 --generate 20 --temperature 0 --init "$case.merged"
  cmp out loaded.text || fail "merged writes another text"
done

# ---- what it costs ---------------------------------------------------------------------
model=("${gpt2[@]}")
bytes() { grep -oE "\"$2\":[[:space:]]*[0-9]+" "$1" | head -1 | grep -oE '[0-9]+$'; }
run --steps 1 --report all.json
run --steps 1 --report lora.json --lora 'h.*.attn=2'
((20 * $(bytes lora.json optimizer) < $(bytes all.json optimizer))) || fail "what is frozen has a state"
grep -q '"r":[[:space:]]*2' <(run --steps 1 --save-adapter a --lora 'h.*.attn=2,alpha=4'; cat a/adapter_config.json) ||
  fail "the rank is not in the config"

# ---- what is wrong ------------------------------------------------------------------------
refuses() { # TEXT OPTIONS...
  local text=$1
  shift
  ends 2 "$actorrun" --steps 1 "$@" "${model[@]}" "${common[@]}"
  says "$text" err
}
refuses "lora h.9.attn: no linear map has a weight of such a name" --lora h.9.attn=4
refuses "lora h.*.attn: not as PATTERN=RANK" --lora 'h.*.attn'
refuses "lora h.*.attn=4,beta=1: not as PATTERN=RANK" --lora 'h.*.attn=4,beta=1'
refuses "--save-adapter: which adapters?" --save-adapter b
refuses "adapter_config.json" --adapter nowhere
mkdir dora
sed 's/"use_dora": false/"use_dora": true/' "$reference/lora_gpt2/adapter_config.json" >dora/adapter_config.json
refuses "dora/adapter_config.json: use_dora is set" --adapter dora
