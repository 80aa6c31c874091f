# SPDX-License-Identifier: Apache-2.0
"""Registers that are offloaded to disk change no loss, whatever else the run does. Checkpoints do not depend on homes.
Invalid homes are rejected before the run, and the folder is empty afterwards.

labels: outside
needs: zeromq
"""
import atexit
import os
import re
import shutil
import signal
import subprocess
import tempfile

from tool import ACTORRUN, PATIENT, Report, Started, actorrun, fails, read, same_bits, says, skip, work


def in_memory(folder):
    kind = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True).stdout.strip()
    return kind in ("tmpfs", "ramfs")


apart = work  # a folder on a disk
if in_memory(work):
    apart = tempfile.mkdtemp(dir="/var/tmp")
    atexit.register(shutil.rmtree, apart, ignore_errors=True)
if in_memory(apart):
    skip("there is no disk here")
disk = apart + "/disk"
os.mkdir(disk)
MODEL = "gpt --layers 6 --width 16 --heads 2 --context 16 --batch 4 --data {reference}/text.txt "
JOB = f"--steps 2 --microbatches 2 --grain layer --disk {disk} {PATIENT} "
BOTH = "--home act=disk --home state=disk --home weights=disk --quota weights=1 "


def run(options, job=JOB, model=MODEL):
    """Returns the report of a run, and what it wrote."""
    said = actorrun(f"{job} {options} --report report.json {model}").stdout
    return Report.read("report.json", options), said


def empty(when):
    assert not os.listdir(disk), f"{when} left something: {os.listdir(disk)}"


# ---- no loss changes -------------------------------------------------------------------------------------------
for way in ("", "--stages 2 -n 2", "--stages 2 --schedule zb-h1", "--data-parallel 2"):
    kept, said = run(way)
    assert "to and from disk" not in said, f"{way}: what is nowhere else is moved"
    for home in ("--home act=disk", "--home state=disk", BOTH):
        away, said = run(f"{way} {home}")
        same_bits(kept, away)
        assert away.moved("disk") > 0, f"{way} {home}: the report has nothing on disk"
        assert re.search(r"^  to and from disk: [0-9.]+ [KM]iB a step, [0-9.]+ [kMG]?B/s$", said, re.M), said
        if not way and home == "--home act=disk":  # on one device everything that is written is read once
            assert away.moved("disk") == away.whole["predicted"]["moved_bytes_per_step"]["disk"]
empty("a run")
# Frozen parameters are read but never written.
same_bits(run("--freeze h.*")[0], run("--freeze h.* --home weights@h.*=disk --plan away.plan")[0])
plan = read("away.plan").decode()
assert re.search("^actor fill:param.*<B", plan, re.M), "the way back reads them elsewhere"
assert not re.search("^actor spill:", plan, re.M), "frozen parameters are written"
said = actorrun(f"{JOB} --home act=disk --dry-run {MODEL}").stdout
assert re.search(r"^cpu:0 disk .* [1-9][0-9.]* KiB$", said, re.M), "the memory table has nothing on disk"

# ---- checkpoints -----------------------------------------------------------------------------------------------
# A run with a checkpoint in between equals an uninterrupted run, also from initial weights and in saved weights.
whole, _ = run("--steps 4 --save whole.safetensors")
for i, (begun, resumed) in enumerate(((BOTH, ""), ("", BOTH))):
    first, _ = run(f"{begun} --checkpoint c{i} --every 2")
    second, _ = run(f"--steps 4 {resumed} --checkpoint c{i} --every 2 --resume --save second.safetensors")
    same_bits(whole, first.then(second))
    assert read("whole.safetensors") == read("second.safetensors"), "other weights"
same_bits(run("--init whole.safetensors")[0], run(BOTH + "--init second.safetensors")[0])

