#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Folders of the families in families.json have transformers' losses, gradient norms and greedy
# tokens (tests/reference/make_models.py), on one device and on grids, and are saved as they were
# read. A text model inside of one with images is read, and so are experts in one tensor. What no row
# understands is refused by name. docs/families.md holds the table of --families.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
# shellcheck source=tests/support/families.sh
source "$SLUICE_SOURCE/tests/support/families.sh"
need python3

data=(--data "$reference/text.txt" --context 32 --batch 4)
dense=("${data[@]}" --lr 1e-3 --min-lr 1e-3 --warmup 0)
train=("${dense[@]}" --aux-loss 0)

# Writes the folders, each with a tokenizer of letters and a prompt.
python3 - "$reference" <<'PY'
import glob, json, os, sys
sys.path.insert(0, sys.argv[1])
from model_folder import write_folder
model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
         "fuse_unk": False, "byte_fallback": False, "vocab": {chr(256 + i): i for i in range(256)}, "merges": []}
for path in sorted(glob.glob(sys.argv[1] + "/models/*.json")):
    name = os.path.basename(path)[:-5]
    made = write_folder(path, name)
    os.makedirs("letters/" + name)
    for file in os.listdir(name): os.link(name + "/" + file, f"letters/{name}/{file}")
    json.dump({"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None,
               "decoder": None, "model": model}, open(f"letters/{name}/tokenizer.json", "w"))
    print("".join(chr(256 + t) for t in made["prompt"]), file=open(f"letters/{name}.prompt", "w"))
PY

# compare NAMES...: losses have to be within 1e-6 of transformers', and the gradient norm of the first
# step within 1e-5 (steps of AdamW grow the differences of small gradients), in all reports NAME.*;
# the answer NAME.answer has to be transformers'.
compare() {
  python3 - "$reference/models" "$@" <<'PY' || fail "other figures than those of transformers"
import glob, json, sys
wrong = 0
for name in sys.argv[2:]:
    made = json.load(open(f"{sys.argv[1]}/{name}.json"))
    for path in sorted(glob.glob(glob.escape(name) + ".*")):
        if path.endswith(".answer"):
            bad = [ord(c) - 256 for c in open(path).read().split()] != made["prompt"] + made["answer"]
            print(path, "another answer" if bad else "the answer")
        else:
            ours = [(s["loss"], s["grad_norm"]) for s in json.load(open(path))["steps"]]
            loss, norm = (max(abs(x[i] / y[i] - 1) for x, y in zip(ours, made["steps"])) for i in (0, 1))
            first = abs(ours[0][1] / made["steps"][0][1] - 1)
            bad = len(ours) < 2 or not loss < 1e-6 or not first < 1e-5 or not norm < 1e-4
            print(f"{path}: losses {loss:.2g}, norms {norm:.2g}, the first {first:.2g}", "BAD" if bad else "")
        wrong += bad
sys.exit(wrong)
PY
}
# model_of NAME: prints the model that its family has.
model_of() { [[ $1 = phi3* ]] && echo llama || echo decoder; }
# greedy NAME WORDS...: writes NAME.answer.
greedy() {
  local name=$1
  shift
  ends 0 "$actorrun" --quiet --init "letters/$name" --steps 0 --generate 40 --temperature 0 --prompt "$(<"letters/$name.prompt")" \
    "$@" "$(model_of "$name")"
  cp out "$name.answer"
}

