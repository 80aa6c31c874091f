# SPDX-License-Identifier: Apache-2.0
# Tests actortrace as a user meets it: pictures, tables, reproducible exports, and error messages
# for damaged files.
# labels: unthreaded first
set -u
# shellcheck source=tests/support/traces.sh
source "$SLUICE_SOURCE/tests/support/traces.sh"

refused() {
  local status=$1 text=$2
  shift 2
  trace "$status" "$@"
  says "$text" err
}

traces_make

# ---- words ---------------------------------------------------------------------------
trace 0 --version
says "actortrace " out
trace 0 --help
for command in show page svg rows reasons chrome perfetto diff; do says "  $command" out; done
refused 2 "no command was given"
refused 2 "unknown command shwo" shwo a.trace
refused 2 "actortrace show takes one FILE" show
refused 2 "actortrace diff takes two FILEs" diff a.trace
refused 2 "one file too many" rows a.trace b.trace c.trace
refused 2 "unknown option --stp" rows --stp 3 a.trace
refused 2 "--step x: not a number" rows --step x a.trace
refused 2 "step 9 is not in a.trace, which has 0 to 2" show --step 9 a.trace
refused 2 "--device 4: a.trace has 4 devices" rows --device 4 a.trace
refused 2 "cannot open none.trace" show none.trace
refused 1 "no/such" page a.trace -o no/such/page.html

# ---- show -----------------------------------------------------------------------------
escape=$(printf '\033')
for width in 60 100 173; do
  trace 0 show --width $width a.trace
  picture=$(sed -n '/^timed:/p' out | head -4 | LC_ALL=C.UTF-8 wc -L)
  [ "$picture" -eq "$width" ] || fail "the picture is $picture columns wide, not $width"
done
for width in 80 120; do
  for t in a b v; do
    trace 0 show --width $width $t.trace
    widest=$(LC_ALL=C.UTF-8 wc -L <out)
    [ "$widest" -le "$width" ] || fail "show --width $width $t.trace has a line of $widest columns"
  done
done
trace 0 show a.trace
grep -q "$escape" out && fail "colours go to a terminal only"
says "Where the time went" out; says "critical path" out; says "One more slot would save" out
trace 0 show --color --queues --device 1 --step 2 a.trace
grep -q "$escape\[48;5;25;38;5;231mF0" out || fail "forward is blue"
says "Step 2," out
grep -q "^timed:0" out && fail "--device shows one device"
trace 0 show v.trace

# ---- tables -----------------------------------------------------------------------------
for t in a b v; do
  trace 0 reasons $t.trace
  awk -F'\t' 'NR == 1 { next } $3 == "span" { span[$1, $2] = $7; next } { sum[$1, $2] += $7 }
    END { for (k in span) { n++; if (sum[k] != span[k]) exit 1 } exit n != 12 }' out ||
    fail "busy and idle times add up to the span"
done
trace 0 rows --step 1 --device 2 a.trace
awk -F'\t' 'NR > 1 && ($1 != 1 || $2 != 2) { exit 1 } END { exit NR < 17 }' out || fail "rows are chosen"
# An actor that waits for a slot of a shared pool waits for a credit, not for the device.
"$actorrun" --quiet --data-parallel 4 --microbatches 4 --shard parameters --devices timed:4 \
  --clock virtual --steps 3 --trace lanes.trace llama --data "$reference/text.txt" --layers 2 \
  --width 32 --heads 2 --context 16 --batch 16 >out 2>err || fail "a run with lanes"
trace 0 reasons lanes.trace
awk -F'\t' '$1 == 1 && $3 == "credit" && $4 ~ /^reduce/ { n++ } $1 == 1 && $3 == "device" { exit 1 }
  END { exit !n }' out || fail "credits of lanes are seen"
trace 0 diff a.trace b.trace
says "the plans differ" out; says "send:fwd@0>1" out; says "By device" out
trace 0 diff a.trace a.trace
[ "$(grep -c '^the same$' out)" -eq 3 ] || fail "nothing differs from itself"

# ---- a truncated file is shown up to where it ends ------------------------------------
head -c $(($(stat -c %s a.trace) * 3 / 4)) a.trace >cut.trace
trace 0 show cut.trace
says "cut.trace is truncated" err
says "timed:3" out
head -c 90 a.trace >cut.trace
refused 2 "cut.trace is truncated" show cut.trace

# ---- crafted traces ---------------------------------------------------------------------
# Traces without firings, with escape sequences in names, and with far more microbatches or pieces
# per step than there are firings.
python3 - a.trace none.trace names.trace microbatches.trace pieces.trace <<'END'
import struct, sys
PRIME, BASIS, MASK = 1099511628211, 14695981039346656037, (1 << 64) - 1
def fnv(data):
    value = BASIS
    for byte in data:
        value = ((value ^ byte) * PRIME) & MASK
    return value
def write(path, data):
    sections, size = struct.unpack_from("<II", data, 16)
    for i in range(sections):
        item, count, offset = struct.unpack_from("<IQQ", data, 64 + i * size + 4)
        struct.pack_into("<Q", data, 64 + i * size + 24, fnv(data[offset:offset + item * count]))
    struct.pack_into("<I", data, 44, 0)
    struct.pack_into("<I", data, 44, fnv(data[:64 + sections * size]) & 0xffffffff)
    open(path, "wb").write(data)
good = open(sys.argv[1], "rb").read()
none = bytearray(good)
struct.pack_into("<Q", none, 64 + 11 * 32 + 8, 0)
write(sys.argv[2], none)
for path, at, count in (sys.argv[4], 36, 1 << 24), (sys.argv[5], 40, (1 << 31) - 1):
    many = bytearray(good)
    struct.pack_into("<I", many, at, count)
    write(path, many)
write(sys.argv[3], bytearray(good.replace(b"F0\0", b"\x1b]\0").replace(b"bwd@", b"\x1bwd@")))
END
if [ -s names.trace ]; then
  trace 0 diff none.trace none.trace
  trace 0 diff none.trace a.trace
  refused 2 "none.trace has no firings to show" show none.trace
  for many in microbatches pieces; do
    for command in show page diff; do
      timeout 30 "$bin/actortrace" $command $many.trace \
        $([ $command = diff ] && echo a.trace) >out 2>err
      status=$?
      [ $status -eq 0 ] || [ $status -eq 2 ] || fail "$command of many $many: status $status"
    done
  done
  for command in show rows reasons diff; do
    trace 0 $command names.trace $([ $command = diff ] && echo a.trace)
    grep -q "$escape" out err && fail "$command: a name reaches the terminal as it is"
    grep -qF 'x1b' out || fail "$command shows names"
  done
else
  skip "made-up traces are not shown: there is no python3"
fi

# ---- exports ---------------------------------------------------------------------------
for kind in page svg chrome perfetto; do
  for t in a b v; do
    trace 0 $kind $t.trace -o $t.$kind
    [ -s out ] && fail "-o FILE leaves the standard output alone"
    trace 0 $kind $t.trace
    cmp -s out $t.$kind || fail "$kind is the same each time"
  done
done
grep -qE 'https?://' a.page && fail "the page asks nobody for anything"
echo "all as it should be"
