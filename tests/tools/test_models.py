# SPDX-License-Identifier: Apache-2.0
"""Folders of the families in families.json have transformers' losses, gradient norms and greedy tokens
(tests/reference/make_models.py), on one device and on grids, and are saved as they were read. A text model inside of one
with images is read, and so are experts in one tensor. What no row understands is refused by name. docs/families.md holds
the table of --families.

labels: outside
needs: zeromq
"""
import array
import glob
import json
import os
import re
import sys
import zlib

from families import copy_with_letters, greedy, holds, saves, served
from tool import (ACTORRUN, PLACES, SOURCE, Runs, actorrun, copy_model, fails, read, same_bits, tensors, typed_tensors,
                  write, write_tensors)

sys.path.insert(0, PLACES["reference"])
from model_folder import write_folder  # pylint: disable=wrong-import-position

DATA = "--data {reference}/text.txt --context 32 --batch 4 "
DENSE = DATA + "--lr 1e-3 --min-lr 1e-3 --warmup 0 "
TRAIN = DENSE + "--aux-loss 0 "
decoder = Runs("decoder " + TRAIN)
made = {}
for path in sorted(glob.glob(PLACES["reference"] + "/models/*.json")):
    name = os.path.basename(path)[:-5]
    made[name] = write_folder(path, name)
    copy_with_letters(name, "letters." + name)


def compare(name, report):
    """Losses have to be within 1e-6 of transformers', and the gradient norm of the first step within 1e-5; steps of AdamW
    grow the differences of small gradients."""
    ours = [(s["loss"], s["grad_norm"]) for s in report.whole["steps"]]
    far = [[abs(x[i] / y[i] - 1) for x, y in zip(ours, made[name]["steps"])] for i in (0, 1)]
    assert len(ours) > 1 and max(far[0]) < 1e-6 and far[1][0] < 1e-5 and max(far[1]) < 1e-4, (name, report.call, far)


def answers(name, model, options=""):
    greedy("letters." + name, model, made[name]["prompt"], made[name]["answer"], options)


for name in made:
    model = "llama" if name.startswith("phi3") else "decoder"
    run = decoder if model == "decoder" else Runs("llama " + DENSE)
    if name.startswith("ahead_"):
        run = Runs(f"decoder {TRAIN} --ahead 1")
    compare(name, run(f"--init {name} --steps 5"))
    compare(name, run(f"--init {name} --steps 2 --stages 2 --tensor 2 --microbatches 2"))
    answers(name, model)
for name in ("qwen3_5_moe_text", "lfm2_moe", "kimi_linear", "gemma4_text", "gemma4_mixture"):
    answers(name, "decoder", "--tensor 2")
    decoder(f"--init {name} --steps 2 --lora *proj*=2")
for name, options in (("gemma4_text", ""), ("gemma4_mixture", ""), ("phi3_short", "--context 64")):
    served("letters." + name, made[name]["prompt"], made[name]["answer"], options)

# A preset is decoder with other options.
SMALL = TRAIN + "--layers 4 --width 32 "
BACKBONE = ("model.layers=backbone.layers,model.embed_tokens=backbone.embeddings,model.norm=backbone.norm_f,input_layernorm=norm,"
            "mamba=mixer")
for preset, options in (
        ("llama --heads 4 --packed --window 8 --full-every 2 --gate gelu",
         "--heads 4 --packed-qkv --packed-gates --window 8 --mixers window,full --function gelu"),
        ("gpt-oss --heads 4 --window 8 --experts 4",
         "--heads 4 --window 8 --mixers window,full --feeds experts --experts 4 --sinks --function clamped --paired-experts "
         "--expert-bias --names mlp.gate=mlp.router"),
        ("deepseek --heads 4 --dense-layers 2 --experts 4 --value-dim 16 --shared-ffn 8",
         "--heads 4 --mixers latent --feeds mlp,mlp,experts,experts --experts 4 --latent-value-dim 16 --router corrected "
         "--shared-ffn 8 --names mlp.shared_expert=mlp.shared_experts"),
        ("hybrid --heads 4 --softmax-every 3 --experts 4 --dense-blocks 0,2 --ffn 24 --norm-topk 1",
         "--heads 4 --mixers linear,linear,full --feeds mlp,experts --experts 4 --ffn 24 --expert-ffn 24"),
        ("mamba2 --head-dim 16 --groups 2",
         f"--mixers mamba --feeds none --state-head-dim 16 --state-groups 2 --conv-bias --names {BACKBONE}")):
    train = SMALL if "experts" in preset else SMALL.replace("--aux-loss 0 ", "")
    same_bits(Runs(preset + " " + train)("--steps 2"), Runs("decoder " + options + " " + train)("--steps 2"))

