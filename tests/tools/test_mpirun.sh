#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `mpirun -n 4 actorrun ...` with the real Open MPI is one job of four processes. They agree on
# their numbers, the meeting point and the key, and the losses equal those of one process.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need mpirun
mpirun --version 2>/dev/null | grep -q "Open MPI" || skip "mpirun is not Open MPI's"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Open MPI 4, and Open MPI 5, whose launcher PRRTE has other names for these settings.
export OMPI_MCA_rmaps_base_oversubscribe=1

run=(timeout 60 env PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe)
seen=$SLUICE_BUILD/tests/cluster_seen
"${run[@]}" mpirun -n 4 "$seen" >"$work/seen" || fail "mpirun"
sort -o "$work/seen" "$work/seen"
cat "$work/seen"
for process in 0 1 2 3; do
  grep -q "^process $process of 4, local $process of 4, endpoint 127.0.0.1:.* mpirun$" \
    "$work/seen" || fail "process $process is missing"
done
[[ $(grep -o 'endpoint.*' "$work/seen" | sort -u | wc -l) == 1 ]] || fail "they do not agree"
"${run[@]}" mpirun -n 1 "$seen" | grep -q "^process 0 of 1, .* endpoint , " || fail "mpirun -n 1"

# Simulates a second host: an agent that mpirun runs instead of ssh stays on this host.
cat >"$work/agent" <<'END'
#!/bin/bash
shift
exec bash -c "$*"
END
chmod +x "$work/agent"
host=$(uname -n)
OMPI_MCA_plm_rsh_agent=$work/agent PRTE_MCA_plm_ssh_agent=$work/agent OMPI_MCA_rtc=^hwloc \
  timeout 60 mpirun -n 4 --host "$host:2,elsewhere:2" "$seen" >"$work/seen" ||
  fail "mpirun on two hosts"
[[ $(grep -c "endpoint ${host%%.*}[^ ]*:[23].*starter Open MPI's mpirun$" "$work/seen") == 4 ]] ||
  fail "two hosts: $(cat "$work/seen")"

# Processes that mpirun has not bound divide the cores.
cores() { sed -n 's/^machine: \([0-9]*\) core.*/\1/p'; }
all=$("$actorrun" --show-placement | cores)
OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none "${run[@]}" mpirun -n 2 "$actorrun" --show-placement |
  cores >"$work/cores"
while read -r some; do
  ((some <= (all + 1) / 2)) || fail "of $all cores two processes have $some each"
done <"$work/cores"
[[ $(grep -c . "$work/cores") == 2 ]] || fail "no placement"

job=(--stages 4 --microbatches 4 --steps 5 --quiet "${patient[@]}")
model=(gpt --layers 4 --width 16 --heads 2 --context 16 --batch 8 --lr 1e-3
       --data "$reference/tokens.u16")
"$actorrun" "${job[@]}" --report "$work/one.json" "${model[@]}"
"${run[@]}" mpirun -n 4 "$actorrun" "${job[@]}" --report "$work/four.json" "${model[@]}" ||
  fail "mpirun actorrun"
cmp <(hexes "$work/one.json") <(hexes "$work/four.json") || fail "the losses differ"
