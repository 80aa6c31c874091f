# SPDX-License-Identifier: Apache-2.0
"""Folders of Qwen3-Next survive a round trip, with experts and without. Losses and gradient norms of five steps equal those
of transformers (tests/reference/make_experts.py), on one device, on grids, in pieces and on stages. With --exact the bits
are the same on all grids that support mixtures. Unsupported configurations are rejected with an error that names them.

labels: outside
needs: zeromq
"""
from tool import (ACTORRUN, PLACES, Runs, actorrun, copy_model, exact_grids, fails, parse, read, same_bits, typed_tensors,
                  write_tensors)

REFERENCE = PLACES["reference"]
TRAIN = "--data {reference}/text.txt --context 32 --batch 4 --lr 1e-3 --min-lr 1e-3 --warmup 0 --aux-loss 0 "
run = Runs("qwen3-next " + TRAIN, "--steps 5")


def compare(report, folder, most):
    """Losses have to equal those of transformers to 1e-6, and gradient norms to `most`."""
    ours = [(s["loss"], s["grad_norm"]) for s in report.whole["steps"]]
    lines = read(f"{REFERENCE}/{folder}/losses.txt").decode().splitlines()
    theirs = [tuple(map(float, line.split()[1:])) for line in lines if line[0] != "#"]
    loss, norm = (max(abs(x[i] / y[i] - 1) for x, y in zip(ours, theirs)) for i in (0, 1))
    assert len(ours) == len(theirs) and loss < 1e-6 and norm < most, (report.call, loss, norm)


for name in ("hf_qwen3_next", "hf_qwen3_next_dense"):
    init = f"--init {{reference}}/{name} "
    plain = run(init)
    compare(plain, name, 1e-6)
    actorrun(f"--quiet --steps 0 {init} --save saved.{name}/ qwen3-next {TRAIN}")
    same_bits(plain, run("--init saved." + name))
    grids = ["--stages 2 --microbatches 2 --pieces 2 --schedule seq1f1b", "--data-parallel 2 --pieces 4", "--tensor 2",
             "--tensor 2 --data-parallel 2 --recompute full", "-n 2 --stages 2 --schedule zb-h1 --microbatches 4",
             "--data-parallel 2 --shard parameters --pieces 2 --piece-order layers"]
    if name == "hf_qwen3_next":
        grids.append("--expert-parallel 2 --data-parallel 2")
    for grid in grids:
        compare(run(init + grid), name, 3e-6)

# Older files give the interval of softmax attention; multi-token prediction heads are ignored.
config = parse(f"{REFERENCE}/{name}/config.json")
rope, types = config["rope_parameters"], config["layer_types"]
old = {key: rope.pop(key) for key in ("rope_theta", "partial_rotary_factor")}
copy_model(f"{REFERENCE}/{name}", "older", ["rope_parameters", "layer_types"], rope_scaling=rope, mlp_only_layers=[],
           full_attention_interval=types.index("full_attention") + 1, **old)
rows = typed_tensors("older/model.safetensors")
rows.update({"mtp." + key: ("F32", [4], bytes(16)) for key in ("fc.weight", "layers.0.mlp.gate.weight")})
write_tensors("older/model.safetensors", rows)
same_bits(plain, run("--init older"))

# A newly trained model is saved, and loads again with the same options.
FRESH = ("--layers 4 --width 32 --heads 4 --kv-heads 2 --head-dim 16 --rope none:partial_rotary_factor=0.25 --value-heads 4 "
         "--value-dim 8 --key-dim 12 --experts 5 --shared-ffn 24 --expert-ffn 24 --feeds mlp,experts --mixers delta,delta,full "
         "--theta 50000")
fresh = Runs(f"qwen3-next {TRAIN} {FRESH}")
fresh("--steps 2 --save fresh/")
same_bits(run("--init fresh --steps 1"), fresh("--init fresh/model.safetensors --steps 1"))
config = parse("fresh/config.json")
assert (config["layer_types"].index("full_attention"), config["mlp_only_layers"], config["partial_rotary_factor"],
        config["linear_num_key_heads"]) == (2, [0, 2], 0.25, 2), config

# The bits are the same on any grid.
SMALL = ("qwen3-next --layers 4 --width 32 --heads 4 --mixers delta,full --value-heads 4 --value-dim 16 --key-dim 8 --context 64 "
         "--batch 8 --data {reference}/text.txt --exact-leaf 32 --aux-loss 0 ")
for feeds in ("mlp", "experts"):
    exact_grids(f"{SMALL} --experts 6 --feeds {feeds}", "--steps 3", "--pieces 2",
                "--stages 4 --microbatches 4 --schedule zb-h1", "--data-parallel 4", "--tensor 2",
                "--stages 2 --pieces 2 --microbatches 2 --schedule seq1f1b",
                "--shard parameters --data-parallel 2 --recompute full")

# ---- refusals --------------------------------------------------------------------------------------------------
types = parse(REFERENCE + "/hf_qwen3_next/config.json")["layer_types"]
linear = types.index("linear_attention")
rope = parse(REFERENCE + "/hf_qwen3_next/config.json")["rope_parameters"]
for text, changes in (
        ("layer_types is not a list with an item per layer", dict(layer_types=types[:linear] + types[linear + 1:])),
        ('layer_types: "sliding_attention" is not supported',
         dict(layer_types=types[:linear] + ["sliding_attention"] + types[linear + 1:])),
        ("mlp_only_layers is not a list of layers", dict(mlp_only_layers="1")),
        ("mlp_only_layers is not a list of layers", dict(mlp_only_layers=[7])),
        ("partial_rotary_factor=1.5 must not exceed 1", dict(rope_parameters={**rope, "partial_rotary_factor": 1.5})),
        ("value-heads 5 is not a multiple of --key-heads 2", dict(linear_num_value_heads=5)),
        ("hidden_act", dict(hidden_act="gelu"))):
    copy_model(REFERENCE + "/hf_qwen3_next", "edited", **changes)
    run.refused(text, "--init edited")
INIT = "--steps 1 --init {reference}/hf_qwen3_next "
for text, options in (("--mixers full contradicts", f"{INIT} qwen3-next {TRAIN} --mixers full"),
                      ('qwen3-next: --feeds mlp,x: unknown word "x"', f"--steps 1 {SMALL} --feeds mlp,x"),
                      ("should be qwen3-next, not qwen-moe", f"{INIT} qwen-moe {TRAIN}")):
    fails(text, ACTORRUN, options)
