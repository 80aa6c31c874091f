#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Adapters saved by PEFT train as in PEFT (reference/lora_*), on one device, over stages, grids,
# processes and emulated GPUs. They resume from checkpoints, survive a round trip, and give the same
# model when merged. New adapters do not change the model. Errors name their cause.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

gpt2=(gpt --layers 2 --width 32 --heads 2)
llama=(llama --layers 2 --width 32 --heads 4 --kv-heads 2 --ffn 88)
common=(--context 32 --batch 8 --lr 3e-3 --min-lr 3e-4 --warmup 4 --decay-steps 16
        --data "$reference/tokens.u16")

# near FILE REPORT [FROM]: from step FROM on, the losses of the report have to equal those of the
# file within 1e-6.
near() {
  awk -v from="${3-0}" '
    NR == FNR { want[$1] = $2; next }
    match($0, /"loss":[^,]*/) {
      v = substr($0, RSTART + 7, RLENGTH - 7) + 0; w = want[from + n++]
      if (v - w > 1e-6 * w || w - v > 1e-6 * w) { print from + n - 1, v, w; bad = 1 }
    }
    END { exit bad || !n }' "$1" "$2" >&2 || fail "$2 is not as PEFT has it"
}
# run [ACTORRUN OPTIONS...]: runs the model of the case.
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
  # saved and loaded again, or merged, it is the same model
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

# ---- cost ------------------------------------------------------------------------------
model=("${gpt2[@]}")
bytes() { grep -oE "\"$2\":[[:space:]]*[0-9]+" "$1" | head -1 | grep -oE '[0-9]+$'; }
run --steps 1 --report all.json
run --steps 1 --report lora.json --lora 'h.*.attn=2'
((20 * $(bytes lora.json optimizer) < $(bytes all.json optimizer))) || fail "what is frozen has a state"
grep -q '"r":[[:space:]]*2' <(run --steps 1 --save-adapter a --lora 'h.*.attn=2,alpha=4'; cat a/adapter_config.json) ||
  fail "the rank is not in the config"

grep -q '"base_model_name_or_path":[[:space:]]*null' a/adapter_config.json || fail "it is beside nothing that was read"
run --steps 1 --save-adapter a --lora 'h.*.attn=2' --init "$reference/hf_gpt2/model.safetensors"
grep -q '"base_model_name_or_path":[[:space:]]*".*hf_gpt2/model.safetensors"' a/adapter_config.json || fail "what it is beside"

# ---- errors -------------------------------------------------------------------------------
refuses() { # TEXT OPTIONS...
  local text=$1
  shift
  ends 2 "$actorrun" --steps 1 "$@" "${model[@]}" "${common[@]}"
  says "$text" err
}
refuses "lora h.9.attn: matches no weight of a linear map" --lora h.9.attn=4
refuses "lora h.*.attn: must be PATTERN=RANK" --lora 'h.*.attn'
refuses "lora h.*.attn=4,beta=1: must be PATTERN=RANK" --lora 'h.*.attn=4,beta=1'
refuses "--save-adapter: needs --lora or --adapter" --save-adapter b
refuses "adapter_config.json" --adapter nowhere
refuses "is also read by embedding/embedding.1" --lora wte=4

