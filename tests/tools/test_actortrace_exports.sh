#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Independent readers parse what actortrace exports and find every firing. Damaged traces produce
# error messages and no crash.
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
