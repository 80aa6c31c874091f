# SPDX-License-Identifier: Apache-2.0
"""actortune as a user meets it: its frontier is a frontier, its commands make the plans that it shows, and runs behave as it
predicts.

labels: unthreaded long first
"""
import csv
import os
import re
import shlex
import shutil
import signal
import subprocess
import time

from tool import ACTORTUNE, BUILD, PLACES, Started, ends, fails, parse, read, says

GPT = "gpt --layers 4 --width 32 --heads 2 --context 32 --batch 8 --data {reference}/tokens.u16 "


def tune(options, path=None):
    """Returns what a search wrote, and the points of its CSV file, which is a frontier."""
    got = ends(0, ACTORTUNE, options + (f" --csv {path}" if path else ""))
    return got, frontier(path) if path else None


def frontier(path):
    rows = list(csv.reader(read(path).decode().splitlines()))[1:]
    for before, after in zip(rows, rows[1:]):
        assert float(after[1]) > float(before[1]) and float(after[3]) > float(before[3]), f"{path}: more memory, more speed"
    return [dict(bytes=int(row[1]), seconds=float(row[2]), bubble=float(row[4]), hash=row[9], command=row[-1]) for row in rows]


def refused(text, options, status=2):
    err = fails(text, ACTORTUNE, options, status).stderr
    assert len(re.findall("^actortune: ", err, re.M)) == 1, f"{options}: not one line says why: {err}"


def shell(command, more):
    """Runs a printed command as a shell does."""
    got = subprocess.run(["bash", "-c", f"{BUILD}/bin/{command} {more}"], capture_output=True, text=True, check=False)
    assert got.returncode == 0, (command, more, got.stderr)
    return got.stdout


# ---- help and bad command lines --------------------------------------------------------------------------------
said = ends(0, ACTORTUNE, "--help all").stdout
says(said, "--verify", "--microbatches LIST", "zb-v")
assert "--dry-run" not in said, "actortune has no --dry-run"
says(ends(0, ACTORTUNE, "gpt --help").stdout, "--layers")
ends(0, ACTORTUNE, "--version")
for text, options in (("no MODEL was given", ""), ("unknown option --verfy; did you mean --verify?", "--verfy 3 gpt"),
                      ("unknown model gtp; did you mean gpt?", "gtp"),
                      ("measuring with actorrun failed: gpt: no training data", "--stages 4 gpt"),
                      ("is not a multiple of --heads", f"--devices timed:4 {GPT} --heads 3")):
    refused(text, options)
for text, options in (
        ("unknown option --dry-run", "--dry-run"), ("--microbatches 8,: not a list", "--microbatches 8,"),
        ("--microbatches 0: not a list", "--microbatches 0"), ("--microbatches 8..4: not a list", "--microbatches 8..4"),
        ("--chunks two: not a list", "--chunks two"), ("--memory 8G..1G: not a size", "--memory 8G..1G"),
        ("--memory lots: not a size", "--memory lots"), ("--schedule 2f2b: must be one of", "--schedule 1f1b,2f2b"),
        ("--schedule auto: actortune is a search itself", "--schedule auto"), ("null devices take no time", "--devices null:4"),
        ("nowhere.json", "--profile nowhere.json"), ("cannot write no/such/f.svg", "--svg no/such/f.svg"),
        ("60 stages asked for", "--devices timed:60")):
    refused(text, f"{options} {GPT}")
refused("no plan fits in 64 KiB per device: the smallest plan found needs",
        "--devices timed:4 --microbatches 8 --memory 64K --effort 50 " + GPT, 3)

# ---- the small GPT on four CPU devices: commands make the plans, runs need the stated memory -------------------
EIGHT = "--stages 4 --microbatches 8 --effort 120 "
got, points = tune(f"{EIGHT} --points 8 --keep durations --json f.json --svg f.svg {GPT}", "f.csv")
says(got.stdout, "measured: 3 times 5 steps of 8 microbatches on one CPU device")
assert os.path.getsize("durations-m8.json") and len(points) >= 2, points
assert len(re.findall("^ *[0-9]+  actorrun ", got.stdout, re.M)) == len(points), "a point lacks its command"
figure = read("f.svg").decode()
says(figure, "</svg>")
# Each point and each published schedule has a label; the legend has one more ring.
marks = {kind: figure.count(f'class="{kind}"') for kind in ("best", "point", "published", "ring")}
assert marks["best"] == marks["point"] // 2 and marks["published"] == marks["ring"] - 1, marks
for point in points:
    said = shell(point["command"], "--dry-run")
    says(said, "plan " + point["hash"])
    # The last column of the table has the bytes of the point, to the table's precision.
    table = [(float(size) * unit, unit * (0.05 if float(size) < 100 else 0.5)) for size, unit in (
        (size, {"M": 2**20, "K": 2**10}[prefix]) for size, prefix in re.findall(r"^cpu:.* ([0-9.]+) ([KM])iB$", said, re.M))]
    size, error = max(table)
    assert abs(size - point["bytes"]) <= error * 1.001, (point, said)
    shell(point["command"], "--steps 2 --quiet --report r.json")
    report = parse("r.json")
    assert abs(report["predicted"]["step_seconds"] / point["seconds"] - 1) <= 1e-6, (point, report["predicted"])
    assert max(d["peak_bytes"]["total"] for d in report["devices"]) == point["bytes"], point

