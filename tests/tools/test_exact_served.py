# SPDX-License-Identifier: Apache-2.0
"""The log-probabilities that `actorserve --exact` returns over HTTP equal those of `actorrun --exact --logprobs`, bit for
bit. The cases: chunked prompts, two stages, concurrent requests that give up pages, and training on several grids. Models
include a hybrid with spiking layers, learned tokens in front of each row, and positions in chunks. Weights in blocks have
their own bits, in training with --frozen stored and in serving on any grid. Without --exact some values differ. --logprobs writes the same file on any grid, and rejects what it does not support.

labels: outside
needs: libevent zeromq
"""
import json
import os

from tool import ACTORRUN, ACTORSERVE, PATIENT, PLACES, Server, actorrun, fails, parse, read, script

seed = int(os.environ.get("SLUICE_SEED", 1))
print("seed", seed)
# the models have a vocabulary of 128 bytes
with open("ascii.txt", "wb") as file:
    file.write(bytes(byte for byte in read(PLACES["reference"] + "/text.txt") if byte < 128))
ROWS, CONTEXT = 12, 192
SHAPE = f" --vocab 128 --context {CONTEXT} "
WIDE = " --width 48 --heads 6 --kv-heads 2 "
LLAMA = f"llama --layers 3 {WIDE} --ffn 80 --bias qkv" + SHAPE
HYBRID = f"hybrid --layers 2 {WIDE} --ffn 144 "


def answered(options, model):
    """Writes answers of a server, and what was asked as tokens.u16."""
    with Server(f"--prefix-caching off {options} {model}") as server:
        script("serve_exact", "ask", server.port, seed, ROWS, CONTEXT, "answers.json", "tokens.u16")


def compared(options, model, status=0):
    """Compares the answers with a run over the same tokens. Returns the run's log-probabilities."""
    actorrun(f"--quiet --steps 1 --logprobs told.jsonl {options} {model} --batch {ROWS} --data tokens.u16")
    script("serve_exact", "compare", "answers.json", "told.jsonl", status=status)
    return read("told.jsonl")


FEW = ["--data-parallel 2 --microbatches 3 --stages 2", "--tensor 2 --recompute full"]
MANY = [*FEW, f"--exact-leaf 32 --pieces 2 --data-parallel 2 -n 2 {PATIENT}", "--exact-leaf 32 --sequence 2 --shard parameters",
        "--stages 2 --vocab-parallel --microbatches 2"]
for pages, grids, model in (
        (4, MANY, "gpt --layers 2 --width 32 --heads 2" + SHAPE), (4, MANY, LLAMA), (4, MANY, f"{HYBRID} --spikes 3 {SHAPE}"),
        (6, FEW, f"{HYBRID} --side-by-side --gates keys --window 20 --sink-tokens 70 {SHAPE}"),
        (4, FEW, f"llama --layers 2 {WIDE} --ffn 80 --rope "
         f"dual-chunk:chunk_size=96,local_size=32,original_max_position_embeddings=80 {SHAPE}"),
        (4, FEW, f"gpt-oss --layers 2 {WIDE} --experts 4 --expert-ffn 32 {SHAPE}"),
        (4, FEW, "deepseek --layers 2 --width 48 --heads 6 --latent 16 --nope-dim 8 --rope-dim 4 --value-dim 10 --experts 4 "
         "--expert-ffn 32" + SHAPE)):
    saved = "llama.safetensors" if model is LLAMA else "w.safetensors"
    actorrun(f"--quiet --steps 6 --save {saved} {model} --lr 1e-2 --warmup 0 --data ascii.txt")
    init = f"--exact --init {saved} "
    answered(f"{init} --stages 2 --rows 24 --sequences 6 --report served.json --quota kv={pages}", model)
    assert parse("served.json")["rows_again"] > 0, f"{model}: no pages were given up"
    first = compared(init, model)
    for grid in grids:
        assert compared(f"{grid} {init}", model) == first, f"{model}, {grid}: other log-probabilities"

# ---- weights in blocks -----------------------------------------------------------------------------------------
BLOCKS = "llama --layers 2 --width 256 --heads 4 --ffn 768" + SHAPE
for kind, grids in (("q4_0", FEW), ("q8_0", FEW), ("q4_k", FEW[:1]), ("bf16", FEW), ("f16", FEW)):
    actorrun(f"--quiet --steps 6 --save {kind}.gguf:{kind} {BLOCKS} --lr 1e-2 --warmup 0 --data ascii.txt")
    init, frozen = f"--exact --init {kind}.gguf ", "--frozen stored --lora mlp.*=2 "
    answered(f"{init} --stages 2 --rows 24 --quota kv=6" + " --tensor 2" * (len(grids) > 1), BLOCKS)
    first = compared(init + frozen, BLOCKS)
    for grid in grids:
        assert compared(grid + " " + init + frozen, BLOCKS) == first, f"{kind}, {grid}: other log-probabilities"
    # Training in f32 agrees with a server that has its numbers in f32.
    compared(init, BLOCKS, int(kind[0] == "q"))
    actorrun(f"--quiet --steps 0 --init {kind}.gguf --save floats.safetensors {BLOCKS} --data ascii.txt")
    answered("--exact --init floats.safetensors", BLOCKS)
    compared(init, BLOCKS)

# Without --exact some values differ.
INIT = "--init llama.safetensors "
answered(INIT, LLAMA)
compared(INIT, LLAMA, 1)

SMALL = " --width 16 --heads 2 --context 16 --batch 4 --data {reference}/text.txt"
LEARNS, TWO = "gpt --layers 1" + SMALL, "gpt --layers 2" + SMALL
for text, program, options in (
        ("--exact: not supported with --dtype bf16", ACTORSERVE, f"--exact --dtype bf16 {INIT} {LLAMA}"),
        ("--exact: not supported with keys and values in bf16", ACTORSERVE, f"--exact --kv bf16 {INIT} {LLAMA}"),
        ("--logprobs: timed devices hold no values", ACTORRUN, f"--logprobs l.jsonl --devices timed:1 {LEARNS}"),
        ("--logprobs: the model must have exactly one cross entropy", ACTORRUN, "--logprobs l.jsonl pipeline")):
    fails(text, program, options)


def logprobs(path):
    return [x for line in read(path).decode().splitlines() for x in json.loads(line)["logprobs"]]


# ---- grids -----------------------------------------------------------------------------------------------------
actorrun(f"--quiet --steps 3 --logprobs one.jsonl {TWO}")
one = logprobs("one.jsonl")
for grid in ("--vocab-parallel --stages 2", f"--vocab-parallel --stages 2 --vocab-barriers 1 -n 2 {PATIENT}", "--tensor 2"):
    actorrun(f"--quiet --steps 3 {grid} --certify with.jsonl --logprobs told.jsonl {TWO}")
    told = logprobs("told.jsonl")
    assert len(one) == len(told) > 100 and all(abs(x - y) < 1e-5 * (1 + abs(x)) for x, y in zip(one, told)), grid
    actorrun(f"--quiet --steps 3 {grid} --recheck with.jsonl {TWO}")

# A resumed run continues the file.
KEPT = f"--quiet --logprobs kept.jsonl --checkpoint kept --every 1 {LEARNS}"
actorrun("--steps 2 " + KEPT)
actorrun("--steps 3 --resume " + KEPT)
actorrun(f"--quiet --steps 3 --logprobs whole.jsonl {LEARNS}")
assert read("kept.jsonl") == read("whole.jsonl") and read("kept.jsonl").count(b"\n") == 12