# A saved folder is the one that was read.
for name in ("qwen3_5_moe_text", "granitemoehybrid", "nemotron_h", "lfm2_moe", "gemma4_text", "gemma4_mixture"):
    assert saves(name, "decoder", DATA), f"{name}: another config.json"
saves("ahead_glm4_moe", "decoder", DATA + "--ahead 1")

# Older files say the same by other keys.
for name, gone, keys in (
        ("exaone4", "layer_types", dict(sliding_window_pattern="LLLG")), ("starcoder2", "use_bias", {}),
        ("nemotron_h", "layers_block_type", dict(hybrid_override_pattern="ME*-ME", num_hidden_layers=6)),
        ("minimax_m2", "rope_parameters", dict(rotary_dim=4, rope_theta=50000.0, attn_type_list=[1] * 4)),
        ("kimi_linear",
         "layer_types linear_head_dim linear_num_heads linear_conv_kernel_dim mlp_layer_types head_dim",
         dict(first_k_dense_replace=1, moe_layer_freq=1, rope_scaling=None, rope_theta=1e4, mla_use_nope=True,
              linear_attn_config=dict(kda_layers=[1, 2, 4], full_attn_layers=[3], head_dim=12, num_heads=2,
                                      short_conv_kernel_size=4))),
        ("gemma4_text", "per_layer_config", dict(global_head_dim=16)),
        ("gemma4_mixture", "per_layer_config", dict(global_head_dim=16, num_global_key_value_heads=1)),
        ("lfm2", "num_attention_heads", dict(num_heads=made["lfm2"]["config"]["num_attention_heads"]))):
    copy_model(name, "older." + name, gone.split(), **keys)
    same_bits(decoder(f"--init older.{name} --steps 2"), decoder(f"--init {name} --steps 5").first(2))

# Dense halves are saved by the names of their authors.
actorrun(f"--quiet --init kimi_linear --steps 0 --save kimi/ decoder {DATA}")
assert any("layers.0.mlp.up_proj" in name for name in tensors("kimi/model.safetensors"))
same_bits(decoder("--init kimi --steps 2"), decoder("--init kimi_linear --steps 5").first(2))

# Kimi-Linear and Nemotron-H have classifiers of their own, whatever the key says (transformers' _tied_weights_keys).
for name in ("kimi_linear", "nemotron_h"):
    copy_model(name, "tied." + name, tie_word_embeddings=True)
    same_bits(decoder(f"--init tied.{name} --steps 2"), decoder(f"--init {name} --steps 5").first(2))

# Text models inside of models with images, as their authors publish them.
for name, outer, prefix in (("qwen3_5_moe_text", "qwen3_5_moe", "model.language_model."),
                            ("ministral3", "mistral3", "language_model.model."),
                            ("gemma4_text", "gemma4", "model.language_model.")):
    rows, out = typed_tensors(name + "/model.safetensors"), {}
    if outer == "gemma4":  # layers that share keys have weights for them
        out = {f"model.layers.{layer}.self_attn.{key}.weight": ("F32", [16, 2], bytes(128))
               for layer in (3, 4) for key in ("k_proj", "v_proj")}
        out["model.embed_audio.embedding_projection.weight"] = ("F32", [2, 2], bytes(16))
    for layer in {key.split(".experts.")[0] for key in rows if ".experts." in key}:
        gate, up, down = ([rows.pop(f"{layer}.experts.{i}.{part}_proj.weight")[2] for i in range(4)]
                          for part in ("gate", "up", "down"))
        out[layer + ".experts.gate_up_proj"] = ("F32", [4, 48, 32], b"".join(g + u for g, u in zip(gate, up)))
        out[layer + ".experts.down_proj"] = ("F32", [4, 32, 24], b"".join(down))
    out = {(prefix + key[6:] if key.startswith("model.") else key): row for key, row in {**rows, **out}.items()}
    if outer == "mistral3":
        out["language_model.lm_head.weight"] = out.pop("lm_head.weight")
    out["model.visual.patch.weight"] = out["vision_tower.blocks.0.qkv.weight"] = ("F32", [2, 2], bytes(16))
    os.mkdir(outer)
    write_tensors(outer + "/model.safetensors", out)
    write(outer + "/config.json", json.dumps({"model_type": outer, "vision_config": {}, "text_config": made[name]["config"]}))
    compare(name, decoder(f"--init {outer} --steps 5"))
    actorrun(f"--quiet --init {outer} --steps 0 --save saved.{outer}/ decoder {DATA}")
    holds(name, "saved." + outer)
    compare(name, decoder(f"--init saved.{outer} --steps 2"))

