# SPDX-License-Identifier: Apache-2.0
"""actorrun and actortrace as a user meets them: what they print, which files they leave and how they end.
test_actorrun_refused.py tests what actorrun rejects.

labels: first smoke
needs: zeromq
"""
import collections
import glob
import json
import os
import re
import shlex
import subprocess

from tool import (ACTORRUN, ACTORTRACE, Runs, Started, actorrun, differ, ends, fails, near, parse, read, same_bits, says, words)

SMALL = "--layers 2 --width 32 --heads 2 --context 32 --batch 4 --data {reference}/tokens.u16 "
GPT, GPT2 = "gpt " + SMALL, "--init {reference}/hf_gpt2/model.safetensors "


def refused(text, options, status=2, **more):
    got = fails(text, ACTORRUN, options, status, **more)
    assert len(re.findall("^actorrun: ", got.stderr, re.M)) == 1, f"{options}: not one line says why: {got.stderr}"
    return got


def says_lines(said, *patterns):
    for pattern in patterns:
        assert re.search(f"^{pattern}$", said, re.M), f"no line {pattern} in {said}"


# ---- a run and its output --------------------------------------------------------------------------------------
run = Runs(GPT, "--steps 3")
# At startup the run prints the model, the amount of data, and the device of each block.
said = actorrun("--steps 3 --stages 2 --microbatches 2 --report r.json --trace t.trace --save w.safetensors --plan p.txt "
                + GPT2 + GPT).stdout
says(said, "step 1/3  loss", "step 3/3  loss", "cpu:1", "bubble")
says_lines(said, "gpt: [0-9,]+ parameters; [0-9,]+ tokens in 1 file, [0-9,.]+ steps an epoch",
           r"  cpu:0 +[0-9.]+ [KM]iB  embedding h\.0", r"  cpu:1 +[0-9.]+ [KM]iB  h\.1 head")
said = actorrun("--steps 2 " + GPT).stdout
says_lines(said, r"  cpu:0 +[0-9.]+ [KM]iB  embedding h\.0\.\.h\.1 head")
assert "bubble" not in said, "one device has a bubble"
assert not actorrun("--steps 1 --quiet " + GPT).stdout, "--quiet says something"
for options, patterns in (
        (f"--stages 2 --chunks 2 --schedule interleaved --microbatches 2 --data-parallel 2 {GPT} --layers 6",
         [r"  cpu:0 to 1 +[0-9.]+ [KM]iB each  embedding h\.0(\.\.h\.1)? \| h\.[0-9](\.\.h\.[0-9])?"]),
        (f"--devices timed:12 {GPT} --layers 10",
         ["gpt: [0-9,]+ parameters.*", r"  \.\.\. 5 more", "  timed:11 +[0-9.]+ [KM]iB  head"]),
        # The list of quotas distinguishes different registers of the same name.
        ("--stages 2 --chunks 2 --schedule v-min --microbatches 4 --eval {reference}/tokens.u16 --eval-every 1 --steps 2 "
         f"--report q.json {GPT} --layers 4", [r"quotas:.*  fwd@0=[0-9]+  .*  fwd@0=[0-9]+ \(evaluation\).*"]),
        (f"--stages 4 --microbatches 8 --vocab-parallel --vocab-barriers 1 {GPT} --layers 4 --batch 8",
         [r"quotas:.*  fwd@1=[0-9]+ \(vocabulary\)  .*  fwd@1=[0-9]+  .*"])):
    said = actorrun("--dry-run " + options).stdout
    says_lines(said, *patterns)
quotas = re.findall(r"(\S+)=\d+(?: (\(\w+\)))?", re.search("^quotas:.*", said, re.M)[0])
assert max(collections.Counter(quotas).values()) == 1, quotas
says(read("q.json").decode(), '"part":')
says(actorrun("-n 2 --stages 2 --microbatches 2 --steps 2 " + GPT).stdout, " % of cpu:0  ")
report = read("r.json").decode()
says(report, *(f'"{field}"' for field in (
    "model options plan_hash clock schedule quotas steps loss_hex bubble_fraction step_seconds devices peak_activations "
    "peak_bytes firings plan_seconds start_seconds").split()))
