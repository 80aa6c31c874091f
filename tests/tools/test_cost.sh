#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --cost per stage: published pipelines with unequal stages take on the virtual clock the time that
# was measured for them. Invalid lists are rejected with an error that names them.
# labels: outside unthreaded
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

# Each row of the table has to be within 2 % of its measured step. The table has plain pipelines,
# and pipelines with the vocabulary on all stages, where each microbatch has one or two barriers.
# The first of the classifier's three matrix products belongs to the forward pass; with one barrier
# the second one does too.
python3 - "$actorrun" "$reference/vocabulary_2k.tsv" "$reference/tokens.u16" <<'END' || fail "a step takes other than measured"
import csv, json, subprocess, sys
actorrun, table = sys.argv[1:3]
lines = [line for line in open(table) if not line.startswith("#")]
modes = {"base": 0, "redis": 0, "vocab": 1, "synctwice": 2} # barriers
rows = [r for r in csv.DictReader(lines, delimiter="\t") if r["mode"] in modes]
assert len(rows) == 16, len(rows)
model = "gpt --layers 8 --width 16 --heads 2 --context 16 --batch 128 --data".split() + [sys.argv[3]]
def columns(barriers):
    there = 2/3 if barriers == 1 else 1/3
    return (("embedding.F", "input_F", 1), ("embedding.B", "input_B", 1), ("head.F", "S_and_T", there),
            ("head.B", "S_and_T", 1 - there)) if barriers else ()
for row in rows:
    barriers = modes[row["mode"]]
    parts = [("F", "F", 1), ("B", "B", 1), *columns(barriers)]
    cost = ",".join(key + "=" + ":".join(f"{int(us) * part * 1e-6:.9f}" for us in row[name].split())
                    for key, name, part in parts)
    subprocess.run([actorrun, "--quiet", "--clock", "virtual", "--stages", "8", "--microbatches", "128",
                    "--steps", "2", "--report", "r.json", "--cost", cost,
                    *(["--vocab-parallel", "--vocab-barriers", str(barriers), *model] if barriers else ["pipeline"])], check=True)
    found = json.load(open("r.json"))["steps"][-1]["seconds"] * 1e3
    off = found / float(row["step_ms"]) - 1
    print(f'{row["mode"]} {row["vocabulary"]}: {found:.1f} ms for {row["step_ms"]}, {off:+.2%}')
    assert abs(off) < 0.02, row
END

refused() { # TEXT COST ARGUMENTS...
  local text=$1 cost=$2
  shift 2
  ends 2 "$actorrun" --quiet --clock virtual --steps 1 --cost "$cost" "$@" pipeline
  says "$text" err
}
refused "one list has 3 stages, another 2" F=1:2:1,B=1:2 --stages 2
refused "costs are given for 3 stages, but the model has 2" F=1:2:1,B=1 --stages 2
for text in F F= F=1: F=:1 F=-1 F=1:x F=1,,B=1 G=1 comm=1:2 F=1e9 F=nan; do
  refused "not a list such as" $text --stages 2
done

refused "block head is on all stages; give one value per stage, such as 1:1:1" F=1,B=1,head.F=1 --stages 2
refused "no such block is spread" F=1:1,B=1,head.F=1:1 --stages 2

# If all stages are alike, a list equals a single number.
same() { ends 0 "$actorrun" --quiet --clock virtual --stages 2 --steps 2 --report "$1" --cost "$2" pipeline; }
same a.json F=1,B=2,W=0.5
same b.json F=1:1,B=2,W=0.5:0.5
cmp <(grep -o '"seconds":[^,]*' a.json) <(grep -o '"seconds":[^,]*' b.json) || fail "lists count another way"
