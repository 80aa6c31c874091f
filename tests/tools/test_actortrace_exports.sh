#!/bin/bash
# What actortrace exports is read back by readers that know nothing of it: every firing is
# there. Damaged traces end in words, not in a crash.
# labels: unthreaded
set -u
# shellcheck source=tests/support/traces.sh
source "$SLUICE_SOURCE/tests/support/traces.sh"
need python3

traces_make
for kind in rows svg chrome; do traces_read_back $kind; done
python3 "$SLUICE_SOURCE/tests/support/damage.py" "$bin/actortrace" a.trace 160 2>err ||
  fail "damaged files"
