#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# GGUF files of mixtures and hybrids, written by tests/reference/gguf_folder.py in the way of
# llama.cpp's converters, train as the folders that they are made of, and are saved as these folders.
# Folders are saved as such files, too, if they say all of the model's options.
# Blocks of experts are served as they are stored. What no row of io/gguf/architectures.json
# understands is refused by name.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
# shellcheck source=tests/support/families.sh
source "$SLUICE_SOURCE/tests/support/families.sh"
need python3

data=(--data "$reference/text.txt" --context 32 --batch 4)
train=("${data[@]}" --lr 1e-3 --min-lr 1e-3 --warmup 0)

# Writes folders and GGUF files; `list` gets a line with a name and its model for each.
python3 - "$reference" <<'PY'
import json, os, shutil, sys
sys.path.insert(0, sys.argv[1])
import gguf_folder, model_folder
reference, models = sys.argv[1], {"qwen3_next": "qwen3-next", "qwen3_moe": "qwen-moe", "qwen2_moe": "qwen-moe", "gpt_oss": "gpt-oss", "deepseek_v3": "deepseek", "phi3_long": "llama", "phi3_short": "llama"}
# read: config.json and tensors of a file of make_models.py, without layers of a kind
def made(name, without=None, **edited):
    made = json.load(open(f"{reference}/models/{name}.json"))
    config = made["config"] = {**made["config"], **edited}
    kinds = config.get("layers_block_type", [])
    kept = [i for i, kind in enumerate(kinds) if kind != without]
    tensors = {}
    for key, value in made["tensors"].items():
        words = key.split(".")
        if words[1] == "layers" and without:
            if int(words[2]) not in kept: continue
            words[2] = str(kept.index(int(words[2])))
        tensors[".".join(words)] = value
    if without: config.update(layers_block_type=[kinds[i] for i in kept], num_hidden_layers=len(kept))
    return {"config": config, "tensors": tensors}
def folder(name, value):
    json.dump(value, open(name + ".json", "w"))
    model_folder.write_folder(name + ".json", name)
for name in ("qwen3_5_text", "qwen3_5_moe_text", "glm4_moe", "lfm2", "lfm2_moe", "granite", "granitemoe", "granitemoehybrid", "minimax_m2",
             "smollm3", "olmoe", "glm4", "ernie4_5", "phi3_long", "phi3_short", "gemma4_text", "gemma4_mixture"):
    folder(name, made(name))
folder("gemma2", made("gemma2", query_pre_attn_scalar=8)) # no key of GGUF says it
folder("nemotron_h", made("nemotron_h", "mlp")) # files of this architecture have no such layers beside mixtures
folder("nemotron_h_dense", made("nemotron_h", "moe"))
dense = made("granitemoehybrid", num_local_experts=0, num_experts_per_tok=0)
folder("granitehybrid", {**dense, "tensors": {k: v for k, v in dense["tensors"].items() if "block_sparse" not in k}})
for name in models:
    if not os.path.isdir(name): shutil.copytree(f"{reference}/hf_{name}", name)
config, tensors = gguf_folder.read_folder("qwen3_next") # files of this architecture have experts in every layer
for key in [key for key in tensors if ".layers.1.mlp." in key]: del tensors[key]
tensors.update({key.replace(".3.", ".1.", 1): tensors[key] for key in list(tensors) if ".layers.3.mlp." in key})
json.dump({**config, "mlp_only_layers": []}, open("qwen3_next/config.json", "w"))
for file in os.listdir("qwen3_next"):
    if file.startswith("model"): os.remove("qwen3_next/" + file)
model_folder.write_numbers("qwen3_next/model.safetensors", {key: (t.shape, t.data) for key, t in tensors.items()})
config = json.load(open("gpt_oss/config.json"))
json.dump({**config, "swiglu_limit": 7.0}, open("gpt_oss/config.json", "w")) # no key of GGUF says otherwise
for name in sorted(os.listdir(".")):
    if not os.path.isdir(name): continue
    gguf_folder.write(name + ".gguf", *gguf_folder.convert(*gguf_folder.read_folder(name)))
    print(name, models.get(name, "decoder"), file=open("list", "a"))
gguf_folder.write("blocks.gguf", *gguf_folder.convert(*gguf_folder.read_folder("gpt_oss")), "mxfp4")
# wrong files
good = gguf_folder.convert(*gguf_folder.read_folder("qwen3_5_moe_text"))
def wrong(path, keys={}, tensors={}, made=good):
    drop = lambda d: {k: v for k, v in d.items() if v is not None}
    gguf_folder.write(path, made[0], drop({**made[1], **keys}), drop({**made[2], **tensors}))
