# SPDX-License-Identifier: Apache-2.0
"""Families of dense models. Their folders (tests/reference/make_dense.py) have PyTorch's losses on any grid, and are written
as they were read. A GGUF file of the same weights has the same losses. actorrun and actorserve generate what transformers
generates. Unsupported settings are rejected with an error that names them.

labels: outside
needs: zeromq libevent pcre2 utf8proc
"""
import shutil

from families import copy_with_letters, greedy, holds, served
from tool import ACTORRUN, PLACES, Runs, actorrun, exact_grids, fails, near, parse, published, read, same_bits, write

REFERENCE = PLACES["reference"]
DATA = "--data {reference}/text.txt --context 32 --batch 4 "
TRAIN = DATA + "--lr 1e-3 --min-lr 1e-3 --warmup 0 "
run = Runs("llama " + TRAIN)

FAMILIES = ("gemma3", "olmo2", "phi3", "qwen3")
for family in FAMILIES:
    folder, gguf = f"{{reference}}/hf_{family}", f"{{reference}}/gguf/{family}.gguf"
    theirs, whole = published(folder + "/losses.txt"), run(f"--init {folder} --steps 5")
    near(theirs, whole, 1e-6)
    same_bits(whole, run(f"--init {gguf} --steps 5"))
    for grid in ("--stages 2 --microbatches 2 --pieces 2", "--tensor 2 -n 2", "--data-parallel 2 --shard parameters",
                 "--sequence 2 --recompute full"):
        near(theirs, run(f"--init {folder} --steps 5 {grid}"), 1e-6)
    # A saved folder holds the tensors that were read, has the same config.json, and trains identically; so does a folder
    # made from a GGUF file.
    for again, source in (("saved", folder + " --stages 2"), ("unpacked", gguf)):
        actorrun(f"--quiet --steps 0 --save {again}.{family}/ --init {source} llama {DATA}")
        holds(f"{REFERENCE}/hf_{family}", f"{again}.{family}")
        same_bits(whole, run(f"--init {again}.{family} --steps 5"))
        assert parse(f"{again}.{family}/config.json")["model_type"].startswith(family)
    copy_with_letters(f"{REFERENCE}/hf_{family}", "letters." + family)
    lines = [list(map(int, line.split())) for line in read(f"{REFERENCE}/hf_{family}/greedy.txt").decode().splitlines()]
    assert len(lines[-1]) == 50, lines
    greedy("letters." + family, "llama", lines[0], lines[-1])
    served("letters." + family, lines[0], lines[-1])
# With --exact the bits are the same on any grid.
exact_grids("llama --data {reference}/text.txt --context 64 --batch 4 --layers 2 --width 32 --heads 4 --kv-heads 2 "
            "--exact-leaf 32 --packed --window 20 --full-every 2 --local-theta 500 --norms both --gate gelu --logit-cap 9 "
            "--qk-norm-whole --plus-one --scaled-embedding --tied", "--steps 2", "--pieces 2 --stages 2",
            "--tensor 2 --data-parallel 2", "--sequence 2")
# Files written before transformers 5 have other keys with the same meaning.
shutil.copytree(REFERENCE + "/hf_gemma3", "old")
shutil.copy(REFERENCE + "/hf_gemma3/older.json", "old/config.json")
near(published("{reference}/hf_gemma3/older.txt"), run("--init old --steps 5"), 1e-6)

# ---- a newly trained model is saved with its own model type ----------------------------------------------------
SMALL = "--layers 4 --width 32 --heads 2 --kv-heads 1 --head-dim 16 "
GEMMA = "--qk-norm --norms both --plus-one --gate gelu --scaled-embedding --tied "
LONGROPE = "--rope longrope:factor=4,original_max_position_embeddings=8,short_factor=1/2/3/4/5/6/7/8,long_factor=2/3/4/5/6/7/8/9"
for i, (kind, options) in enumerate((
        ("gemma3_text", GEMMA + "--window 5 --full-every 3 --local-theta 5000 --rope linear:factor=2 --logit-cap 9 "
         "--query-scalar 30"), ("gemma3_text", GEMMA), ("gemma3_text", GEMMA + "--rope linear:factor=2"), ("olmo2", "--norms after --qk-norm-whole"),
        ("phi3", "--packed --window 9"), ("phi3", "--packed --rope none:partial_rotary_factor=0.5"),
        ("phi3", "--packed " + LONGROPE), ("llama", LONGROPE), ("qwen3", "--qk-norm --tied --bias attention"),
        ("mistral", "--window 9"), ("llama", "--theta 500"))):
    fresh = Runs(f"llama {TRAIN} {SMALL} {options}")
    fresh(f"--steps 2 --save made{i}/")
    assert parse(f"made{i}/config.json")["model_type"].startswith(kind), (kind, options)
    same_bits(run(f"--init made{i} --steps 1"), fresh(f"--init made{i}/model.safetensors --steps 1"))