# Weights in 8 bits with a scale per block of 128 x 128 train as the numbers they stand for.
narrow, plain = {}, {}
for name, (dtype, shape, raw) in typed_tensors("smollm3/model.safetensors").items():
    shape = [200 if size == 48 else size for size in shape]  # two blocks
    if "_proj" not in name:
        narrow[name] = plain[name] = (dtype, shape, raw)
        continue
    codes, state = bytearray(), zlib.crc32(name.encode())
    for _ in range(shape[0] * shape[1]):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        codes.append((state >> 24) % 127 | (state >> 16 & 1) << 7)
    blocks = [(shape[0] + 127) // 128, (shape[1] + 127) // 128]
    scales = array.array("f", [2.0 ** -11 * (1 + i) for i in range(blocks[0] * blocks[1])])

    def value(v):  # a sign, 4 bits of exponent, 3 of fraction
        exponent, fraction = v >> 3 & 15, v & 7
        size = (8 + fraction) * 2.0 ** (exponent - 10) if exponent else fraction * 2.0 ** -9
        return -size if v & 128 else size
    values = array.array("f", [value(v) * scales[i // shape[1] // 128 * blocks[1] + i % shape[1] // 128]
                               for i, v in enumerate(codes)])
    narrow[name], plain[name] = ("F8_E4M3", shape, bytes(codes)), ("F32", shape, values.tobytes())
    narrow[name + "_scale_inv"] = ("F32", blocks, scales.tobytes())
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"}
copy_model("smollm3", "plain", intermediate_size=200)
write_tensors("plain/model.safetensors", plain)
copy_model("plain", "narrow", quantization_config=FP8)
write_tensors("narrow/model.safetensors", narrow)
same_bits(decoder("--init plain --steps 2"), decoder("--init narrow --steps 2"))
del narrow["model.layers.2.mlp.up_proj.weight_scale_inv"]
write_tensors("narrow/model.safetensors", narrow)


def refused(text, options):
    fails(text, ACTORRUN, f"{options} {DATA}")


refused("model.layers.2.mlp.up_proj.weight is F8_E4M3, but the scales", "--init narrow --steps 1 decoder")

# ---- a config.json with a changed key --------------------------------------------------------------------------
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16, "llama_4_scaling_beta": 0.1,
        "original_max_position_embeddings": 16}
for name, key, value, text in (
        ("smollm3", "mlp_bias", True, "mlp_bias"),
        ("kimi_linear", "layer_types", None, "no kind of layer 0: linear_attn_config.kda_layers is absent"),
        ("kimi_linear", "linear_attn_config", {"kda_layers": [0, 1]}, "linear_attn_config.kda_layers is not a list of layers"),
        ("kimi_linear", "linear_attn_config", {"safe_gate": True}, "linear_attn_config.safe_gate"),
        ("kimi_linear", "num_key_value_heads", 2, "num_key_value_heads"),
        ("smollm3", "something", 3, "something is 3, which is not understood"),
        ("smollm3", "no_rope_layers", [1, 1, 2, 0], 'no_rope_layers: "2" is not supported'),
        ("smollm3", "use_sliding_window", True, "use_sliding_window"),
        ("qwen3_5_text", "layer_types", ["linear_attention", "full_attention"],
         "layer_types is not a list with an item per layer"),
        ("qwen3_5_text", "layer_types", ["linear_attention", "full_attention", "chunked_attention", "full_attention"],
         "chunked_attention"),
        ("nemotron_h", "mlp_hidden_act", "tanh", "mlp_hidden_act is tanh, which is not supported"),
        ("nemotron_h", "hybrid_override_pattern", "M*", "hybrid_override_pattern is not a text with a letter per layer"),
        ("granitemoehybrid", "time_step_limit", [0, 2], "time_step_limit"),
        ("granitemoehybrid", "mamba_n_heads", 5, "not a whole number"),
        ("ministral3", "rope_parameters", None, "has no rope_scaling"),
        ("nemotron_h", "mamba_dt_limit", [0, 5], "mamba_dt_limit"), ("olmo", "clip_qkv", 8, "clip_qkv"),
        ("glm4_moe", "n_group", 3, "--expert-groups 3"), ("cohere2", "use_parallel_block", False, "use_parallel_block"),
        ("stablelm", "qk_layernorm", True, "qk_layernorm"), ("minimax_m2", "num_experts_per_tok", 9, "--top-k 9"),
        ("lfm2", "layer_types", ["conv", "conv", "attention", "conv"], 'layer_types: "attention" is not supported'),
        ("gemma2", "attn_logit_softcapping", "much", "attn_logit_softcapping"),
        ("granite", "embedding_multiplier", None, "embedding_multiplier is null"),
        ("lfm2_moe", "routed_scaling_factor", None, "routed_scaling_factor is null"),
        ("cohere2", "logit_scale", None, "logit_scale is null"),
        ("ernie4_5_moe", "moe_layer_end_index", 2, "moe_layer_end_index"),
        ("ernie4_5_moe", "moe_layer_interval", 2, "moe_layer_interval"), ("exaone4", "hidden_act", "relu", "hidden_act"),
        ("ministral3", "rope_parameters", YARN, "llama_4_scaling_beta"),
        ("gemma4_text", "per_layer_config", {"1": {"head_dim": 16, "intermediate_size": 9}}, "intermediate_size of layer 1"),
        ("gemma4_text", "per_layer_config", {"9": {"head_dim": 16}},
         "per_layer_config is not an object of layers by their numbers"),
        ("gemma4_text", "use_bidirectional_attention", "all", "use_bidirectional_attention"),
        ("gemma4_text", "num_kv_shared_layers", 5, "block 0 shares the keys of a block before"),
        ("gemma4_text", "num_kv_shared_layers", 4, "block 1 shares the keys of a block before"),
        ("gemma4_text", "num_kv_shared_layers", -1, "num_kv_shared_layers is not a count of layers"),
        ("gemma4_text", "rope_parameters", {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}},
         "rope_parameters has no full_attention"),
        ("hyperclovax", "logits_scaling", 0, "--logit-factor 0"),
        ("youtu", "num_key_value_heads", 1, "num_key_value_heads"), ("youtu", "head_dim", 7, "head_dim"),
        ("gemma4_mixture", "num_experts", None, "--feeds experts needs --experts"),
        ("gemma4_mixture", "per_layer_config", {"1": {"head_dim": 16, "num_key_value_heads": 3}}, "--block-kv-heads 3"),
        ("glm_moe_dsa", "indexer_types", ["full", "half", "full", "shared"], 'indexer_types: "half" is not supported')):
    copy_model(name, "edited", **{key: value})
    refused(text, "--init edited --steps 1 decoder")

