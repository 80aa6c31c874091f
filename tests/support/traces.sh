# SPDX-License-Identifier: Apache-2.0
# Functions for the tests of actortrace; source this file.
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

# trace STATUS WORDS...: checks that actortrace exits with that status
trace() { ends "$1" "$bin/actortrace" "${@:2}"; }

modelled() {
  "$actorrun" --quiet --devices timed:4 --stages 4 --microbatches 8 --clock virtual --steps 3 \
    "$@" pipeline >out 2>err || fail "actorrun $*"
}

# Makes traces of three schedules: a.trace (1F1B), b.trace (ZB-H1, slow links) and v.trace (ZB-V).
traces_make() {
  modelled --cost F=0.01,B=0.01,W=0.01,comm=0.002 --trace a.trace
  modelled --cost F=0.01,B=0.01,W=0.01,comm=0.02 --schedule zb-h1 --trace b.trace
  modelled --cost F=0.01,B=0.01,W=0.01,comm=0.002 --schedule zb-v --trace v.trace
}

# Reads an export of all three with an independent reader; skips the test if that reader is not
# installed.
traces_read_back() { # rows|chrome|svg|perfetto
  local name status
  for name in a b v; do
    "$bin/actortrace" rows $name.trace >$name.rows
    "$bin/actortrace" "$1" $name.trace >$name.export
    status=0
    python3 "$SLUICE_SOURCE/tests/support/check_exports.py" "$1" $name.export $name.rows >out 2>err ||
      status=$?
    ((status == 77)) && skip "$(cat out)"
    ((status == 0)) || fail "$1 of $name.trace, read by another"
  done
}
