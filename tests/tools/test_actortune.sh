# SPDX-License-Identifier: Apache-2.0
# Tests actortune as a user meets it: its frontier is a frontier, its commands make the plans that
# it shows, and runs behave as it predicts.
# labels: unthreaded long first
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

small="--layers 4 --width 32 --heads 2 --context 32 --batch 8 --data $reference/tokens.u16"

# tune STATUS WORDS...: actortune has to end with STATUS.
tune() { ends "$1" "$bin/actortune" "${@:2}"; }

refused() {
  local status=$1 text=$2
  shift 2
  tune "$status" "$@"
  says "$text" err
  [ "$(grep -c '^actortune: ' err)" -eq 1 ] || fail "actortune $*: one line says why"
}

# rows FILE: rows of a CSV file without its header: point, bytes, seconds, ..., command.
rows() { tail -n +2 "$1"; }
commands() { rows "$1" | sed -E 's/.*,"([^"]*)"$/\1/'; }

# number JSON NAME: prints the first number of that name.
number() { sed -nE "s/.*\"$2\":[[:space:]]*([-0-9.e+]+).*/\1/p" "$1" | head -n 1; }

# close A B SHARE: succeeds if A and B differ by at most this share.
close() {
  awk -v a="$1" -v b="$2" -v s="$3" 'BEGIN {d = a - b; if (d < 0) d = -d; exit !(d <= s * b)}'
}

monotone() {
  rows "$1" | awk -F, 'NR > 1 && !($2 > bytes && $4 > rate) {exit 1}
                       {bytes = $2; rate = $4}' || fail "$1: more memory, more speed"
}

# ---- help and bad command lines ---------------------------------------------------------
tune 0 --help all
says "--verify" out; says "--microbatches LIST" out; says "zb-v" out
grep -q -- --dry-run out && fail "actortune has no --dry-run"
tune 0 gpt --help
says "--layers" out
tune 0 --version
refused 2 "no MODEL was given"
refused 2 "unknown option --verfy; did you mean --verify?" --verfy 3 gpt
refused 2 "unknown option --dry-run" --dry-run gpt $small
refused 2 "unknown model gtp; did you mean gpt?" gtp
refused 2 "--microbatches 8,: not a list" --microbatches 8, gpt $small
refused 2 "--microbatches 0: not a list" --microbatches 0 gpt $small
refused 2 "--microbatches 8..4: not a list" --microbatches 8..4 gpt $small
refused 2 "--chunks two: not a list" --chunks two gpt $small
refused 2 "--memory 8G..1G: not a size" --memory 8G..1G gpt $small
refused 2 "--memory lots: not a size" --memory lots gpt $small
refused 2 "--schedule 2f2b: must be one of" --schedule 1f1b,2f2b gpt $small
refused 2 "--schedule auto: actortune is a search itself" --schedule auto gpt $small
refused 2 "null devices take no time" --devices null:4 gpt $small
refused 2 "nowhere.json" --profile nowhere.json gpt $small
refused 2 "cannot write no/such/f.svg" --svg no/such/f.svg gpt $small
refused 2 "is not a multiple of --heads" --devices timed:4 gpt $small --heads 3
refused 2 "60 stages asked for" --devices timed:60 gpt $small
refused 2 "measuring with actorrun failed: gpt: no training data" --stages 4 gpt
refused 3 "no plan fits in 64 KiB per device: the smallest plan found needs" \
  --devices timed:4 --microbatches 8 --memory 64K --effort 50 gpt $small

# ---- the small GPT on four CPU devices: commands make the plans, runs need the stated memory --
tune 0 --stages 4 --microbatches 8 --effort 120 --points 8 --keep durations --csv f.csv \
  --json f.json --svg f.svg gpt $small
says "measured: 3 times 5 steps of 8 microbatches on one CPU device" out
[ -s durations-m8.json ] || fail "the durations were kept"
monotone f.csv
[ "$(rows f.csv | wc -l)" -ge 2 ] || fail "there is something to choose from"
[ "$(grep -c '^ *[0-9]*  actorrun ' out)" -eq "$(rows f.csv | wc -l)" ] ||
  fail "every point has its command"
