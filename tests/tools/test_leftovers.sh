#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Jobs and launchers that are killed at any moment leave nothing behind for long. The next job
# removes leftover shared memory, folders of models being compiled, and sockets, but nothing that
# belongs to a running job.
# labels: outside
# needs: zeromq
set -euo pipefail
if [[ ! ${SLUICE_LEFTOVERS_INSIDE-} ]]; then
  unshare -m true 2>/dev/null || { echo "skipped: no /dev/shm of its own can be made"; exit 77; }
  SLUICE_LEFTOVERS_INSIDE=1 exec unshare -m bash "$0" "$@"
fi
mount -t tmpfs -o mode=1777 none /dev/shm
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

draw "$@"
RANDOM=$seed
cat >model.c <<'END'
#include <sluice/sluice.h>
static const sl_option options[] = {{"data", SL_OPTION_TEXT, NULL, "`FILE` to learn", 0, 0}, {0}};
static sl_status build(sl_graph *g, const sl_args *args) {
  sl_tensor *next, *ids = sl_tokens(g, sl_arg_text(args, "data"), sl_microbatch_rows(g, 8), 16, 256, &next);
  sl_tensor *table = sl_param(g, SL_TYPE(SL_F32, 256, 8), SL_NORMAL(0.02f), "table");
  sl_tensor *head = sl_param(g, SL_TYPE(SL_F32, 256, 8), SL_NORMAL(0.02f), "head");
  sl_tensor *x = sl_embedding(g, ids, table);
  sl_train(g, sl_cross_entropy(g, sl_linear(g, x, head, NULL), next), &(sl_optimizer){.lr = 1e-3f});
  return sl_graph_status(g);
}
SL_MODEL(bigram, "the next byte from this one", options, build);
END
model=(gpt --layers 4 --width 16 --heads 2 --context 16 --batch 8 --data "$reference/tokens.u16")
job=("$actorrun" -n 3 --stages 4 --microbatches 4 --steps 100000 --quiet "${patient[@]}" "${model[@]}")
left() { find /dev/shm "$work" -mindepth 1 \( -name 'sluice-*' -o -name '*shm*' -o -type s \) ! -name "sluice-$(id -u)"; }

# A job that runs throughout the test.
"${job[@]}" >lives 2>&1 &
lives=$!
to_end+=("$lives")
for _ in $(seq 2400); do [[ $(left | grep -c '/sluice-[0-9]*/[0-9]*$') == 3 ]] && break; sleep 0.05; done
left | sort >living
[[ $(grep -c /dev/shm/sluice-scratch living) == 3 && $(grep -c ucx living) == 0 ]] || fail "not a folder for each process: $(cat living)"

for i in $(seq 24); do
  if ((i % 3)); then
    VICTIM=$work "${job[@]}" >/dev/null 2>&1 &
  else
    VICTIM=$work "$actorrun" --dry-run "$work/model.c" --data "$reference/tokens.u16" >/dev/null 2>&1 &
  fi
  victim=$!
  sleep "0.$(printf %03d $((10 + RANDOM % 250)))"
  kill -9 "$victim" 2>/dev/null || : # it may have ended
  wait "$victim" 2>/dev/null || :
done
# Child processes, such as compilers, end with the job or shortly after. They lock their folder
# until they end.
strays() {
  local path
  ! grep -qsz "^VICTIM=$work\$" /proc/[0-9]*/environ || return 0
  for path in $(left | sort | comm -23 - living); do
    [[ ! -e $path/lock ]] || flock -n "$path/lock" true || return 0
    [[ ! -S $path ]] || ! kill -0 "${path##*/}" 2>/dev/null || return 0
  done
  return 1
}
for _ in $(seq 2400); do strays || break; sleep 0.05; done
strays && fail "still running: $(left)"
echo "left behind: $(($(left | wc -l) - $(wc -l <living)))"

ends 0 "$actorrun" -n 2 --stages 2 --steps 2 --quiet "${model[@]}"
ends 0 "$actorrun" --dry-run "$work/model.c" --data "$reference/tokens.u16"
for _ in $(seq 1200); do left | sort | cmp -s - living && break; sleep 0.05; done
left | sort >now
cmp -s now living || fail "left behind, or taken from who lives: $(diff now living; cat lives)"
kill -0 "$lives" || fail "who lives was disturbed: $(cat lives)"
kill "$lives"
wait "$lives" || :
[[ -z $(left) ]] || fail "left behind at the end: $(left)"
