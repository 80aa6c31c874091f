# SPDX-License-Identifier: Apache-2.0
"""A run that ended through its user, a full disk or a kill resumes from its checkpoint with the same curve, bit for bit,
on any number of stages.

labels: first more
"""
import glob
import math
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import time

from tool import (ACTORRUN, BRIEF, LONG, PLACES, SANITIZED, Started, actorrun, ends, every, fails, parse, read, says,
                  tensors, words, write)

MODEL = "gpt --layers 4 --width 32 --heads 2 --context 32 --batch 4 --data {reference}/tokens.u16 "
# Sanitizers make everything slower, so the test does less.
KILLS = 20 if LONG else 2 if SANITIZED else 6


def run(options, status=0, model="", **more):
    return actorrun(f"--microbatches 4 {options} {MODEL} {model}", status, **more)


def refused(text, options, status=2, model="", **more):
    return fails(text, ACTORRUN, f"--microbatches 4 {options} {MODEL} {model}", status, **more)


def curve(*reports):
    return [(s["step"], s["loss_hex"]) for path in reports for s in parse(path)["steps"]]


def same(what, full, *reports):
    assert curve(full) == curve(*reports), f"{what}: not the uninterrupted curve"


def ends_as(full, report):
    got = curve(report)
    assert got == curve(full)[-len(got):], f"{report} is not the end of the curve"


def fresh(path="c"):
    shutil.rmtree(path, ignore_errors=True)


# ---- the command line ------------------------------------------------------------------------------------------
for text, options in (("--resume: needs --checkpoint DIR", "--resume"), ("--every: needs --checkpoint DIR", "--every 5"),
                      ("--every 0: must be between", "--checkpoint x --every 0"),
                      ("--checkpoint: timed devices hold no values", "--devices timed:2 --checkpoint x"),
                      ("--checkpoint: cannot make the folder no/such/x", "--checkpoint no/such/x")):
    refused(text, options)

# ---- the uninterrupted run -------------------------------------------------------------------------------------
run("--steps 20 --stages 4 --report full.json --save full.safetensors")
run("--steps 20 --stages 4 --report a.json --save a.safetensors --checkpoint c --every 6")
same("a run that keeps checkpoints", "full.json", "a.json")
assert read("full.safetensors") == read("a.safetensors"), "a run that keeps checkpoints has other weights"
assert sorted(os.listdir("c")) == ["latest", "step-18", "step-20"], os.listdir("c")
assert read("c/latest").strip() == b"step-20" and len(os.listdir("c/step-18")) == 5
says(read("c/step-18/manifest.json").decode(), *(f'"{word}"' for word in (
    "seed", "plan_hash", "per_step", "philox4x32-10", "lr", "fnv1a64")))

# ---- resuming --------------------------------------------------------------------------------------------------
fresh()
said = run("--steps 9 --stages 4 --report a.json --checkpoint c --every 4 --resume").stdout
says(said, "no checkpoint in c yet: starting from step 0")
refused("step-9 of an earlier run exists; resume (--resume) to continue from it", "--checkpoint c --steps 12")
for stages in (2,) if BRIEF else (1, 2, 4):
    shutil.copytree("c", f"c{stages}")
    go = f"--steps 20 --stages {stages} --checkpoint c{stages} --resume "
    says(run(go + "--report b.json --save b.safetensors --every 4").stdout,
         f"resuming from c{stages}/step-9, written by 4 stages")
    same(f"4 stages resumed on {stages}", "full.json", "a.json", "b.json")
    assert read("full.safetensors") == read("b.safetensors"), f"resumed on {stages}: other weights"
    says(run(go).stdout, "nothing left to do")
shutil.copytree("c", "more")
again = (14, 20) if BRIEF else (11, 14, 17, 20)
for steps in again:  # repeatedly, each time with another plan
    run(f"--steps {steps} --stages {1 + steps % 4} --report {steps}.json --checkpoint more --every 1 --resume "
        "--schedule gpipe --jitter 20")
