#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# actortune plan: as good as an exhaustive search, never over the budget, no slower with more
# memory, and twice as fast on a machine that is twice as fast. The number of threads changes
# nothing, and the printed commands make the plans. Bad options are rejected. The model and the
# budget are random; the test prints the seed.
# labels: random outside
set -u
. "$SLUICE_SOURCE/tests/support/tool.sh"

draw "$@"
RANDOM=$((seed % 32768))
layers=$((2 + RANDOM % 3)) width=$((64 * (1 + RANDOM % 3)))
gpt=(gpt --layers $layers --width $width --heads 4 --context 64 --vocab 256 --batch 8)
machine() { # machine TIMES: a machine that is TIMES as fast
  python3 -c "
import json, sys
x = $1
print(json.dumps({'flops_per_second': {'f32': 1e12 * x}, 'flops_efficiency': 1, 'bytes_per_second': 1e11 * x,
  'bytes_efficiency': 1, 'op_seconds': 1e-6 / x, 'memory_bytes': 1e12, 'link_seconds': 1e-6 / x,
  'link_bytes_per_second': 1e10 * x}))"
}
machine 1 >one.json
machine 2 >two.json
plan() { timeout -s KILL 200 "$bin/actortune" plan --devices timed:4 --machine one.json "$@" "${gpt[@]}" >out 2>err; }
best() { awk '$1 == 1 && $2 ~ /^[0-9]/ && !done { print $2, $3; done = 1 }' out; } # step time and its unit
memory() { awk '$1 == 1 && $2 ~ /^[0-9]/ { print $4 $5; exit }' out | sed 's/iB//'; }
seconds() { best | awk '{ u["ns"] = 1e-9; u["us"] = 1e-6; u["ms"] = 1e-3; u["s"] = 1; print $1 * u[$2] }'; }
within() { python3 -c "import sys; sys.exit(not ($1 <= $2 * $3))" || fail "$4: $1 s against $2 s (seed $seed)"; }

plan --effort full --fix recompute=none,sequence=1,pieces=1 --threads 1 || fail "plan"
found=$(seconds) rows=$(grep -v tried out)
[[ -n $found ]] || fail "shows no plan"
command=$(awk '/^ 1  actorrun/ { $1 = ""; print }' out)
plan --effort full --fix recompute=none,sequence=1,pieces=1 --threads 3 || fail "plan with 3 threads"
[[ $(grep -v tried out) == "$rows" ]] || fail "three threads find other plans than one (seed $seed)"
plan --fix recompute=none,sequence=1,pieces=1 --effort all || fail "plan --effort all"
within "$found" "$(seconds)" 1.02 "full against all"

PATH=$bin:$PATH timeout -s KILL 200 $command --clock virtual --steps 3 --quiet --report r.json >out 2>err || fail "$command"
predicted=$(python3 -c 'import json; print(json.load(open("r.json"))["predicted"]["step_seconds"])')
python3 -c "import sys; sys.exit(abs($predicted / $found - 1) > 2e-3)" || fail "$command takes $predicted s, not $found"

status=0
plan --memory 1K || status=$?
[[ $status == 3 ]] || fail "a plan of 1 KiB ends with $status"
grep -q "no plan fits in 1.0 KiB: the smallest plan needs" err || fail "does not say what the smallest needs"
least=$(sed -E 's/.*smallest plan needs ([0-9.]+) MiB.*/\1/' err)
more=$(python3 -c "print(int($least * 1.2 * 1048576))")
plan --memory "$more" || fail "--memory $more"
slow=$(seconds)
grep '^ [0-9]*  actorrun' out | sed 's/^ [0-9]*  actorrun//' >commands
while read -r words; do
  eval "timeout -s KILL 200 '$actorrun' --dry-run --quiet --memory $more $words" >said 2>&1 || fail "$words is over $more bytes (seed $seed)"
done <commands

# The default search is as good as the full one, also when memory is tight and with any sharding.
for budget in "$more" $((more * 3 / 2)); do
  plan --memory "$budget" --effort full --fix schedule=1f1b,sequence=1,pieces=1,home=device || fail "--effort full in $budget"
  full=$(seconds)
  plan --memory "$budget" --fix schedule=1f1b,home=device || fail "--fix schedule=1f1b in $budget"
  within "$(seconds)" "$full" 1.005 "default against full in $budget bytes"
done

# Each command makes exactly the plan that was found.
plan --memory "$more" --points 3 --json plans.json --svg plans.svg || fail "--json, --svg"
cat >remade.py <<'P'
import json, subprocess, sys
for plan in json.load(open("plans.json"))["plans"]:
    words = ["--quiet", "--clock", "virtual", "--steps", "2", "--report", "r.json", *plan["words"]]
    subprocess.run([sys.argv[1], *words], check=True, stdout=subprocess.DEVNULL)
    report = json.load(open("r.json"))
    most = max(device["peak_bytes"]["total"] for device in report["devices"])
    if (report["plan_hash"], most) != (plan["plan_hash"], plan["memory_bytes"]):
        sys.exit(f"{report['plan_hash']} of {most} bytes, not {plan['plan_hash']} of {plan['memory_bytes']}: {words}")
