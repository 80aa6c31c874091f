#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --paths: microbatches that skip stages. Losses have the same bits with any schedule, number of
# processes and timing. A run resumes only with the same paths. Skipping a quarter of the visits
# shortens a step on the virtual clock. Errors name the file.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
model=(llama --layers 8 --width 32 --heads 4 --context 16 --batch 16 --data "$reference/tokens.u16")
run() {
  ends 0 timeout 100 "$actorrun" --quiet --steps 2 --report r.json --stages 4 --microbatches 8 "$@" "${model[@]}"
}
cat >paths <<'END'
# seven microbatches visit stage 1, six stage 2
0: 0 1 3
1: 0 1 2 3
2: 0 1 2 3
3: 0 2 1 3
4: 0 3
5: 0 2 1 3
6: 0 1 2 3
7: 0 1 2 3
END

# ---- the same bits -------------------------------------------------------------------------------------
run
full=$(hexes r.json)
run --paths paths --checkpoint c --every 2
want=$(hexes r.json)
[ "$want" != "$full" ] || fail "with paths the losses are those of all stages"
for way in "--schedule gpipe -n 2" "--schedule zb-h1 --jitter 20" "--schedule zb-h2 -n 4" \
           "--recompute full --quota act=1" "--data-parallel 2 --jitter 20" "--order derive"; do
  # shellcheck disable=SC2086
  run "${patient[@]}" --paths paths $way
  if [[ $way == *data* ]]; then # with sharded rows the sums differ
    awk -v a="$(sed -n '/"loss"/s/[^0-9.]*\([0-9.]*\).*/\1/p' r.json | tail -1)" 'BEGIN { exit !(a > 5 && a < 6) }' ||
      fail "$way: another loss"
  else
    [ "$(hexes r.json)" = "$want" ] || fail "$way: other losses"
  fi
done

# ---- resuming ------------------------------------------------------------------------------------------
run --paths paths --steps 4
want=$(hexes r.json | tail -2)
run --paths paths --steps 4 --resume --checkpoint c
[ "$(hexes r.json)" = "$want" ] || fail "a run that goes on has other losses"
ends 2 "$actorrun" --steps 4 --stages 4 --microbatches 8 --resume --checkpoint c "${model[@]}"
says "--paths" err

# ---- the virtual clock: a quarter of all visits skipped --------------------------------------------------
for i in {0..23}; do
  case $((i % 3)) in
  0) echo "$i: 0 3 4 5 6 7" ;; 1) echo "$i: 0 1 2 5 6 7" ;; 2) echo "$i: 0 1 2 3 4 7" ;;
  esac
done >quarter
seconds() { # OPTIONS
  ends 0 "$actorrun" --quiet --devices timed:8 --clock virtual --stages 8 --microbatches 24 --steps 3 \
    --report r.json "$@" pipeline
  sed -n 's/.*"step_seconds":\s*\([0-9.]*\).*/\1/p' r.json | head -1
}
# With equal passes the last stage runs all 24 x 3 of them; filling takes 5 and draining twice that.
[ "$(seconds --cost F=1,B=1,W=1 --paths quarter)" = 87 ] || fail "1f1b takes not 5 + 72 + 10: $(cat r.json)"
# The first and the last stage have half as much work.
light=.5:1:1:1:1:1:1:.5
for schedule in gpipe zb-h1 zb-h2; do
  all=$(seconds --schedule $schedule --cost F=$light,B=$light,W=$light)
  some=$(seconds --schedule $schedule --cost F=$light,B=$light,W=$light --paths quarter)
  awk -v a="$all" -v s="$some" 'BEGIN { exit !(s <= 0.75 * a) }' ||
    fail "$schedule: $some s a step with a quarter left out, $all s with all"
done

# ---- paths found by a search ------------------------------------------------------------------------------
small() { # OPTIONS
  ends 0 "$actorrun" --devices timed:6 --clock virtual --stages 6 --microbatches 8 --steps 3 --cost F=1,B=1,W=1 \
    --report r.json "$@" pipeline
  sed -n 's/.*"step_seconds":\s*\([0-9.]*\).*/\1/p' r.json | head -1
}
all=$(small) some=$(small --skip 0.25 --swap --save-paths found)
says "paths found for --skip 0.25" out
small --skip 0.25 --swap --save-paths again >/dev/null
cmp -s found again || fail "the search finds other paths the second time"
[ "$(wc -w <found)" = $((8 * (6 + 1) - 12)) ] || fail "12 of 48 visits are to be left out: $(cat found)"
[ "$(small --paths found)" = "$some" ] || fail "what was found takes another time by --paths"
awk -v a="$all" -v s="$some" 'BEGIN { exit !(s < a) }' || fail "$some s a step with paths, $all s with all"

