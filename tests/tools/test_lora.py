# SPDX-License-Identifier: Apache-2.0
"""Adapters saved by PEFT train as in PEFT (reference/lora_*), on one device, over stages, grids, processes and emulated
GPUs. They resume from checkpoints, survive a round trip, and give the same model when merged. New adapters do not change
the model. Errors name their cause.

labels: outside
needs: zeromq
"""
import json
import math
import os
import re

from tool import (ACTORRUN, EMULATED, PLACES, Runs, actorrun, fails, near, parse, published, read, says, typed_tensors, write,
                  write_tensors)

REFERENCE, CLOSE = PLACES["reference"], 1e-6
COMMON = " --context 32 --batch 8 --lr 3e-3 --min-lr 3e-4 --warmup 4 --decay-steps 16 --data {reference}/tokens.u16"
MODELS = {"gpt2": "gpt --layers 2 --width 32 --heads 2" + COMMON,
          "llama": "llama --layers 2 --width 32 --heads 4 --kv-heads 2 --ffn 88" + COMMON}


def close(one, other):
    return abs(one.losses[0] - other.losses[0]) <= CLOSE * other.losses[0]


for name, model in MODELS.items():
    run = Runs(model, "--microbatches 4")
    base = f"--init {{reference}}/hf_{name}/model.safetensors "
    given = f"{base} --adapter {{reference}}/lora_{name} "
    want = published(f"{{reference}}/lora_{name}/losses.txt")
    near(want.first(9), run("--steps 9 " + given), CLOSE)
    for layout in ("--stages 2 --schedule zb-h1", "--data-parallel 2 --shard optimizer", "--tensor 2",
                   "--data-parallel 2 --shard parameters", f"--stages 2 -n 2 --checkpoint {name}.c --every 4"):
        near(want.first(8), run(f"--steps 8 --save-adapter {name}.adapter --save {name}.merged {layout} {given}"), CLOSE)
    near(want.first(9).last(1), run(f"--steps 9 --checkpoint {name}.c --resume {given}"), CLOSE)
    if os.access(EMULATED, os.X_OK):
        near(want.first(8), Runs(model, "--microbatches 4", EMULATED)(f"--devices cuda:0,0 --stages 2 --steps 8 {given}"), CLOSE)
    # Saved and loaded again, or merged, it is the same model.
    adapter, merged = f"{base} --adapter {name}.adapter ", f"--init {name}.merged "
    loaded, plain = run("--steps 1 " + adapter), run("--steps 1 " + base)
    assert close(loaded, run("--steps 1 " + merged)), "merged is another model"
    assert not close(loaded, plain), "the adapter says nothing"
    assert close(run(f"--steps 1 {base} --lora *_proj=2"), plain), "a new adapter changes the model"
    run(f"--steps 1 --save again.merged --save-adapter {name}.again {adapter} --group lora_*:lr=0")
    assert read(f"{name}.again/adapter_model.safetensors") == read(f"{name}.adapter/adapter_model.safetensors")
    texts = [actorrun(f"--quiet --microbatches 4 --steps 0 --generate 20 --temperature 0 {options} {model}").stdout
             for options in (adapter, merged)]
    assert texts[0] == texts[1], "merged writes another text"

# ---- cost ------------------------------------------------------------------------------------------------------
run = Runs(MODELS["gpt2"], "--microbatches 4 --steps 1")
BASE = "--init {reference}/hf_gpt2/model.safetensors "
state = [report.whole["devices"][0]["peak_bytes"]["optimizer"] for report in (run("--lora h.*.attn=2"), run())]
assert 20 * state[0] < state[1], "what is frozen has a state"
run("--save-adapter a --lora h.*.attn=2,alpha=4")
config = parse("a/adapter_config.json")
assert config["r"] == 2 and config["base_model_name_or_path"] is None, config
run("--save-adapter b --lora h.*.attn=2 " + BASE)
says(parse("b/adapter_config.json")["base_model_name_or_path"], "hf_gpt2/model.safetensors")

# ---- errors ----------------------------------------------------------------------------------------------------
for text, options in (("lora h.9.attn: matches no weight of a linear map", "--lora h.9.attn=4"),
                      ("lora h.*.attn: must be PATTERN=RANK", "--lora h.*.attn"),
                      ("lora h.*.attn=4,beta=1: must be PATTERN=RANK", "--lora h.*.attn=4,beta=1"),
                      ("--save-adapter: needs --lora or --adapter", "--save-adapter b"),
                      ("adapter_config.json", "--adapter nowhere"),
                      ("is also read by embedding/embedding.1", "--lora wte=4")):
    err = actorrun(f"--steps 1 {options} {MODELS['gpt2']}", 2).stderr
    assert text in err, (text, err)

