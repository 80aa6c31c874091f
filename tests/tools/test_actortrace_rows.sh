#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests valid rows in what actortrace shows. The figure has a bar for each pass with rows, as high
# as their number, and states the maximum. The page has all of them. Plans without such slots show
# nothing. A figure of several steps has the firings of all.
# labels: unthreaded
set -u
# shellcheck source=tests/support/traces.sh
source "$SLUICE_SOURCE/tests/support/traces.sh"
need python3

modelled --trace none.trace
trace 0 svg none.trace
grep -q 'rows, max' out && fail "rows where no slot has any"
trace 0 page none.trace

"$actorrun" --quiet --devices timed:4 --clock virtual --data-parallel 4 --expert-parallel 4 --routing zipf:1 --steps 3 \
  --trace experts.trace mixtral --layers 2 --width 32 --heads 2 --context 16 --batch 16 --experts 8 --data "$reference/tokens.u16" \
  >out 2>err || fail "a modelled run with experts on all devices"
"$bin/actortrace" rows experts.trace >rows || fail "the table of firings"
"$bin/actortrace" svg --step 1 experts.trace >one.svg || fail "a figure of a step"
"$bin/actortrace" svg --step 1 --steps 2 experts.trace >two.svg || fail "a figure of two steps"
"$bin/actortrace" page experts.trace -o experts.html || fail "a page"
python3 - <<'END' 2>err || fail "$(tail -1 err)"
import base64, csv, json, re

table = list(csv.DictReader(open("rows"), delimiter="\t"))
number = lambda r: -1 if r["rows"] == "-" else int(r["rows"])
passes = [r for r in table if r["class"] in "FBW" and number(r) >= 0 and r["end_ns"] > r["start_ns"]]
assert passes, "no pass has rows"


def check_figure(path, steps):
    text = open(path).read()
    chosen = [r for r in passes if int(r["step"]) in steps]
    most = max(map(number, chosen))
    assert text.count("rows, max %d<" % most) == 4, "each of four devices says the most rows"
    heights = [float(h) for h in re.findall(r'height="([0-9.]+)" fill="[^"]*" fill-opacity="0.5"', text)]
    expected = [13 * number(r) / most for r in chosen]
    assert len(heights) == len(expected), "%s: %d bars for %d passes" % (path, len(heights), len(expected))
    for got, wanted in zip(sorted(heights), sorted(expected)):
        assert abs(got - wanted) < 0.06, "a bar of %g and not %g" % (got, wanted)
    assert ">%d</text>" % most in text, "the highest bar says how many rows it stands for"


check_figure("one.svg", {1})
check_figure("two.svg", {1, 2})
assert ", step 1 to 2</title>" in open("two.svg").read()


def numbers(text):
    value = shift = 0
    for byte in base64.b64decode(text):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value >> 1 ^ -(value & 1)
            value = shift = 0


page = re.search(r'<script id="data" type="application/json">(.*?)</script>', open("experts.html").read(), re.S)
stream = list(numbers(json.loads(page[1])["firings"]))
assert stream[6::7] == [number(r) for r in table], "the page has the rows of each firing"
END

trace 2 svg --step 7 --steps 2 experts.trace
says "step 7 is not in experts.trace" err
trace 2 svg --steps many experts.trace
says "--steps many: not a number" err