# ---- invalid homes ---------------------------------------------------------------------------------------------
NAMED = "; its last is head"
for text, options in (
        ("home x=disk: only act, act.b, act.w, kv, state and weights can be moved", "--home x=disk"),
        ("home act=tape: must be device, host, disk or peer:N, not 'tape'", "--home act=tape"),
        ("home act@nope=disk: the model has no block of that name" + NAMED, "--home act@nope=disk"),
        ("home act=host: not supported on cpu devices, whose memory is the host's", "--home act=host"),
        ("--home act: must be NAME=HOME", "--home act"),
        ("grain pass: offloaded data moves block by block", "--home act=disk --grain pass"),
        ("home state: saves nothing here: keeping the registers takes 188 KiB of a device, moving them 2",
         "--home state=disk --quota fill=64"),
        ("home weights=disk: not with two-slot parameters (--quota param=2), which stay on their device",
         "--home weights=disk --quota param=2"),
        ("home weights: saves nothing here: keeping the registers takes", "--home weights=disk --quota weights=64"),
        ("home weights: nothing to move", "--home weights=disk --data-parallel 2 --shard parameters"),
        ("unknown quota weights", "--quota weights=2"),
        ("offload act=1: must be activations=SHARE, with SHARE from 0 to 1", "--home act=disk --offload act=1"),
        ("offload activations=1.5: must be activations=SHARE, with SHARE from 0 to 1",
         "--home act=disk --offload activations=1.5"),
        ("offload activations=1: needs sequences cut into pieces", "--home act=disk --offload activations=1"),
        ("offload activations=1: needs a home for activations", "--pieces 2 --offload activations=1"),
        ("cannot be combined with recompute full", "--pieces 2 --home act=disk --offload activations=1 --recompute full"),
        ("--disk :1M: not DIR or DIR:SIZE", "--home act=disk --disk :1M"),
        (f"folder {apart}/nosuchdir: No such file", f"--home act=disk --disk {apart}/nosuchdir"),
        ("home kv=disk: keys and values move piece by piece, one block after another (--pieces K --piece-order layers)",
         "--home kv=disk --pieces 2"),
        ("piece order layers: needs sequences cut into pieces (--pieces K)", "--piece-order layers"),
        ("--piece-order rows: must be one of tokens, layers", "--piece-order rows"),
        ("grain pass: piece order layers runs block by block, which needs grain layer",
         "--grain pass --piece-order layers --pieces 2"),
        *([("folder /dev/shm is in memory (tmpfs), not on a disk", "--home act=disk --disk /dev/shm")]
          if in_memory("/dev/shm") else []),
        ("home auto: needs --memory SIZE, the memory of a device", "--home auto"),
        ("home auto cannot be combined with --schedule auto", "--home auto --memory 1M --schedule auto"),
        ("--host-memory much: not a size such as 64G", "--home act=disk --host-memory much"),
        ("recompute full@nope: the model has no block of that name" + NAMED, "--recompute full@nope"),
        ("--recompute all: must be one of none, selective, full, whole", "--recompute all@h.1"),
        ("on disk (--disk DIR:SIZE) but its budget is 100 KiB", f"--home act=disk --disk {disk}:100K"),
        ("no schedule of 2 devices stays within --disk of 4.0 KiB",
         f"--home act=disk --disk {disk}:4K --schedule auto --stages 2 --dry-run"),
        ("home auto: none of", "--home auto --memory 10K")):
    got = fails(text, ACTORRUN, f"{JOB} {options} {MODEL}", 3 if "10K" in options or f"{disk}:" in options else 2)
    assert not re.search("^step", got.stdout, re.M), f"{options}: it ran"
    if "100K" in options:
        assert re.search("cpu:0 needs [0-9.]+ KiB on disk", got.stderr), got.stderr
        says(got.stderr, "largest holders: act.b")
says(got.stderr, "plans fits; the smallest, --", "(there is 10.0 KiB)")
says(actorrun(f"{JOB} --stages 2 --piece-order layers --pieces 2 {MODEL}").stderr, "the pipeline fills 2 times more slowly")
run(f"--home act=disk --disk {disk}:1G")

# ---- --home auto -----------------------------------------------------------------------------------------------
# The choice fits, changes no loss, and equals the plan that its options make by hand.
LARGE = "gpt --layers 6 --width 16 --heads 2 --context 64 --batch 16 --data {reference}/text.txt "
WHOLE = f"--steps 2 --microbatches 2 --schedule gpipe --disk {disk} {PATIENT} "


def needs(report):
    return max(d["peak_bytes"]["total"] for d in report.whole["devices"])


def chosen(said):
    return re.search("^homes auto: (.*)", said, re.M)[1]


kept, _ = run("", WHOLE, LARGE)
for share in (8, 7, 6):
    memory = needs(kept) * share // 10
    auto, said = run(f"--memory {memory} --home auto", WHOLE, LARGE)
    same_bits(kept, auto)
    assert needs(auto) <= memory and chosen(said).startswith("--"), (needs(auto), memory, said)
    assert re.search("^  the best of [0-9]+ plans: .* a step, .* of a device", said, re.M), said
    hand, _ = run(f"--memory {memory} {chosen(said)}", WHOLE, LARGE)
    assert hand.whole["plan_hash"] == auto.whole["plan_hash"], chosen(said)
said = actorrun(f"{WHOLE} --memory 1G --home auto --dry-run {LARGE}").stdout
assert chosen(said) == "everything stays where it is made", said
# The user's settings for a block take precedence; several processes find the same homes.
same_bits(kept, run(f"--memory {memory} --home auto --home act@h.5=device --recompute none --stages 2 -n 2", WHOLE, LARGE)[0])

# ---- no leftovers ----------------------------------------------------------------------------------------------
for how in ("", "named"):
    with Started(f"{JOB} {BOTH} --steps 1000000 {MODEL}", SLUICE_DISK=how) as job:
        job.until("step 1/")
        job.stop(signal.SIGKILL)
    empty("kill -9")