wrong("bad.some.new.key.gguf", {"some.new.key": 3})
wrong("bad.ssm.state_size.gguf", {"ssm.state_size": None})
wrong("bad.attention.clamp_kqv.gguf", {"attention.clamp_kqv": 2.0})
wrong("bad.attention.value_length.gguf", {"attention.value_length": 8})
wrong("bad.blk.0.ssm_dt.bias.gguf", {}, {"blk.0.ssm_dt.bias": gguf_folder.Tensor([3], [0, 0, 0])})
deep = gguf_folder.convert(*gguf_folder.read_folder("deepseek_v3"))
wrong("bad.scoring_func.gguf", {"expert_gating_func": 1}, made=deep)
wrong("bad.expert_gating_func.gguf", {"expert_gating_func": None}, made=deep)
wrong("bad.blk.1.attn_k_b.gguf", {}, {"blk.1.attn_v_b.weight": None}, made=deep)
hybrid = gguf_folder.convert(*gguf_folder.read_folder("granitemoehybrid"))
wrong("bad.attention.head_count_kv.gguf", {"attention.head_count_kv": [0, 1, 2, 0]}, made=hybrid)
wrong("bad.blk.1.ffn_up_exps.gguf", {}, {"blk.1.ffn_gate_exps.weight": None}, made=hybrid)
phi = gguf_folder.convert(*gguf_folder.read_folder("phi3_long"))
wrong("bad.rope_factors_short.gguf", {}, {"rope_factors_short.weight": None}, made=phi)
wrong("bad.has 2 factors, not 3.gguf", {}, {"rope_factors_long.weight": gguf_folder.Tensor([2], [1.0, 2.0])}, made=phi)
gemma = gguf_folder.convert(*gguf_folder.read_folder("gemma4_text"))
# Gemma 4's tokenizer: pieces with merges and bytes, whose spaces are marks
pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "\u2581", "a", "b", "ab", "\u2581ab", "\n"] + [f"<0x{i:02X}>" for i in range(246)]
tokens = {"model": "gemma4", "pre": "gemma4", "tokens": pieces, "token_type": [3, 3, 3, 2] + [1] * 6 + [6] * 246, "merges": ["a b", "\u2581 ab"],
          "bos_token_id": 2, "eos_token_id": 1, "unknown_token_id": 3, "add_bos_token": True}
wrong("tokens.gguf", {f"tokenizer.ggml.{k}": v for k, v in tokens.items()}, made=gemma)
wrong("bad.tokenizer.ggml.merges.gguf", {f"tokenizer.ggml.{k}": v for k, v in tokens.items() if k != "merges"}, made=gemma)
wrong("bad.neither 1 nor huge.gguf", {}, {"rope_freqs.weight": gguf_folder.Tensor([8], [1.0, 2.0] * 4)}, made=gemma)
wrong("bad.feed_forward_length.gguf", {"feed_forward_length": [48, 48, 48, 96, 90]}, made=gemma)
wrong("bad.attention.head_count_kv is.gguf", {"attention.head_count_kv": [1, 2, 2, 2, 2]}, made=gemma)
# the layer of a head that predicts further ahead
extra = {f"blk.4.{k}": good[2]["blk.3." + k] for k in ("attn_norm.weight", "attn_q.weight")}
wrong("ahead.gguf", {"block_count": 5, "nextn_predict_layers": 1}, {**extra, "blk.4.nextn.eh_proj.weight": good[2]["blk.3.attn_q.weight"]})
PY

# same A B LIMIT: losses and gradient norms of two reports differ by less than LIMIT, relatively.
same() {
  python3 - "$@" <<'PY' || fail "$2 is not $1"
import json, sys
a, b = ([(s["loss"], s["grad_norm"]) for s in json.load(open(f))["steps"]] for f in sys.argv[1:3])
worst = max(abs(x / y - 1) for s, t in zip(a, b) for x, y in zip(s, t))
print(f"{sys.argv[2]}: {worst:.2g}")
sys.exit(len(a) != len(b) or not a or not worst < float(sys.argv[3]))
PY
}
# close FOLDER FOLDER: both hold the same tensors; gains and logarithms of decays up to rounding.
close() {
  python3 - "$@" <<'PY' || fail "$1 and $2 hold other tensors"
import sys
sys.path.insert(0, sys.argv[3])
from gguf_folder import read_folder
(one, a), (two, b) = map(read_folder, sys.argv[1:3])
worst = lambda x, y: max(abs(p - q) for p, q in zip(x, y))
bad = [n for n in a if n not in b or a[n].shape != b[n].shape or worst(a[n].data, b[n].data) > (2e-6 if "A_log" in n or "norm" in n else 0)]
print(sys.argv[2], len(a), "tensors", *bad)
sys.exit(bool(bad) or set(a) != set(b) or one["model_type"] != two["model_type"])
PY
}