# ---- options ---------------------------------------------------------------------------------------------------
INDEXED = "--width 32 --heads 4 --mixers indexed,reused --index-tokens 5"
for text, options in (
        ("--ahead 2: --ahead-names mtp has names for one", "--init ahead_qwen3_5_text --steps 1 decoder --ahead 2"),
        ("--ahead-names tail: must be layers or mtp", "--dry-run decoder --ahead 1 --ahead-names tail"),
        ("cannot be cut into pieces", f"--steps 1 --pieces 2 decoder {INDEXED}"),
        ("cannot be combined with --document-end", f"--steps 1 decoder {INDEXED} --document-end 10"),
        ("reused needs an indexed block before block 0", f"--steps 1 decoder {INDEXED} --mixers reused,indexed"),
        *((text, "--dry-run decoder " + options) for text, options in (
            ('unknown word "windows"', "--mixers windows"),
            ("--score-cap and --attend-blocks exclude each other", "--score-cap 5 --attend-blocks 0.5"),
            ('unknown word "mlp-shared"', "--feeds mlp-shared"), ('unknown word "full-keyed-"', "--mixers full-keyed-"),
            ("--block-kv-heads 4", "--heads 6 --block-kv-heads 0,4"), ('"x" is not a number', "--block-head-dims 16,x"),
            ("--block-head-dims 1024: at most 512", "--block-head-dims 1024"),
            ("--feeds both needs --norms both", "--feeds both --experts 4"),
            ("not supported with --gated-heads", "--gated-heads --value-norm"),
            ("--ahead: not supported with --block-inputs", "--ahead 1 --block-inputs 8"),
            ("--mixers window needs --window", "--mixers full,window"),
            ("--feeds experts needs --experts", "--feeds experts")))):
    refused(text, options)
fails("--ahead 16: the context is only 8", ACTORRUN, "--dry-run deepseek --ahead 16 --data {reference}/text.txt --context 8")

# The page holds the table.
page = read(SOURCE + "/docs/families.md").decode()
table = re.search(r"^\| model_type \| class.*?(?=\n\n)", page, re.M | re.S)[0]
assert actorrun("--families").stdout.rstrip("\n") == table, "docs/families.md lacks the table of actorrun --families"
