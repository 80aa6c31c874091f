#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Other programs can read the figure that actortrace draws.
# labels: unthreaded
set -u
# shellcheck source=tests/support/traces.sh
source "$SLUICE_SOURCE/tests/support/traces.sh"
need rsvg-convert

# Passes of a device's two chunks have two shades, so that a V-shaped placement is visible; a single
# chunk has one shade.
shades() { grep -c 'height="26" fill="#99c7e0"/>' "$1"; }
for chunks in 1:1f1b 2:v-min; do
  ends 0 "$bin/actorrun" --devices timed:4 --clock virtual --stages 4 --microbatches 8 --chunks ${chunks%:*} \
    --schedule ${chunks#*:} --steps 3 --quiet --trace ${chunks#*:}.trace pipeline
  trace 0 svg ${chunks#*:}.trace -o ${chunks#*:}.svg
  grep -q '>time since the first pass began; ' ${chunks#*:}.svg || fail "the axis has no title"
done
[ "$(shades 1f1b.svg)" -eq 0 ] || fail "one chunk has one shade"
# 4 devices, each with 8 forward passes of the second chunk.
[ "$(shades v-min.svg)" -eq 32 ] || fail "two chunks: $(shades v-min.svg) lighter forward passes"
grep -q "lighter: a device" v-min.svg || fail "the legend has no shades"

traces_make
trace 0 svg a.trace -o a.svg
rsvg-convert -o a.png a.svg 2>err && [ "$(stat -c %s a.png)" -gt 5000 ] || fail "the figure is drawn"
