#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Decoders with special attention. Folders of gpt-oss and DeepSeek-V3
# (tests/reference/make_decoders.py) have PyTorch's losses on grids and stages, and are written as
# they were read. Answers equal those of transformers, alone and among concurrent requests. MXFP4
# weights are read. With --exact the bits are the same on grids. Unsupported settings are rejected
# with an error that names them.
# labels: outside
# needs: zeromq libevent pcre2 utf8proc
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
# shellcheck source=tests/support/families.sh
source "$SLUICE_SOURCE/tests/support/families.sh"
need curl
need python3

data=(--data "$reference/text.txt" --context 32 --batch 4)
declare -A of=([gpt_oss]=gpt-oss [deepseek_v3]=deepseek)
train=("${data[@]}" --lr 1e-3 --min-lr 1e-3 --warmup 0 --aux-loss 0)

mkdir saved
for family in gpt_oss deepseek_v3; do
  folder=$reference/hf_$family model=${of[$family]}
  run whole --init "$folder" --steps 5 "$model" "${train[@]}"
  near whole "$folder/losses.txt"
  for grid in "--stages 2 --microbatches 2 -n 2 --schedule zb-h1" "--tensor 2" "--data-parallel 2 --shard parameters --recompute full"; do
    # shellcheck disable=SC2086
    run grid --init "$folder" --steps 5 $grid "${patient[@]}" "$model" "${train[@]}"
    near grid "$folder/losses.txt"
  done
  # A saved folder holds the tensors that were read, has the same config.json, and trains
  # identically.
  for processes in 1 2; do
    rm -rf "saved/$family"
    ends 0 "$actorrun" --quiet --init "$folder" --steps 0 --save "saved/$family/" -n $processes --stages $processes "${patient[@]}" \
      "$model" "${data[@]}"
    holds "$folder" "saved/$family"
  done
  run again --init "saved/$family" --steps 5 "$model" "${train[@]}"
  cmp <(hexes whole) <(hexes again) || fail "$family: a folder that was saved trains as the one that was read"
  answers "$family" "$model"
done

# Sequences can be split into pieces and positions, as training expands latent attention, and sinks
# are in each piece. Devices that share positions may be more than heads of keys.
for family in gpt_oss deepseek_v3; do
  for grid in "--stages 2 --microbatches 2 --pieces 2" "--pieces 3 --recompute full" "--pieces 2 --sequence 4"; do
    # shellcheck disable=SC2086
    run pieces --init "$reference/hf_$family" --steps 5 $grid "${patient[@]}" "${of[$family]}" "${train[@]}"
    near pieces "$reference/hf_$family/losses.txt"
  done
done
run experts --init "$reference/hf_deepseek_v3" --steps 5 --data-parallel 2 --expert-parallel 2 deepseek "${train[@]}"
near experts "$reference/hf_deepseek_v3/losses.txt"

# Weights in MXFP4 blocks, declared by quantization_config.
cp -r "$reference/hf_gpt_oss" blocks
mv blocks/blocks.safetensors blocks/model.safetensors
sed -i 's/"model_type"/"quantization_config": {"quant_method": "mxfp4"}, "model_type"/' blocks/config.json
run packed --init blocks --steps 5 gpt-oss "${train[@]}"
near packed "$reference/hf_gpt_oss/blocks.txt"
ends 0 "$actorrun" --quiet --init blocks --steps 0 --save unpacked/ gpt-oss "${data[@]}"
grep -q quantization_config unpacked/config.json && fail "weights are written as numbers"
run unpacked-again --init unpacked --steps 5 gpt-oss "${train[@]}"
cmp <(hexes packed) <(hexes unpacked-again) || fail "what was in blocks trains as what they stand for"

