# SPDX-License-Identifier: Apache-2.0
# Functions for the tests of tools; source this file. The test works in a temporary folder, without
# the user's settings. The files `out` and `err` there hold the last tool's output.

bin=$SLUICE_BUILD/bin
actorrun=$bin/actorrun
reference=$SLUICE_SOURCE/tests/reference
work=$(mktemp -d)
# Timeout for jobs that must not lose a process: a busy machine may stall one for seconds.
patient=(--heartbeat-timeout 30)
to_end=() # processes that must not outlive the test
end_test() {
  ((${#to_end[@]} == 0)) || kill -9 "${to_end[@]}" 2>/dev/null || :
  rm -rf "$work"
}
trap end_test EXIT
export HOME=$work TMPDIR=$work
unset XDG_RUNTIME_DIR XDG_CONFIG_HOME
cd "$work" || exit 1
: >out
: >err

fail() {
  local name=${0##*/}
  {
    echo "${name%.sh}: $*"
    echo "--- standard output"; head -50 "$work/out"
    echo "--- standard error"; head -50 "$work/err"
  } >&2
  exit 1
}

skip() { echo "skipped: $*"; exit 77; }
# sanitized: whether the build has a sanitizer.
sanitized() { grep -q '^SLUICE_SANITIZE:STRING=.' "$SLUICE_BUILD/CMakeCache.txt"; }
# brief: whether the test runs under a sanitizer and without tools/test --long, and does less.
brief() { [[ ! ${SLUICE_LONG-} ]] && sanitized; }
# every N WORD...: sets `some` to every N-th word if the test is brief, else to all.
every() {
  local n=$1 i
  shift
  some=("$@")
  brief || return 0
  some=()
  for ((i = 1; i <= $#; i += n)); do some+=("${!i}"); done
}
# draw [SEED]: sets and prints the test's seed. It is fixed unless SLUICE_SEED gives another.
draw() {
  seed=${1:-${SLUICE_SEED:-1}}
  echo "seed $seed"
}
# need PROGRAM...: skips the test unless one of the programs is installed.
need() {
  local program
  for program in "$@"; do type -P "$program" >/dev/null && return; done
  skip "$1 is not installed"
}

# ends STATUS COMMAND...: checks that the command exits with that status.
ends() {
  local want=$1 got=0
  shift
  "$@" >out 2>err || got=$?
  ((got == want)) || fail "$*: status $got, not $want"
}
# background COMMAND...: runs the command as $pid. `out` is emptied first, not by the new process: a
# caller that waits for a word in it must not find the output of the previous command.
background() {
  : >out
  : >err
  "$@" >out 2>err &
  pid=$!
  to_end+=("$pid")
}
says() { grep -qF -- "$1" "$2" || fail "\"$1\" is not in what was said"; }

# Prints the losses of a report with all their bits.
hexes() { grep -o '"loss_hex":[^,]*' "$1"; }