while read -r name model; do
  run folder.json --init "$name" --steps 2 "$model" "${train[@]}"
  run "$name.report" --init "$name.gguf" --steps 2 "$model" "${train[@]}"
  same folder.json "$name.report" 1e-5
  ends 0 "$actorrun" --quiet --init "$name.gguf" --steps 0 --save saved/ "$model" "${data[@]}"
  close "$name" saved "$reference"
  run folder.json --init saved --steps 2 "$model" "${train[@]}"
  same "$name.report" folder.json 1e-12
  rm -r saved
  # The folder as GGUF, and that as a folder.
  case $name in
    nemotron_h) word="readers of a GGUF file of nemotron_h use " ;; # with experts it is another architecture
    qwen3_next | gemma4*) word="cannot be written as GGUF" ;;
    phi3_long | phi3_short) word=": GGUF files " ;; # LongRoPE, or a part of a head
    *) word= ;;
  esac
  if [[ $word ]]; then
    refused "$word" --init "$name" --steps 0 --save w.gguf "$model" "${data[@]}"
    continue
  fi
  ends 0 "$actorrun" --quiet --init "$name" --steps 0 --save w.gguf "$model" "${data[@]}"
  ends 0 "$actorrun" --quiet --init w.gguf --steps 0 --save saved/ "$model" "${data[@]}"
  close "$name" saved "$reference"
  rm -r saved w.gguf
done <list
for name in qwen3_5_moe_text granitemoehybrid; do
  run grid.json --init $name.gguf --steps 2 --stages 2 --tensor 2 -n 2 "${patient[@]}" decoder "${train[@]}"
  same $name.report grid.json 1e-5
done
ends 0 "$actorrun" --quiet --init tokens.gguf --steps 0 --save saved/ --generate 2 --prompt "a ab" decoder
python3 - <<'PY' || fail "another tokenizer than Gemma 4's"
import json
made = json.load(open("saved/tokenizer.json"))
model = made["model"]
good = model["merges"] == ["a b", "\u2581 ab"] and model["byte_fallback"] and model["vocab"]["\u2581ab"] == 8 and model["unk_token"] == "<unk>"
steps = made["normalizer"]["normalizers"]
raise SystemExit(not good or [s["type"] for s in steps] != ["Replace"] or made["post_processor"]["single"][0]["SpecialToken"]["id"] != "<bos>")
PY
rm -r saved
run ahead.json --init ahead.gguf --steps 2 decoder "${train[@]}"
cmp <(hexes qwen3_5_moe_text.report) <(hexes ahead.json) || fail "a head that predicts further ahead changes the model"

# The model of a file is found.
ends 0 "$actorrun" --quiet --init qwen3_5_moe_text.gguf --steps 0 --generate 4 --prompt ab
[[ -s out ]] || fail "no answer"

# Experts in MXFP4 are served in blocks of 8 bits, with the same answers as in fp32, in less memory.
for type in stored fp32; do
  background "$bin/actorserve" --port 0 --dtype $type --report $type.json --context 64 blocks.gguf
  until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended"; sleep 0.01; done
  url=$(<out)
  python3 - "${url##* }" >$type.answer <<'PY'
import json, sys, urllib.request
body = {"prompt": [84, 104, 101, 32], "max_tokens": 24, "temperature": 0, "logprobs": 1}
with urllib.request.urlopen(urllib.request.Request(sys.argv[1] + "/completions", json.dumps(body).encode())) as reply:
    found = json.load(reply)["choices"][0]
print(json.dumps([found["text"], found["logprobs"]["token_logprobs"]]))
PY
  kill -INT "$pid"
  wait "$pid" || fail "the server ends badly"
done
python3 - <<'PY' || fail "experts in blocks are served otherwise"
import json
(text, a), (other, b) = (json.load(open(t + ".answer")) for t in ("stored", "fp32"))
less, more = (json.load(open(t + ".json"))["devices"][0]["peak_bytes"]["parameters"] for t in ("stored", "fp32"))
worst = max(abs(x - y) for x, y in zip(a, b))
print(text == other, worst, less, more)
raise SystemExit(text != other or not worst < 1e-3 or not less < 0.75 * more)
PY

for file in bad.*.gguf; do
  word=${file#bad.}
  refused "${word%.gguf}" --init "$file" --steps 1 "$([[ $file =~ scoring|gating|attn_k_b ]] && echo deepseek || echo decoder)" "${data[@]}"
done
# What a file cannot say is refused before a run: another scale of attention, layers without positions.
for edit in 'gemma2 query_pre_attn_scalar 16 --query-scalar' 'smollm3 no_rope_layers [1,1,1,1] --mixers' 'granite attention_bias true --bias'; do
  read -r name key value word <<<"$edit"
  cp -r $name edited
  python3 - edited/config.json "$key" "$value" <<'PY'
import json, sys
config = json.load(open(sys.argv[1]))
config[sys.argv[2]] = json.loads(sys.argv[3])
json.dump(config, open(sys.argv[1], "w"))
PY
  refused "$word" --init edited --steps 0 --save w.gguf decoder "${data[@]}"
  rm -r edited
done
refused "--heads 2 contradicts qwen3_5_moe_text.gguf, which says 4 (qwen35moe.attention.head_count)" --init qwen3_5_moe_text.gguf decoder \
  "${data[@]}" --heads 2
