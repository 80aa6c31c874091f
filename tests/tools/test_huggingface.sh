#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A Hugging Face folder is loaded as it is. Its config.json sets the model's options, and its losses
# equal those of PyTorch (tests/reference/make_pretrained.py). Contradictions and unsupported
# settings are rejected with an error that names them. Saved folders load again.
# labels: outside
# needs: zeromq pcre2 utf8proc
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

data=$reference/text.txt
train=(--data "$data" --context 32 --batch 4 --lr 1e-3 --min-lr 1e-3 --warmup 0)

losses() { python3 -c 'import json, sys
for s in json.load(open(sys.argv[1]))["steps"]: print(s["step"], s["loss_hex"])' "$1"; }

# run REPORT WORDS...: trains and writes the losses to REPORT.losses.
run() {
  local report=$1
  shift
  ends 0 "$actorrun" --quiet --report "$report" "$@"
  losses "$report" >"$report.losses"
}

# same REPORT FILE: the losses have to equal PyTorch's.
same() {
  python3 - "$1.losses" "$2" <<'PY' || fail "$1: other losses than in $2"
import sys
ours = [float.fromhex(line.split()[1]) for line in open(sys.argv[1])]
theirs = [float(line.split()[1]) for line in open(sys.argv[2]) if line[0] != "#"]
worst = max(abs(a - b) / b for a, b in zip(ours, theirs))
sys.exit(len(ours) != len(theirs) or not worst < 1e-6)
PY
}

# ---- PyTorch's losses ---------------------------------------------------------------------------

for name in qwen2 llama3 mistral; do
  run "$name" --init "$reference/hf_$name" --steps 5 llama "${train[@]}"
  same "$name" "$reference/hf_$name/losses.txt"
done
run mamba2 --init "$reference/hf_mamba2" --steps 5 mamba2 "${train[@]}"
same mamba2 "$reference/hf_mamba2/losses.txt"
ends 0 "$actorrun" --quiet --steps 0 --init "$reference/hf_mamba2" --save mamba/ mamba2 "${train[@]}"
run mamba_again --init mamba --steps 5 mamba2 "${train[@]}"
cmp mamba2.losses mamba_again.losses || fail "a Mamba-2 folder that was written trains as the one that was read"
ends 0 "$actorrun" --quiet --steps 1 --save fresh/ mamba2 "${train[@]}" --layers 2 --width 32 --head-dim 16 --no-conv-bias
run mamba_fresh --init fresh --steps 1 mamba2 "${train[@]}"
cp -r "$reference/hf_mamba2" limited
sed -i 's/"__float__": "Infinity"/"__float__": "9"/' limited/config.json
ends 2 "$actorrun" --steps 1 --init limited mamba2 "${train[@]}"
says 'time_step_limit is not 0 to infinity' err
tr '\n' ' ' <"$reference/hf_mamba2/config.json" | sed 's/{ *"__float__": "Infinity" *}/Infinity/; s/"expand": 2/"expand": 3/' >limited/config.json
ends 2 "$actorrun" --steps 1 --init limited mamba2 "${train[@]}"
says 'expand:2 * hidden_size:4096 = num_heads:128 * head_dim:64 is required, and 96 is not 64' err
sed 's/Infinity/NaN/' -i limited/config.json
ends 2 "$actorrun" --steps 1 --init limited mamba2 "${train[@]}"
says 'limited/config.json: a value is NaN, which is no number of a model' err
run cut --init "$reference/hf_llama3" --steps 5 --stages 2 --microbatches 2 --pieces 2 llama "${train[@]}"
same cut "$reference/hf_llama3/losses.txt"
run both --init "$reference/hf_qwen2" --steps 5 -n 2 --stages 2 "${patient[@]}" --save pair/ llama "${train[@]}"
same both "$reference/hf_qwen2/losses.txt"

# ---- chunked positions, as in Qwen2.5-1M ------------------------------------------------------------

mkdir chunked
cp "$reference/hf_qwen2/"*.safetensors* chunked/
python3 - "$reference/hf_qwen2/config.json" <<'PY'
import json, sys
config = json.load(open(sys.argv[1]))
config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
config["max_position_embeddings"] = 500
config["dual_chunk_attention_config"] = {"chunk_size": 80, "local_size": 16, "original_max_position_embeddings": 70}
json.dump(config, open("chunked/config.json", "w"))
PY
long=(--data "$data" --context 200 --batch 4 --lr 1e-3 --min-lr 1e-3 --warmup 0)
by=dual-chunk:chunk_size=80,local_size=16,original_max_position_embeddings=70
run chunks --init chunked --steps 3 --save rechunked/ llama "${long[@]}"
same chunks "$reference/dual_chunk_losses.txt"
run options --init chunked --steps 3 llama "${long[@]}" --rope "$by"
cmp chunks.losses options.losses || fail "chunks of config.json and of --rope are not alike"
python3 - <<'PY' || fail "other chunks are saved"
import json
a, b = json.load(open("chunked/config.json")), json.load(open("rechunked/config.json"))
assert a["dual_chunk_attention_config"] == b["dual_chunk_attention_config"] and not b.get("rope_scaling"), b
assert b["model_type"] == "qwen2", b
PY
run grid --init chunked --steps 3 --tensor 2 --data-parallel 2 llama "${long[@]}"
python3 - <<'PY' || fail "a grid has other losses"
a, b = ([float.fromhex(line.split()[1]) for line in open(name + ".losses")] for name in ("chunks", "grid"))
assert max(abs(x - y) for x, y in zip(a, b)) < 1e-5, (a, b)
PY
# Within one chunk, dual chunk attention equals plain positions bit for bit; beyond one chunk it
# differs.
sed 's/"chunk_size": 80/"chunk_size": 272/; s/"original_max[^,}]*": 70/"sparse_attention_enabled": false/' chunked/config.json >one_chunk.json
cp -r chunked one_chunk && cp one_chunk.json one_chunk/config.json
cp -r chunked no_chunk
python3 -c 'import json; c = json.load(open("chunked/config.json")); del c["dual_chunk_attention_config"]; json.dump(c, open("no_chunk/config.json", "w"))'
run whole --init one_chunk --steps 3 llama "${long[@]}"
run apart --init no_chunk --steps 3 llama "${long[@]}"
cmp whole.losses apart.losses || fail "one chunk is not as plain positions"
if cmp -s chunks.losses apart.losses; then fail "chunks make no difference"; fi
sed 's/"local_size": 16/"local_size": 15/' chunked/config.json >one_chunk/config.json
ends 2 "$actorrun" --steps 1 --init one_chunk llama "${long[@]}"
says 'chunk_size=80 - local_size=15 must be a positive multiple of 64' err
sed 's/"local_size": 16/"local_size": 16, "sparse_attention_enabled": true/' chunked/config.json >one_chunk/config.json
ends 2 "$actorrun" --steps 1 --init one_chunk llama "${long[@]}"
says 'sparse_attention_enabled is true; only false is supported' err
sed 's/"local_size": 16/"local_size": 16, "stride": 2/' chunked/config.json >one_chunk/config.json
ends 2 "$actorrun" --steps 1 --init one_chunk llama "${long[@]}"
says 'stride' err
sed 's/"rope_theta": [0-9.]*/&, "rope_scaling": {"rope_type": "linear", "factor": 2}/' chunked/config.json >one_chunk/config.json
ends 2 "$actorrun" --steps 1 --init one_chunk llama "${long[@]}"
says 'dual_chunk_attention_config cannot be used with rope_type linear' err
ends 2 "$actorrun" --steps 1 --init chunked --save x.gguf llama "${long[@]}"
says 'GGUF files are written with none, linear, llama3 and yarn' err
ends 2 "$actorrun" --steps 1 --pieces 2 --init chunked llama "${long[@]}"
says '(attention_dual)' err
ends 2 "$actorrun" --steps 1 --init chunked llama "${long[@]}" --document-end 10
says '--rope dual-chunk: not supported with several documents in a row' err

# ---- the folder sets the options ------------------------------------------------------------------

run folder --init "$reference/hf_llama" --steps 3 llama "${train[@]}"
run file --init "$reference/hf_llama/model.safetensors" --steps 3 llama "${train[@]}" --layers 2 \
  --width 32 --heads 4 --kv-heads 2 --ffn 88
cmp folder.losses file.losses || fail "a folder and the options it stands for train alike"
run folder --init "$reference/hf_gpt2" --steps 3 gpt "${train[@]}" --heads 2
run file --init "$reference/hf_gpt2/model.safetensors" --steps 3 gpt "${train[@]}" --layers 2 --width 32 \
  --heads 2
cmp folder.losses file.losses || fail "a GPT-2 folder and the options it stands for train alike"

# refused NAMED WORDS...: actorrun has to reject WORDS with an error that contains NAMED.
refused() {
  local named=$1
  shift
  ends 2 "$actorrun" "$@"
  grep -qF -- "$named" err || fail "the message names $named"
}
refused "--heads 2 contradicts $reference/hf_llama/config.json, which says 4 (num_attention_heads)" \
  --init "$reference/hf_llama" llama "${train[@]}" --heads 2
refused "--eps 1e-6" --init "$reference/hf_gpt2" gpt "${train[@]}" --eps 1e-6
refused "--theta 1e6" --init "$reference/hf_llama" llama "${train[@]}" --theta 1e6
refused "--tied 1" --init "$reference/hf_llama" llama "${train[@]}" --tied
refused "--rope linear:factor=2" --init "$reference/hf_qwen2" llama "${train[@]}" --rope linear:factor=2
refused "--window 8 contradicts $reference/hf_mistral/config.json, which says 7 (sliding_window)" \
  --init "$reference/hf_mistral" llama "${train[@]}" --window 8
refused "--window 8" --init "$reference/hf_llama" llama "${train[@]}" --window 8
refused "only mistral, phi3 and gemma3_text" --save made/ llama "${train[@]}" --window 8 --bias qkv
refused "only mistral, phi3 and gemma3_text" --save made/ gpt "${train[@]}" --window 8
refused "--context 64 is more than --positions 32" --init "$reference/hf_llama" llama --data "$data" --context 64
refused "should be llama, not gpt" --init "$reference/hf_llama" gpt "${train[@]}"

# edited OLD NEW NAMED: hf_llama with an edited config.json has to be rejected with NAMED.
edited() {
  rm -rf edited
  cp -r "$reference/hf_llama" edited
  sed -i "s/$1/$2/" edited/config.json
  refused "$3" --init edited llama "${train[@]}"
}
edited '"model_type": "llama"' '"model_type": "bert"' bert
edited '"silu"' '"gelu"' hidden_act
edited '"mlp_bias": false' '"mlp_bias": true' mlp_bias
edited '"attention_dropout"' '"quantization_config": {"bits": 4}, "x"' quantization_config
edited '"hidden_size": 32' '"hidden_size": "32"' hidden_size
edited '"num_hidden_layers": 2,' '' num_hidden_layers
edited '"rope_type": "default"' '"rope_type": "longrope", "factor": 2' longrope
edited '"rope_type": "default"' '"rope_type": "yarn", "factor": 2, "mscale": 1' mscale
edited '"mlp_bias": false' '"sliding_window": 16' "sliding window of 16"
edited '"vocab_size": 256' '"vocab_size": 300' model.embed_tokens.weight
edited '^{' '' "not a JSON object"

# Known keys have no effect or describe what Sluice does; any other key is rejected.
python3 - "$reference" <<'PY'
import json, os, struct, sys
def put(name, base, gone=(), extra=None, **keys):
    os.makedirs(name)
    config = {**json.load(open(f"{sys.argv[1]}/{base}/config.json")), **keys}
    json.dump({k: v for k, v in config.items() if k not in gone}, open(name + "/config.json", "w"))
    for file in os.listdir(f"{sys.argv[1]}/{base}"):
        if ".safetensors" in file: os.symlink(f"{sys.argv[1]}/{base}/{file}", f"{name}/{file}")
    if extra:
        raw = open(name + "/model.safetensors", "rb").read()
        n = struct.unpack("<Q", raw[:8])[0]
        head, data = json.loads(raw[8:8 + n]), raw[8 + n:]
        head[extra] = {"dtype": "F32", "shape": [4], "data_offsets": [len(data), len(data) + 16]}
        text = json.dumps(head).encode()
        os.remove(name + "/model.safetensors")
        open(name + "/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data + bytes(16))
yarn = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16}
for word, keys in {"residual_multiplier": {"residual_multiplier": 0.5}, "logits_scaling": {"logits_scaling": 8},
                   "rope_interleaved": {"rope_interleaved": True}, "attn_logit_softcapping": {"attn_logit_softcapping": 50.0},
                   "layer_types": {"layer_types": ["full_attention", "sliding_attention"]}, "compression_config": {"compression_config": {"bits": 4}},
                   "partial_rotary_factor": {"partial_rotary_factor": 0.5}, "per_layer_config": {"per_layer_config": {"0": {"head_dim": 4}}},
                   "original_max_position_embeddings": {"original_max_position_embeddings": 16},
                   "attention_bias": {"attention_bias": "true"}}.items():
    put("bad." + word, "hf_llama", **keys)
for word, keys in {"mscale": {"mscale": 0.7}, "mscale_all_dim": {"mscale_all_dim": 1.0},
                   "llama_4_scaling_beta": {"llama_4_scaling_beta": 0.1}, "beta_fast": {"beta_fast": "32"},
                   "short_factor": {"short_factor": [1.0, 2.0]}}.items():
    put("bad.yarn." + word, "hf_llama", rope_parameters={**yarn, **keys})
put("bad.differ", "hf_llama", rope_scaling=yarn)
put("bad.full_attention", "hf_llama", rope_parameters={"full_attention": yarn})
put("bad.window", "hf_qwen2", use_sliding_window=True, sliding_window=8)
put("window", "hf_qwen2", gone=["sliding_window", "max_position_embeddings"], use_sliding_window=True)
put("bad.add_cross_attention", "hf_gpt2", add_cross_attention=True)
put("bad.scale_attn_weights", "hf_gpt2", scale_attn_weights=False)
put("bad.qkv_bias", "hf_qwen3_moe", qkv_bias=True)
put("bad.mlp_only_layers", "hf_qwen3_moe", mlp_only_layers=[0])
put("bad.q_proj.bias", "hf_llama", extra="model.layers.1.self_attn.q_proj.bias")
put("mine.bias", "hf_llama", extra="model.layers.0.self_attn.q_proj.bias")
put("bad.q_norm", "hf_llama", extra="model.layers.1.self_attn.q_norm.weight")
put("bad.embed_norm", "hf_llama", extra="model.embed_norm.weight")
put("bad.weight_scale", "hf_llama", extra="model.layers.0.mlp.up_proj.weight_scale")
put("good.smollm2", "hf_llama", is_llama_config=True, rope_interleaved=False, rope_scaling=None, pretraining_tp=1,
    **{"transformers.js_config": {"dtype": "q4", "kv_cache_dtype": {"q4f16": "float16"}}}, unsloth_fixed=True)
put("good.old", "hf_llama", gone=["rope_parameters", "mlp_bias", "attention_bias", "head_dim", "tie_word_embeddings"], rope_theta=10000,
    max_length=20, id2label={"0": "a"}, _name_or_path="x", rope_scaling={"type": "default"}, torch_dtype="float16", layer_types=["full_attention"] * 2)
put("good.buffers", "hf_llama", extra="model.layers.0.self_attn.rotary_emb.inv_freq")
put("good.layers", "hf_llama", extra="model.layers.9.self_attn.q_norm.weight")
put("good.qwen2", "hf_qwen2", gone=["use_sliding_window", "layer_types", "max_window_layers"], sliding_window=8, use_mrope=False)
put("good.qwen3_moe", "hf_qwen3_moe", qkv_bias=False, shared_expert_intermediate_size=0, use_qk_norm=True, sliding_window=None)
put("good.gpt2", "hf_gpt2", gone=["tie_word_embeddings", "scale_attn_weights", "layer_norm_epsilon"], n_ctx=32, attn_pdrop=0.1,
    task_specific_params={"text-generation": {"do_sample": True}}, gradient_checkpointing=False)
for name, file in (("config", "config.json"), ("weights", "model.safetensors")):
    put("bad.git-lfs." + name, "hf_llama")
    os.remove(f"bad.git-lfs.{name}/{file}")
    open(f"bad.git-lfs.{name}/{file}", "w").write("version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 4976698672\n")
open("pointer.gguf", "w").write("version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 4976698672\n")
PY
model_of() { case $1 in *gpt2 | *cross* | *scale_attn*) echo gpt ;; *moe | *qkv_bias | *mlp_only*) echo qwen-moe ;; *) echo llama ;; esac; }
for folder in bad.*; do
  word=${folder#bad.}
  word=${word#yarn.}
  word=${word%%.[cuw]*}
  ends 2 "$actorrun" --steps 1 --init "$folder" "$(model_of "$folder")" "${train[@]}"
  grep -q "$folder.*$word\|$word.*$folder" err || fail "the message names $folder and $word"
done
for folder in good.*; do
  ends 0 "$actorrun" --quiet --steps 1 --report "$folder.report" --init "$folder" "$(model_of "$folder")" "${train[@]}"
done
for pair in smollm2:llama old:llama buffers:llama layers:llama qwen2:qwen2 qwen3_moe:qwen3_moe gpt2:gpt2; do
  name=good.${pair%:*}
  ends 0 "$actorrun" --quiet --steps 1 --report base.report --init "$reference/hf_${pair#*:}" "$(model_of "$name")" "${train[@]}"
  cmp <(hexes base.report) <(hexes "$name.report") || fail "$name is what it was"
done
refused "sliding window of 4096" --init window llama --data "$data" --context 5000
refused "pointer.gguf is a pointer of git-lfs" --init pointer.gguf llama "${train[@]}"
refused "pointer.gguf is a pointer of git-lfs" --steps 1 llama "${train[@]:2}" --data pointer.gguf

# ---- saved folders load again -------------------------------------------------------------------------

ends 0 "$actorrun" --quiet --init "$reference/hf_llama3" --steps 2 --save tuned/ llama "${train[@]}"
ends 0 "$actorrun" --quiet --init "$reference/hf_llama3" --steps 2 --save tuned.safetensors llama "${train[@]}"
cmp tuned/model.safetensors tuned.safetensors || fail "a folder has the same weights"
run again --init tuned --steps 2 --save tuned llama "${train[@]}"
grep -q '"rope_type":[[:space:]]*"llama3"' tuned/config.json || fail "config.json is kept"
grep -q float32 tuned/config.json || fail "config.json says that weights are fp32"
model=(--layers 2 --width 32 --heads 4 --kv-heads 2 --bias qkv --tied --positions 64 --theta 50000
       --rope yarn:factor=4,original_max_position_embeddings=16 --eps 1e-6)
ends 0 "$actorrun" --quiet --steps 2 --save made/ llama "${train[@]}" "${model[@]}"
run folder --init made --steps 2 llama "${train[@]}"
run file --init made/model.safetensors --steps 2 llama "${train[@]}" "${model[@]}"
cmp folder.losses file.losses || fail "config.json says all of the options that weights were made with"
ends 0 "$actorrun" --quiet --steps 2 --save near/ llama "${train[@]}" --layers 2 --width 32 --heads 4 \
  --window 5
grep -q '"sliding_window":[[:space:]]*5' near/config.json || fail "config.json says the window"
run folder --init near --steps 2 llama "${train[@]}"
run file --init near/model.safetensors --steps 2 llama "${train[@]}" --layers 2 --width 32 --heads 4 \
  --window 5
cmp folder.losses file.losses || fail "a window goes out and in"
run again --init pair --steps 1 llama "${train[@]}"
refused "cannot make the folder" --steps 1 --save no/such/ llama "${train[@]}"

# ---- a user's own model takes the tensors that it names -----------------------------------------------

cat >mine.c <<'C'
#include <sluice/sluice.h>
static const sl_option options[] = {{"data", SL_OPTION_LIST, NULL, "`FILE` to learn", 0, 0}, {0}};
static sl_status build(sl_graph *g, const sl_args *args) {
  sl_tensor *next, *ids = sl_tokens(g, sl_arg_text(args, "data"), sl_microbatch_rows(g, 4), 32, 256, &next);
  sl_tensor *table = sl_param(g, SL_TYPE(SL_F32, 256, 32), SL_NORMAL(0.02f), "model.embed_tokens.weight");
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, 32, 32), SL_NORMAL(0.02f), "model.layers.0.self_attn.q_proj.weight");
  sl_tensor *head = sl_param(g, SL_TYPE(SL_F32, 256, 32), SL_NORMAL(0.02f), "lm_head.weight");
  sl_tensor *x = sl_linear(g, sl_embedding(g, ids, table), w, NULL);
  sl_block(g, "head");
  sl_train(g, sl_cross_entropy(g, sl_linear(g, x, head, NULL), next), &(sl_optimizer){.lr = 1e-3f});
  return sl_graph_status(g);
}
SL_MODEL(mine, "less than a llama", options, build);
C
ends 0 "$actorrun" --quiet --steps 1 --init "$reference/hf_llama" mine.c --data "$data"
grep -q "does not use 18 of the 21 tensors" err || fail "the rest is mentioned"
refused "q_proj.bias would change the results" --steps 1 --init mine.bias mine.c --data "$data"

