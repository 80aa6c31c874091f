# SPDX-License-Identifier: Apache-2.0
"""--sequence: a context that exceeds any single device's budget, even with pieces, recomputation and disk, trains on
two devices and on four. A checkpoint resumes on another grid. A forward pass alone moves a third of the bytes of ring
attention. On the virtual clock contiguous positions have the expected efficiency, and zigzag is fully balanced.
Impossible settings are rejected with an error that names them.

labels: outside
needs: zeromq
"""
import csv
import json

from tool import ACTORRUN, SOURCE, Runs, ends, near, same_bits, work, write

DATA = " --data {reference}/text.txt "
RING = "--sequence-attention ring "
llama = Runs("llama --layers 4 --width 32 --heads 4 --kv-heads 2 --context 1024 --batch 1" + DATA,
             "--microbatches 1 --steps 2")

# ---- in 2 MiB --------------------------------------------------------------------------------------------------
ALL = f"--pieces 16 --piece-order layers --recompute full --home act=disk --home kv=disk --memory 2M --disk {work} "
for how in ("--recompute full", "--pieces 16 --recompute full", "--pieces 16 --home act=disk", ALL):
    ends(3, ACTORRUN, f"--quiet --dry-run --microbatches 1 --memory 2M {how} {llama.model}")
for how in ("2 --sequence-attention heads", "4 --sequence-attention heads", "4 " + RING):
    near(llama(), llama(f"--sequence {how} --shard parameters {ALL}"), 1e-6)
same_bits(llama(f"--sequence 4 {RING} --shard parameters {ALL}"),
          llama(f"--sequence 4 {RING} --shard parameters --pieces 16"))

# ---- another grid ----------------------------------------------------------------------------------------------
small = Runs("llama --layers 2 --width 32 --heads 4 --kv-heads 2 --context 33 --batch 4" + DATA, "--microbatches 1")
small("--steps 3 --sequence 4 --sequence-attention heads --shard gradients --checkpoint c --every 3")
near(small("--steps 6 --data-parallel 2 --tensor 2").last(3),
     small(f"--steps 6 --data-parallel 2 --sequence 2 {RING} --shard parameters --resume --checkpoint c"), 1e-6)
PIECES = "--sequence 2 --pieces 3 " + RING
small("--steps 2 --checkpoint p --every 1 " + PIECES)
same_bits(small("--steps 6 " + PIECES).last(4), small("--steps 6 -n 2 --resume --checkpoint p " + PIECES))

# ---- forward exchanges only ------------------------------------------------------------------------------------
# If only the head is trained, attention has no backward pass. Of 8 runs of 257 positions, run r has
# 257 (r + 1) / 8 - 257 r / 8 positions: the last has one more.
for rows, devices, positions, how in ((192, 2, 256, ""), (3 * 4 * 32 + 1 * 32 + 2 * 32 + 3 * 32, 4, 257, ""),
                                      (3 * 257, 4, 257, "--pieces 5"),
                                      (257, 2, 257, "--pieces 3 --sequence-layout contiguous")):
    got = Runs(f"llama --layers 2 --width 64 --heads 4 --kv-heads 2 --context {positions} --batch 1" + DATA)(
        f"--microbatches 1 --steps 1 --sequence {devices} {RING} --freeze model.* {how}").moved("sequence")
    assert got == rows * 2 * 64 * 4, (devices, positions, how, got)

# ---- the virtual clock -----------------------------------------------------------------------------------------
write("long.txt", "a" * 65600)
with open(SOURCE + "/machines/h100-sxm-80gb.json", encoding="utf-8") as file:
    machine = json.load(file)


def timed(devices, model, options, **figures):
    """Returns the report of a run on devices of this machine, with other figures."""
    write("machine.json", json.dumps({**machine, **figures}))
    return Runs(f"llama --layers 1 --batch 1 --data long.txt {model}")(
        f"--clock virtual --devices timed:{devices} --machine machine.json --steps 2 --sequence {devices} {options}"
    ).whole