same("resumed again and again", "full.json", "a.json", *(f"{steps}.json" for steps in again))
for options in ("--pieces 4",) if SANITIZED else ("--quota param=2", "--schedule zb-v", "--pieces 4", "--dtype bf16"):
    fresh()
    run(f"--stages 2 --steps 8 {options} --report f.json")
    run(f"--stages 2 --steps 3 {options} --report a.json --checkpoint c --every 2")
    run(f"--stages 2 --steps 8 {options} --report b.json --checkpoint c --every 2 --resume")
    same(options, "f.json", "a.json", "b.json")
run("--steps 20 --stages 4 --report a.json --checkpoint two --every 1 --quota store=2 --jitter 50")
same("two slots to store from", "full.json", "a.json")

# ---- settings that must not change -----------------------------------------------------------------------------
fresh()
run("--steps 3 --checkpoint c")
for text, options, model in (("--lr is 0.002, but c/step-3 was made with 0.001", "", "--lr 2e-3"),
                             ("--batch is 8, but c/step-3 was made with 4", "", "--batch 8"),
                             ("--seed is 2, but c/step-3 was made with 1", "--seed 2", ""),
                             ("--microbatches is 2, but", "--microbatches 2", ""),
                             ("--quota param is 2, but", "--quota param=2", "")):
    refused(text, f"--checkpoint c --resume {options}", model=model)
fails("the model is llama, but c/step-3 was made with gpt", ACTORRUN,
      "--checkpoint c --resume --microbatches 4 llama --data {reference}/tokens.u16")
fresh()
text = read(PLACES["reference"] + "/text.txt").decode()
MINE = "--quiet --checkpoint c gpt --layers 1 --width 16 --heads 2 --context 16 --batch 4 --data mine.txt"
changed = "\n".join(line.replace("e", "a", 1) for line in text.split("\n"))
write("mine.txt", changed)
actorrun("--steps 3 " + MINE)
for wrong, data in (("cannot resume: mine.txt holds different data than when c/step-3 was made", text),
                    ("bytes, but c/step-3 was made when it had", text + "more\n")):
    write("mine.txt", data)
    fails(wrong, ACTORRUN, "--steps 5 --resume " + MINE)
write("mine.txt", changed)
actorrun("--steps 5 --resume " + MINE)

# ---- damage ----------------------------------------------------------------------------------------------------
fresh()
run("--steps 8 --stages 2 --checkpoint c --every 4")
os.rename("c", "whole")


def overwrite(path, at, size):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(bytes(size))


SHARD, MANIFEST = "c/step-8/stage-00%d.safetensors", "c/step-8/manifest.json"
for harm in every(3, [lambda: os.truncate(SHARD % 0, os.path.getsize(SHARD % 0) - 1), lambda: os.remove(SHARD % 1),
                      lambda: os.remove(MANIFEST),
                      lambda: write(MANIFEST, read(MANIFEST).decode().replace("0.001", "0.002")),
                      lambda: overwrite(SHARD % 1, 5000, 9)]):
    fresh()
    shutil.copytree("whole", "c")
    harm()
    got = run("--steps 20 --stages 2 --report b.json --checkpoint c --every 4 --resume")
    says(got.stderr, "checkpoint step-8 is incomplete and is skipped")
    says(got.stdout, "resuming from c/step-4")
    ends_as("full.json", "b.json")
    assert os.path.isdir("c/step-8.damaged"), "it is not set aside"
for step in glob.glob("c/step-*[0-9]"):
    write(step + "/manifest.json", "")
refused("none of the 2 checkpoints in c is complete", "--checkpoint c --resume --steps 30")

# ---- one run at a time; Ctrl-C ---------------------------------------------------------------------------------
fresh()
with Started(f"--steps 1000000 --stages 2 --microbatches 4 --checkpoint c --every 1000000 --report a.json {MODEL}") as job:
    job.until("step 1/")
    says(subprocess.run([ACTORRUN, *words("--checkpoint c --resume " + MODEL)], capture_output=True, text=True,
                        check=False).stderr, "another run writes to the directory c")
    assert job.stop() == 1, "Ctrl-C ends a run with another status than 1"
    step = int(re.search(r"^stopped after step (\d+) of ", job.out, re.M)[1])
