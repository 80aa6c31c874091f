#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# within.sh COMMAND...: runs a test, unless the deadline for all tests has passed (SLUICE_DEADLINE,
# in seconds since 1970). A test that has begun gets two more minutes.
[[ ${SLUICE_DEADLINE-} ]] || exec "$@"
left=$((SLUICE_DEADLINE - EPOCHSECONDS))
if ((left <= 0)); then
  echo "not run: no time left"
  exit 77
fi
timeout -k 5 $((left + 120)) "$@"
status=$?
((EPOCHSECONDS > SLUICE_DEADLINE && (status == 124 || status == 137))) || exit $status
echo "not run: not done after $((left + 120)) s, and no time left"
exit 77