# Equal durations give equal results.
PROFILE = f"{EIGHT} --profile durations-m8.json "
_, a = tune(f"{PROFILE} --points 8 {GPT}", "a.csv")
_, b = tune(f"{PROFILE} --points 8 --threads 1 {GPT}", "b.csv")
assert a == b, "any number of threads finds the same"
refused("no report was measured at --microbatches 4", f"--stages 4 --microbatches 4,8 --profile durations-m8.json {GPT}")
# Without kept durations the command makes the plan too.
_, points = tune("--stages 4 --microbatches 8 --schedule 1f1b --effort 20 --measure 2 " + GPT, "k.csv")
says(shell(points[0]["command"], "--dry-run"), "plan " + points[0]["hash"])
# The printed command survives a shell and contains no escape sequences, whatever characters its words have.
odd = "odd\033[2J'\\name.u16"
shutil.copy(PLACES["reference"] + "/tokens.u16", odd)
got, points = tune("--devices timed:4 --microbatches 8 --schedule 1f1b --effort 5 gpt --layers 4 --width 16 --heads 2 "
                   "--context 16 --batch 8 --data " + shlex.quote(odd), "o.csv")
assert "\033" not in got.stdout, "what is shown is not harmless"
says(got.stdout, r"--data $'odd\033[2J\'\\name.u16'")
says(shell(re.search("actorrun .*", got.stdout)[0], "--dry-run"), "plan " + points[0]["hash"])

# ---- budgets ---------------------------------------------------------------------------------------------------
least, most = a[0]["bytes"], a[-1]["bytes"]
_, points = tune(f"{PROFILE} --memory {least}B..{most}B {GPT}", "c.csv")
assert all(least < point["bytes"] <= most for point in points[1:]) and points[0]["bytes"] <= most, points
says(read("c.csv").decode(), f"--memory {most}B")

# ---- sweeps on modelled devices --------------------------------------------------------------------------------
TIMED, ONES = "--devices timed:4 ", "--devices timed:4 --clock virtual --cost F=1,B=1,W=1 "
tune(f"{TIMED} --microbatches 4,8 --pieces 1,2 --schedule 1f1b,seq1f1b,zb-v --effort 100 {GPT}", "s.csv")
_, points = tune(f"{ONES} --microbatches 8 --effort 100 pipeline", "p.csv")
for point in points:
    shell(point["command"], "--steps 3 --quiet --report v.json")
    assert abs(parse("v.json")["step_seconds"] / point["seconds"] - 1) <= 1e-6, point
# With no limit, actortune finds the best of the published schedules, which has no bubble.
assert points[-1]["bubble"] < 0.02, points[-1]
# More microbatches of the abstract pipeline are more work, so points are compared by speed.
tune(f"{ONES} --microbatches 4,8,16 --schedule 1f1b --effort 100 pipeline", "m.csv")
got, _ = tune(f"{TIMED} --microbatches 3,4 --schedule 1f1b --effort 50 {GPT}")
says(got.stderr, "left out 1f1b, 1 chunks, 3 microbatches:")
# A quota that the user gives holds in every plan.
_, points = tune(f"{TIMED} --microbatches 8 --quota act.b=2 --schedule 1f1b --effort 100 {GPT}", "q.csv")
assert all("--quota act.b=2 " in point["command"] for point in points), points

# ---- real time -------------------------------------------------------------------------------------------------
# The durations are long, and the plans differ enough, that a busy machine does not change their order. If the machine stalls
# for a moment, the test tries again.
for attempt in range(3):
    got, _ = tune("--devices timed:4 --cost F=0.015,B=0.015,W=0.015 --microbatches 8 --effort 100 --points 4 "
                  "--schedule 1f1b,zb-h1 --verify 4 --verify-steps 3 pipeline")
    pairs = re.search("^([0-9]+) of ([0-9]+) pairs", got.stdout, re.M)
    if pairs[1] == pairs[2]:
        break
assert pairs[1] == pairs[2], "plans are not as fast, compared, as predicted"
for line in re.findall("^ +[0-9]+ +[0-9.]+ [KM]iB +[0-9.]+ [KM]iB.*", got.stdout, re.M):
    assert "+0.0%" in line, f"memory is not what was predicted: {line}"

# ---- Ctrl-C, and a terminal ------------------------------------------------------------------------------------
for pause in (2, 4, 8, 16):  # until the machine has had time to try a plan
    with Started(f"--devices timed:8 --microbatches 32 --effort 10000000 --csv i.csv {GPT} --layers 14 --batch 32",
                 ACTORTUNE) as job:
        time.sleep(pause)
        if not job.stop(signal.SIGINT):
            break
        says(job.err, "stopped before any plan was tried")
says(job.out, "stopped before the end")
frontier("i.csv")
call = f"{ACTORTUNE} --devices timed:4 --microbatches 8 --effort 200 {GPT}".format(**PLACES)
got = subprocess.run(["script", "-qec", call, "/dev/null"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
says(got.stdout, "s left")
