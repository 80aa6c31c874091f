# SPDX-License-Identifier: Apache-2.0
"""Frozen weights that stay in the blocks of their file. Adapters train as with f32 weights, on one device and over
stages, grids and processes, with the same bits where sums are exact. They resume from checkpoints, which do not contain
the base. Merging gives the same model. Weights that cannot stay are rejected with an error that names them.

labels: outside
needs: zeromq pcre2 utf8proc
"""
import glob

from tool import ACTORRUN, Runs, ends, near, read, same_bits

TINY = "{reference}/gguf/tiny.gguf"
LORA = " --lora self_attn.*_proj=4,alpha=8 --lora mlp.*=2 "
MODEL = "llama --data {reference}/text.txt --context 32 --batch 4 --lr 1e-2 --min-lr 1e-2 --warmup 0"
run = Runs(MODEL, f"--init {TINY} {LORA} --steps 10")


def pair(options=""):
    """Returns the reports with the base in f32 and as it is stored."""
    return run("--frozen fp32 " + options), run("--frozen stored " + options)


def parameters(report):
    return report.whole["devices"][0]["peak_bytes"]["parameters"]


fp32, stored = pair()
near(fp32, stored, 2e-6)
assert stored.losses[0] != stored.losses[-1], "nothing is learned"
assert 2 * parameters(stored) < parameters(fp32), "the base is as large as in f32"
for how in ("--stages 2 --microbatches 2", "--data-parallel 2", "--stages 2 -n 2", "--recompute full", "--pieces 2",
            "--data-parallel 2 --shard optimizer", "--stages 2 --vocab-parallel",
            "--eval {reference}/text.txt --eval-every 5"):
    near(*pair(how), 2e-6)

# Exact sums have the bits of blocks on any grid.
near(*pair("--exact"), 2e-6)
for how in ("--data-parallel 2 --microbatches 2", "--stages 2", "--recompute full"):
    same_bits(run("--frozen stored --exact"), run("--frozen stored --exact " + how))

# The base with the adapter and the merged model are the same model.
near(stored, run("--frozen stored --save-adapter adapter --save merged/"), 0)
one = Runs(MODEL, "--steps 1")
first = one(f"--init {TINY} --adapter adapter --frozen stored")
near(first, one(f"--init {TINY} --adapter adapter"), 2e-6)
near(first, one("--init merged/"), 2e-6)

# Wide weights, sharded over devices at block boundaries.
WIDE = "llama --layers 1 --width 512 --heads 4 --ffn 512 --vocab 256 --data {reference}/text.txt --context 16 --batch 2"
for kind in ("q4_k", "f16"):
    ends(0, ACTORRUN, f"--quiet --steps 0 --save {kind}.gguf:{kind} {WIDE}")
    for devices in (1, 2):
        wide = Runs(WIDE, f"--init {kind}.gguf --lora mlp.*=2 --steps 3 --tensor {devices}")
        near(wide("--frozen fp32"), wide("--frozen stored"), 2e-6)
        if kind == "f16":
            same_bits(wide("--frozen fp32 --exact"), wide("--frozen stored --exact"))

# A checkpoint does not contain the base, and a run resumes from it.
begun = run("--frozen stored --steps 6 --checkpoint c --every 3")
kept = b"".join(map(read, glob.glob("c/*/*.safetensors")))
assert b"lora_A" in kept and b'"model.layers.0.mlp.up_proj.weight"' not in kept
same_bits(stored, begun.then(run("--frozen stored --checkpoint c --resume")))

FILE, CANNOT = f" --init {TINY} ", "cannot keep its file's format"
for text, options in (
        ("--frozen stored: needs --init with the stored weights", "--frozen stored" + LORA),
        ("frozen", "--frozen half" + FILE + LORA),
        ("no frozen weight can keep its file's format", "--frozen stored" + FILE),
        (CANNOT + ": devices hold shards of it", "--frozen stored --data-parallel 2 --shard parameters" + FILE + LORA),
        ("weight model.layers.0.self_attn.o_proj.weight " + CANNOT,
         "--frozen stored --tensor 2 --sbp model.layers.0.self_attn.o_proj.weight=-,S1" + FILE + LORA)):
    one.refused(text, options)
