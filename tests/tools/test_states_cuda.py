# SPDX-License-Identifier: Apache-2.0
"""Models with states, sinks, latents, spikes, first tokens that all see, caps on scores and Muon train on emulated
GPUs: losses equal those of the CPU except for the last bits, whole and in pieces.

labels: outside
"""
from tool import EMULATED, Runs, near, need_emulated

need_emulated()
HEADS = "--heads 6 --kv-heads 2 "
HYBRID = "hybrid --layers 3 --width 48 --window 7 " + HEADS
NEXT = ("qwen3-next --layers 4 --width 48 --mixers delta,delta,full --value-heads 4 --key-heads 2 --value-dim 8 --key-dim 12 "
        "--feeds mlp " + HEADS)
SINKS = "hybrid --layers 2 --width 48 --window 5 --side-by-side --gates keys --sink-tokens 3 " + HEADS
KIMI = ("decoder --layers 2 --width 32 --heads 4 --mixers kda,latent-unplaced --value-heads 3 --key-dim 10 --value-dim 9 --latent 20 "
        "--nope-dim 10 --rope-dim 6 --latent-value-dim 12 ")
CASES = (
    (HYBRID, ""), (NEXT, ""), (HYBRID, "--pieces 2"), (NEXT, "--pieces 2"), (SINKS, ""), (SINKS, "--pieces 2"),
    (HYBRID, "--sequence 2"),  # two GPUs share the positions
    ("mamba2 --layers 2 --width 48 --head-dim 16 --groups 3 --state 10", ""),
    ("gpt-oss --layers 2 --width 32 --heads 4 --kv-heads 2 --window 5 --experts 5 --expert-ffn 24", ""),
    ("deepseek --layers 2 --width 32 --heads 4 --latent 24 --nope-dim 12 --rope-dim 8 --value-dim 10 --expert-ffn 24 "
     "--shared-ffn 24 --experts 6", ""),
    ("hybrid --layers 2 --width 48 --spikes 3 " + HEADS, ""),
    (KIMI, ""), (KIMI, "--pieces 2"),
    ("decoder --layers 2 --width 32 --heads 4 --kv-heads 2 --window 5 --mixers window,full --score-cap 2", ""),
    ("decoder --layers 2 --width 32 --heads 4", "--optimizer muon"),
)
for model, how in CASES:
    run = Runs(model + " --context 16 --batch 2 --lr 1e-3 --vocab 259 --data {reference}/tokens.u16",
               "--microbatches 2 --steps 2 " + how, EMULATED)
    near(run(), run("--devices cuda", SLUICE_EMULATED_GPUS="2" if "--sequence" in how else "1"), 1e-6)
