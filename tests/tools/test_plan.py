# SPDX-License-Identifier: Apache-2.0
"""actortune plan: as good as an exhaustive search, never over the budget, no slower with more memory, and twice as fast on a
machine that is twice as fast. The number of threads changes nothing, and the printed commands make the plans. Bad options
are rejected. The model and the budget are random; the test prints the seed.

labels: random outside
"""
import itertools
import json
import os
import random
import re
import resource
import xml.dom.minidom

from tool import ACTORTUNE, BUILD, actorrun, ends, fails, parse, write

seed = int(os.environ.get("SLUICE_SEED", 1))
print("seed", seed)
random.seed(seed)
SHARES = [random.randrange(10) / 10 for _ in range(int(os.environ.get("SLUICE_SEEDS", 1)))]  # --long tries more
GPT = f"gpt --layers {random.randint(2, 4)} --width {64 * random.randint(1, 3)} --heads 4 --context 64 --vocab 256 --batch 8"
FIXED = "--fix recompute=none,sequence=1,pieces=1 "
for name, x in (("one", 1), ("two", 2)):
    write(name + ".json", json.dumps({
        "flops_per_second": {"f32": 1e12 * x}, "flops_efficiency": 1, "bytes_per_second": 1e11 * x, "bytes_efficiency": 1,
        "op_seconds": 1e-6 / x, "memory_bytes": 1e12, "link_seconds": 1e-6 / x, "link_bytes_per_second": 1e10 * x}))
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}


class Plan:
    """The result of a search: the best plan's seconds, and the commands of all."""

    def __init__(self, options, model=GPT, machine="one.json", devices=4):
        got = ends(0, ACTORTUNE, f"plan --devices timed:{devices} --machine {machine} {options} {model}")
        self.out, self.call = got.stdout, f"{options} {model}"
        best = next(line.split() for line in self.out.splitlines() if re.match(r" *1 +[0-9]", line))
        self.seconds = float(best[1]) * UNITS[best[2]]
        self.rows = [line for line in self.out.splitlines() if "tried" not in line]
        self.commands = re.findall("^ *[0-9]+  actorrun (.*)", self.out, re.M)

    def takes(self, other, share):
        assert self.seconds <= other.seconds * share, (seed, self.call, self.seconds, other.call, other.seconds)


def played(options, steps=3, **more):
    """Returns the report of a plan's run on the virtual clock."""
    actorrun(f"{options} --clock virtual --steps {steps} --quiet --report r.json", **more)
    return parse("r.json")


def most(report):
    return max(device["peak_bytes"]["total"] for device in report["devices"])


def as_planned(plan):
    predicted = played(plan.commands[0])["predicted"]["step_seconds"]
    assert abs(predicted / plan.seconds - 1) <= 2e-3, (plan.commands[0], predicted, plan.seconds)


full = Plan(f"--effort full {FIXED} --threads 1")
assert Plan(f"--effort full {FIXED} --threads 3").rows == full.rows, "three threads find other plans than one"
full.takes(Plan(FIXED + "--effort all"), 1.02)
as_planned(full)
err = fails("no plan fits in 1.0 KiB: the smallest plan needs", ACTORTUNE,
            f"plan --devices timed:4 --machine one.json --memory 1K {GPT}", 3).stderr
more = int(float(re.search("smallest plan needs ([0-9.]+) MiB", err)[1]) * 1.2 * 2**20)
slow = Plan(f"--memory {more}")
for command in slow.commands:
    actorrun(f"--dry-run --quiet --memory {more} {command}")
