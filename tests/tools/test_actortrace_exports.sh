#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What actortrace exports is read back by readers that know nothing of it: every firing is
# there. Damaged traces end in words, not in a crash.
#
#   test_actortrace_exports.sh [SEED [ROUNDS]]
# labels: unthreaded random
set -u
# shellcheck source=tests/support/traces.sh
source "$SLUICE_SOURCE/tests/support/traces.sh"
need python3

traces_make
for kind in rows svg chrome; do traces_read_back $kind; done
draw "$@"
sanitized && each=40 || each=160
rounds=${2:-$((each * ${SLUICE_SEEDS:-1}))}
python3 "$SLUICE_SOURCE/tests/support/damage.py" "$bin/actortrace" a.trace "$rounds" "$seed" \
  >said 2>err || fail "damaged files: $(cat said)"
cat said
