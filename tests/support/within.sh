#!/bin/bash
# within.sh COMMAND...: runs a test, unless the time for tests is up (SLUICE_DEADLINE, in
# seconds since 1970).
if [[ ${SLUICE_DEADLINE-} ]] && ((EPOCHSECONDS >= SLUICE_DEADLINE)); then
  echo "not run: no time left"
  exit 77
fi
exec "$@"
