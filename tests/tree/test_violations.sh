#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks that each check of structure.py fails in a small tree with a single violation, and names it.
# labels: unthreaded outside
set -u
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
structure=$SLUICE_SOURCE/tests/tree/structure.py
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

put() { mkdir -p "$work/$(dirname "$1")" && printf '%s\n' "${@:2}" >"$work/$1"; }

# Writes a small tree without violations.
fresh() {
  rm -rf "${work:?}"/*
  put base/status.h 'typedef enum sli_way { SLI_HERE, SLI_THERE } sli_way;' \
    'typedef struct sli_box { int width, height; } sli_box;' 'int sli_upper(int way);'
  put base/upper.c '#include "base/status.h"' 'int sli_upper(int way) {' '  return way + SLI_THERE;' '}'
  put base/room/room.h 'int sli_lower(int way);'
  put base/room/lower.c '#include "base/room/room.h"' '#include "base/status.h"' 'int sli_lower(int way) {' '  return sli_upper(way);' '}'
  put tools/main.c '#include "base/room/room.h"' 'int main(void) {' '  return sli_lower(0);' '}'
  put include/sluice/status.h 'typedef struct sl_status { int code; } sl_status;'
  put docs/design.md '## Words' '| word | meaning |' '| status | what came of it |'
  put docs/tree.md '<!-- tree -->' '```' \
    'base/' '  status.h   what all share' '  upper.c    goes up' '  room/' '    room   the face' \
    '    lower   goes down' 'tools/' '  main.c    begins' '```'
  put tests/tree/plain_words.txt way
  put tests/tree/banned_words.txt "$(printf 'hurries\tnotifies')"
  put tests/tree/exceptions.txt '# check what reason'
}

# check NAME: compiles the files and runs this check of structure.py.
check() {
  local source object
  rm -rf "$work/build"
  (cd "$work" && find . -name '*.c') | while read -r source; do
    source=${source#./} object=${source%%/*}
    object=$work/build/$object/CMakeFiles/sluice_$object.dir/${source#*/}.o
    mkdir -p "$(dirname "$object")"
    ${CC:-cc} -I"$work" -c "$work/$source" -o "$object" || exit
  done
  python3 "$structure" --source "$work" --build "$work/build" "$@" 2>"$work/said"
}
fail() { echo "test_violations: $*" >&2; cat "$work/said" >&2; exit 1; }

fresh
check || fail "the small tree is right"

# fails CHECK WORDS: expects the check to fail with these words.
fails() {
  check "$1" && fail "$1 sees nothing: $2"
  grep -qF -- "$2" "$work/said" || fail "$1 does not say: $2"
  fresh
}

# warns CHECK WORDS: expects the check to print these words and pass.
warns() {
  check "$1" || fail "$1 fails the run: $2"
  grep -qF -- "warning: $1: $2" "$work/said" || fail "$1 does not warn: $2"
  fresh
}

put base/upper.c '#include "base/status.h"' 'int sli_lower(int way);' 'int sli_upper(int way) {' \
  '  return way > 9 ? sli_lower(way) : 0;' '}'
fails circles 'base/room/lower.c -> base/upper.c: sli_upper'

put base/room/lower.c '#include "base/room/room.h"' 'int sli_other(int way);' 'int sli_lower(int way) {' \
  '  return way > 9 ? sli_other(way) : 0;' '}'
put base/other/other.h 'int sli_other(int way);'
put base/other/other.c '#include "base/room/room.h"' 'int sli_other(int way) {' '  return sli_lower(way);' '}'
fails rooms 'base/other -> base/room: sli_lower'

# A header's inline function is a call, too.
put base/room/lower.c '#include "base/other/other.h"' 'int sli_lower(int way) { return sli_quick(way); }'
put base/other/other.h 'static inline int sli_quick(int way) { return way; }' 'int sli_other(int way);'
put base/other/other.c '#include "base/room/room.h"' 'int sli_other(int way) {' '  return sli_lower(way);' '}'
fails rooms 'base/room -> base/other: sli_quick'

put base/room/inner.h 'int sli_lower(int way);'
put tools/main.c '#include "base/room/inner.h"' 'int main(void) { return 0; }'
fails faces 'tools/main.c includes base/room/inner.h'

put base/upper.c '#include "base/status.h"' 'int sli_upper(int way) { return way; }' "$(yes // | head -500)"
warns files 'base/upper.c has 502 lines'

put base/crowd.h "struct crowd { int $(seq -s , -f 'x%g' 31); };"
warns structs 'struct crowd in base/crowd.h has 31 fields'

put base/upper.c '#include "base/status.h"' 'int sli_upper(int way) {' "$(yes '  way++;' | head -60)" '  return way;' '}'
fails functions 'function sli_upper in base/upper.c has 61 lines'

put base/again.c 'int sli_upper(int way) { return way; }'
fails doubles 'sli_upper is defined in base/again.c and base/upper.c'

put base/upper.c '#include "base/status.h"' 'int sli_upper(int way) {' '  return way == SLI_THERE;' '}'
fails enumerators 'SLI_THERE of base/status.h is given to nothing'

put base/room/room.h 'int sli_lower(int way);' 'int sli_idle(void);'
put base/room/idle.c 'int sli_idle(void) { return 0; }'
fails exports 'sli_idle of base/room/room.h is called from no other file'

put base/more.c 'int sli_more;'
fails tree 'docs/tree.md has 0 lines for base/more.c'
rm "$work/base/upper.c"
fails tree 'docs/tree.md has a line for base/upper.c, which is not there'

put include/sluice/status.h 'typedef struct sl_gizmo { int code; } sl_gizmo;'
warns glossary 'sl_gizmo of include/sluice/status.h: the glossary has no "gizmo"'

put base/upper.c '/* It hurries. */' 'int sli_upper(int way) { return way; }'
fails words '"hurries"; say notifies'

put tests/test_idle.sh 'echo "skipped: there is no such thing"' 'exit 0'
fails skips 'tests/test_idle.sh:1: it says that it is skipped, and does not end with 77'
put tests/test_idle.c 'int main(void) {' '  return 77;' '}'
fails skips 'tests/test_idle.c:2: it is skipped and does not say why'
put tests/CMakeLists.txt 'add_test(NAME idle COMMAND idle)'
fails skips 'ctest counts what is skipped as passed'

put base/upper.c '__attribute__((no_sanitize("thread"))) int sli_upper(int way) { return way; }'
fails sanitizers 'base/upper.c:1 hides a function'

put notes.txt 'what somebody has left'
git init -q "$work" && git -C "$work" add notes.txt
fails root 'notes.txt lies in no folder'
rm -rf "$work/.git"

spdx='SPDX-License-Identifier: Apache-2.0'
licensed() { git init -q "$work" && git -C "$work" add "$1" && fails licences "$1: line $2 is not"; rm -rf "$work/.git"; }
put base/free.c "// $spdx"
licensed base/free.c 1
put tools/run '#!/bin/bash' 'exit 0'
licensed tools/run 2
put tools/free.py "# $spdx" && put tools/run '#!/bin/bash' "# $spdx"
git init -q "$work" && git -C "$work" add tools/free.py tools/run
check licences || fail "both name their licence"
rm -rf "$work/.git"
fresh

put tests/tree/exceptions.txt "$(printf 'files\tbase/upper.c\tis long')"
fails files 'exceptions.txt excuses base/upper.c, which needs none'
