# What the tests of jobs on emulated GPUs share: to be sourced. $actorrun has such GPUs, $work
# is a folder that goes with the test; without them the test is skipped.

actorrun=$SLUICE_BUILD/tests/emulated_actorrun
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HOME=$work TMPDIR=$work
unset XDG_CONFIG_HOME

fail() {
  local name=${0##*/}
  echo "${name%.sh}: $*" >&2
  exit 1
}

if [[ ! -x $actorrun ]]; then
  echo "skipped: this build has no emulated GPU (with CUDA, or the thread sanitizer)"
  exit 0
fi

# Losses, bit by bit, of a report in that folder; of two.
hexes() { grep -o '"loss_hex":[^,]*' "$work/$1"; }
same() { cmp <(hexes "$1") <(hexes "$2") || fail "$1 and $2 differ in their losses"; }