assert len(parse("r.json")["steps"]) == 3 and os.path.getsize("p.txt")
rows = [line.split("\t") for line in ends(0, ACTORTRACE, "rows t.trace").stdout.splitlines()]
assert rows[0] == "step device class stage chunk microbatch piece start_ns end_ns actor".split(), rows[0]
# Each of three steps has two forward and two backward passes on each of two devices.
counts = collections.Counter((row[1], row[2]) for row in rows)
assert all(counts[device, kind] == 6 for device in "01" for kind in "FB"), counts
whole = run("--microbatches 2 " + GPT2)
same_bits(whole, run("--stages 2 --microbatches 2 " + GPT2))

# ---- pieces of sequences ---------------------------------------------------------------------------------------
pieces = run("--microbatches 2 --pieces 3 --stages 2 --schedule zb-h1")
same_bits(run("--microbatches 2 --pieces 3"), pieces)
says(json.dumps(pieces.whole, separators=(",", ":")), '"piece_lengths":[11,11,10]')

# ---- other products --------------------------------------------------------------------------------------------
# Where the CPU has bf16, or SLUICE_CPU_BF16 enables it, bf16 losses are close to fp32 losses and do not depend on the
# stages. Elsewhere they equal the fp32 losses.
TWO = "--microbatches 2 " + GPT2
for emulate in "01":
    one, two = (run(f"--dtype bf16 --stages {n} {TWO}", SLUICE_CPU_BF16=emulate) for n in "12")
    same_bits(one, two)
    near(whole, one, 0.002)
    if one.whole["products"] == "f32":
        same_bits(one, whole)
        got = actorrun(f"--steps 1 --quiet --dtype bf16 {TWO} {GPT}", SLUICE_CPU_BF16=emulate)
        says(got.stderr, "note: --dtype bf16: these devices have no bf16 products; fp32 is used")
    else:
        differ(one, whole)
# In fp32 the losses hardly depend on which code multiplies: a library, or bf16 tiles (in plain code where the CPU has no
# tiles).
library, tiles = ([run(f"--stages {n} {TWO}", SLUICE_CPU_FP32=products) for n in "12"] for products in ("library", "tiles"))
for one, two in (library, tiles):
    same_bits(one, two)
near(library[0], tiles[0], 1e-6)
differ(library[0], tiles[0])
refused("--dtype fp16: must be one of fp32, bf16", "--dtype fp16 " + GPT)
# Weights that are saved, loaded and saved again do not change.
actorrun("--steps 0 --init w.safetensors --save w2.safetensors " + GPT)
assert read("w.safetensors") == read("w2.safetensors")

# ---- bad traces ------------------------------------------------------------------------------------------------
trace = read("t.trace")
for name, data in (("cut", trace[:40]), ("short", trace[:-100])):
    with open(name + ".trace", "wb") as file:
        file.write(data)
for text, options in (
        ("no command", ""), ("unknown command lines", "lines t.trace"), ("takes one FILE", "rows"),
        ("nowhere.trace", "rows nowhere.trace"), ("is not a Sluice trace", "rows r.json"),
        ("cut.trace is truncated", "rows cut.trace")):
    fails(text, ACTORTRACE, options)
got = fails("newest firings are missing", ACTORTRACE, "rows short.trace", 0)
assert len(got.stdout.splitlines()) == len(rows) - 2, "a whole firing is missing"

# ---- users' own graphs -----------------------------------------------------------------------------------------
actorrun("--steps 300 --report r.json {source}/examples/spiral.c")
assert parse("r.json")["steps"][-1]["loss"] < 0.3, "the spirals are not learned"
actorrun("--steps 2 --stages 2 {source}/models/gpt.c " + SMALL)
ends(0, "cc", "-shared -fPIC -I{source}/include -o spiral.so {source}/examples/spiral.c -lm")
actorrun("--steps 2 spiral.so")
actorrun("--steps 2 ./spiral.so --activation relu")
refused("spiral: --activation is tanh or relu", "spiral.so --activation step")
refused('has no f32 output "logits"', "--steps 1 --generate 3 spiral.so")

# ---- generation ------------------------------------------------------------------------------------------------
THE = "--steps 0 --init w.safetensors --generate 10 --prompt 'The ' --temperature 0 " + GPT
first = actorrun(THE).stdout
assert len(first) == 15, "not a prompt of 4, 10 more, a new line"
assert actorrun(THE).stdout == first, "the likeliest text changes"
refused("must be a list of smaller numbers", f"--steps 0 --generate 2 --prompt words {GPT} --vocab 300")
said = actorrun(f"--steps 0 --generate 40 --prompt '1 2,299' llama {SMALL} --vocab 300").stdout
assert len(said.split()) == 43, "no numbers for a vocabulary that is not bytes"