# ---- a folder in place of MODEL ------------------------------------------------------------------------

run named --init "$reference/hf_llama" --steps 2 llama "${train[@]}"
run placed --steps 2 "$reference/hf_llama" "${train[@]}"
run early --init "$reference/hf_llama" --steps 2 "${train[@]}"
run several --steps 2 -n 2 --stages 2 "${patient[@]}" "$reference/hf_llama" "${train[@]}"
for how in placed early several; do cmp named.losses $how.losses || fail "a folder stands for its model ($how)"; done
run placed --steps 1 "$reference/gguf/tiny.gguf" "${train[@]}"
run early --steps 1 --init "$reference/gguf/tiny.gguf" "${train[@]}"
cmp placed.losses early.losses || fail "so does a GGUF file"
refused "unknown option --data, and no MODEL was given that could have it; see" --init "$reference/hf_llama/model.safetensors" "${train[@]}"
refused "pointer.gguf is a pointer of git-lfs" pointer.gguf "${train[@]}"
mkdir gpt
ends 0 "$actorrun" --quiet --steps 1 gpt --data "$data" --layers 1 --width 8 --heads 1 --context 8
rmdir gpt

# --epochs sets the number of steps, and the rate decays over them: half of 114 sequences, at 4 per
# step, is 15 steps.
run epochs --epochs 0.5 --lr-schedule cosine:min-lr=0 "$reference/hf_llama" --data "$data" --context 32 --batch 4 --lr 1e-3
run steps --steps 15 --lr-schedule cosine:min-lr=0,decay-steps=15 "$reference/hf_llama" --data "$data" --context 32 --batch 4 --lr 1e-3
cmp epochs.losses steps.losses || fail "half an epoch is 15 steps"
[[ $(wc -l <epochs.losses) == 15 ]] || fail "of 114 sequences 57 are 15 steps of 4"
refused "--steps 7 contradicts --epochs 0.5, which are 15" --epochs 0.5 --steps 7 "$reference/hf_llama" --data "$data" --context 32 --batch 4
refused "--epochs: pipeline lacks --data" --epochs 1 pipeline