grep -q '</svg>' f.svg || fail "the figure is whole"
# Each point and each published schedule has a label; the legend has one more ring.
marks() { grep -o "class=\"$1\"" f.svg | wc -l; }
[ "$(marks best)" -eq $(($(marks point) / 2)) ] || fail "$(marks best) names of $(marks point) points"
[ "$(marks published)" -eq $(($(marks ring) - 1)) ] || fail "$(marks published) names of $(marks ring) rings"
n=0
while read -r command; do
  n=$((n + 1))
  row=$(rows f.csv | sed -n "${n}p")
  IFS=, read -r _ bytes seconds _ _ _ _ _ _ hash _ <<<"$row"
  eval "$bin/$command --dry-run" >out 2>err || fail "$command --dry-run"
  says "plan $hash" out
  # Compares the last column of the table with the bytes of the point, to the table's precision.
  awk -v want="$bytes" '
    $1 ~ /^cpu:/ {unit = $NF == "MiB" ? 1048576 : 1024; bytes = $(NF - 1) * unit
                  half = unit * ($(NF - 1) < 100 ? 0.05 : 0.5)
                  if (bytes > most) {most = bytes; error = half}}
    END {d = most - want; if (d < 0) d = -d; exit !(d <= error * 1.001)}' out ||
    fail "$command: the memory table says otherwise than $bytes"
  eval "$bin/$command --steps 2 --quiet --report r.json" >out 2>err || fail "$command"
  predicted=$(sed -n '/"predicted"/,$p' r.json >p.json && number p.json step_seconds)
  close "$predicted" "$seconds" 1e-6 || fail "$command: predicts $predicted s, not $seconds"
  peak=$(grep -A 8 '"peak_bytes"' r.json | sed -nE 's/.*"total":[[:space:]]*([0-9]+).*/\1/p' |
         sort -n | tail -n 1)
  [ "$peak" = "$bytes" ] || fail "$command: needs $peak bytes, not $bytes"
done < <(commands f.csv)

# The same durations give the same result.
tune 0 --stages 4 --microbatches 8 --effort 120 --points 8 --profile durations-m8.json --csv a.csv \
  gpt $small
tune 0 --stages 4 --microbatches 8 --effort 120 --points 8 --profile durations-m8.json --csv b.csv \
  --threads 1 gpt $small
cmp -s a.csv b.csv || fail "any number of threads finds the same"
refused 2 "no report was measured at --microbatches 4" --stages 4 --microbatches 4,8 \
  --profile durations-m8.json gpt $small

# Without kept durations the command makes the plan too.
tune 0 --stages 4 --microbatches 8 --schedule 1f1b --effort 20 --measure 2 --csv k.csv gpt $small
hash=$(rows k.csv | head -n 1 | cut -d, -f10)
eval "$bin/$(commands k.csv | head -n 1) --dry-run" >out 2>err || fail "a dry run"
says "plan $hash" out

# The printed command survives a shell and contains no escape sequences, whatever characters its
# words have.
odd=$(printf "odd\\033[2J'\\\\name.u16")
cp "$reference/tokens.u16" "$odd"
tune 0 --devices timed:4 --microbatches 8 --schedule 1f1b --effort 5 --csv o.csv gpt \
  --layers 4 --width 16 --heads 2 --context 16 --batch 8 --data "$odd"
grep -q "$(printf '\033')" out && fail "what is shown is harmless"
says "--data \$'odd\\033[2J\\'\\\\name.u16'" out
hash=$(rows o.csv | head -n 1 | cut -d, -f10)
command=$(grep -m 1 -o 'actorrun .*' out)
eval "$bin/$command --dry-run" >out 2>err || fail "$command --dry-run"
says "plan $hash" out

# ---- budgets ---------------------------------------------------------------------------------
least=$(rows a.csv | head -n 1 | cut -d, -f2) most=$(rows a.csv | tail -n 1 | cut -d, -f2)
tune 0 --stages 4 --microbatches 8 --effort 120 --profile durations-m8.json --csv c.csv \
  --memory "${least}B..${most}B" gpt $small