# ---- failed runs -----------------------------------------------------------------------------------------------
kept = read("w.safetensors")
got = refused("step", f"--steps 20 --save w.safetensors --report r.json {GPT} --lr 1e30 --clip 0 --warmup 0", 1)
says(got.stderr, "the loss of step 2, microbatch 0, is")
assert read("w.safetensors") == kept, "values that are not finite are saved"
says(read("r.json").decode(), '"failed"')
refused("w.safetensors", "--steps 1 --save w.safetensors " + GPT, 1, limit=8 * 1024)
assert read("w.safetensors") == kept, "a full disk takes the old file"
assert not glob.glob("**/*.tmp.*", recursive=True), "temporaries are left"
refused("No space left on device", "--steps 1 --save /dev/full " + GPT, 1)

# ---- Ctrl-C ----------------------------------------------------------------------------------------------------
with Started("--steps 1000000 --stages 2 --microbatches 2 --save stopped.safetensors " + GPT) as job:
    job.until("step 1/")
    assert job.stop() == 1, "Ctrl-C ends a run with another status than 1"
    says(job.out, "stopped after step")
actorrun("--steps 0 --init stopped.safetensors --save w2.safetensors " + GPT)
assert read("stopped.safetensors") == read("w2.safetensors"), "what was saved is not whole"

# ---- a terminal ------------------------------------------------------------------------------------------------
call = " ".join(map(shlex.quote, words(f"{ACTORRUN} --steps 40 {GPT}")))
said = subprocess.run(["script", "-qec", call, "/dev/null"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                      check=True).stdout.decode()
says(said, "\rstep 40/40")
assert len([line for line in said.split("\n") if "step " in line]) <= 2, "a line is not drawn again and again"

# ---- no data ---------------------------------------------------------------------------------------------------
# On large grids one device of each stage is simulated for all of them; no data is needed.
A100 = "--clock virtual --machine a100-sxm-80gb "
said = actorrun(f"--dry-run {A100} --stages 2 --tensor 8 --data-parallel 8 --microbatches 4 gpt --layers 4 --width 256 --heads 8 "
                "--context 64 --batch 64").stdout
says(said, "timed:64-127", "a step takes", "flop/s a device", "tensor   links carry", "data     links carry",
     "pipeline links carry", "stands for the 64 of its stage")
actorrun(f"{A100} --tensor 2 --data-parallel 2 --steps 2 --report r.json gpt --layers 4 --width 256 --heads 8 --context 64 "
         "--batch 64")
says(read("r.json").decode(), '"moved_bytes_per_step"', '"alike":\t1')
actorrun("--clock virtual --stages 4 --microbatches 4 --steps 3 --cost F=1,B=2,W=0 --report r.json " + GPT)
says(read("r.json").decode(), '"virtual"')
actorrun("--devices timed:2 --microbatches 2 --steps 3 --cost F=0.001,B=0.002,W=0 " + GPT)
actorrun("--devices null:2 --microbatches 2 --steps 3 " + GPT)
fails("nowhere/dry.json", ACTORRUN, "--dry-run --report nowhere/dry.json " + GPT)
FOUR = "--dry-run --stages 4 --microbatches 4 "
actorrun(f"{FOUR} --clock virtual --cost F=1,B=1,W=1 --report clock.json {GPT}")
says(actorrun(f"{FOUR} --report dry.json {GPT}").stdout, "The plan finishes", "parameters")
dry, clock = parse("dry.json"), parse("clock.json")
for r in dry, clock:
    assert r["ended"] == "planned" and r["steps"] == [] and r["plan_hash"] and r["quotas"], r["ended"]
    assert len(r["devices"]) == 4 and all(d["peak_bytes"]["total"] > 0 for d in r["devices"]), r["devices"]
assert "predicted" not in dry and clock["predicted"]["step_seconds"] > 0 and clock["predicted"]["bubble_fraction"] > 0
says(actorrun("--show-placement --devices cpu:2x1").stdout, "cpu:1")