# The default search is as good as the full one, also when memory is tight and with any sharding.
for budget in (more, more * 3 // 2):
    default = Plan(f"--memory {budget} --fix schedule=1f1b,home=device")
    default.takes(Plan(f"--memory {budget} --effort full --fix schedule=1f1b,sequence=1,pieces=1,home=device"), 1.005)
# Each command makes exactly the plan that was found.
Plan(f"--memory {more} --points 3 --json plans.json --svg plans.svg")
for plan in parse("plans.json")["plans"]:
    report = played(" ".join(plan["words"]), 2)
    assert (report["plan_hash"], most(report)) == (plan["plan_hash"], plan["memory_bytes"]), (seed, plan["words"])
assert xml.dom.minidom.parse("plans.svg").getElementsByTagName("rect")
fast = Plan("")
fast.takes(slow, 1.000001)
twice = Plan("", machine="two.json")
assert abs(2 * twice.seconds / fast.seconds - 1) <= 2e-3, (seed, twice.seconds, fast.seconds)
# The machine's name does not matter.
write("named.json", json.dumps({"name": "another", "source": "elsewhere", **parse("one.json")}))
one, named = (Plan("--fix stages=4,recompute=none", machine=name + ".json").rows for name in ("one", "named"))
assert [row.replace("one.json", "named.json") for row in one] == named, "the machine's name changes plans"
# With many microbatches the search does not simulate each one, but the best plan's time is exact.
as_planned(Plan("--points 1 --fix stages=2,microbatches=48,recompute=none", "gpt --layers 2 --width 64 --heads 4 --context 64 "
                "--vocab 256 --batch 48", devices=2))

# A plan that exceeds the budget gives up as little as possible: it is as good as the best over all numbers of slots and all
# sets of recomputed blocks. No plan exceeds the budget by a byte.
SMALL = "gpt --layers 2 --width 64 --heads 4 --context 64 --vocab 256 --batch 8"
BASE = "--devices timed:2 --machine one.json --stages 2 --microbatches 4 --schedule 1f1b "


def fits(options, memory):
    """Returns the report of a plan, or none if it does not fit."""
    try:
        return played(f"--memory {memory} {options}")
    except AssertionError:
        return None


for share in SHARES:
    high, low = (most(fits(f"{BASE} {how} {SMALL}", 10**12)) for how in ("", "--quota act=1 --recompute full"))
    budget, best = int(low + share * (high - low)), []
    for slots, again in itertools.product((1, 2), itertools.product((0, 1), repeat=4)):
        way = " ".join("--recompute full@" + block for block, on in zip(("embedding", "h.0", "h.1", "head"), again) if on)
        report = fits(f"{BASE} --quota act@0={slots} --recompute none {way} {SMALL}", budget)
        best += [report["predicted"]["step_seconds"]] if report else []
    plans = Plan(f"--memory {budget} --fix stages=2,tensor=1,data=1,microbatches=4,chunks=1,schedule=1f1b", SMALL, devices=2)
    got = [fits(command, budget) for command in plans.commands]
    assert got and None not in got, (seed, share, "over the budget")
    assert got[0]["predicted"]["step_seconds"] <= 1.02 * min(best), (seed, share, got[0]["predicted"], min(best))

# Experts with a grid of their own over all devices of a stage; the plans' commands make it.
MOE = ("mixtral --layers 2 --width 64 --heads 4 --kv-heads 4 --context 16 --vocab 64 --batch 8 --experts 4 --top-k 2 "
       "--expert-ffn 32")
for fix, want in (("experts=4", " --expert-parallel 4 --microbatches"),
                  ("experts=2,expert-tensor=1", " --expert-parallel 2 --expert-tensor 1 --microbatches"),
                  ("experts=2,expert-tensor=2", " --expert-parallel 2 --microbatches")):
    plan = Plan(f"--points 1 --fix stages=1,microbatches=2,recompute=none,shard=nothing,tensor=2,{fix}", MOE)
    assert want in plan.commands[0], (fix, plan.commands[0])
    as_planned(plan)

# If nothing fits, the search ends quickly, and the memory that it reports for the smallest plan is exact.
DEEP = "gpt --layers 12 --width 64 --heads 4 --context 64 --vocab 256 --batch 64"
before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
err = ends(3, ACTORTUNE, f"plan --devices timed:4 --machine one.json --memory 64K {DEEP}").stderr
spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
assert spent < 10 or not BUILD.endswith("/release"), f"{spent} s of processor time until nothing fits"
needs, unit, options = re.search(r"smallest plan needs ([0-9.]+) ([KM])iB[^(]*\((.*)\)$", err, re.M).groups()
has = most(played(f"--devices timed:4 --machine one.json {options} {DEEP}", 1))
assert abs(has / {"K": 2**10, "M": 2**20}[unit] - float(needs)) <= 0.06, (has, needs, unit, options)

# Ctrl-C while the model is built for the thirtieth time: actortune shows what it has found so far.
write("stops.c", r"""#include <signal.h>
#include <stdatomic.h>
#include <sluice/sluice.h>
static const sl_option options[] = {{"batch", SL_OPTION_INT, "8", "rows", 1, 1 << 20}, {0}};
static atomic_int built;
static sl_status build(sl_graph *g, const sl_args *args) {
  if (atomic_fetch_add(&built, 1) == 30) raise(SIGINT);
  sl_tensor *next, *ids = sl_tokens(g, "", sl_microbatch_rows(g, sl_arg_int(args, "batch")), 16, 64, &next);
  sl_tensor *x = sl_embedding(g, ids, sl_param(g, SL_TYPE(SL_F32, 64, 32), SL_NORMAL(0.02f), "table"));
  for (int i = 0; i < 4; i++) {
    sl_block(g, "h.%d", i);
    x = sl_gelu(g, sl_linear(g, x, sl_param(g, SL_TYPE(SL_F32, 32, 32), SL_NORMAL(0.02f), "w.%d", i), NULL));
  }
  sl_block(g, "head");
  sl_tensor *head = sl_param(g, SL_TYPE(SL_F32, 64, 32), SL_NORMAL(0.02f), "head");
  sl_train(g, sl_cross_entropy(g, sl_linear(g, x, head, NULL), next), &(sl_optimizer){.lr = 1e-3f});
  return sl_graph_status(g);
}
SL_MODEL(stops, "stops", options, build);
""")
assert re.search("^stopped: ", Plan("--effort all --fix sequence=1,pieces=1,recompute=none", "stops.c").out, re.M)

for text, options in (
        ("plan on cpu devices: durations are not known", "--devices cpu:4"),
        ("stages is given twice, with different values", "--devices timed:4 --fix stages=2,stages=4"),
        ("fewer is not a valid value of quotas", "--devices timed:4 --fix quotas=fewer"),
        ("takes 8 devices, which must divide 4", "--devices timed:4 --fix stages=2,tensor=4"),
        ("width=2 is not one of stages=N", "--devices timed:4 --fix width=2"),
        ("needs 2 devices, not 4", "--devices timed:4 --fix stages=2,tensor=1,data=1"),
        ("--effort some: must be one of quick, full, all", "--devices timed:4 --effort some")):
    fails(text, ACTORTUNE, f"plan {options} {GPT}")
