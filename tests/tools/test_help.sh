#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests the tools' help: the options of a first run fit on one screen, and every option is in
# exactly one group.
# labels: unthreaded
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

# Each command and each form of a model is named.
ends 0 "$actorrun" --help
says 'FILE.pt2' out
ends 0 "$bin/actortune" --help
says "actortune plan | serve | ranges | machine | compare" out

groups() { sed -n '/^More, by/,$s/^  \([a-z]*\) .*/\1/p' "$1" | grep -v '^all$'; }
options() { sed -n 's/^  --\([a-z0-9-]*\).*/\1/p' "$1"; }
narrow() { ! awk 'length > 80 {print; wide = 1} END {exit !wide}' out || fail "$*: wider than 80 columns"; }

# check FIRST TOOL WORDS...: --help has to show FIRST options, and the groups have to have every
# option once.
check() {
  local first=$1 group
  shift
  ends 0 "$@" --help
  narrow "$*"
  (($(wc -l <out) <= 30)) || fail "$* --help: $(wc -l <out) lines"
  options out >first
  (($(wc -l <first) == first)) || fail "$* --help: $(wc -l <first) options"
  groups out >groups
  ends 0 "$@" -h
  ends 0 "$@" --help all
  narrow "$* all"
  ! grep -n '(needed)' out || fail "$*: an option without a default, but MODEL runs without it"
  options out | sort >all
  [[ -z $(sort first | comm -23 - all) ]] || fail "$*: options of a first run that --help all does not have"
  : >grouped
  while read -r group; do
    ends 0 "$@" --help "$group"
    narrow "$* $group"
    options out >>grouped
    cp out spaced
    ends 0 "$@" "--help=$group"
    cmp -s out spaced || fail "$* --help=$group: another text"
    ends 0 "$@" gpt --help "$group"
    cmp -s out spaced || fail "$* gpt --help $group: another text"
  done <groups
  sort grouped | cmp -s - all || fail "$*: groups against all: $(sort grouped | diff - all)"
  for group in paralel nothing --help=nothing; do
    [[ $group == --* ]] || group="--help $group"
    # shellcheck disable=SC2086 # two words
    ends 2 "$@" $group
    says "unknown group of options" err
    says "$(sed -n 1p groups), $(sed -n 2p groups), " err
    says ", all" err
  done
}

check 10 "$actorrun"
for group in parallel memory schedule training data output; do
  ends 0 "$actorrun" --help $group
  (($(options out | wc -l) >= 5)) || fail "actorrun --help $group: too few"
done
check 10 "$bin/actortune"
check 10 "$bin/actortune" plan
[[ ! -x $bin/actorserve ]] || check 10 "$bin/actorserve"

# Tools with few options show all of them; the word after --help may be a model.
ends 0 "$bin/actortune" machine --help
says "--seconds" out
ends 0 "$actorrun" --help gpt
says "--layers" out
ends 0 "$actorrun" gpt --help
says "--layers" out
ends 0 "$actorrun" --help --stages 2
says "Options of a first run" out
ends 2 "$actorrun" --help ./none.c
says "cannot open ./none.c" err
