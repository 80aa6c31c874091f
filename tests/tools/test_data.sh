#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Data on the command line: types, several files, folders, shuffling. The losses equal those of the
# same tokens in one plain file.
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

model=(gpt --layers 2 --width 16 --heads 2 --context 16 --batch 4 --vocab 256)
run() { # REPORT WORDS...
  local report=$1
  shift
  ends 0 "$actorrun" --steps 6 --microbatches 2 --quiet --report "$report" "$@"
}
same() { cmp -s <(hexes "$1") <(hexes "$2") || fail "$2 has other losses than $1"; }
differ() { ! cmp -s <(hexes "$1") <(hexes "$2") || fail "$2 has the losses of $1"; }

python3 - "$reference/tokens.u16" <<'END'
import struct, sys
raw = open(sys.argv[1], "rb").read()
ids = struct.unpack("<%dH" % (len(raw) // 2), raw)
wide = struct.pack("<%dI" % len(ids), *ids)
open("t.u16", "wb").write(raw)
for name in "t.u32", "t.bin", "t.dat":
    open(name, "wb").write(wide)
text = "{'descr': '<i4', 'fortran_order': False, 'shape': (%d,), }" % len(ids)
text += " " * (-(len(text) + 11) % 64) + "\n"
open("t.npy", "wb").write(b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode() + wide)
half = len(ids) // 2 + 5
import os
os.mkdir("parts")
open("parts/1.u16", "wb").write(raw[:2 * half])
open("parts/2.u32", "wb").write(wide[4 * half:])
END

run plain "${model[@]}" --data t.u16
for data in t.u32 t.npy t.bin:u32 t.dat:u32 parts; do
  run other "${model[@]}" --data $data
  same plain other
done
run other "${model[@]}" --data parts/1.u16 --data parts/2.u32
same plain other
says '["parts/1.u16", "parts/2.u32"]' <(tr -s ' \t\n' ' ' <other | sed 's/\[ /[/; s/ \]/]/')

ends 2 "$actorrun" "${model[@]}" --data t.bin
says "t.bin: read as uint16 every second token is next to 0" err
ends 2 "$actorrun" "${model[@]}" --data t.dat
says "t.dat is not text, and its name does not say what it holds" err
ends 2 "$actorrun" "${model[@]}" --data t.u16 --data no.u16
says "no.u16: No such file" err

# Shuffling gives another order, which does not depend on how the work is sharded.
run shuffled --shuffle 3 "${model[@]}" --data t.u16
differ plain shuffled
run other --shuffle 4 "${model[@]}" --data t.u16
differ shuffled other
run other --shuffle 3 --stages 2 -n 2 "${patient[@]}" "${model[@]}" --data parts
same shuffled other
run other --shuffle 3 --pieces 2 --stages 2 "${model[@]}" --data t.u16
run pieces --pieces 2 --stages 2 "${model[@]}" --data t.u16
differ pieces other
run other --shuffle 3 --data-parallel 2 "${model[@]}" --data t.u16
python3 - shuffled other <<'END' || fail "with --data-parallel it is not the same order"
import json, sys
a, b = [[s["loss"] for s in json.load(open(p))["steps"]] for p in sys.argv[1:]]
sys.exit(max(abs(x - y) for x, y in zip(a, b)) > 1e-5)
END

# A resumed run keeps the order; another order is rejected.
run half --shuffle 3 --checkpoint c --steps 3 "${model[@]}" --data t.u16
run rest --shuffle 3 --checkpoint c --resume "${model[@]}" --data t.u16
cmp -s <(hexes shuffled) <(hexes half; hexes rest) || fail "resumed it is another order"
ends 2 "$actorrun" --microbatches 2 --steps 9 --checkpoint c --resume "${model[@]}" --data t.u16
says "cannot resume: --shuffle is 0, but c/step-6 was made with 3" err

# The run names a data file that changes while it reads, at the next checkpoint and at the end. A
# file that is only touched, or replaced by another file, is not an error. A truncated file is named
# as well.
cp t.u16 changing.u16
long=(--steps 100000 --microbatches 2 --quiet "${model[@]}" --data changing.u16)
begins() { # WORDS...: starts a run and waits for its first checkpoint
  rm -rf c
  background "$actorrun" --checkpoint c --every 20 "$@"
  for ((i = 0; i < 1000; i++)); do [[ ! -e c/latest ]] || break; sleep 0.01; done
}
ends_with() { # STATUS TEXT
  local got=0
  wait "$pid" || got=$?
  ((got == $1)) || fail "status $got, not $1"
  says "$2" err
}
begins "${long[@]}"
touch changing.u16
cp changing.u16 next.u16
mv next.u16 changing.u16
sleep 0.3
kill -0 "$pid" || fail "a file that is only touched ends the run"
kill -9 "$pid"
wait "$pid" 2>/dev/null || :
begins "${long[@]}"
printf '\1\0\1\0' | dd of=changing.u16 conv=notrunc bs=1 seek=64 2>/dev/null
ends_with 2 "changing.u16 has changed since the run began"
cp t.u16 changing.u16
if ! grep -q 'SLUICE_SANITIZE:[A-Z]*=.' "$SLUICE_BUILD/CMakeCache.txt"; then
  begins "${long[@]}"
  truncate -s 0 changing.u16
  got=0
  wait "$pid" || got=$?
  ((got == 1 || got == 2)) || fail "status $got of a run whose file was cut off"
  grep -q "bus error: changing.u16 was truncated\|changing.u16 has become shorter" err || fail "a file that was cut off is not named"
fi
