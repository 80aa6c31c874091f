# SPDX-License-Identifier: Apache-2.0
"""Registers that live in the memory of another device of the pipeline (--home weights=peer:N) change no bit, take as much
there as they would take here, and are moved once for each use.

labels: outside
needs: libevent
"""
import os
import re

from tool import ACTORSERVE, EMULATED, Runs, Server, actorrun, ends, every, fails, parse, read, same_bits

WIDTH, BLOCKS, MICROBATCHES, STAGES = 16, 24, 4, 3
SHAPE = f"gpt --layers {BLOCKS} --width {WIDTH} --heads 2 --context 16"
TEXT = " --data {reference}/text.txt"
# Bytes of a block's parameters: four matrices and the gains of two norms, which both passes read, and biases, which only the
# forward pass reads.
BOTH, FORWARD = 4 * (12 * WIDTH ** 2 + 2 * WIDTH), 4 * 11 * WIDTH
BLOCK = BOTH + FORWARD
PEER = "--home weights@h.*=peer:1 --quota weights=1"


def parameters(report):
    return [d["peak_bytes"]["parameters"] for d in report["devices"]]


def blocks_of(plan, stages):
    """Returns how many blocks each stage has in a plan whose blocks all live with peers."""
    lives = re.findall(r"^register param\S*@(\d+)>peer on \w+:(\d+) .* slot (\d+) ", read(plan).decode(), re.M)
    assert all((int(stage) + 1) % stages == int(device) for stage, device, _ in lives), lives
    sums = [sum(int(n) for stage, _, n in lives if int(stage) == s) for s in range(stages)]
    assert sum(sums) == BLOCKS * BLOCK and not any(n % BLOCK for n in sums), sums
    return [n // BLOCK for n in sums]


def grown(kept, away, blocks, *windows):
    """Checks the bytes of parameters on each device: without its blocks, with those of the device before it, and with slots
    that blocks pass through."""
    want = [n + BLOCK * (blocks[s - 1] - blocks[s]) + windows[s] for s, n in enumerate(parameters(kept))]
    assert parameters(away) == want, (parameters(kept), parameters(away), want, blocks)


# ---- training: bits, bytes and memory ----------------------------------------------------------------------------------
run = Runs(SHAPE + " --batch 8" + TEXT, f"--steps 2 --microbatches {MICROBATCHES} --stages {STAGES} --grain layer")
away = run(PEER + " --plan away.plan")
same_bits(run(), away)
assert away.moved("peer") == BLOCKS * (MICROBATCHES * (BLOCK + BOTH) + 2 * BLOCK), away.moved("peer")
assert not run().moved("peer") and away.moved("pipeline") == run().moved("pipeline")
# A slot for each pass, which the last stage has one at a time, one for updates, and two for what these write.
grown(run().whole, away.whole, blocks_of("away.plan", STAGES), *(STAGES - 1) * [4 * BLOCK + BOTH], 4 * BLOCK)
# Any number of devices further along, other registers, other schedules, grids and homes.
EVERYTHING = "--home weights=peer:1 --home state=peer:2 --home act=peer:1"
for way, kept in (("--home weights=peer:2", ""), (EVERYTHING, ""),
                  ("--home weights=disk --home weights@h.3=peer:1", ""),
                  *every(2, (("--schedule zb-h1 " + EVERYTHING, "--schedule zb-h1"),
                             ("--data-parallel 2 --shard gradients " + PEER, "--data-parallel 2 --shard gradients"),
                             ("--schedule interleaved --chunks 2 " + PEER, "--schedule interleaved --chunks 2"),
                             ("--freeze h.* --dtype bf16 " + PEER, "--freeze h.* --dtype bf16")))):
    same_bits(run(kept), run(way))
if os.access(EMULATED, os.X_OK):
    gpus = Runs(f"gpt --layers 12 --width 8 --heads 2 --context 8 --batch 4{TEXT}", "--steps 2 --stages 2 --grain layer --devices cuda",
                EMULATED)
    pair = dict(SLUICE_EMULATED_GPUS="2", SLUICE_EMULATED_GUARD="1")
    same_bits(gpus(**pair), gpus(f"{PEER} --home state=peer:1", **pair))

# ---- serving -----------------------------------------------------------------------------------------------------------
actorrun(f"--quiet --steps 1 --save small.safetensors {SHAPE}{TEXT}")
SERVED = "--stages 2 --devices cpu:2x1 --sequences 2 --rows 8 --quota kv=2 --report served.json --init small.safetensors"
texts = []
LENT = 10  # blocks of the first stage
SOME = "--quota weights=1 " + " ".join(f"--home weights@h.{b}=peer:1" for b in range(LENT))
for home in ("", SOME):
    with Server(f"{SERVED} {home} {SHAPE}") as server:
        texts.append(server.text(prompt="Hello", max_tokens=9, temperature=0))
    texts.append(parse("served.json"))
assert texts[0] == texts[2], texts
grown(texts[1], texts[3], (LENT, 0), BLOCK, 0)
assert actorrun(f"--quiet --steps 0 --stages 2 {PEER} --prompt Hello --generate 9 --temperature 0 --init small.safetensors "
                f"{SHAPE}").stdout.rstrip("\n") == ("Hello" + texts[0]).rstrip("\n")

# ---- what is refused ---------------------------------------------------------------------------------------------------
for text, options in (
        ("home weights=peer:3: must be peer:1 to peer:2", "--home weights=peer:3"),
        ("home weights=peer:0: must be peer:1 to peer:2", "--home weights=peer:0"),
        ("home weights=peer:1: one stage has no peer", "--stages 1 --home weights=peer:1"),
        ("home kv=peer:1: only act, act.b, act.w, state and weights can live with a peer", "--home kv=peer:1 --pieces 4 --piece-order layers"),
        ("home x=peer:1: only", "--home x=peer:1"),
        ("must be device, host, disk or peer:N, not 'peer'; did you mean peer:N?", "--home weights=peer"),
        ("must be device, host, disk or peer:N, not 'peer:two'", "--home weights=peer:two"),
        ("must be device, host, disk or peer:N, not 'disk:1'", "--home weights=disk:1")):
    run.refused(text, options)
run.refused("home weights=peer:1: device 1 is a peer in process 1, but device 0 is in process 0", "-n 3 --home weights=peer:1", 2)
# Both devices fit in a budget that the second exceeds with what it holds for the first.
budget = max(d["peak_bytes"]["total"] for d in texts[1]["devices"]) + BLOCK
loop = f"--quiet --lengths 4,2 --concurrency 1 --requests 1 --memory {budget} {SERVED}"
ends(0, ACTORSERVE, f"{loop} {SHAPE}")
fails("device cpu:1 needs.*largest holders:.*param of its peers", ACTORSERVE, f"{loop} {SOME} {SHAPE}", 3)
