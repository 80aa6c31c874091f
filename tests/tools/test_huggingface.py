# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face folder is loaded as it is. Its config.json sets the model's options, and its losses equal those of
PyTorch (tests/reference/make_pretrained.py). Contradictions and unsupported settings are rejected with an error that
names them. Saved folders load again.

labels: outside
needs: zeromq pcre2 utf8proc
"""
import glob
import json
import os
import re
import shutil
import time

from tool import (ACTORRUN, PLACES, Runs, actorrun, copy_model, differ, fails, near, parse, published, read, same_bits, says,
                  typed_tensors, write, write_tensors)

REFERENCE, TEXT = PLACES["reference"], "--data {reference}/text.txt "
RATE = "--batch 4 --lr 1e-3 --min-lr 1e-3 --warmup 0 "
BARE = f"--context 32 {RATE}"
TRAIN, LONG = TEXT + BARE, f"{TEXT} --context 200 {RATE}"
llama, gpt, mamba2, moe, long = (Runs(f"{model} {data}") for model, data in (
    ("llama", TRAIN), ("gpt", TRAIN), ("mamba2", TRAIN), ("qwen-moe", TRAIN), ("llama", LONG)))


def refused(text, options):
    fails(text, ACTORRUN, options)


# ---- PyTorch's losses ------------------------------------------------------------------------------------------
for run, name, how in ((llama, "qwen2", ""), (llama, "llama3", ""), (llama, "mistral", ""), (mamba2, "mamba2", ""),
                       (llama, "llama3", "--stages 2 --microbatches 2 --pieces 2"),
                       (llama, "qwen2", "-n 2 --stages 2 --save pair/")):
    folder = "{reference}/hf_" + name
    near(published(folder + "/losses.txt"), run(f"--init {folder} --steps 5 {how}"), 1e-6)
actorrun("--quiet --steps 0 --init {reference}/hf_mamba2 --save mamba/ mamba2 " + TRAIN)
same_bits(mamba2("--init {reference}/hf_mamba2 --steps 5"), mamba2("--init mamba --steps 5"))
actorrun(f"--quiet --steps 1 --save fresh/ mamba2 {TRAIN} --layers 2 --width 32 --head-dim 16 --no-conv-bias")
mamba2("--init fresh --steps 1")
shutil.copytree(REFERENCE + "/hf_mamba2", "limited")
config = read("limited/config.json").decode()
plain = re.sub(r'{\s*"__float__": "Infinity"\s*}', "Infinity", config).replace('"expand": 2', '"expand": 3')
for text, changed in (
        ("time_step_limit is not 0 to infinity", config.replace('"__float__": "Infinity"', '"__float__": "9"')),
        ("expand:2 * hidden_size:4096 = num_heads:128 * head_dim:64 is required, and 96 is not 64", plain),
        ("limited/config.json: a value is NaN, which is no number of a model", plain.replace("Infinity", "NaN"))):
    write("limited/config.json", changed)
    mamba2.refused(text, "--steps 1 --init limited")

# ---- chunked positions, as in Qwen2.5-1M -----------------------------------------------------------------------
CHUNKS = {"chunk_size": 80, "local_size": 16, "original_max_position_embeddings": 70}
theta = parse(REFERENCE + "/hf_qwen2/config.json")["rope_parameters"]["rope_theta"]


def chunked(name, rope=None, **chunks):
    more = {} if rope is None else {"rope_scaling": rope}
    copy_model(REFERENCE + "/hf_qwen2", name, ["rope_parameters"], rope_theta=theta, max_position_embeddings=500,
               dual_chunk_attention_config={**CHUNKS, **chunks}, **more)


chunked("chunked")
chunks = long("--init chunked --steps 3 --save rechunked/")
near(published("{reference}/dual_chunk_losses.txt"), chunks, 1e-6)
by = "dual-chunk:" + ",".join(f"{key}={value}" for key, value in CHUNKS.items())
same_bits(chunks, Runs(f"llama {LONG} --rope {by}")("--init chunked --steps 3"))
saved = parse("rechunked/config.json")
assert saved["dual_chunk_attention_config"] == CHUNKS and not saved.get("rope_scaling"), saved
assert saved["model_type"] == "qwen2", saved
near(chunks, long("--init chunked --steps 3 --tensor 2 --data-parallel 2"), 2e-6)
# Within one chunk, dual chunk attention equals plain positions bit for bit; beyond one chunk it differs.
chunked("one_chunk", chunk_size=272, sparse_attention_enabled=False)
config = parse("one_chunk/config.json")
del config["dual_chunk_attention_config"]["original_max_position_embeddings"]
write("one_chunk/config.json", json.dumps(config))
copy_model("chunked", "no_chunk", ["dual_chunk_attention_config"])
same_bits(long("--init one_chunk --steps 3"), long("--init no_chunk --steps 3"))
differ(chunks, long("--init no_chunk --steps 3"))
for text, changes in (
        ("chunk_size=80 - local_size=15 must be a positive multiple of 64", {"local_size": 15}),
        ("sparse_attention_enabled is true; only false is supported", {"sparse_attention_enabled": True}),
        ("stride", {"stride": 2}),
        ("dual_chunk_attention_config cannot be used with rope_type linear", {"rope": {"rope_type": "linear", "factor": 2}})):
    chunked("wrong", **changes)
    long.refused(text, "--steps 1 --init wrong")
for text, options, model in (
        ("GGUF files are written with none, linear, llama3 and yarn", "--save x.gguf", ""), ("(attention_dual)", "--pieces 2", ""),
        ("--rope dual-chunk: not supported with several documents in a row", "", "--document-end 10")):
    Runs(f"{long.model} {model}").refused(text, f"--steps 1 --init chunked {options}")

# ---- the folder sets the options -------------------------------------------------------------------------------
for run, name, options in ((llama, "llama", "--layers 2 --width 32 --heads 4 --kv-heads 2 --ffn 88"),
                           (gpt, "gpt2", "--layers 2 --width 32 --heads 2")):
    heads = "--heads 2" if run is gpt else ""
    same_bits(Runs(f"{run.model} {heads}")(f"--init {{reference}}/hf_{name} --steps 3"),
              Runs(f"{run.model} {options}")(f"--init {{reference}}/hf_{name}/model.safetensors --steps 3"))
for text, folder, options in (
        (f"--heads 2 contradicts {REFERENCE}/hf_llama/config.json, which says 4 (num_attention_heads)", "llama", "--heads 2"),
        ("--eps 1e-6", "gpt2", "--eps 1e-6"), ("--theta 1e6", "llama", "--theta 1e6"), ("--tied 1", "llama", "--tied"),
        ("--rope linear:factor=2", "qwen2", "--rope linear:factor=2"),
        (f"--window 8 contradicts {REFERENCE}/hf_mistral/config.json, which says 7 (sliding_window)", "mistral", "--window 8"),
        ("--window 8", "llama", "--window 8")):
    refused(text, f"--init {{reference}}/hf_{folder} {'gpt' if folder == 'gpt2' else 'llama'} {TRAIN} {options}")
refused("no Hugging Face model matches llama", f"--save made/ llama {TRAIN} --window 8 --bias qkv")
refused("no Hugging Face model matches gpt", f"--save made/ gpt {TRAIN} --window 8")
refused("--context 64 is more than --positions 32", f"--init {{reference}}/hf_llama llama {TEXT} --context 64")
refused("should be llama, not gpt", f"--init {{reference}}/hf_llama gpt {TRAIN}")

config = read(REFERENCE + "/hf_llama/config.json").decode()
for old, new, text in (
        ('"model_type": "llama"', '"model_type": "bert"', "bert"), ('"silu"', '"gelu"', "hidden_act"),
        ('"mlp_bias": false', '"mlp_bias": true', "mlp_bias"),
        ('"attention_dropout"', '"quantization_config": {"bits": 4}, "x"', "quantization_config"),
        ('"hidden_size": 32', '"hidden_size": "32"', "hidden_size"), ('"num_hidden_layers": 2,', "", "num_hidden_layers"),
        ('"rope_type": "default"', '"rope_type": "longrope", "factor": 2', "longrope"),
        ('"rope_type": "default"', '"rope_type": "yarn", "factor": 2, "mscale": 1', "mscale"),
        ('"mlp_bias": false', '"sliding_window": 16', "sliding window of 16"),
        ('"vocab_size": 256', '"vocab_size": 300', "model.embed_tokens.weight"), ("{", "", "not a JSON object")):
    copy_model(REFERENCE + "/hf_llama", "edited")
    write("edited/config.json", config.replace(old, new, 1))
    llama.refused(text, "--init edited")

# Known keys have no effect or describe what Sluice does; any other key is rejected, and so is a tensor that a model lacks.
yarn = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16}


def put(name, base, gone=(), extra=None, **keys):
    copy_model(f"{REFERENCE}/hf_{base}", name, gone, **keys)
    if extra:
        rows = typed_tensors(name + "/model.safetensors")
        write_tensors(name + "/model.safetensors", {**rows, extra: ("F32", [4], bytes(16))})


def model_of(base):
    return {"gpt2": gpt, "qwen3_moe": moe}.get(base, llama)


for word, base, keys in (
        *((key, "llama", {key: value}) for key, value in (
            ("residual_multiplier", 0.5), ("logits_scaling", 8), ("rope_interleaved", True), ("attn_logit_softcapping", 50.0),
            ("layer_types", ["full_attention", "sliding_attention"]), ("compression_config", {"bits": 4}),
            ("partial_rotary_factor", 0.5), ("per_layer_config", {"0": {"head_dim": 4}}),
            ("original_max_position_embeddings", 16), ("attention_bias", "true"))),
        *((key, "llama", {"rope_parameters": {**yarn, key: value}}) for key, value in (
            ("mscale", 0.7), ("mscale_all_dim", 1.0), ("llama_4_scaling_beta", 0.1), ("beta_fast", "32"),
            ("short_factor", [1.0, 2.0]))),
        ("differ", "llama", {"rope_scaling": yarn}), ("full_attention", "llama", {"rope_parameters": {"full_attention": yarn}}),
        ("window", "qwen2", {"use_sliding_window": True, "sliding_window": 8}),
        ("add_cross_attention", "gpt2", {"add_cross_attention": True}),
        ("scale_attn_weights", "gpt2", {"scale_attn_weights": False}), ("qkv_bias", "qwen3_moe", {"qkv_bias": True}),
        ("mlp_only_layers", "qwen3_moe", {"mlp_only_layers": [0]}),
        *((word, "llama", {"extra": f"model.{name}"}) for word, name in (
            ("q_proj.bias", "layers.1.self_attn.q_proj.bias"), ("q_norm", "layers.1.self_attn.q_norm.weight"),
            ("embed_norm", "embed_norm.weight"), ("weight_scale", "layers.0.mlp.up_proj.weight_scale")))):
    put("bad", base, **keys)
    err = fails(word, ACTORRUN, f"--steps 1 --init bad {model_of(base).model}").stderr
    says(err, "bad")
for name in ("config.json", "model.safetensors"):
    put("git-lfs", "llama")
    write("git-lfs/" + name, "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 4976698672\n")
    llama.refused("git-lfs", "--steps 1 --init git-lfs")
shutil.copy("git-lfs/model.safetensors", "pointer.gguf")
for name, base, keys in (
        ("smollm2", "llama", dict(is_llama_config=True, rope_interleaved=False, rope_scaling=None, pretraining_tp=1,
                                  unsloth_fixed=True, **{"transformers.js_config": {
                                      "dtype": "q4", "kv_cache_dtype": {"q4f16": "float16"}}})),
        ("old", "llama", dict(gone=["rope_parameters", "mlp_bias", "attention_bias", "head_dim", "tie_word_embeddings"],
                              rope_theta=10000, max_length=20, id2label={"0": "a"}, _name_or_path="x",
                              rope_scaling={"type": "default"}, torch_dtype="float16", layer_types=["full_attention"] * 2)),
        ("buffers", "llama", dict(extra="model.layers.0.self_attn.rotary_emb.inv_freq")),
        ("layers", "llama", dict(extra="model.layers.9.self_attn.q_norm.weight")),
        ("qwen2", "qwen2", dict(gone=["use_sliding_window", "layer_types", "max_window_layers"], sliding_window=8,
                                use_mrope=False)),
        ("qwen3_moe", "qwen3_moe", dict(qkv_bias=False, shared_expert_intermediate_size=0, use_qk_norm=True,
                                        sliding_window=None)),
        ("gpt2", "gpt2", dict(gone=["tie_word_embeddings", "scale_attn_weights", "layer_norm_epsilon"], n_ctx=32,
                              attn_pdrop=0.1, task_specific_params={"text-generation": {"do_sample": True}},
                              gradient_checkpointing=False))):
    put("good." + name, base, **keys)
    run = model_of(base)
    same_bits(run(f"--steps 1 --init {{reference}}/hf_{base}"), run(f"--steps 1 --init good.{name}"))
put("window", "qwen2", gone=["sliding_window", "max_position_embeddings"], use_sliding_window=True)
refused("sliding window of 4096", f"--init window llama {TEXT} --context 5000")
refused("pointer.gguf is a pointer of git-lfs", f"--init pointer.gguf llama {TRAIN}")
refused("pointer.gguf is a pointer of git-lfs", f"--steps 1 llama {BARE} --data pointer.gguf")

# ---- saved folders load again ----------------------------------------------------------------------------------
for where in ("tuned/", "tuned.safetensors"):
    actorrun(f"--quiet --init {{reference}}/hf_llama3 --steps 2 --save {where} llama {TRAIN}")
assert read("tuned/model.safetensors") == read("tuned.safetensors"), "a folder has other weights than a file"
llama("--init tuned --steps 2 --save tuned")
assert re.search(r'"rope_type":\s*"llama3".*float32|float32.*"rope_type":\s*"llama3"', read("tuned/config.json").decode(), re.S)
for name, options in (
        ("made", "--layers 2 --width 32 --heads 4 --kv-heads 2 --bias qkv --tied --positions 64 --theta 50000 "
         "--rope yarn:factor=4,original_max_position_embeddings=16 --eps 1e-6"),
        ("near", "--layers 2 --width 32 --heads 4 --window 5")):
    actorrun(f"--quiet --steps 2 --save {name}/ llama {TRAIN} {options}")
    same_bits(llama(f"--init {name} --steps 2"),
              Runs(f"llama {TRAIN} {options}")(f"--init {name}/model.safetensors --steps 2"))
assert parse("near/config.json")["sliding_window"] == 5
llama("--init pair --steps 1")
llama.refused("cannot make the folder", "--steps 1 --save no/such/")

# ---- a user's own model takes the tensors that it names --------------------------------------------------------
write("mine.c", r"""#include <sluice/sluice.h>
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
""")
got = actorrun("--quiet --steps 1 --init {reference}/hf_llama mine.c " + TEXT)
says(got.stderr, "does not use 18 of the 21 tensors")
put("mine.bias", "llama", extra="model.layers.0.self_attn.q_proj.bias")
refused("q_proj.bias would change the results", "--steps 1 --init mine.bias mine.c " + TEXT)

# ---- a folder in place of MODEL --------------------------------------------------------------------------------
placed, early = Runs("{reference}/hf_llama " + TRAIN), Runs(TRAIN)
for other in (placed("--steps 2"), early("--init {reference}/hf_llama --steps 2"), placed("--steps 2 -n 2 --stages 2")):
    same_bits(llama("--init {reference}/hf_llama --steps 2"), other)
same_bits(Runs("{reference}/gguf/tiny.gguf " + TRAIN)("--steps 1"), early("--steps 1 --init {reference}/gguf/tiny.gguf"))
refused("unknown option --data, and no MODEL was given that could have it; see",
        "--init {reference}/hf_llama/model.safetensors " + TRAIN)
refused("pointer.gguf is a pointer of git-lfs", "pointer.gguf " + TRAIN)
os.mkdir("gpt")
actorrun(f"--quiet --steps 1 gpt {TEXT} --layers 1 --width 8 --heads 1 --context 8")
os.rmdir("gpt")

# --epochs sets the number of steps, and the rate decays over them: half of 114 sequences, at 4 per step, is 15 steps.
epochs = Runs(f"{{reference}}/hf_llama {TEXT} --context 32 --batch 4 --lr 1e-3")
half = epochs("--epochs 0.5 --lr-schedule cosine:min-lr=0")
same_bits(half, epochs("--steps 15 --lr-schedule cosine:min-lr=0,decay-steps=15"))
assert len(half.losses) == 15, half.losses
epochs.refused("--steps 7 contradicts --epochs 0.5, which are 15", "--epochs 0.5 --steps 7")
refused("--epochs: pipeline lacks --data", "--epochs 1 pipeline")

# ---- text through the tokenizer --------------------------------------------------------------------------------
os.mkdir("tokens")
shutil.copy(REFERENCE + "/tokenizers/llama3.json", "tokens/tokenizer.json")
SMALL = "--layers 1 --width 16 --heads 2 --vocab 2100"
small, long = Runs(f"llama {TRAIN} {SMALL}"), Runs(f"llama {BARE} --data long.txt")
actorrun(f"--quiet --steps 1 --save tokens/ llama {TRAIN} {SMALL}")
plain = llama("--init tokens --steps 2")
same_bits(plain, small("--init tokens/model.safetensors --tokenizer tokens/tokenizer.json --steps 2"))
llama("--init tokens --steps 2 --eval {reference}/text.txt --eval-every 2")
differ(plain, Runs(f"llama {BARE} --data {{reference}}/text.txt:u8")("--init tokens --steps 2"))
said = actorrun("--quiet --init tokens --steps 0 --generate 5 --temperature 0 --prompt 'Hello  wörld 中' llama").stdout
assert re.search("^Hello  wörld 中", said, re.M), said
llama("--init tokens --steps 1 --save copy/")
assert read("copy/tokenizer.json") == read("tokens/tokenizer.json"), "the tokenizer is not saved"
refused("vocabulary of 500", "--tokenizer tokens/tokenizer.json --steps 0 --generate 1 --prompt 'The whole' "
        "llama --layers 1 --width 16 --heads 2 --vocab 500")

# A long text is tokenized once. Later runs reuse the tokens, unless the text or the tokenizer changes.
CACHE = ".cache/sluice/tokens/"
with open("long.txt", "wb") as file:
    file.write(read(REFERENCE + "/text.txt") * 1300)
first = long("--init tokens --steps 2")
(kept,) = glob.glob(CACHE + "*.u32")
assert os.path.getsize(kept)
inode, before = os.stat(kept).st_ino, time.time() - 40 * 86400
for name in (kept, CACHE + "0-4.u32", CACHE + "mine.txt"):
    with open(name, "ab"):
        os.utime(name, (before, before))
same_bits(first, long(" --init tokens --steps 2"))
assert os.stat(kept).st_ino == inode, "the tokens are made again"
shutil.copy(REFERENCE + "/tokenizers/smollm.json", "other.json")
differ(first, Runs(f"{long.model} {SMALL}")("--init tokens/model.safetensors --tokenizer other.json --steps 2"))
assert not os.path.exists(CACHE + "0-4.u32") and os.path.exists(CACHE + "mine.txt") and os.path.exists(kept), os.listdir(CACHE)
with open("long.txt", "a", encoding="utf-8") as file:
    file.write("one more line\n")
fourth = long("--init  tokens --steps 2")
assert len(glob.glob(CACHE + "*.u32")) == 3, os.listdir(CACHE)
same_bits(fourth, long("--init tokens --steps 2", XDG_CACHE_HOME="/proc"))

with open("bad.txt", "wb") as file:
    file.write(b"abc\xff")
refused("bad.txt: byte 3 is not UTF-8", f"--init tokens llama {TRAIN} --data bad.txt")
write("tokens/tokenizer.json", "{}\n")
refused("tokens/tokenizer.json: there is no model", f"--init tokens llama {TRAIN}")
