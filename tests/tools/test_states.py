# SPDX-License-Identifier: Apache-2.0
"""A hybrid, most of whose blocks keep a recurrent state instead of keys and values, learns a text. With --exact its losses,
parameters and optimizer state have the same bits on any grid: in pieces, on stages, with sharded data, tensors and
sequences, with recomputation, and over processes. The same holds for Mamba-2, and for blocks with both kinds of attention,
experts and documents. Experts can start from a dense model's feed-forward half. Bad options are rejected.

labels: outside
needs: zeromq
"""
from tool import ACTORRUN, Runs, actorrun, exact_grids, fails, near

DATA = "--data {reference}/text.txt "
LONG = DATA + "--context 128 --batch 8 --exact-leaf 32 "
HYBRID = "hybrid --layers 4 --width 32 --heads 4 --kv-heads 2 " + LONG
BOTH = (f"{HYBRID} --side-by-side --gates keys --window 40 --document-end 32 --experts 4 --top-k 1 --ffn 48 --shared-ffn 48 "
        "--dense-blocks 0,2 --aux-loss 0 ")
GRIDS = ("--pieces 4", "--stages 4 --microbatches 4 --schedule zb-h1", "-n 2 --stages 2 --shard parameters --data-parallel 2",
         "--sequence 2")
MORE = ("--tensor 2 --data-parallel 2 --pieces 2", "--pieces 2 --recompute full", "--pieces 4 --piece-order layers --stages 2",
        "--stages 2 --pieces 2 --microbatches 2 --schedule seq1f1b")
# ---- the same bits ---------------------------------------------------------------------------------------------
exact_grids(HYBRID, "--steps 3", *GRIDS, *MORE)
exact_grids("mamba2 --layers 4 --width 32 --head-dim 8 --groups 2 --state 12 " + LONG, "--steps 3", *GRIDS, *MORE,
            "--data-parallel 4", "-n 2 --sequence 2 --pieces 2 --recompute full",
            "--sequence 2 --tensor 2 --stages 2 --microbatches 4",
            "--sequence 2 --pieces 2 --data-parallel 2 --shard parameters --schedule seq1f1b --stages 2")
# Both kinds of attention side by side, experts in some blocks, several documents per row.
exact_grids(BOTH, "--steps 3", *GRIDS, "--data-parallel 2 --expert-parallel 2", "--tensor 2 --pieces 2 --recompute full")

# ---- exchanged states ------------------------------------------------------------------------------------------
# Devices that exchange states learn the same up to the order of sums, over processes too. The bytes that they move do not
# depend on the length.
EXCHANGE = "--steps 3 --sequence-states exchange"
PLAIN = "hybrid --layers 2 --width 32 --heads 4 --kv-heads 2 --softmax-every 0 "
for model in (PLAIN, "mamba2 --layers 2 --width 32 --head-dim 8 --state 12 "):
    moved = set()
    for context in (64, 256):
        run = Runs(f"{model} --context {context} --batch 4 {DATA}", EXCHANGE)
        one, two = run(), run("-n 2 --sequence 2")
        near(one, two, 1e-6)
        norms = [[s["grad_norm"] for s in report.whole["steps"]] for report in (one, two)]
        assert len(norms[0]) == 3 and all(abs(x / y - 1) < 1e-6 for x, y in zip(*norms)), norms
        moved.add(two.moved("sequence"))
    assert len(moved) == 1, f"{model}: bytes depend on the length: {moved}"
# 2 layers, 2 readers, 4 sequences of 2 heads, 8 x 8 numbers and 8 gates each, plus the convolution's rows.
got = Runs(f"{PLAIN} --context 64 --batch 4 {DATA}", EXCHANGE)("--sequence 2").moved("sequence")
assert got == 2 * 2 * 4 * 2 * (8 * 8 + 8) * 4, got

# ---- learning --------------------------------------------------------------------------------------------------
for n in (1, 0):  # softmax blocks only, and none
    actorrun(f"--quiet --steps 1 hybrid --layers 4 --width 32 --heads 4 --kv-heads 2 --context 128 {DATA} --window 16 "
             f"--softmax-every {n}")