names=()
for file in "$reference"/models/*.json; do
  name=$(basename "$file" .json)
  names+=("$name")
  words=("${train[@]}")
  [[ $name = ahead_* ]] && words+=(--ahead 1)
  model=$(model_of "$name")
  [[ $model = llama ]] && words=("${dense[@]}")
  run "$name.plain" --init "$name" --steps 5 "$model" "${words[@]}"
  run "$name.grid" --init "$name" --steps 2 --stages 2 --tensor 2 --microbatches 2 "$model" "${words[@]}"
  greedy "$name"
done
compare "${names[@]}"
for name in qwen3_5_moe_text lfm2_moe kimi_linear gemma4_text gemma4_mixture; do
  greedy $name --tensor 2
  run lora --init $name --steps 2 --lora '*proj*=2' decoder "${train[@]}"
done
compare qwen3_5_moe_text lfm2_moe kimi_linear gemma4_text gemma4_mixture
for name in gemma4_text gemma4_mixture phi3_short; do
  [[ $name != phi3_short ]] || more=(--context 64)
  served letters/$name "$(python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["prompt"])' "$reference/models/$name.json")" \
    "$(python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["answer"])' "$reference/models/$name.json")" "${more[@]}"
done

# A saved folder is the one that was read.
for name in qwen3_5_moe_text granitemoehybrid nemotron_h lfm2_moe gemma4_text gemma4_mixture; do
  ends 0 "$actorrun" --quiet --init $name --steps 0 --save saved/ decoder "${data[@]}"
  holds $name saved
  cmp <(python3 -c 'import json; print(json.load(open("'$name'/config.json")))') \
    <(python3 -c 'import json; print(json.load(open("saved/config.json")))') || fail "$name: another config.json"
  rm -r saved
done

ends 0 "$actorrun" --quiet --init ahead_glm4_moe --steps 0 --save saved/ decoder "${data[@]}" --ahead 1
holds ahead_glm4_moe saved
rm -r saved

# Older files say the same by other keys.
# older FAMILY PYTHON: the folder with a changed config trains as the one that was read.
older() {
  rm -rf older
  cp -r "$1" older
  python3 - "$2" <<'PY'
import json, sys
config = json.load(open("older/config.json"))
exec(sys.argv[1])
json.dump(config, open("older/config.json", "w"))
PY
  run older.report --init older --steps 2 decoder "${train[@]}"
  cmp <(hexes older.report) <(hexes "$1.plain" | head -2) || fail "$1: an older config.json says the same: $2"
}
older exaone4 'config.pop("layer_types"), config.update(sliding_window_pattern="LLLG")'
older starcoder2 'config.pop("use_bias")'
older nemotron_h 'config.pop("layers_block_type"), config.update(hybrid_override_pattern="ME*-ME", num_hidden_layers=6)'
older minimax_m2 'config.pop("rope_parameters"), config.update(rotary_dim=4, rope_theta=50000.0, attn_type_list=[1] * 4)'
older kimi_linear '
for key in ("layer_types", "linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim", "mlp_layer_types", "head_dim"): config.pop(key)
config.update(first_k_dense_replace=1, moe_layer_freq=1, rope_scaling=None, rope_theta=1e4, mla_use_nope=True, linear_attn_config=dict(
    kda_layers=[1, 2, 4], full_attn_layers=[3], head_dim=12, num_heads=2, short_conv_kernel_size=4))'
older gemma4_text 'config.pop("per_layer_config"), config.update(global_head_dim=16)'
older gemma4_mixture 'config.pop("per_layer_config"), config.update(global_head_dim=16, num_global_key_value_heads=1)'
older lfm2 'config.update(num_heads=config.pop("num_attention_heads"))'

# Dense halves are saved by the names of their authors.
ends 0 "$actorrun" --quiet --init kimi_linear --steps 0 --save saved/ decoder "${data[@]}"
grep -aq 'layers.0.mlp.up_proj' saved/model.safetensors || fail "kimi_linear: no mlp.up_proj"
run kimi.report --init saved --steps 2 decoder "${train[@]}"
cmp <(hexes kimi.report) <(hexes kimi_linear.plain | head -2) || fail "kimi_linear: not as saved"
rm -r saved

# Text models inside of models with images, as their authors publish them.
python3 - <<'PY'
import json, os, struct
def read(folder):
    data = open(folder + "/model.safetensors", "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    return {name: (t["shape"], data[8 + n:][slice(*t["data_offsets"])]) for name, t in json.loads(data[8:8 + n]).items() if name[0] != "_"}
def write(path, tensors):
    head, at = {}, 0
    for name, (shape, raw) in tensors.items():
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(head).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + b"".join(raw for _, raw in tensors.values()))
for name, outer, prefix in (("qwen3_5_moe_text", "qwen3_5_moe", "model.language_model."), ("ministral3", "mistral3", "language_model.model."),
                            ("gemma4_text", "gemma4", "model.language_model.")):
    tensors, out = read(name), {}
    if outer == "gemma4":  # layers that share keys have weights for them
        out = {f"model.layers.{layer}.self_attn.{key}.weight": ([16, 2], bytes(128)) for layer in (3, 4) for key in ("k_proj", "v_proj")}
        out["model.embed_audio.embedding_projection.weight"] = ([2, 2], bytes(16))
    layers = {key.split(".experts.")[0] for key in tensors if ".experts." in key}
    for layer in layers:
        of = lambda i, part: tensors.pop(f"{layer}.experts.{i}.{part}_proj.weight")
        both, down = zip(*((of(i, "gate")[1] + of(i, "up")[1], of(i, "down")) for i in range(4)))
        out[layer + ".experts.gate_up_proj"] = ([4, 48, 32], b"".join(both))
        out[layer + ".experts.down_proj"] = ([4, 32, 24], b"".join(raw for _, raw in down))
    out = {**tensors, **out}
    out = {(prefix + key[6:] if key.startswith("model.") else key): value for key, value in out.items()}
    if outer == "mistral3": out["language_model.lm_head.weight"] = out.pop("lm_head.weight")
    out["model.visual.patch.weight"] = out["vision_tower.blocks.0.qkv.weight"] = ([2, 2], bytes(16))
    os.mkdir(outer)
    write(outer + "/model.safetensors", out)
    config = json.load(open(name + "/config.json"))
    json.dump({"model_type": outer, "vision_config": {}, "text_config": config}, open(outer + "/config.json", "w"))
PY
for pair in qwen3_5_moe:qwen3_5_moe_text mistral3:ministral3 gemma4:gemma4_text; do
  run "${pair#*:}.inside" --init "${pair%:*}" --steps 5 decoder "${train[@]}"
  ends 0 "$actorrun" --quiet --init "${pair%:*}" --steps 0 --save saved/ decoder "${data[@]}"
  holds "${pair#*:}" saved
  run "${pair#*:}.saved" --init saved --steps 2 decoder "${train[@]}"
  rm -r saved
done
compare qwen3_5_moe_text ministral3 gemma4_text

# Weights in 8 bits with a scale per block of 128 x 128 train as the numbers they stand for.
python3 - <<'PY'
import array, json, os, shutil, struct, zlib
data = open("smollm3/model.safetensors", "rb").read()
n = struct.unpack("<Q", data[:8])[0]
head, raw = json.loads(data[8:8 + n]), data[8 + n:]
def value(v):  # a sign, 4 bits of exponent, 3 of fraction
    exponent, fraction = v >> 3 & 15, v & 7
    size = (8 + fraction) * 2.0 ** (exponent - 10) if exponent else fraction * 2.0 ** -9
    return -size if v & 128 else size
def write(folder, tensors, config):
    os.mkdir(folder)
    head, at = {}, 0
    for name, (kind, shape, raw) in tensors.items():
        head[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(head).encode()
    open(folder + "/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))
    json.dump(config, open(folder + "/config.json", "w"))
narrow, plain = {}, {}
config = json.load(open("smollm3/config.json"))
config["intermediate_size"] = 200  # two blocks
for name, t in head.items():
    if name == "__metadata__": continue
    shape = [200 if size == 48 else size for size in t["shape"]]
    if "_proj" not in name:
        narrow[name] = plain[name] = ("F32", shape, raw[slice(*t["data_offsets"])])
        continue
    codes, state = bytearray(), zlib.crc32(name.encode())
    for i in range(shape[0] * shape[1]):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        codes.append((state >> 24) % 127 | (state >> 16 & 1) << 7)
    blocks = [(shape[0] + 127) // 128, (shape[1] + 127) // 128]
    scales = array.array("f", [2.0 ** -11 * (1 + i) for i in range(blocks[0] * blocks[1])])
    values = array.array("f", [value(v) * scales[i // shape[1] // 128 * blocks[1] + i % shape[1] // 128] for i, v in enumerate(codes)])
    narrow[name], plain[name] = ("F8_E4M3", shape, bytes(codes)), ("F32", shape, values.tobytes())
    narrow[name + "_scale_inv"] = ("F32", blocks, scales.tobytes())
write("plain", plain, config)
quantized = {**config, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"}}
write("narrow", narrow, quantized)
del narrow["model.layers.2.mlp.up_proj.weight_scale_inv"]
write("unscaled", narrow, quantized)
PY
for name in plain narrow; do run $name.report --init $name --steps 2 decoder "${train[@]}"; done
cmp <(hexes plain.report) <(hexes narrow.report) || fail "8-bit weights train otherwise than their values"
refused 'model.layers.2.mlp.up_proj.weight is F8_E4M3, but the scales' --init unscaled --steps 1 decoder "${data[@]}"

# edited FAMILY KEY VALUE NAMED: config.json with a changed key has to be refused with NAMED.
edited() {
  rm -rf edited
  cp -r "$1" edited
  python3 - "$2" "$3" <<'PY'
import json, sys
config = json.load(open("edited/config.json"))
config[sys.argv[1]] = json.loads(sys.argv[2])
json.dump(config, open("edited/config.json", "w"))
PY
  refused "$4" --init edited --steps 1 decoder "${data[@]}"
}
edited smollm3 mlp_bias true mlp_bias
edited kimi_linear layer_types null 'no kind of layer 0: linear_attn_config.kda_layers is absent'
edited kimi_linear linear_attn_config '{"kda_layers": [0, 1]}' 'linear_attn_config.kda_layers is not a list of layers'
edited kimi_linear linear_attn_config '{"safe_gate": true}' 'linear_attn_config.safe_gate'
edited kimi_linear num_key_value_heads 2 num_key_value_heads
edited smollm3 something 3 'something is 3, which is not understood'
edited smollm3 no_rope_layers '[1, 1, 2, 0]' 'no_rope_layers: "2" is not supported'
edited smollm3 use_sliding_window true use_sliding_window
edited qwen3_5_text layer_types '["linear_attention", "full_attention"]' 'layer_types is not a list with an item per layer'
edited qwen3_5_text layer_types '["linear_attention", "full_attention", "chunked_attention", "full_attention"]' chunked_attention
edited nemotron_h mlp_hidden_act '"tanh"' 'mlp_hidden_act is tanh, which is not supported'
edited nemotron_h hybrid_override_pattern '"M*"' 'hybrid_override_pattern is not a text with a letter per layer'
edited granitemoehybrid time_step_limit '[0, 2]' time_step_limit
edited granitemoehybrid mamba_n_heads 5 'not a whole number'
edited ministral3 rope_parameters null "has no rope_scaling"
edited nemotron_h mamba_dt_limit "[0, 5]" mamba_dt_limit
edited olmo clip_qkv 8 clip_qkv
edited glm4_moe n_group 3 '--expert-groups 3'
edited cohere2 use_parallel_block false use_parallel_block
edited stablelm qk_layernorm true qk_layernorm
edited minimax_m2 num_experts_per_tok 9 '--top-k 9'
edited lfm2 layer_types '["conv", "conv", "attention", "conv"]' 'layer_types: "attention" is not supported'
edited gemma2 attn_logit_softcapping '"much"' attn_logit_softcapping
edited granite embedding_multiplier null 'embedding_multiplier is null'
edited lfm2_moe routed_scaling_factor null 'routed_scaling_factor is null'
edited cohere2 logit_scale null 'logit_scale is null'
edited ernie4_5_moe moe_layer_end_index 2 moe_layer_end_index
edited ernie4_5_moe moe_layer_interval 2 moe_layer_interval
edited exaone4 hidden_act '"relu"' hidden_act
edited ministral3 rope_parameters '{"rope_type": "yarn", "rope_theta": 1e6, "factor": 16, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 16}' \
  llama_4_scaling_beta
edited gemma4_text per_layer_config '{"1": {"head_dim": 16, "intermediate_size": 9}}' 'intermediate_size of layer 1'
edited gemma4_text per_layer_config '{"9": {"head_dim": 16}}' 'per_layer_config is not an object of layers by their numbers'
edited gemma4_text use_bidirectional_attention '"all"' use_bidirectional_attention
edited gemma4_text num_kv_shared_layers 5 'block 0 shares the keys of a block before'
edited gemma4_text num_kv_shared_layers 4 'block 1 shares the keys of a block before'
edited gemma4_mixture num_experts null '--feeds experts needs --experts'
edited gemma4_mixture per_layer_config '{"1": {"head_dim": 16, "num_key_value_heads": 3}}' '--block-kv-heads 3'
refused '--ahead 2: --ahead-names mtp has names for one' --init ahead_qwen3_5_text --steps 1 decoder --ahead 2 "${data[@]}"
refused '--ahead-names tail: must be layers or mtp' --dry-run decoder --ahead 1 --ahead-names tail "${data[@]}"
refused '--ahead 16: the context is only 8' --dry-run deepseek --ahead 16 --data "$reference/text.txt" --context 8
indexed=(decoder "${data[@]}" --width 32 --heads 4 --mixers indexed,reused --index-tokens 5)
refused 'cannot be cut into pieces' --steps 1 --pieces 2 "${indexed[@]}"
refused 'cannot be combined with --document-end' --steps 1 "${indexed[@]}" --document-end 10
refused 'reused needs an indexed block before block 0' --steps 1 "${indexed[@]}" --mixers reused,indexed
edited glm_moe_dsa indexer_types '["full", "half", "full", "shared"]' 'indexer_types: "half" is not supported'
refused 'unknown word "windows"' --dry-run decoder --mixers windows "${data[@]}"
refused '--score-cap and --attend-blocks exclude each other' --dry-run decoder --score-cap 5 --attend-blocks 0.5 "${data[@]}"
refused 'unknown word "mlp-shared"' --dry-run decoder --feeds mlp-shared "${data[@]}"
refused 'unknown word "full-keyed-"' --dry-run decoder --mixers full-keyed- "${data[@]}"
refused '--block-kv-heads 4' --dry-run decoder --heads 6 --block-kv-heads 0,4 "${data[@]}"
refused '"x" is not a number' --dry-run decoder --block-head-dims 16,x "${data[@]}"
refused '--block-head-dims 1024: at most 512' --dry-run decoder --block-head-dims 1024 "${data[@]}"
refused '--feeds both needs --norms both' --dry-run decoder --feeds both --experts 4 "${data[@]}"
refused 'not supported with --gated-heads' --dry-run decoder --gated-heads --value-norm "${data[@]}"
refused '--ahead: not supported with --block-inputs' --dry-run decoder --ahead 1 --block-inputs 8 "${data[@]}"
refused '--mixers window needs --window' --dry-run decoder --mixers full,window "${data[@]}"
refused '--feeds experts needs --experts' --dry-run decoder --feeds experts "${data[@]}"

# The page holds the table.
ends 0 "$actorrun" --families
sed -n '/^| model_type | class/,/^$/p' "$SLUICE_SOURCE/docs/families.md" | sed '/^$/d' >page
diff out page || fail "docs/families.md: not the table of actorrun --families"