# Everything in a folder saved by PEFT is either understood or rejected.
python3 - "$reference/lora_gpt2" <<'PY'
import json, os, re, struct, sys
config = json.load(open(sys.argv[1] + "/adapter_config.json"))
raw = open(sys.argv[1] + "/adapter_model.safetensors", "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
header, data = json.loads(raw[8:8 + n]), raw[8 + n:]
header.pop("__metadata__", None)
tensors = {k: (v["shape"], data[v["data_offsets"][0]:v["data_offsets"][1]]) for k, v in header.items()}
first = sorted(tensors)[0]
module = first[:-len(".lora_A.weight")]
def put(name, changed=(), gone=(), more=(), **keys):
    os.makedirs(name, exist_ok=True)
    json.dump({**config, **keys}, open(name + "/adapter_config.json", "w"))
    t, head, at = {k: v for k, v in {**tensors, **dict(changed), **dict(more)}.items() if k not in gone}, {}, 0
    for k, (shape, b) in t.items():
        head[k] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(b)]}
        at += len(b)
    text = json.dumps(head).encode()
    open(name + "/adapter_model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + b"".join(b for _, b in t.values()))
zeros = lambda *shape: (list(shape), bytes(4 * __import__("math").prod(shape)))
put("bad.lora_bias", lora_bias=True)
put("bad.lora_B.bias", more={module + ".lora_B.bias": zeros(96)})
put("bad.lora_embedding_A", more={"base_model.model.transformer.wte.lora_embedding_A": zeros(4, 256)})
put("bad.lora_magnitude_vector", more={module + ".lora_magnitude_vector": zeros(96)})
bare = module[len("base_model.model."):]
put("bad.no_adapter_of_the_model", more={bare + l: tensors[module + l] for l in (".lora_A.weight", ".lora_B.weight")})
put("bad.no_weight_of_a_linear_map", more={"base_model.model.transformer.h.7.attn.c_attn.lora_A.weight": zeros(4, 32),
                                           "base_model.model.transformer.h.7.attn.c_attn.lora_B.weight": zeros(96, 4)})
put("bad.without_its_lora_B", gone=[module + ".lora_B.weight"])
put("bad.without_its_lora_A", gone=[module + ".lora_A.weight"])
put("bad.init_lora_weights", init_lora_weights="pissa")
put("bad.layer_replication", layer_replication=[[0, 1], [0, 1]])
put("bad.trainable_token_indices", trainable_token_indices=[3])
put("bad.megatron_config", megatron_config={"tensor_model_parallel_size": 2})
put("bad.modules_to_save", modules_to_save=["lm_head"])
put("bad.use_dora", use_dora="true")
put("bad.peft_type", peft_type="LOHA")
put("bad.some_new_key", some_new_key=0.5)
put("bad.use_rslora", use_rslora="false")
put("bad.rank", rank_pattern={})
put("bad.target_modules", target_modules=["c_attn"])
put("bad.exclude_modules", exclude_modules="transformer.*c_proj")
put("bad.layers_to_transform", layers_to_transform=[0])
put("bad.regular_expression", alpha_pattern={"c_attn[": 6})
put("bad.parts_that", alpha_pattern={"(?P<x>c_attn)": 6})
put("bad.took_too_long", alpha_pattern={"((a*)*)*b|(([a-z0-9.]+)*)*!": 6})
put("bad.lora_alpha", alpha_pattern={"h.1.attn.c_attn": "6"})
same = {"alpha_pattern": {"h.1.attn.c_attn": 6}, "rank_pattern": {"h.1.attn.c_attn": 2}}
put("good.groups", alpha_pattern={"h\\.1\\.attn.(c_attn|q)": 6, "c_attn": 8}, rank_pattern={"(?:x|h).1.attn.c_attn": 2})
put("good.first", alpha_pattern={"[h].1.attn.c_attn": 6, "h.1.attn.c_(attn|proj)": 8})
put("good.whole", alpha_pattern={"transformer.h.1.attn.c_attn": 6, "1.attn.c_attn|attn": 8, "ttn": 1})
put("good.old", lora_dropout=0.1, enable_lora=None, merge_weights=False, megatron_core="x", task_type=None,
    target_modules=r".*\.(c_attn|c_proj)", layers_to_transform=[0, 1], layers_pattern="h", init_lora_weights="gaussian",
    loftq_config={"loftq_bits": 4}, runtime_config={"ephemeral_gpu_offload": False}, some_new_key=[], other_new_key=False)
os.makedirs("good.bare", exist_ok=True)
saved, tensors = tensors, {k.replace("transformer.", ""): v for k, v in tensors.items()}
put("good.bare", alpha_pattern={"h.1.attn.c_attn": 6})
PY
for folder in bad.*; do
  word=${folder#bad.}
  refuses "actorrun: " --adapter "$folder" --init "$reference/hf_gpt2/model.safetensors"
  grep -q "${word//_/[_ ]}" err || fail "the message names $word"
done
run --steps 1 --report one.json --init "$reference/hf_gpt2/model.safetensors" --adapter "$reference/lora_gpt2"
for folder in good.*; do
  run --steps 1 --report good.json --init "$reference/hf_gpt2/model.safetensors" --adapter "$folder"
  cmp <(loss one.json) <(loss good.json) || fail "$folder is the same adapter"
done
mkdir dora
sed 's/"use_dora": false/"use_dora": true/' "$reference/lora_gpt2/adapter_config.json" >dora/adapter_config.json
refuses "dora/adapter_config.json: use_dora is true; only false is supported" --adapter dora
