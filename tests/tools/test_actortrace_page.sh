#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests the page that actortrace writes in a browser: what it shows, what keys and the mouse do, and
# how fast it draws 200,000 firings.
# labels: unthreaded first
set -u
# shellcheck source=tests/support/traces.sh
source "$SLUICE_SOURCE/tests/support/traces.sh"
need python3
need chromium chromium-browser google-chrome

traces_make
trace 0 page a.trace -o a.html
python3 "$SLUICE_SOURCE/tests/support/page_in_chromium.py" a.html 2>err || fail "the page"
"$actorrun" --quiet --devices timed:8 --stages 8 --microbatches 128 --clock virtual \
  --cost F=0.01,B=0.01,W=0.01,comm=0.002 --schedule zb-h1 --steps 40 --trace large.trace pipeline \
  >out 2>err || fail "a large run"
trace 0 page large.trace -o large.html
python3 "$SLUICE_SOURCE/tests/support/page_in_chromium.py" large.html --large 2>err ||
  fail "a large page"
"$actorrun" --quiet --devices null:64 --stages 8 --data-parallel 4 --tensor 2 --microbatches 8 \
  --steps 2 --trace many.trace gpt --layers 8 --width 32 --heads 2 \
  --context 16 --batch 32 >out 2>err || fail "a run on 64 devices"
trace 0 page many.trace -o many.html
python3 "$SLUICE_SOURCE/tests/support/page_in_chromium.py" many.html --many 2>err ||
  fail "a page of 64 devices"
"$actorrun" --quiet --stages 2 --microbatches 2 --steps 3 --trace experts.trace mixtral --layers 2 --width 32 \
  --heads 2 --context 16 --batch 4 --experts 4 --expert-capacity 1 --data "$reference/tokens.u16" >out 2>err ||
  fail "a mixture of experts"
trace 0 page experts.trace -o experts.html
python3 "$SLUICE_SOURCE/tests/support/page_in_chromium.py" experts.html --experts 2>err || fail "a page of experts"
"$actorrun" --quiet --devices timed:4 --clock virtual --data-parallel 4 --expert-parallel 4 --routing zipf:1 --steps 2 \
  --trace rows.trace mixtral --layers 2 --width 32 --heads 2 --context 16 --batch 16 --experts 8 --data "$reference/tokens.u16" \
  >out 2>err || fail "experts on all devices"
trace 0 page rows.trace -o rows.html
python3 "$SLUICE_SOURCE/tests/support/page_in_chromium.py" rows.html --rows 2>err || fail "a page of rows: $(tail -1 err)"
