# SPDX-License-Identifier: Apache-2.0
"""--vocab-parallel splits the vocabulary's tables over all stages. The losses equal those of a run without it within
rounding, and have the same bits with any schedule, processes and timing. The traffic is known to the byte. On the virtual
clock all stages are equally fast for any vocabulary. The same holds with --vocab-barriers 1, with which stages keep one
microbatch less.

labels: outside
needs: zeromq
"""
import shutil

from tool import ACTORRUN, Runs, actorrun, fails, near, same_bits, says

DATA = "--data {reference}/tokens.u16 "
GPT = "gpt --layers 4 --width 16 --heads 2 --context 16 --batch 8 " + DATA
LLAMA = "llama --layers 4 --width 24 --heads 6 --kv-heads 3 --ffn 40 --context 12 --batch 8 --vocab 259 " + DATA
gpt, llama = Runs(GPT, "--microbatches 4 --steps 4"), Runs(LLAMA, "--microbatches 4 --steps 4")
ONCE = "--vocab-barriers 1"

# ---- losses: each line splits sums in another way; all runs of a line have the same bits -----------------------
for run, common, ways in (
        (gpt, "--stages 4", ["", "--schedule zb-h1", "--schedule gpipe", "-n 2", "--jitter 50", "--recompute full",
                             "--quota spread=1", "--grain layer"]),
        (llama, "--stages 2", ["", "--schedule zb-v", "--schedule interleaved", "-n 2", "--home act=disk", "--schedule auto"]),
        (llama, "--stages 3 --data-parallel 2 --shard parameters", ["", "-n 6 --schedule zb-h1"]),
        (llama, "--stages 2 --tensor 3 --data-parallel 2 --shard gradients", ["", "-n 4"]),
        (gpt, "--stages 2 --tensor 2 --sequence 2", ["", "-n 2 --schedule zb-v"]),
        (gpt, "--stages 2 --pieces 2", ["", "--schedule seq1f1b -n 2"]),
        (gpt, "--stages 4 " + ONCE, ["", "--schedule zb-h1 -n 4", "--jitter 50 --recompute full",
                                     "--quota spread=1 --grain layer"]),
        (llama, "--stages 2 " + ONCE, ["--schedule zb-v", "-n 2 --home act=disk --exchange inline"]),
        (llama, "--stages 2 --tensor 2 --data-parallel 2 --shard parameters " + ONCE, ["", "-n 2 --schedule zb-h1"]),
        (gpt, "--stages 2 --sequence 2 --pieces 2 " + ONCE, ["", "--piece-order layers -n 2"])):
    got = [run(f"{common} {way} --vocab-parallel") for way in ways]
    for one in got:
        near(run(), one, 1e-6)
        same_bits(got[0], one)

# An evaluation gives the same result as without; a checkpoint resumes with other stages and other barriers.
EVAL = "--stages 2 --eval {reference}/tokens.u16 --eval-every 4 "
near(gpt(EVAL), gpt(f"{EVAL} --vocab-parallel {ONCE} --checkpoint c --every 2 --save w.safetensors"), 1e-6)
shutil.copytree("c", "twice")
whole = gpt("--steps 8 --stages 4").last(4)
for how in ("--checkpoint c --stages 4", "--checkpoint twice --stages 3 --vocab-parallel"):
    near(whole, gpt("--steps 8 --resume " + how), 1e-5)

# ---- bytes -----------------------------------------------------------------------------------------------------
# Bytes between two stages, in addition to those without --vocab-parallel: input and gradient of the classifier, output and
# gradient of the embedding, 4 S h numbers; three numbers per position for each stage's part of the vocabulary; and one of
# the two rows of tokens, which both stages need.
moved = Runs("llama --layers 2 --width 64 --heads 4 --kv-heads 2 --context 256 --batch 1 " + DATA,
             "--steps 1 --stages 2 -n 2 --microbatches 1")
for barriers in "12":
    more = moved("--vocab-parallel --vocab-barriers " + barriers).moved("pipeline") - moved().moved("pipeline")
    assert more == 4 * 256 * 64 * 4 + 2 * 256 * 3 * 4 + 256 * 4, (barriers, more)

# ---- the virtual clock -----------------------------------------------------------------------------------------
# Utilization of the model's matrix products is the same with a vocabulary of 32,000 and 256,000. Each stage has an equal
# part of the vocabulary, and one more microbatch than in 1F1B for each barrier. Without --vocab-parallel it falls.
found = {}
for vocabulary in (32000, 256000):
    run = Runs(f"gpt --layers 32 --width 3072 --heads 24 --context 2048 --batch 128 --vocab {vocabulary} {DATA}",
               "--clock virtual --devices timed:8 --machine a100-sxm-80gb --stages 8 --microbatches 128 --steps 3")
    reports = [run(options).whole for options in ("", "--vocab-parallel", "--vocab-parallel " + ONCE)]
    found[vocabulary] = [r["predicted"]["flops_per_step"] / r["step_seconds"] for r in reports]
    for r, most in zip(reports, (8, 10, 9)):
        kept = [d["peak_activations"] for d in r["devices"]]
        assert kept == list(range(most, most - 8, -1)), kept
    tables = [d["peak_bytes"]["parameters"] for d in reports[1]["devices"]]
    assert max(tables) - min(tables) < 0.05 * max(tables) + 4 * 3072 * 2048 * 2, tables
shares = [many / few for few, many in zip(found[32000], found[256000])]
assert shares[0] < 0.9 and abs(shares[1] - 1) < 0.02 and abs(shares[2] - 1) < 0.02, found

# ---- rejected settings -----------------------------------------------------------------------------------------
for text, options in (
        ("--vocab-parallel: needs several --stages", "--vocab-parallel " + GPT),
        ("op chunk.1/mse.1 (mse) makes a loss without classes to split over the stages", "--vocab-parallel --stages 2 pipeline"),
        ("--vocab-barriers 3: must be between 1 and 2", "--vocab-parallel --vocab-barriers 3 --stages 2 " + GPT),
        ("--vocab-barriers 1: needs --vocab-parallel", f"{ONCE} --stages 2 {GPT}"),
        ("head/linear.1:rescale cannot lie as S1 along the tensor axis together with the other layouts",
         f"--vocab-parallel {ONCE} --stages 2 --tensor 2 --sbp head/linear.1:soft=-,S2 --sbp head/linear.1:rescale=-,S1 {GPT}"),
        ("--vocab-barriers 1: op chunk.1/mse.1 (mse) is not a cross entropy that weights all rows equally",
         f"--vocab-parallel {ONCE} --stages 2 pipeline")):
    fails(text, ACTORRUN, "--quiet --steps 1 " + options)

# ---- the reported plan -----------------------------------------------------------------------------------------
# Sums beside the passes may include zeros, whose actors read nothing.
with open("zeros.u16", "wb") as file:
    file.write(bytes(24000))
actorrun(f"--quiet --dry-run --vocab-parallel {ONCE} --stages 4 --tensor 5 --data-parallel 3 --sequence 3 --schedule gpipe "
         "--microbatches 3 gpt --width 48 --heads 6 --layers 2 --context 12 --batch 12 --vocab 96 --data zeros.u16")
says(actorrun(f"--quiet --stages 2 --vocab-parallel {ONCE} --show-sbp --dry-run {GPT}").stdout,
     "linear.1:ahead             S2 S0 -> P", "a microbatch waits for all stages once")