rows c.csv | awk -F, -v least="$least" -v most="$most" \
  '$2 > most || (NR > 1 && $2 <= least) {exit 1}' || fail "points lie within the budgets"
says "--memory ${most}B" c.csv

# ---- sweeps on modelled devices -----------------------------------------------------------------
tune 0 --devices timed:4 --microbatches 4,8 --pieces 1,2 --schedule 1f1b,seq1f1b,zb-v --effort 100 \
  --csv s.csv gpt $small
monotone s.csv
tune 0 --devices timed:4 --clock virtual --cost F=1,B=1,W=1 --microbatches 8 --effort 100 \
  --csv p.csv pipeline
monotone p.csv
n=0
while read -r command; do
  n=$((n + 1))
  seconds=$(rows p.csv | sed -n "${n}p" | cut -d, -f3)
  eval "$bin/$command --steps 3 --quiet --report v.json" >out 2>err || fail "$command"
  close "$(number v.json step_seconds)" "$seconds" 1e-6 ||
    fail "$command: a step takes $(number v.json step_seconds) s, not $seconds"
done < <(commands p.csv)
# With no limit, actortune finds the best of the published schedules, which has no bubble.
rows p.csv | tail -n 1 | awk -F, '{exit !($5 < 0.02)}' || fail "a plan without a bubble"

# More microbatches of the abstract pipeline are more work, so points are compared by speed.
tune 0 --devices timed:4 --clock virtual --cost F=1,B=1,W=1 --microbatches 4,8,16 --schedule 1f1b \
  --effort 100 --csv m.csv pipeline
monotone m.csv
tune 0 --devices timed:4 --microbatches 3,4 --schedule 1f1b --effort 50 gpt $small
says "left out 1f1b, 1 chunks, 3 microbatches:" err

# A quota that the user gives holds in every plan.
tune 0 --devices timed:4 --microbatches 8 --quota act.b=2 --schedule 1f1b --effort 100 --csv q.csv \
  gpt $small
[ "$(commands q.csv | grep -c -- '--quota act.b=2 ')" -eq "$(rows q.csv | wc -l)" ] ||
  fail "act.b=2 is in every command"

# ---- real time ----------------------------------------------------------------------------------
# The durations are long, and the plans differ enough, that a busy machine does not change their
# order. If the machine stalls for a moment, the test tries again.
in_order() {
  local pairs
  tune 0 --devices timed:4 --cost F=0.015,B=0.015,W=0.015 --microbatches 8 --effort 100 --points 4 \
    --schedule 1f1b,zb-h1 --verify 4 --verify-steps 3 pipeline
  pairs=$(sed -nE 's/^([0-9]+) of ([0-9]+) pairs.*/\1 \2/p' out)
  [ -n "$pairs" ] && [ "${pairs% *}" = "${pairs#* }" ]
}
in_order || in_order || in_order || fail "plans are as fast, compared, as predicted"
grep -E '^ +[0-9]+ +[0-9.]+ [KM]iB +[0-9.]+ [KM]iB' out | grep -vq '+0.0%' &&
  fail "memory is what was predicted"

# ---- Ctrl-C, and a terminal ----------------------------------------------------------------------
stopped_after() { # seconds
  "$bin/actortune" --devices timed:8 --microbatches 32 --effort 10000000 --csv i.csv gpt $small \
    --layers 14 --batch 32 >out 2>err &
  local pid=$!
  sleep "$1"
  kill -INT $pid
  wait $pid
}
for pause in 2 4 8 16; do # until the machine has had time to try a plan
  stopped_after $pause && break
  says "stopped before any plan was tried" err
done
says "stopped before the end" out
monotone i.csv
script -qec "'$bin/actortune' --devices timed:4 --microbatches 8 --effort 200 gpt $small" \
  /dev/null >out 2>err </dev/null || fail "a search on a terminal"
says "s left" out
echo "all as it should be"
