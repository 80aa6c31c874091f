#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# actortune ranges: its columns follow from shapes, the published case reaches its bound on the
# clock, more ranges are never slower, traces show each resource, and bad input is refused.
# labels: unthreaded random
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
draw

ranges() { ends "$1" "$bin/actortune" ranges --machine "$machine" --dtype bf16 "${@:2}"; }
refused() {
  ranges 2 "${@:2}"
  says "$1" err
}
machine=a100-sxm-80gb-nanoflow
big=(llama --layers 80 --width 8192 --heads 64 --kv-heads 8 --ffn 28672 --vocab 32000 --context 2048 --batch 1)
nanoflow=q+k+v=.01608,o=.01601,gate+up=.06992,down=.03496,attention=.0356,prompts=.00456,exchange=.04792

# ---- the published case (arXiv 2408.12757) ------------------------------------------------
tick() { sed -nE 's/^A tick takes ([0-9.]+) ms.*/\1/p' out; }
between() { awk -v x="$1" -v low="$2" -v high="$3" 'BEGIN {exit !(x >= low && x <= high)}' || fail "$4: $1"; }

ranges 0 --devices timed:8 --parts 1 --effort 0 --measured $nanoflow "${big[@]}"
says "they take 225.05 ms, 1138 tokens/s" out
says "no order is faster than 175.30 ms" out
between "$(tick)" 225.04 225.06 "an uncut tick"
last=226
for parts in 2 3 4 8; do
  ranges 0 --devices timed:8 --parts $parts --effort 0 --measured $nanoflow "${big[@]}"
  between "$(tick)" 175.30 $last "$parts ranges"
  last=$(tick)
done
ranges 0 --devices timed:8 --measured $nanoflow --trace run.trace "${big[@]}"
between "$(tick)" 175.30 177 "the search"

# ---- the trace --------------------------------------------------------------------------------
ends 0 "$bin/actortrace" shares run.trace
for resource in compute memory network; do says "$resource  " out; done
between "$(sed -nE 's/.*: ([0-9.]+) % of its shares.*/\1/p' out)" 98 100 "held shares"
ends 0 "$bin/actortrace" svg run.trace -o run.svg
[ "$(grep -cE '>(compute|memory|network)<' run.svg)" -eq 3 ] || fail "the figure has a row for each resource"

# ---- columns from shapes, beside formulas ------------------------------------------------------
cat >check.py <<'END'
import random, re, subprocess, sys
tool, machine, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
random.seed(seed)
seen_ops = 0
for case in range(6):
    n, layers, head = random.choice([2, 3, 5, 7, 8]), random.randint(1, 9), random.choice([64, 128])
    heads = random.choice([8, 12, 20])
    kv = random.choice([h for h in range(1, heads + 1) if heads % h == 0])
    width, ffn, rows = heads * head, random.randint(20, 90) * 64, random.randint(4, 40) * 77
    prompt, answer = random.randint(1, 900), random.randint(1, 900)
    text = subprocess.run([tool, "ranges", "--machine", machine, "--dtype", "bf16", "--devices", f"timed:{n}",
        "--rows", str(rows), "--prompt", str(prompt), "--answer", str(answer), "--effort", "20", "--parts", "2", "llama",
        "--layers", str(layers), "--width", str(width), "--heads", str(heads), "--kv-heads", str(kv), "--ffn", str(ffn),
        "--context", "64", "--batch", "1"], check=True, capture_output=True, text=True).stdout
    C, M, N = 312e12 * n, 2e12 * n, 300e9 * n
    k, seen, p = kv * head, prompt + answer / 2, rows * prompt / (prompt + answer)
    a = rows - p
    product = lambda i, o: (2 * rows * i * o / C, (i * o + rows * (i + o)) * 2 / M)
    want = {"q+k+v": product(width, width + 2 * k), "o": product(width, width), "gate+up": product(width, 2 * ffn),
            "down": product(ffn, width), "attention": (4 * a * seen * width / C, a * ((seen + 1) * 2 * k + 2 * width) * 2 / M),
            "prompts": (4 * p * prompt * width / C, p * (2 * k + 2 * width) * 2 / M)}
    network = 2 * (n - 1) * rows * width * 2 / N  # each of two
    for line in text.splitlines():
        words = line.split()
        if not words or (words[0] not in want and words[0] != "exchange") or "at" in words: continue
        got = [float(x) / 1e3 for x in re.findall(r"([0-9.]+) ms", line)]
        if words[0] == "exchange": pairs = [(got[0], network * layers)]
        else: pairs = list(zip(got, [x * layers for x in want[words[0]]]))
        for g, w in pairs: assert abs(g - w) < 6e-6 + .01 * w, (seed, case, line, w)
        seen_ops += 1