# A newly trained model is saved with its own model type.
small=(--layers 3 --width 32 --heads 4)
made() {
  local model=$1 type=$2
  shift 2
  rm -rf made
  run fresh --steps 2 --save made/ "$model" "${train[@]}" "${small[@]}" "$@"
  grep -q "\"model_type\":[[:space:]]*\"$type\"" made/config.json || fail "$*: a folder of another type: $(<made/config.json)"
  run one --init made --steps 1 "$model" "${train[@]}"
  run two --init made/model.safetensors --steps 1 "$model" "${train[@]}" "${small[@]}" "$@"
  cmp <(hexes one) <(hexes two) || fail "$*: the folder is another model"
}
made gpt-oss gpt_oss --bias attention --experts 3 --expert-ffn 24 --window 9 --full-every 3 --kv-heads 2 --swiglu-limit 2 \
  --rope yarn-untruncated:factor=4,original_max_position_embeddings=16
made deepseek deepseek_v3 --latent 24 --nope-dim 8 --rope-dim 4 --value-dim 10 --experts 6 --expert-ffn 24 --shared-ffn 48 --expert-groups 3 \
  --top-groups 2 --routed-scale 1.5 --ffn 40 --rope-halves --rope yarn:factor=4,original_max_position_embeddings=16 --query-scalar 7

# The bias corrections even out the load: without them one expert gets nearly all tokens of all
# steps.
for rate in 0 0.002; do
  run "rate$rate" --steps 60 deepseek "${train[@]}" "${small[@]}" --experts 4 --top-k 1 --expert-ffn 16 --shared-ffn 16 --correction-rate $rate
done
python3 - <<'PY' || fail "corrections do not even out the load"
import json
def most(report):
    load = json.load(open(report))["tallies"]["h.1.load"]["sum"]
    print("load", load)
    return max(load) / sum(load)
raise SystemExit(not (most("rate0") > 0.9 and most("rate0.002") < 0.6))
PY

# With --exact the bits are the same on any grid.
exact=("$actorrun" --quiet --exact --steps 2)
for words in "gpt-oss --experts 3 --expert-ffn 32 --window 20 --bias attention" \
  "deepseek --latent 32 --nope-dim 8 --rope-dim 8 --value-dim 8 --experts 4 --expert-ffn 32 --shared-ffn 32 --expert-groups 2"; do
  rm -f bits.jsonl
  # shellcheck disable=SC2206
  words=($words --data "$reference/text.txt" --context 64 --batch 4 --layers 2 --width 32 --heads 4 --exact-leaf 32 --aux-loss 0)
  ends 0 "${exact[@]}" --certify bits.jsonl "${words[@]}"
  for grid in "--stages 2 --microbatches 2" "--tensor 2 --data-parallel 2"; do
    # shellcheck disable=SC2086
    ends 0 "${exact[@]}" $grid --recheck bits.jsonl "${words[@]}"
  done
done

# edited FAMILY OLD NEW NAMED: the family's folder with an edited config.json has to be rejected
# with NAMED.
edited() {
  rm -rf edited
  cp -r "$reference/hf_$1" edited
  tr '\n' ' ' <edited/config.json | sed "s/$2/$3/" >edited/new
  mv edited/new edited/config.json
  refused "$4" --init edited "${of[$1]}" "${train[@]}"
}
edited gpt_oss '"swiglu_limit": 1.5' '"swiglu_alpha": 2' swiglu_alpha
edited gpt_oss '"model_type"' '"quantization_config": {"quant_method": "awq"}, "model_type"' 'quant_method is "awq"'
edited gpt_oss '"sliding_attention",' '"chunked_attention",' 'layer_types must have full_attention in every N-th layer and windows in all others'
edited deepseek_v3 '"model_type"' '"scoring_func": "softmax", "model_type"' scoring_func
edited deepseek_v3 '"n_shared_experts": 1' '"n_shared_experts": 0' mlp.shared_experts
edited deepseek_v3 '"topk_group": 2' '"topk_group": 9' '--top-groups 9'
refused "experts take all tokens routed to them" --steps 1 gpt-oss "${train[@]}" "${small[@]}" --expert-capacity 2
refused "--rope-dim 5: must be even" --steps 1 deepseek "${train[@]}" "${small[@]}" --rope-dim 5
refused "no config.json is possible: no Hugging Face model matches deepseek with these options; save the weights alone (--save FILE.safetensors)" --steps 1 --save x/ deepseek "${train[@]}" "${small[@]}"
echo "decoders: gpt-oss, DeepSeek-V3"
