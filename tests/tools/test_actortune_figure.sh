#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Other programs can read the figure of step time against memory.
# labels: unthreaded
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need rsvg-convert

"$bin/actortune" --quiet --devices timed:4 --microbatches 8 --cost F=1,B=1,W=1 --effort 60 \
  --svg f.svg pipeline >out 2>err || fail "a search"
rsvg-convert -o f.png f.svg 2>err && [ "$(stat -c %s f.png)" -gt 5000 ] || fail "the figure is drawn"
