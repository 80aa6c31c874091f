# SPDX-License-Identifier: Apache-2.0
# Functions for tests of jobs on emulated GPUs; source this file. $actorrun runs on such GPUs; the
# test is skipped if the build lacks them.
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

actorrun=$SLUICE_BUILD/tests/emulated_actorrun
if [[ ! -x $actorrun ]]; then
  echo "skipped: this build has no emulated GPU (with CUDA, or the thread sanitizer)"
  exit 77
fi

# Checks that two reports have the same losses.
same() { cmp <(hexes "$1") <(hexes "$2") || fail "$1 and $2 differ in their losses"; }

# Checks that the losses of two reports of two steps differ by at most this share.
near() {
  paste <(grep -o '"loss":[^,]*' "$work/$1") <(grep -o '"loss":[^,]*' "$work/$2") |
    awk -F'[:\t]' -v most="$3" '{ d = $2 - $4; if (d < 0) d = -d; n++
                                  if (d > most * $2) { print $2, $4; bad = 1 } }
                                END { exit bad || n != 2 }' ||
    fail "$1 and $2 are more than $3 from each other"
}
