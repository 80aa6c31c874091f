# What the tests of jobs on emulated GPUs share: to be sourced. $actorrun has such GPUs; without
# them the test is skipped.
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

actorrun=$SLUICE_BUILD/tests/emulated_actorrun
if [[ ! -x $actorrun ]]; then
  echo "skipped: this build has no emulated GPU (with CUDA, or the thread sanitizer)"
  exit 77
fi

# Have two reports the same losses?
same() { cmp <(hexes "$1") <(hexes "$2") || fail "$1 and $2 differ in their losses"; }