assert seen_ops == 6 * 8, (seed, seen_ops)
END
python3 check.py "$bin/actortune" "$machine" "$seed" || fail "seed $seed: a column is not its formula's"

# ---- ranges of microbatches -----------------------------------------------------------------------
# Same bits with any number of ranges; a stage with exchanges is faster on the clock with two.
tiny=(gpt --layers 2 --width 32 --heads 2 --context 16 --batch 8 --data "$reference/tokens.u16")
for options in "" "--ranges 2" "--ranges 3 --schedule zb-h1" "--ranges 100" "--ranges 2 -n 2"; do
  # shellcheck disable=SC2086
  ends 0 "$actorrun" --tensor 2 --microbatches 4 --steps 2 --quiet --report run.json $options "${tiny[@]}"
  hexes run.json >now.txt
  [ -f first.txt ] || cp now.txt first.txt
  cmp -s first.txt now.txt || fail "$options: other losses"
done
for options in "--stages 2 --schedule interleaved --chunks 2" "--stages 2 --schedule dualpipev" "--pieces 2"; do
  # shellcheck disable=SC2086
  ends 0 "$actorrun" --microbatches 8 --ranges 2 --steps 1 --quiet $options gpt --layers 4 --width 32 --heads 2 \
    --context 16 --batch 8 --data "$reference/tokens.u16"
done
for n in 1 2; do
  ends 0 "$actorrun" --clock virtual --machine h100-sxm-80gb --dtype bf16 --tensor 8 --microbatches 4 --ranges $n \
    --steps 2 --quiet --report run.json gpt --layers 4 --width 6144 --heads 48 --context 2048 --vocab 51200 --batch 16
  seconds[n]=$(grep -oE '"step_seconds": *[0-9.e-]+' run.json | head -n 1 | grep -oE '[0-9.e-]+$')
done
awk -v a="${seconds[1]}" -v b="${seconds[2]}" 'BEGIN {exit !(b < .97 * a)}' || fail "ranges: ${seconds[*]}"
ends 2 "$actorrun" --ranges 0 "${tiny[@]}"

# ---- bad input -----------------------------------------------------------------------------------
refused "a layer has no op qkv, but q+k+v, attention" --devices timed:8 --measured qkv=1 "${big[@]}"
refused "not a list of seconds" --devices timed:8 --measured down=x "${big[@]}"
refused "has experts" --devices timed:2 mixtral
refused "0 attentions" --devices timed:2 mamba2
refused "must be between" --rows 100 "${big[@]}"
ends 2 "$bin/actortune" ranges "${big[@]}"
says "needs --machine" err
python3 - "$SLUICE_SOURCE/machines/$machine.json" <<'END'
import json, sys
m = json.load(open(sys.argv[1]))
for name, shares in (("back", {"memory": [[0, 0], [.5, .6], [.4, .7], [1, 1]]}), ("short", {"memory": [[0, 0], [.5, .6]]}),
                     ("what", {"tape": [[0, 0], [1, 1]]})):
    json.dump(dict(m, shares=shares), open(name + ".json", "w"))
END
for case in "back:must ascend" "short:must ascend" "what:must be compute, memory"; do
  machine=${case%%:*}.json
  refused "${case#*:}" --devices timed:2 "${big[@]}"
done