# ---- text through the tokenizer -----------------------------------------------------------------------

mkdir tokens
cp "$reference/tokenizers/llama3.json" tokens/tokenizer.json
small=(--layers 1 --width 16 --heads 2 --vocab 2100)
ends 0 "$actorrun" --quiet --steps 1 --save tokens/ llama "${train[@]}" "${small[@]}"
run plain --init tokens --steps 2 llama "${train[@]}"
run given --init tokens/model.safetensors --tokenizer tokens/tokenizer.json --steps 2 llama "${train[@]}" "${small[@]}"
cmp plain.losses given.losses || fail "the tokenizer of the folder is used"
ends 0 "$actorrun" --quiet --init tokens --steps 2 --eval "$data" --eval-every 2 llama "${train[@]}"
run bytes --init tokens --steps 2 llama "${train[@]:2}" --data "$data:u8"
cmp -s plain.losses bytes.losses && fail "bytes are other tokens"
ends 0 "$actorrun" --quiet --init tokens --steps 0 --generate 5 --temperature 0 --prompt "Hello  wörld 中" llama
grep -q "^Hello  wörld 中" out || fail "what was written begins with the prompt"
ends 0 "$actorrun" --quiet --init tokens --steps 1 --save copy/ llama "${train[@]}"
cmp copy/tokenizer.json tokens/tokenizer.json || fail "the tokenizer goes along"
refused "vocabulary of 500" --tokenizer tokens/tokenizer.json --steps 0 --generate 1 --prompt "The whole" \
  llama --layers 1 --width 16 --heads 2 --vocab 500

