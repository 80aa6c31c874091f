#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Families of dense models. Their folders (tests/reference/make_dense.py) have PyTorch's losses on
# any grid, and are written as they were read. A GGUF file of the same weights has the same losses.
# actorrun and actorserve generate what transformers generates. Unsupported settings are rejected
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
train=("${data[@]}" --lr 1e-3 --min-lr 1e-3 --warmup 0)

families=(gemma3 olmo2 phi3 qwen3)
mkdir saved unpacked
for family in "${families[@]}"; do
  folder=$reference/hf_$family
  run whole --init "$folder" --steps 5 llama "${train[@]}"
  near whole "$folder/losses.txt"
  run gguf --init "$reference/gguf/$family.gguf" --steps 5 llama "${train[@]}"
  cmp <(hexes whole) <(hexes gguf) || fail "$family: a GGUF file trains as the folder does"
  for grid in "--stages 2 --microbatches 2 --pieces 2" "--tensor 2 -n 2" "--data-parallel 2 --shard parameters" \
    "--sequence 2 --recompute full"; do
    # shellcheck disable=SC2086
    run grid --init "$folder" --steps 5 $grid "${patient[@]}" llama "${train[@]}"
    near grid "$folder/losses.txt"
  done
  # A saved folder holds the tensors that were read, has the same config.json, and trains
  # identically; so does a folder made from a GGUF file.
  ends 0 "$actorrun" --quiet --init "$folder" --steps 0 --save "saved/$family/" --stages 2 llama "${data[@]}"
  holds "$folder" "saved/$family"
  ends 0 "$actorrun" --quiet --init "$reference/gguf/$family.gguf" --steps 0 --save "unpacked/$family/" llama "${data[@]}"
  holds "$folder" "unpacked/$family"
  for again in saved unpacked; do
    run again --init "$again/$family" --steps 5 llama "${train[@]}"
    cmp <(hexes whole) <(hexes again) || fail "$family: a folder that was $again trains as the one that was read"
    grep -q "\"model_type\":[[:space:]]*\"$family" "$again/$family/config.json" || fail "$family: $again/config.json has another model_type"
  done
  answers "$family" llama
done

# edited FAMILY OLD NEW NAMED: the family's folder with an edited config.json has to be rejected
# with NAMED.
edited() {
  rm -rf edited
  cp -r "$reference/hf_$1" edited
  sed -i "s/$2/$3/" edited/config.json
  refused "$4" --init edited llama "${train[@]}"
}
refused "--qk-norm 1 contradicts $reference/hf_llama/config.json, which says 0 (model_type)" --init "$reference/hf_llama" llama \
  "${train[@]}" --qk-norm
refused "llama: --qk-norm and --qk-norm-whole exclude each other" --steps 1 llama "${train[@]}" --qk-norm --qk-norm-whole
refused "llama: --norms here: must be before, after, both or parallel" --steps 1 llama "${train[@]}" --norms here
refused "no config.json is possible: no Hugging Face model matches llama with these options; save the weights alone (--save FILE.safetensors)" --steps 1 --save x/ llama "${train[@]}" --qk-norm --norms after
# With --exact the bits are the same on any grid.
exact=("$actorrun" --quiet --exact --steps 2)
words=(llama --data "$reference/text.txt" --context 64 --batch 4 --layers 2 --width 32 --heads 4 --kv-heads 2 --exact-leaf 32 --packed
  --window 20 --full-every 2 --local-theta 500 --norms both --gate gelu --logit-cap 9 --qk-norm-whole --plus-one --scaled-embedding --tied)
ends 0 "${exact[@]}" --certify bits.jsonl "${words[@]}"
for grid in "--pieces 2 --stages 2" "--tensor 2 --data-parallel 2" "--sequence 2"; do
  # shellcheck disable=SC2086
  ends 0 "${exact[@]}" $grid --recheck bits.jsonl "${words[@]}"
