#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --assign: maps each place of the layout to a device. Losses have the same bits with any
# assignment, and the plan avoids a slow link between two devices where possible. `actortune plan`
# finds an assignment that is as good as any and never worse than none. The result does not depend
# on the names of hosts or the number of threads. Bad lists are rejected with an error. Links are
# random; the test prints the seed.
# labels: random outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
draw "$@"

# ---- the same bits ------------------------------------------------------------------------------------
gpt=(gpt --layers 4 --width 32 --heads 4 --context 32 --batch 8 --data "$reference/tokens.u16")
grid=(--stages 2 --data-parallel 2 --tensor 2 --microbatches 2)
run() { ends 0 timeout 100 "$actorrun" --quiet --steps 2 --report r.json "${patient[@]}" "${grid[@]}" "$@" "${gpt[@]}"; }
run
want=$(hexes r.json)
for way in "3,0-2,7,4-6" "4-7,0-3 --layout data,stage,tensor" "0,4,1,5,2,6,3,7 -n 2"; do
  # shellcheck disable=SC2086
  run --assign $way
  [ "$(hexes r.json)" = "$want" ] || fail "--assign $way: other losses"
done

# ---- bad lists ----------------------------------------------------------------------------------------
refuse() { # LIST WORDS
  ends 2 "$actorrun" "${grid[@]}" --assign "$1" "${gpt[@]}"
  says "$2" err
}
refuse 0-6 "assign 0-6: device 7 is missing; all 8 devices must be listed"
refuse 0-8 "assign 0-8: no device 8; devices are 0 to 7"
refuse 1,1-7 "assign 1,1-7: device 1 is listed twice"
refuse 7-3 "assign 7-3: '7-3' must be a device or a range such as 4-7"
refuse 0,x "'x' must be a device"
refuse 0,,1 "'' must be a device"

# ---- assignments found by actortune plan --------------------------------------------------------------
# Four devices on two hosts: some pairs have dedicated links, some slow, some fast. None of the 24
# assignments is better than the one found. Of six devices in a pipeline over two hosts of three, none
# of the 720 is; swaps of two devices alone end at an assignment that is slower by 0.02 %.
cat >check.py <<'END'
import itertools, json, os, random, re, subprocess, sys
bin_, machine, seed = sys.argv[1:]
draw = random.Random(int(seed))
model = ["gpt", "--layers", "4", "--width", "256", "--heads", "4", "--context", "128", "--vocab", "512", "--batch", "8"]
units = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}

def write(name, links, per_host=2):
    with open(machine) as file:
        m = json.load(file)
    m.update(devices_per_host=per_host, links=[{"from": a, "to": b, "seconds": 1e-6, "bytes_per_second": rate} for (a, b), rate in links.items()])
    with open(name, "w") as file:
        json.dump(m, file)
    return name

def steps(name, stages, tensor, data, assign):
    subprocess.run([bin_ + "/actorrun", "--clock", "virtual", "--machine", name, "--stages", str(stages), "--tensor", str(tensor),
                    "--data-parallel", str(data), "--microbatches", "4", "--steps", "2", "--quiet", "--report", "a.json", "--assign",
                    assign, *model], check=True)
    with open("a.json") as file:
        return json.load(file)["predicted"]["step_seconds"]

def plan(name, stages, tensor, data, threads=1):
    fix = f"stages={stages},tensor={tensor},data={data},microbatches=4,schedule=1f1b,recompute=none,shard=nothing"
    devices = stages * tensor * data
    out = subprocess.run([bin_ + "/actortune", "plan", "--devices", f"timed:{devices}", "--machine", name, "--fix", fix, "--points", "1",
                          "--threads", str(threads), *model], check=True, capture_output=True, text=True).stdout
    said = re.search(r"--assign (\S+)", out)
    return said[1] if said else f"0-{devices - 1}"

def renamed(links, to):
    return {tuple(sorted((to[a], to[b]))): rate for (a, b), rate in links.items()}

stages, tensor, data = draw.choice([(2, 2, 1), (2, 1, 2), (1, 2, 2), (4, 1, 1)])
pairs = draw.sample(list(itertools.combinations(range(4), 2)), draw.randint(1, 3))
links = {pair: draw.choice([1e9, 5e9, 2e11]) for pair in pairs}
what = f"{stages} x {tensor} x {data}, links {links}"
name = write("drawn.json", links)
ways = list(itertools.permutations(range(4))) # all of them where there is time
ways = ways if int(os.environ.get("SLUICE_SEEDS", "1")) > 1 else ways[:1] + draw.sample(ways[1:], 5)
every = {p: steps(name, stages, tensor, data, ",".join(map(str, p))) for p in ways}
assign = plan(name, stages, tensor, data)
found = steps(name, stages, tensor, data, assign)
print(f"{what}: {assign} takes {found * 1e3:.3f} ms; of all the best {min(every.values()) * 1e3:.3f}, as numbered {every[0, 1, 2, 3] * 1e3:.3f}")
assert found <= min(every.values()) * (1 + 1e-9), f"{what}: {assign} is not the best"
assert found <= every[0, 1, 2, 3] * (1 + 1e-9), f"{what}: {assign} is worse than none"
assert plan(name, stages, tensor, data, 3) == assign, f"{what}: three threads find another"
to = draw.choice([(2, 3, 0, 1), (3, 2, 1, 0), (1, 0, 3, 2)]) # hosts stay hosts
other = write("renamed.json", renamed(links, to))
again = steps(other, stages, tensor, data, plan(other, stages, tensor, data))
assert abs(again / found - 1) < 1e-9, f"{what}: with devices renamed {to} it takes {again}"

model = ["gpt", "--layers", "8", "--width", "384", "--heads", "6", "--context", "128", "--vocab", "512", "--batch", "24"]
six = write("six.json", {(1, 5): 5e9, (2, 4): 5e9, (1, 2): 5e9, (1, 3): 5e9, (0, 3): 2e11, (0, 1): 2e11}, 3)
found, best = steps(six, 6, 1, 1, plan(six, 6, 1, 1)), steps(six, 6, 1, 1, "1,0,2-5")
assert found <= best * (1 + 1e-9), f"six devices: {found} s, but 1,0,2-5 takes {best} s"
END
python3 check.py "$bin" "$SLUICE_SOURCE/machines/h100-sxm-80gb.json" "$seed" || fail "seed $seed"

# With eight devices and one slow link, no heavy traffic uses that link.
machine() { # LIST gives the links
  python3 -c "
import json
m = json.load(open('$SLUICE_SOURCE/machines/h100-sxm-80gb.json'))
m['links'] = [{'from': a, 'to': b, 'seconds': 1e-5, 'bytes_per_second': 1e8} for a, b in $1]
json.dump(m, open('links.json', 'w'))"
}
eight() { # LIST: prints the planned step time with these links
  machine "$1"
  ends 0 timeout 100 "$bin/actortune" plan --devices timed:8 --machine links.json --points 1 \
    --fix stages=2,tensor=2,data=2,microbatches=4,schedule=1f1b,recompute=none,shard=nothing \
    gpt --layers 4 --width 256 --heads 4 --context 128 --vocab 512 --batch 8
  awk '$1 == 1 { print $2, $3; exit }' out
}
[ "$(eight "[(0, 1)]")" = "$(eight "[]")" ] || fail "a slow pair that nothing needs makes a step longer"
