#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The figure that actortrace draws is one to another program.
# labels: unthreaded
set -u
# shellcheck source=tests/support/traces.sh
source "$SLUICE_SOURCE/tests/support/traces.sh"
need rsvg-convert

traces_make
trace 0 svg a.trace -o a.svg
rsvg-convert -o a.png a.svg 2>err && [ "$(stat -c %s a.png)" -gt 5000 ] || fail "the figure is drawn"