done
# Files written before transformers 5 have other keys with the same meaning.
cp -r "$reference/hf_gemma3" old
cp "$reference/hf_gemma3/older.json" old/config.json
run older --init old --steps 5 llama "${train[@]}"
near older "$reference/hf_gemma3/older.txt"
# A newly trained model is saved with its own model type.
small=(--layers 4 --width 32 --heads 2 --kv-heads 1 --head-dim 16)
made() {
  local type=$1
  shift
  rm -rf made
  run fresh --steps 2 --save made/ llama "${train[@]}" "${small[@]}" "$@"
  grep -q "\"model_type\":[[:space:]]*\"$type\"" made/config.json || fail "$*: a folder of another type: $(<made/config.json)"
  run one --init made --steps 1 llama "${train[@]}"
  run two --init made/model.safetensors --steps 1 llama "${train[@]}" "${small[@]}" "$@"
  cmp <(hexes one) <(hexes two) || fail "$*: the folder is another model"
}
gemma=(--qk-norm --norms both --plus-one --gate gelu --scaled-embedding --tied)
made gemma3_text "${gemma[@]}" --window 5 --full-every 3 --local-theta 5000 --rope linear:factor=2 --logit-cap 9 --query-scalar 30
made gemma3_text "${gemma[@]}"
made olmo2 --norms after --qk-norm-whole
made phi3 --packed --window 9
made phi3 --packed --rope none:partial_rotary_factor=0.5
lists=,short_factor=1/2/3/4/5/6/7/8,long_factor=2/3/4/5/6/7/8/9
made phi3 --packed --rope longrope:factor=4,original_max_position_embeddings=8$lists
made llama --rope longrope:factor=4,original_max_position_embeddings=8$lists
made qwen3 --qk-norm --tied --bias attention
made mistral --window 9
made llama --theta 500
refused "no config.json is possible: no Hugging Face model matches llama with these options; save the weights alone (--save FILE.safetensors)" --save made/ llama "${train[@]}" --window 8 --qk-norm
refused "no config.json is possible: no Hugging Face model matches llama" --save made/ llama "${train[@]}" "${gemma[@]}" --rope linear:factor=2 --window 8
made gemma3_text "${gemma[@]}" --rope linear:factor=2
refused "llama: --gate relu: must be silu, gelu, gelu-erf, relu2 or clamped" --steps 1 llama "${train[@]}" --gate relu
edited gemma3 '"model_type": "gemma3_text"' '"model_type": "gemma3"' 'text_config is not a JSON object'
edited gemma3 '"attn_logit_softcapping": null' '"attn_logit_softcapping": 50' attn_logit_softcapping
edited gemma3 '"use_bidirectional_attention": false' '"use_bidirectional_attention": true' use_bidirectional_attention
edited gemma3 '"gelu_pytorch_tanh"' '"gelu"' hidden_activation
edited gemma3 '"num_hidden_layers": 4' '"num_hidden_layers": 3' 'layer_types must have full_attention in every N-th layer and windows in all others'
edited gemma3 '"sliding_attention",' '"chunked_attention",' 'layer_types must have full_attention in every N-th layer and windows in all others'
edited gemma3 '"sliding_window": 7' '"sliding_window": null' 'sliding_window is null, but some layers have one'
edited gemma3 '"rope_type": "default"' '"rope_type": "linear", "factor": 2' 'scaled rotary positions in sliding_attention are not supported'
edited gemma3 '"full_attention": {' '"chunked_attention": {' chunked_attention
edited phi3 '"rope_type": "default"' '"rope_type": "longrope", "short_factor": [1], "long_factor": [2]' 'longrope has factors for 1 pairs of a head'
edited phi3 '"rope_type": "default"' '"rope_type": "yarn", "factor": 2' 'longrope needs short_factor'
edited olmo2 '"hidden_act": "silu"' '"hidden_act": "relu"' hidden_act
refused "--norms before contradicts $reference/hf_olmo2/config.json, which says after (model_type)" --init "$reference/hf_olmo2" llama \
  "${train[@]}" --norms before
refused "--full-every 3 contradicts $reference/gguf/gemma3.gguf, which says 2 (gemma3.attention.sliding_window_pattern)" \
  --init "$reference/gguf/gemma3.gguf" llama "${train[@]}" --full-every 3
edited qwen3 '"use_sliding_window": false' '"use_sliding_window": true/; s/"sliding_window": null/"sliding_window": 8' 'sliding window of'
edited qwen3 '"full_attention",' '"sliding_attention",' 'layer_types'
edited qwen3 '"rope_type": "default"' '"rope_type": "dynamic", "factor": 2' dynamic
edited qwen3 '"head_dim": 16,' '' 'model.layers.0.self_attn.q_proj.weight'
LC_ALL=C sed 's/blk.1.attn_q_norm.weight/blk.1.attn_x_norm.weight/' "$reference/gguf/qwen3.gguf" >edited.gguf
refused "has no tensor model.layers.1.self_attn.q_norm.weight" --init edited.gguf llama "${train[@]}"
LC_ALL=C sed 's/blk.1.attn_q_norm.weight/blk.1.attn_q_norm.biases/' "$reference/gguf/qwen3.gguf" >edited.gguf
refused "has no tensor model.layers.1.self_attn.q_norm.weight" --init edited.gguf llama "${train[@]}"
echo "dense: ${#families[@]} families"