def learns(run, options, fall):
    losses = run(options).losses
    assert losses[-1] < losses[0] - fall, (options, losses)


# A hybrid starts from the weights of a LLaMA; parameters that the LLaMA lacks are new.
TUNE = f"hybrid {DATA} --context 32 --batch 4 --lr 1e-3 --warmup 0 "
NEW = "--init-new *gk_proj*,*g_norm* "
for folder in ("hf_qwen2", "hf_llama3"):
    learns(Runs(TUNE + "--window 16"), f"--steps 20 --init {{reference}}/{folder} {NEW} --save from.safetensors", .1)
learns(Runs(f"hybrid --layers 2 --width 32 --heads 2 --context 64 {DATA}"), "--steps 30 --lr 1e-2 --warmup 0 "
       "--save w.safetensors", 1.5)
# Experts that start from a dense model's feed-forward half compute nearly the same.
DENSE = f"hybrid --layers 4 --width 64 --heads 4 --context 64 --batch 8 --ffn 128 --side-by-side {DATA} --lr 3e-3 --warmup 0 "
SPARSE = DENSE + "--experts 16 --top-k 1 --shared-ffn 128 --aux-loss 0 "
FROM, GATE = "--steps 1 --init dense.safetensors ", "--init-new *mlp.gate.weight "
actorrun(f"--quiet --steps 60 --save dense.safetensors {DENSE}")
near(Runs(DENSE)(FROM), Runs(SPARSE)(FROM + "--upcycle " + GATE), .01)

# ---- refusals --------------------------------------------------------------------------------------------------
MAMBA, TWO, QWEN = f"mamba2 --width 32 --head-dim 8 {DATA} ", "--sequence 2 ", "--init {reference}/hf_qwen2 "
for text, options in (
        ("each reads 7 positions before its own, but its neighbour has only 6",
         f"{TWO} {MAMBA} --groups 2 --conv 8 --context 12 --batch 2"),
        ("--groups 3 does not divide the 8 heads", MAMBA + "--groups 3"),
        ("twice --width 32 is not a multiple of --head-dim 7", MAMBA + "--head-dim 7"),
        ("--exact: not supported with --sequence-states exchange", f"{TWO} --exact --sequence-states exchange {HYBRID}"),
        ("unknown sequence states 'other': must be auto, heads or exchange", f"{TWO} --sequence-states other {HYBRID}"),
        ("--sequence-states exchange: needs one run of positions per device, but --sequence-layout zigzag makes two",
         f"{TWO} --sequence-states exchange --sequence-layout zigzag {HYBRID}"),
        ("cannot be split by heads over 2 sequence-parallel devices: it has 1 key/value heads",
         f"{TWO} --sequence-states heads {MAMBA}"),
        ("gk_proj", QWEN + TUNE),
        ("gk_proj, which may be absent from the weights, matches no parameter", f"{QWEN} --init-new gk_proj {TUNE}"),
        ("--init-new: needs --init with the other weights", f"--init-new *gk_proj* {TUNE}"),
        ("no config.json is possible: no Hugging Face model matches hybrid with these options; save the weights alone "
         "(--save FILE.safetensors)", f"{QWEN} {NEW} --save x/ {TUNE}"),
        ("the model should be llama, not hybrid", "--init {reference}/hf_mistral " + TUNE),
        ("hybrid: --gates other: must be own or keys", BOTH + "--gates other"),
        ("hybrid: --dense-blocks 9: must be none, or block numbers", BOTH + "--dense-blocks 9"),
        ("hybrid: --spikes: not supported with --experts", BOTH + "--spikes 3"),
        ("experts.0", FROM + GATE + SPARSE), ("--upcycle: hybrid has no experts", f"{FROM} --upcycle {DENSE}"),
        ("--upcycle: needs --init with a dense model", "--upcycle " + SPARSE)):
    fails(text, ACTORRUN, "--steps 1 " + options)
