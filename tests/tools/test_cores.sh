#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Devices that share one core: run, report and trace state it, so that the reader does not look for
# a schedule that explains the bubble. On the virtual clock no device waits for a core.
# labels: outside
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

grep -q . /proc/self/schedstat 2>/dev/null || skip "the system does not say who waits for a core"
core=$(taskset -pc $$ | sed 's/.*[ ,-]//')
gpt=(gpt --data "$reference/tokens.u16" --layers 4 --width 64 --heads 4 --context 64 --batch 8)
ends 0 taskset -c "$core" "$actorrun" --stages 4 --microbatches 8 --steps 10 --report r.json \
  --trace r.trace "${gpt[@]}"
says "no core to run on" out
coreless=$(sed -n 's/.*"coreless_seconds":[^0-9]*\([0-9.e-]*\).*/\1/p' r.json)
awk -v s="$coreless" 'BEGIN { exit !(s > 0) }' || fail "the report has coreless_seconds of '$coreless'"
ends 0 "$bin/actortrace" show r.trace
says "Devices had no core to run on" out

ends 0 "$actorrun" --devices timed:4 --clock virtual --stages 4 --microbatches 8 --steps 10 \
  --trace v.trace "${gpt[@]}"
grep -q "no core" out && fail "on the virtual clock somebody waited for a core"
ends 0 "$bin/actortrace" show v.trace
grep -q "had no core to" out && fail "a trace of the virtual clock speaks of cores"

# A trace without its end still shows everything else.
head -c $(($(stat -c %s r.trace) - 8)) r.trace >cut.trace
ends 0 "$bin/actortrace" show cut.trace
says "is truncated" err
says "Where the time went" out