P
timeout -s KILL 200 python3 remade.py "$actorrun" || fail "a command does not make its plan (seed $seed)"
python3 -c 'import xml.dom.minidom as x; assert x.parse("plans.svg").getElementsByTagName("rect")' || fail "plans.svg is no figure"
plan || fail "plan without a budget"
within "$(seconds)" "$slow" 1.000001 "more memory is slower"
fast=$(seconds)
timeout -s KILL 200 "$bin/actortune" plan --devices timed:4 --machine two.json "${gpt[@]}" >out 2>err || fail "twice as fast"
python3 -c "import sys; sys.exit(abs(2 * $(seconds) / $fast - 1) > 2e-3)" || fail "$(seconds) s, not half of $fast (seed $seed)"

# The machine's name does not matter.
sed 's/^{/{"name": "another", "source": "elsewhere", /' one.json >named.json
for machine in one named; do
  timeout -s KILL 200 "$bin/actortune" plan --devices timed:4 --machine $machine.json --fix stages=4,recompute=none "${gpt[@]}" \
    >out 2>err || fail "plan on $machine.json"
  grep -v tried out >$machine.txt
done
sed -i 's/one\.json/named.json/' one.txt
cmp -s one.txt named.txt || fail "the machine's name changes plans"

# With many microbatches the search does not simulate each one, but the best plan's time is exact.
timeout -s KILL 200 "$bin/actortune" plan --devices timed:2 --machine one.json --points 1 \
  --fix stages=2,microbatches=48,recompute=none gpt --layers 2 --width 64 --heads 4 --context 64 --vocab 256 --batch 48 \
  >out 2>err || fail "plan of 48 microbatches"
found=$(seconds)
command=$(awk '/^ 1  actorrun/ { $1 = ""; print }' out)
PATH=$bin:$PATH timeout -s KILL 200 $command --clock virtual --steps 3 --quiet --report r.json >out 2>err || fail "$command"
predicted=$(python3 -c 'import json; print(json.load(open("r.json"))["predicted"]["step_seconds"])')
python3 -c "import sys; sys.exit(abs($predicted / $found - 1) > 2e-3)" || fail "$command takes $predicted s, not $found"

# A plan that exceeds the budget gives up as little as possible: it is as good as the best over all
# numbers of slots and all sets of recomputed blocks. No plan exceeds the budget by a byte.
cat >exhaust.py <<'P'
import itertools, json, re, shlex, subprocess, sys
actorrun, actortune, share, *model = sys.argv[1:]
base, report = ["--devices", "timed:2", "--machine", "one.json"], "r.json"
fixed = ["--stages", "2", "--microbatches", "4", "--schedule", "1f1b"]

def run(words, memory):
    words = [actorrun, *words, "--clock", "virtual", "--steps", "3", "--quiet", "--report", report, "--memory", str(memory), *model]
    if subprocess.run(words, capture_output=True).returncode:
        return None
    found = json.load(open(report))
    return found["predicted"]["step_seconds"], max(d["peak_bytes"]["total"] for d in found["devices"])

blocks = ["embedding", "h.0", "h.1", "head"]
most, least = run([*base, *fixed], 10**12)[1], run([*base, *fixed, "--quota", "act=1", "--recompute", "full"], 10**12)[1]
budget, times = int(least + float(share) * (most - least)), []
for slots, again in itertools.product((1, 2), itertools.product((0, 1), repeat=len(blocks))):
    way = [word for block, on in zip(blocks, again) if on for word in ("--recompute", "full@" + block)]
    times.append(run([*base, *fixed, "--quota", f"act@0={slots}", "--recompute", "none", *way], budget))
best = min(seconds for seconds, _ in filter(None, times))
said = subprocess.run([actortune, "plan", *base, "--memory", str(budget), "--fix",
                       "stages=2,tensor=1,data=1,microbatches=4,chunks=1,schedule=1f1b", *model],
                      capture_output=True, text=True).stdout
plans = [shlex.split(line)[2:-len(model)] for line in said.splitlines() if re.match(r" ?\d+  actorrun", line)]
print(said, budget, best)
got = [run(plan, budget) for plan in plans]
sys.exit("over the budget" if None in got or not got else got[0][0] > 1.02 * best and f"{got[0][0]} s against {best} s")
P
for ((i = 0; i < ${SLUICE_SEEDS:-1}; i++)); do # --long tries more
  share=0.$((RANDOM % 10))
  timeout -s KILL 200 python3 exhaust.py "$actorrun" "$bin/actortune" $share gpt --layers 2 --width 64 --heads 4 --context 64 \
    --vocab 256 --batch 8 >out 2>err || fail "a share of $share of what is kept (seed $seed)"
