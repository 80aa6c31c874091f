#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Folders of Qwen3-Next survive a round trip, with experts and without. Losses and gradient norms of
# five steps equal those of transformers (tests/reference/make_experts.py), on one device, on grids,
# in pieces and on stages. With --exact the bits are the same on all grids that support mixtures.
# Unsupported configurations are rejected with an error that names them.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

data=$reference/text.txt
train=(--data "$data" --context 32 --batch 4 --lr 1e-3 --min-lr 1e-3 --warmup 0 --aux-loss 0)

# run REPORT WORDS...: trains for five steps.
run() {
  local report=$1
  shift
  ends 0 "$actorrun" --quiet --steps 5 --report "$report" "$@"
}

# same REPORT FOLDER NEAR: losses have to equal those of transformers to 1e-6, and gradient norms to
# NEAR.
same() {
  python3 - "$1" "$reference/$2/losses.txt" "$3" <<'PY' || fail "$1: other losses or norms than in $2"
import json, sys
ours = [(s["loss"], s["grad_norm"]) for s in json.load(open(sys.argv[1]))["steps"]]
theirs = [tuple(map(float, line.split()[1:])) for line in open(sys.argv[2]) if line[0] != "#"]
loss, norm = (max(abs(x[i] / y[i] - 1) for x, y in zip(ours, theirs)) for i in (0, 1))
print(f"{sys.argv[1]}: losses {loss:.2g}, norms {norm:.2g}")
sys.exit(len(ours) != len(theirs) or not loss < 1e-6 or not norm < float(sys.argv[3]))
PY
}
losses() { python3 -c 'import json, sys; print([s["loss_hex"] for s in json.load(open(sys.argv[1]))["steps"]])' "$1"; }

for name in hf_qwen3_next hf_qwen3_next_dense; do
  run plain --init "$reference/$name" qwen3-next "${train[@]}"
  same plain $name 1e-6
  ends 0 "$actorrun" --quiet --steps 0 --init "$reference/$name" --save saved/ qwen3-next "${train[@]}"
  run again --init saved qwen3-next "${train[@]}"
  [[ $(losses again) == "$(losses plain)" ]] || fail "$name: a folder that was written trains as the one that was read"
  for grid in "--stages 2 --microbatches 2 --pieces 2 --schedule seq1f1b" "--data-parallel 2 --pieces 4" \
    "--tensor 2" "--tensor 2 --data-parallel 2 --recompute full" "-n 2 --stages 2 --schedule zb-h1 --microbatches 4 ${patient[*]}" \
    "--data-parallel 2 --shard parameters --pieces 2 --piece-order layers"; do
    # shellcheck disable=SC2086
    run grid $grid --init "$reference/$name" qwen3-next "${train[@]}"
    same grid $name 3e-6
  done
  rm -r saved
done
run experts --expert-parallel 2 --data-parallel 2 --init "$reference/hf_qwen3_next" qwen3-next "${train[@]}"
same experts hf_qwen3_next 3e-6