# Everything in a folder saved by PEFT is either understood or rejected.
config = parse(REFERENCE + "/lora_gpt2/adapter_config.json")
saved = typed_tensors(REFERENCE + "/lora_gpt2/adapter_model.safetensors")
module = sorted(saved)[0].removesuffix(".lora_A.weight")
BARE, FAR = module.removeprefix("base_model.model."), "base_model.model.transformer.h.7.attn.c_attn"


def put(folder, rows, **keys):
    os.makedirs(folder, exist_ok=True)
    write(folder + "/adapter_config.json", json.dumps({**config, **keys}))
    write_tensors(folder + "/adapter_model.safetensors", rows)


def zeros(*shape):
    return "F32", list(shape), bytes(4 * math.prod(shape))


def without(end):
    return {name: row for name, row in saved.items() if name != module + end}


A, B = ".lora_A.weight", ".lora_B.weight"
for word, rows, keys in (
        ("lora_B.bias", {module + ".lora_B.bias": zeros(96)}, {}),
        ("lora_embedding_A", {"base_model.model.transformer.wte.lora_embedding_A": zeros(4, 256)}, {}),
        ("lora_magnitude_vector", {module + ".lora_magnitude_vector": zeros(96)}, {}),
        ("no adapter for tensor", {BARE + end: saved[module + end] for end in (A, B)}, {}),
        ("no weight of a linear map", {FAR + A: zeros(4, 32), FAR + B: zeros(96, 4)}, {}),
        ("has no matching lora_B", without(B), None), ("has no matching lora_A", without(A), None),
        *((key, {}, {key: value}) for key, value in (
            ("lora_bias", True), ("init_lora_weights", "pissa"), ("layer_replication", [[0, 1], [0, 1]]),
            ("trainable_token_indices", [3]), ("megatron_config", {"tensor_model_parallel_size": 2}),
            ("modules_to_save", ["lm_head"]), ("use_dora", "true"), ("peft_type", "LOHA"), ("some_new_key", 0.5),
            ("use_rslora", "false"), ("target_modules", ["c_attn"]), ("exclude_modules", "transformer.*c_proj"),
            ("layers_to_transform", [0]))),
        ("rank", {}, {"rank_pattern": {}}), ("regular expression", {}, {"alpha_pattern": {"c_attn[": 6}}),
        ("parts that", {}, {"alpha_pattern": {"(?P<x>c_attn)": 6}}),
        ("took too long", {}, {"alpha_pattern": {"((a*)*)*b|(([a-z0-9.]+)*)*!": 6}}),
        ("lora_alpha", {}, {"alpha_pattern": {"h.1.attn.c_attn": "6"}})):
    put("bad", rows if keys is None else {**saved, **rows}, **(keys or {}))
    err = fails("actorrun: ", ACTORRUN, f"--steps 1 --adapter bad {BASE} {MODELS['gpt2']}").stderr
    assert re.search(word.replace("_", "[_ ]"), err), (word, err)
one = run(BASE + "--adapter {reference}/lora_gpt2")
for name, rows, keys in (
        ("groups", saved, dict(alpha_pattern={"h\\.1\\.attn.(c_attn|q)": 6, "c_attn": 8},
                               rank_pattern={"(?:x|h).1.attn.c_attn": 2})),
        ("first", saved, dict(alpha_pattern={"[h].1.attn.c_attn": 6, "h.1.attn.c_(attn|proj)": 8})),
        ("whole", saved, dict(alpha_pattern={"transformer.h.1.attn.c_attn": 6, "1.attn.c_attn|attn": 8, "ttn": 1})),
        ("old", saved, dict(lora_dropout=0.1, enable_lora=None, merge_weights=False, megatron_core="x", task_type=None,
                            target_modules=r".*\.(c_attn|c_proj)", layers_to_transform=[0, 1], layers_pattern="h",
                            init_lora_weights="gaussian", loftq_config={"loftq_bits": 4}, some_new_key=[],
                            runtime_config={"ephemeral_gpu_offload": False}, other_new_key=False)),
        ("bare", {name.replace("transformer.", ""): row for name, row in saved.items()},
         dict(alpha_pattern={"h.1.attn.c_attn": 6}))):
    put("good." + name, rows, **keys)
    assert run(f"{BASE} --adapter good.{name}").losses == one.losses, name
put("dora", saved, use_dora=True)
fails("dora/adapter_config.json: use_dora is true; only false is supported", ACTORRUN,
      f"--steps 1 --adapter dora {MODELS['gpt2']}")