done

# Experts with a grid of their own over all devices of a stage; the plans' commands make it.
moe=(mixtral --layers 2 --width 64 --heads 4 --kv-heads 4 --context 16 --vocab 64 --batch 8 --experts 4 --top-k 2 --expert-ffn 32)
experts() { # experts FIX SAYS: the command of the best plan has to contain SAYS, and its run has to take the planned time
  timeout -s KILL 200 "$bin/actortune" plan --devices timed:4 --machine one.json --points 1 \
    --fix "stages=1,microbatches=2,recompute=none,shard=nothing,$1" "${moe[@]}" >out 2>err || fail "plan of experts: $1"
  command=$(awk '/^ 1  actorrun/ { $1 = ""; print }' out) found=$(seconds)
  [[ "$command " == *"$2"* ]] || fail "$1: $command"
  PATH=$bin:$PATH timeout -s KILL 200 $command --clock virtual --steps 3 --quiet --report r.json >said 2>err || fail "$command"
  python3 -c "import json, sys; sys.exit(abs(json.load(open('r.json'))['predicted']['step_seconds'] / $found - 1) > 2e-3)" ||
    fail "$command does not take $found s"
}
experts tensor=2,experts=4 " --expert-parallel 4 --microbatches"
experts tensor=2,experts=2,expert-tensor=1 " --expert-parallel 2 --expert-tensor 1 --microbatches"
experts tensor=2,experts=2,expert-tensor=2 " --expert-parallel 2 --microbatches"

# If nothing fits, the search ends quickly, and the memory that it reports for the smallest plan is
# exact.
nothing() { timeout -s KILL 200 "$bin/actortune" plan --devices timed:4 --machine one.json --memory "$1" gpt --layers 12 --width 64 \
  --heads 4 --context 64 --vocab 256 --batch 64 >out 2>err; }
before=$(times | awk 'NR == 2 { print $1 }')
status=0
nothing 64K || status=$?
[[ $status == 3 ]] || fail "a plan of 64 KiB ends with $status"
spent=$(times | awk -v before="$before" 'function s(t) { split(t, x, /[ms]/); return 60 * x[1] + x[2] } NR == 2 { print s($1) - s(before) }')
if [[ $SLUICE_BUILD == */release ]]; then
  awk "BEGIN { exit !($spent < 10) }" || fail "$spent s of processor time until nothing fits"
fi
needs=$(sed -E 's/.*smallest plan needs ([0-9.]+) KiB.*|.*smallest plan needs ([0-9.]+) MiB.*/\1\2/' err)
words=$(sed -E 's/.*smallest plan needs [^(]*\((.*)\)$/\1/' err)
eval "timeout -s KILL 200 '$actorrun' --devices timed:4 --machine one.json $words --clock virtual --steps 1 --quiet --report r.json \
  gpt --layers 12 --width 64 --heads 4 --context 64 --vocab 256 --batch 64" >said 2>&1 || fail "the smallest plan: $words"
python3 -c "
import json, sys
has = max(d['peak_bytes']['total'] for d in json.load(open('r.json'))['devices'])
sys.exit(all(abs(has / unit - $needs) > 0.06 for unit in (2**10, 2**20)))" || fail "the smallest plan needs other than $needs: $words"

# Ctrl-C while the model is built for the thirtieth time: actortune shows what it has found so far.
cat >stops.c <<'C'
#include <signal.h>
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
C
timeout -s KILL 200 "$bin/actortune" plan --devices timed:4 --machine one.json --effort all \
  --fix sequence=1,pieces=1,recompute=none stops.c >out 2>err ||
  fail "a plan that is stopped shows nothing"
grep -q "^stopped: " out && [[ -n $(seconds) ]] || fail "a plan that is stopped does not say so"

refused() {
  local says=$1
  shift
  timeout -s KILL 200 "$bin/actortune" plan "$@" "${gpt[@]}" >out 2>err && fail "not refused: $*"
  grep -qF -- "$says" err || fail "$*: does not say $says"
}
refused "plan on cpu devices: durations are not known" --devices cpu:4
refused "stages is given twice, with different values" --devices timed:4 --fix stages=2,stages=4
refused "fewer is not a valid value of quotas" --devices timed:4 --fix quotas=fewer
refused "takes 8 devices, which must divide 4" --devices timed:4 --fix stages=2,tensor=4
refused "width=2 is not one of stages=N" --devices timed:4 --fix width=2
refused "needs 2 devices, not 4" --devices timed:4 --fix stages=2,tensor=1,data=1
refused "--effort some: must be one of quick, full, all" --devices timed:4 --effort some