# No slower than what walks over sketches of a step have found. 58 is the least that 18 microbatches
# on six stages can take if .3 of all visits are left out (docs/schedules.md).
no_more() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a <= b) }' || fail "$3: $1 s, not $2"; }
no_more "$(seconds --cost F=1,B=1,W=1 --skip 0.25)" 80 "equal stages"
plain=$(seconds --cost F=$light,B=$light,W=$light --skip 0.25)
no_more "$plain" 60.5 "light ends"
plain=$(small --skip 0.25)
no_more "$plain" 31 "six stages"
least=$(small --skip 0.3 --microbatches 18)
[ "$least" = 58 ] || fail "18 microbatches on six stages take $least s"
no_more "$some" "$plain" "another order only where that is faster"

# The ends of the model are stages of their own, which take no time here, so a microbatch may begin and end with any of
# six stages. Each of them has 13 visits of 3 s; all 18 microbatches on all of them take 69 s.
ends_apart=0:1:1:1:1:1:1:0
some=$(seconds --microbatches 18 --cost F=$ends_apart,B=$ends_apart,W=$ends_apart --skip 0.225 --save-paths starts)
no_more "$some" 44 "ends of their own"
[ "$(cut -d' ' -f3 starts | sort -u | wc -l)" -ge 4 ] || fail "microbatches begin with few stages: $(cat starts)"

# ---- errors --------------------------------------------------------------------------------------------
refuse() { # WORDS OPTIONS...
  local words=$1
  shift
  ends 2 "$actorrun" --stages 4 --microbatches 8 "$@" "${model[@]}"
  says "$words" err
}
refuse "paths nowhere: cannot open nowhere: No such file" --paths nowhere
sed 's/^4:.*/4: 0 4 3/' paths >bad
refuse "paths bad:6: no stage 4; there are 4, 0 to 3" --paths bad
sed 's/^4:.*/4: 0 1/' paths >bad
refuse "paths bad:6: microbatch 4 goes from stage 0 to stage 1" --paths bad
sed 's/ 2 / /' paths >bad
refuse "paths bad: no microbatch visits stage 2" --paths bad
sed '/^4:/d' paths >bad
refuse "paths bad: microbatch 4 has no path" --paths bad
refuse "must be from 0.0625 to 0.438" --skip 0.6
refuse "--skip 1.5: must be between 0 and 1" --skip 1.5
refuse "paths can be given or searched for, not both" --skip 0.2 --paths paths
refuse "swap: needs skip" --swap
refuse "--save-paths: needs --skip, which searches for paths" --save-paths x
refuse "--save-paths FILE first" --skip 0.2 --checkpoint d
refuse "not supported with sequences cut into pieces" --paths paths --pieces 2
refuse "the vocabulary on all stages" --paths paths --vocab-parallel
# ---- a mixture: its balance loss follows the path, and experts get only the tokens of visits to their stage --
model=(mixtral --layers 4 --width 32 --heads 4 --context 16 --batch 16 --data "$reference/tokens.u16")
run --paths paths
python3 - <<'END' || fail "the loads of experts are not those of the microbatches that come by"
import json
tallies = json.load(open("r.json"))["tallies"]
for name, visits in ("h.0.load", 8), ("h.1.load", 7), ("h.2.load", 6), ("h.3.load", 8):
    last = tallies[name]["last"]
    assert sum(last) == visits * 2 * 16 * 2, (name, last)  # 2 rows of 16 tokens, 2 experts each
END

# The planner's plans have the stages and microbatches of the paths.
printf '0: 0 1 3\n1: 0 2 3\n2: 0 1 3\n3: 0 2 3\n' >four
for fix in "--fix stages=4" "--points 2"; do
  # shellcheck disable=SC2086
  ends 0 "$bin/actortune" plan --devices timed:4 --machine h100-sxm-80gb --paths four $fix \
    gpt --layers 4 --width 32 --heads 2 --context 32 --data "$reference/tokens.u16"
  says "--stages 4" out
  says "--microbatches 4" out
done
