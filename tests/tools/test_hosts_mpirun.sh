#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A job over two hosts with a network between them, started by Open MPI. All processes agree on
# their numbers, the meeting point and the key, and the losses equal those of one process.
# labels: outside
# needs: zeromq
set -euo pipefail
source "$SLUICE_SOURCE/tests/support/hosts.sh"
type -P mpirun >/dev/null || { echo "skipped: mpirun is not installed"; exit 77; }
hosts_enter "$@"

# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
hosts_start 200 1000 || fail "the hosts do not come up"

job=(--stages 4 --microbatches 4 --steps 5 "${patient[@]}")
model=(gpt --layers 4 --width 16 --heads 2 --context 16 --batch 8 --lr 1e-3
       --data "$reference/tokens.u16")
"$actorrun" "${job[@]}" --quiet --report "$work/one.json" "${model[@]}"

# Reaches the other host in place of ssh.
cat >"$work/agent" <<END
#!/bin/bash
source "$SLUICE_SOURCE/tests/support/hosts.sh"
host=\$1
shift
on "\$host" bash -c "\$*"
END
chmod +x "$work/agent"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rtc=^hwloc
export OMPI_MCA_plm_rsh_agent=$work/agent OMPI_MCA_hwloc_base_binding_policy=none
export PRTE_MCA_plm_ssh_agent=$work/agent PRTE_MCA_hwloc_default_binding_policy=none # Open MPI 5
run=(timeout 60 mpirun -n 4 --host hosta:2,hostb:2)
on hosta "${run[@]}" "$SLUICE_BUILD/tests/cluster_seen" >"$work/seen" || fail "mpirun"
[[ $(grep -c "of 4, local . of 2, endpoint hosta:.*starter Open MPI's mpirun$" "$work/seen") == 4 &&
  $(grep -o 'endpoint.*' "$work/seen" | sort -u | wc -l) == 1 ]] || fail "mpirun: $(cat "$work/seen")"
on hosta "${run[@]}" "$actorrun" "${job[@]}" --quiet --report "$work/mpi.json" "${model[@]}" ||
  fail "mpirun actorrun"
cmp <(hexes "$work/one.json") <(hexes "$work/mpi.json") || fail "mpirun: the losses differ"