assert read("c/latest").decode().strip() == f"step-{step}", "Ctrl-C does not write the step it was at"
run(f"--steps {step + 5} --stages 1 --report b.json --checkpoint c --resume")
run(f"--steps {step + 5} --stages 2 --report f.json")
same("after Ctrl-C", "f.json", "a.json", "b.json")

# ---- a full disk -----------------------------------------------------------------------------------------------
fresh()
run("--steps 4 --stages 2 --checkpoint c")
GO = "--steps 20 --stages 2 --checkpoint c --every 2 --resume "
refused("c/step-6.tmp/stage-00", GO, 1, limit=40 * 1024)
assert sorted(os.listdir("c")) == ["latest", "step-4"], os.listdir("c")
run(GO + "--report b.json")
ends_as("full.json", "b.json")
if not subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
    os.mkdir("disk")
    call = " ".join(words(f"{ACTORRUN} --steps 20 --stages 2 --microbatches 4 --checkpoint disk/c --every 2 --keep 9 "
                          f"--report b.json {MODEL}"))
    got = ends(0, "unshare", f"-rm bash -c 'mount -t tmpfs -o size=1800k none disk && {call}; echo status $?; ls disk/c'")
    says(got.stdout, "status 1")
    says(got.stderr, "No space left on device")
    assert ".tmp" not in got.stdout and "step-2" in got.stdout.split("\n"), got.stdout

# ---- values that are not finite --------------------------------------------------------------------------------
fresh()
err = run("--steps 20 --checkpoint c --every 1 --keep 9", 1, "--lr 1e30 --clip 0 --warmup 0").stderr
assert re.search("actorrun: the loss of step|actorrun: tensor .* is not finite", err), err
for shard in glob.glob("c/step-*/stage-*.safetensors"):
    for name, raw in tensors(shard).items():
        assert all(map(math.isfinite, struct.unpack(f"<{len(raw) // 4}f", raw[:len(raw) // 4 * 4]))), (shard, name)

# ---- kill -9 ---------------------------------------------------------------------------------------------------
# Kills endless runs at random moments, repeatedly. Runs that resume from their checkpoints have to follow the curve.
fresh()
length = 0
for seed in range(1, KILLS + 1):
    with Started(f"--steps 1000000 --stages {1 + seed % 4} --microbatches 4 --checkpoint c --every 1 --jitter 300 --resume "
                 + MODEL) as job:
        if seed % 4:  # waits until it trains; one run in four is killed while it starts
            job.until("step ")
        time.sleep(random.Random(seed).random() * .4)
        assert job.process.poll() is None, f"kill {seed}: the run had ended"
        job.stop(signal.SIGKILL)
    if not os.path.isdir("c"):
        continue
    fresh("probe")
    shutil.copytree("c", "probe")
    assert sum(bool(re.fullmatch(r"step-\d+", name)) for name in os.listdir("probe")) <= 3, os.listdir("probe")
    latest = read("probe/latest").decode() if os.path.exists("probe/latest") else "step-0"
    end = int(latest.split("-")[1]) + 5
    if end > length:
        length = end + 40
        run(f"--steps {length} --stages 2 --report full.json")
    err = run(f"--steps {end} --stages 2 --report b.json --checkpoint probe --every 50 --resume").stderr
    assert "is incomplete" not in err, f"kill {seed}: a checkpoint was damaged"
    # a kill before the new checkpoint is named in `latest` means one step less
    got = curve("b.json")
    assert len(got) >= 4 and not set(got) - set(curve("full.json")), f"kill {seed}: not the curve"
    if end > 100:
        fresh()  # starts afresh, so that the first checkpoint is tested more than once
