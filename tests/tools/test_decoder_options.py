# SPDX-License-Identifier: Apache-2.0
"""Options of `decoder` that no block of a model reads are refused by name; all others change what is learned.

The table is compared with the model: an option that is accepted has to change the loss of the second step. The cases
are drawn; all of them run if SLUICE_LONG is set.
"""
import os
import random
import subprocess

from tool import ACTORRUN, Report, words

# Values other than the defaults, each with the options that it needs.
VALUES = {
    "heads": "2", "kv-heads": "1", "head-dim": "8", "theta": "20", "rope": "linear:factor=3", "bias": "attention",
    "ffn": "24", "qk-norm": "", "query-scalar": "3", "qk-norm-whole": "",
    "qk-norm-late": "", "block-head-dims": "8", "block-kv-heads": "1", "value-norm": "", "gated-heads": "", "rope-pairs": "",
    "packed-qkv": "", "attention-factor": "0.1", "score-cap": "0.01", "sinks": "", "function": "relu2", "ungated": "",
    "packed-gates": "", "mlp-bias": "", "top-k": "1", "expert-ffn": "8", "shared-ffn": "8", 
    "aux-loss": "1", "z-loss": "1", "expert-capacity": "0.5", "router": "sigmoid", "expert-groups": "2", "top-groups": "2",
    "routed-scale": "2", "correction-rate": "1", "weight-eps": "1", "packed-experts": "", "shared-gate": "",
    "expert-latent": "8", "key-heads": "2", "value-heads": "4", "key-dim": "6", "value-dim": "12", "conv": "3",
    "packed-delta": "", "query-rank": "8", "latent": "8", "nope-dim": "40", "rope-dim": "18", "latent-value-dim": "6",
    "rope-halves": "", "index-heads": "2", "index-dim": "20", "index-tokens": "2", "index-halves": "", "state-heads": "4",
    "state-head-dim": "12", "state-groups": "2", "state": "8", "conv-bias": "", "state-bias": "", "window": "2",
    "local-theta": "3", "ahead": "1", "ahead-weight": "1", "block-inputs": "4", "block-inputs-vocab": "300",
}
NEEDS = {
    "window": "--window 3", "experts": "--experts 4", "both": "--experts 4 --norms both", "reused": "--index-tokens 3",
    "indexed": "--index-tokens 3", "mamba": "--state-head-dim 24", "delta": "--value-dim 24", "kda": "--value-dim 24",
}
MIXERS = ("full", "window", "full,window", "full-unplaced", "delta", "kda", "latent", "latent-unplaced", "indexed", "indexed,reused",
          "mamba", "conv", "none", "mamba,full")
FEEDS = ("mlp", "experts", "both")
DATA = "--layers 2 --width 24 --context 12 --batch 2 --lr 1e-2 --vocab 259 --data {reference}/tokens.u16"
READ = "no block reads it"


def call_of(mixers, feeds, option=None):
    words = set(f"{mixers},{feeds}".replace(",", " ").split())
    needs = " ".join(NEEDS[word] for word in sorted(words & set(NEEDS)))
    heads = "--heads 4" if option != "heads" and words & {"full", "window", "full-unplaced", "latent", "latent-unplaced",
                                                          "indexed"} else ""
    more = f"--{option} {VALUES[option]}" if option else ""
    return f"decoder {DATA} --mixers {mixers} --feeds {feeds} {needs} {heads} {more}"


def losses_of(call):
    """Returns the losses of a run, or the error of one that is refused."""
    got = subprocess.run([ACTORRUN, *words("--quiet --steps 2 --report report.json " + call)], capture_output=True, text=True,
                         check=False)
    assert got.returncode in (0, 2), (call, got.returncode, got.stderr)
    return got.stderr if got.returncode else Report.read("report.json").losses


seed = int(os.environ.get("SEED", "7"))
print("seed", seed)
cases = [(mixers, feeds, option) for mixers in MIXERS for feeds in FEEDS for option in VALUES]
if not os.environ.get("SLUICE_LONG"):
    cases = random.Random(seed).sample(cases, 50)
usual, refused, faults = {}, set(), []
for mixers, feeds, option in cases:
    call = call_of(mixers, feeds, option)
    got = losses_of(call)
    if isinstance(got, str):
        ok = f"--{option}" in got or f"-{option} " in got
        refused |= {option} if READ in got else set()
    else:
        plain = call_of(mixers, feeds)
        if plain not in usual:
            usual[plain] = losses_of(plain)
        ok = got != usual[plain] and isinstance(usual[plain], list)
    if not ok:
        faults.append((call, got))
for call, got in faults:
    print("accepted, but nothing changes:" if isinstance(got, list) else f"refused otherwise: {got.strip()}:", call)
assert not faults and refused, len(faults)