# Only arithmetic takes time, and nearly all of it is attention.
FREE = {"efficiency": 1, "link_seconds": 0, "bytes_per_second": 1e18}
free = {name: value for name in machine for end, value in FREE.items() if name.endswith(end)}
for devices in (2, 4, 8):
    for layout, want in (("contiguous", devices / 2 / (devices - 1 / 2)), ("zigzag", 1)):
        report = timed(devices, "--width 16 --heads 1 --kv-heads 1 --ffn 16 --context 65536",
                       f"{RING} --sequence-layout {layout}", flops_per_second={"f32": 1e12, "bf16": 1e12}, op_seconds=0,
                       **free)
        got = sum(d["busy_seconds"] for d in report["devices"]) / devices / report["step_seconds"]
        assert abs(got - want) < 0.003, (devices, layout, got, want)

# The planner takes the faster way on the virtual clock, also if four devices share two key/value heads; which one that
# is depends on the links.
for want, rate, seconds, heads, pieces in (("ring", 4.5e11, 3e-6, 2, 1), ("heads", 4.5e11, 1e-4, 2, 1),
                                           ("heads", 2e10, 1e-7, 8, 4), ("ring", 2e10, 1e-7, 2, 4)):
    took = {way: timed(4, f"--width 512 --ffn 512 --heads 8 --kv-heads {heads} --context 4096",
                       f"--sequence-attention {way} --pieces {pieces}", host_link_bytes_per_second=rate,
                       host_link_seconds=seconds)["step_seconds"] for way in ("heads", "ring", "auto")}
    assert took["auto"] == min(took.values()) == took[want], (want, rate, seconds, took)
sbp = ends(0, ACTORRUN, "--dry-run --show-sbp --sequence 4 llama --kv-heads 1 --layers 1 --width 32 --heads 4 "
           "--context 64 --batch 1" + DATA).stdout
assert "the runner-up has attention by heads: " in sbp and " MB received instead of" in sbp, sbp

# ---- impossible settings ---------------------------------------------------------------------------------------
for text, options in (
        ("op h.0/attention.1 (attention) cannot be split by heads over 5 sequence-parallel devices",
         "--sequence 5 --sequence-attention heads"),
        ("has too few positions", "--sequence 34 " + RING),
        ("has too few positions", "--sequence 4 --pieces 5 " + RING),
        ("unknown sequence attention 'rows'", "--sequence 2 --sequence-attention rows"),
        ("unknown sequence layout 'odd'", "--sequence 2 --sequence-layout odd"),
        ("sequence layout zigzag: needs --sequence-attention ring",
         "--sequence 2 --sequence-attention heads --sequence-layout zigzag")):
    small.refused(text, "--steps 1 " + options)
Runs("mamba2 --layers 1 --width 16 --head-dim 8 --state 4 --context 32 --batch 4" + DATA).refused(
    "it reads positions in order, as --sequence-layout contiguous has them", "--sequence 2 --sequence-layout zigzag")

# Pieces of different lengths: each device has at least as many positions of the longer piece, in both layouts.
for how, context in (("--sequence 4 --sequence-layout zigzag --pieces 3", 31),
                     ("--sequence 5 --sequence-layout contiguous --pieces 2", 15)):
    odd = Runs(f"llama --layers 1 --width 20 --heads 5 --vocab 256 --batch 2 --context {context}" + DATA, "--steps 2")
    odd("--log one.csv")
    odd("--log cut.csv " + how)
    with open("one.csv", encoding="utf-8") as one, open("cut.csv", encoding="utf-8") as cut:
        for a, b in zip(csv.DictReader(one), csv.DictReader(cut), strict=True):
            assert all(abs(float(a[name]) - float(b[name])) < 1e-5 for name in ("loss", "grad_norm")), (how, a, b)