# ---- refusals --------------------------------------------------------------------------------------------------
ALONE = "; save the weights alone (--save FILE.safetensors)"
NONE = "no config.json is possible: no Hugging Face model matches llama with these options" + ALONE
for text, options, model in (
        (f"--qk-norm 1 contradicts {REFERENCE}/hf_llama/config.json, which says 0 (model_type)",
         "--init {reference}/hf_llama", "--qk-norm"),
        ("llama: --qk-norm and --qk-norm-whole exclude each other", "--steps 1", "--qk-norm --qk-norm-whole"),
        ("llama: --norms here: must be before, after, both or parallel", "--steps 1", "--norms here"),
        (NONE, "--steps 1 --save x/", "--qk-norm --norms after"),
        (NONE, "--save made/", "--window 8 --qk-norm"),
        ("no config.json is possible: no Hugging Face model matches llama", "--save made/",
         GEMMA + "--rope linear:factor=2 --window 8"),
        ("llama: --gate relu: must be silu, gelu, gelu-erf, relu2 or clamped", "--steps 1", "--gate relu"),
        (f"--norms before contradicts {REFERENCE}/hf_olmo2/config.json, which says after (model_type)",
         "--init {reference}/hf_olmo2", "--norms before"),
        (f"--full-every 3 contradicts {REFERENCE}/gguf/gemma3.gguf, which says 2 (gemma3.attention.sliding_window_pattern)",
         "--init {reference}/gguf/gemma3.gguf", "--full-every 3")):
    fails(text, ACTORRUN, f"{options} llama {TRAIN} {model}")
ROPE, TYPES = '"rope_type": "default"', "layer_types must have full_attention in every N-th layer and windows in all others"
for family, text, *pairs in (
        ("gemma3", "text_config is not a JSON object", '"model_type": "gemma3_text"', '"model_type": "gemma3"'),
        ("gemma3", "attn_logit_softcapping", '"attn_logit_softcapping": null', '"attn_logit_softcapping": 50'),
        ("gemma3", "use_bidirectional_attention", '"use_bidirectional_attention": false', '"use_bidirectional_attention": true'),
        ("gemma3", "hidden_activation", '"gelu_pytorch_tanh"', '"gelu"'),
        ("gemma3", TYPES, '"num_hidden_layers": 4', '"num_hidden_layers": 3'),
        ("gemma3", TYPES, '"sliding_attention",', '"chunked_attention",'),
        ("gemma3", "sliding_window is null, but some layers have one", '"sliding_window": 7', '"sliding_window": null'),
        ("gemma3", "scaled rotary positions in sliding_attention are not supported", ROPE, '"rope_type": "linear", "factor": 2'),
        ("gemma3", "chunked_attention", '"full_attention": {', '"chunked_attention": {'),
        ("phi3", "longrope has factors for 1 pairs of a head", ROPE,
         '"rope_type": "longrope", "short_factor": [1], "long_factor": [2]'),
        ("phi3", "longrope needs short_factor", ROPE, '"rope_type": "yarn", "factor": 2'),
        ("olmo2", "hidden_act", '"hidden_act": "silu"', '"hidden_act": "relu"'),
        ("qwen3", "sliding window of", '"use_sliding_window": false', '"use_sliding_window": true', '"sliding_window": null',
         '"sliding_window": 8'),
        ("qwen3", "layer_types", '"full_attention",', '"sliding_attention",'),
        ("qwen3", "dynamic", ROPE, '"rope_type": "dynamic", "factor": 2'),
        ("qwen3", "model.layers.0.self_attn.q_proj.weight", '"head_dim": 16,', "")):
    shutil.rmtree("edited", ignore_errors=True)
    shutil.copytree(f"{REFERENCE}/hf_{family}", "edited")
    config = read("edited/config.json").decode()
    for old, new in zip(pairs[::2], pairs[1::2]):
        assert old in config, (family, old)
        config = "\n".join(line.replace(old, new, 1) for line in config.split("\n"))
    write("edited/config.json", config)
    run.refused(text, "--init edited")
for name in (b"blk.1.attn_x_norm.weight", b"blk.1.attn_q_norm.biases"):
    with open("edited.gguf", "wb") as file:
        file.write(read(REFERENCE + "/gguf/qwen3.gguf").replace(b"blk.1.attn_q_norm.weight", name))
    run.refused("has no tensor model.layers.1.self_attn.q_norm.weight", "--init edited.gguf")