# Older files give the interval of softmax attention; multi-token prediction heads are ignored.
python3 - "$reference/hf_qwen3_next_dense" <<'PY'
import json, os, struct, sys
os.mkdir("older")
config = json.load(open(sys.argv[1] + "/config.json"))
rope, types = config.pop("rope_parameters"), config.pop("layer_types")
for key in "rope_theta", "partial_rotary_factor": config[key] = rope.pop(key)
config.update(rope_scaling=rope, full_attention_interval=types.index("full_attention") + 1, mlp_only_layers=[])
json.dump(config, open("older/config.json", "w"))
raw = open(sys.argv[1] + "/model.safetensors", "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
head, data = json.loads(raw[8:8 + n]), raw[8 + n:]
for name in "mtp.fc.weight", "mtp.layers.0.mlp.gate.weight":
    head[name] = {"dtype": "F32", "shape": [4], "data_offsets": [len(data), len(data) + 16]}
    data += bytes(16)
text = json.dumps(head).encode()
open("older/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
PY
run aged --init older qwen3-next "${train[@]}"
[[ $(losses aged) == "$(losses plain)" ]] || fail "an older config.json says the same"

# A newly trained model is saved, and loads again with the same options.
fresh=(--layers 4 --width 32 --heads 4 --kv-heads 2 --head-dim 16 --rope none:partial_rotary_factor=0.25 --value-heads 4
  --value-dim 8 --key-dim 12 --experts 5 --shared-ffn 24 --expert-ffn 24 --feeds mlp,experts --mixers delta,delta,full --theta 50000)
ends 0 "$actorrun" --quiet --steps 2 --save fresh/ --report made qwen3-next "${train[@]}" "${fresh[@]}"
ends 0 "$actorrun" --quiet --steps 1 --init fresh --report read qwen3-next "${train[@]}"
ends 0 "$actorrun" --quiet --steps 1 --init fresh/model.safetensors --report told qwen3-next "${train[@]}" "${fresh[@]}"
[[ $(losses read) == "$(losses told)" ]] || fail "a new folder says what its options were"
python3 -c 'import json; x = json.load(open("fresh/config.json")); assert (x["layer_types"].index("full_attention"),
  x["mlp_only_layers"], x["partial_rotary_factor"], x["linear_num_key_heads"]) == (2, [0, 2], 0.25, 2), x'

# The bits are the same on any grid.
exact=(--exact --steps 3 --quiet)
small=(qwen3-next --layers 4 --width 32 --heads 4 --mixers delta,full --value-heads 4 --value-dim 16 --key-dim 8 --context 64
  --batch 8 --data "$data" --exact-leaf 32 --aux-loss 0)
for feeds in mlp experts; do
  ends 0 "$actorrun" "${exact[@]}" --certify one.jsonl "${small[@]}" --experts 6 --feeds $feeds
  for grid in "--pieces 2" "--stages 4 --microbatches 4 --schedule zb-h1" "--data-parallel 4" "--tensor 2" \
    "--stages 2 --pieces 2 --microbatches 2 --schedule seq1f1b" "--shard parameters --data-parallel 2 --recompute full"; do
    # shellcheck disable=SC2086
    ends 0 "$actorrun" "${exact[@]}" $grid --recheck one.jsonl "${small[@]}" --experts 6 --feeds $feeds
  done
  rm one.jsonl
done

# refused NAMED WORDS...: actorrun has to reject WORDS with an error that contains NAMED.
refused() {
  local named=$1
  shift
  ends 2 "$actorrun" --steps 1 "$@"
  says "$named" err
}
# edited OLD NEW NAMED: the folder with an edited config.json has to be rejected with NAMED.
edited() {
  rm -rf edited
  cp -r "$reference/hf_qwen3_next" edited
  tr '\n' ' ' <edited/config.json | sed "s/$1/$2/" >edited/new
  mv edited/new edited/config.json
  refused "$3" --init edited qwen3-next "${train[@]}"
}
edited '"linear_attention",' '' 'layer_types is not a list with an item per layer'
edited '"linear_attention",' '"sliding_attention",' 'layer_types: "sliding_attention" is not supported'
edited '"mlp_only_layers": \[ *1 *\]' '"mlp_only_layers": "1"' 'mlp_only_layers is not a list of layers'
edited '"mlp_only_layers": \[ *1 *\]' '"mlp_only_layers": [7]' 'mlp_only_layers is not a list of layers'
edited '"partial_rotary_factor": 0.5' '"partial_rotary_factor": 1.5' 'partial_rotary_factor=1.5 must not exceed 1'
edited '"linear_num_value_heads": 4' '"linear_num_value_heads": 5' 'value-heads 5 is not a multiple of --key-heads 2'
edited '"hidden_act": "silu"' '"hidden_act": "gelu"' hidden_act
refused '--mixers full contradicts' --init "$reference/hf_qwen3_next" qwen3-next "${train[@]}" --mixers full
refused 'qwen3-next: --feeds mlp,x: unknown word "x"' "${small[@]}" --feeds mlp,x
refused 'should be qwen3-next, not qwen-moe' --init "$reference/hf_qwen3_next" qwen-moe "${train[@]}"
echo "qwen3-next: the losses of transformers"