# A long text is tokenized once. Later runs reuse the tokens, unless the text or the tokenizer
# changes.
for _ in {1..1300}; do cat "$data"; done >long.txt
run first --init tokens --steps 2 llama "${train[@]:2}" --data long.txt
kept=(.cache/sluice/tokens/*.u32)
((${#kept[@]} == 1)) && [[ -s ${kept[0]} ]] || fail "the tokens are kept"
inode=$(stat -c %i "${kept[0]}")
touch -d "40 days ago" "${kept[0]}" .cache/sluice/tokens/{0-4.u32,mine.txt}
run second --init tokens --steps 2 llama "${train[@]:2}" --data long.txt
cmp first.losses second.losses || fail "kept tokens are the same"
[[ $(stat -c %i "${kept[0]}") == "$inode" ]] || fail "the tokens are not made again"
cp "$reference/tokenizers/smollm.json" other.json
run third --init tokens/model.safetensors --tokenizer other.json --steps 2 llama "${train[@]:2}" --data long.txt "${small[@]}"
cmp -s first.losses third.losses && fail "another tokenizer makes other tokens"
[[ ! -e .cache/sluice/tokens/0-4.u32 && -e .cache/sluice/tokens/mine.txt && -e ${kept[0]} ]] ||
  fail "what nobody has used for long goes, and nothing else: $(ls .cache/sluice/tokens)"
echo "one more line" >>long.txt
run fourth --init tokens --steps 2 llama "${train[@]:2}" --data long.txt
kept=(.cache/sluice/tokens/*.u32)
((${#kept[@]} == 3)) || fail "each is kept by itself"
XDG_CACHE_HOME=/proc run nowhere --init tokens --steps 2 llama "${train[@]:2}" --data long.txt
cmp nowhere.losses fourth.losses || fail "without a place to keep them they are the same"

printf 'abc\xff' >bad.txt
refused "bad.txt: byte 3 is not UTF-8" --init tokens llama "${train[@]}" --data bad.txt
echo '{}' >tokens/tokenizer.json
refused "tokens/tokenizer.json: there is no model" --init tokens llama "${train[@]}"
