#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Inside an allocation of a real Slurm of two nodes, mpirun's variables take precedence over Slurm's.
# Open MPI 5 does not say which node process 0 runs on, so the test passes the endpoint to its
# processes.
# labels: outside
# needs: zeromq
set -euo pipefail
source "$SLUICE_SOURCE/tests/support/slurm.sh"
type -P mpirun >/dev/null || { echo "skipped: mpirun is not installed"; exit 77; }
slurm_enter "$@"

# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
trap 'slurm_stop; end_test' EXIT

slurm_start "$work/slurm" || fail "Slurm does not start"
seen=$SLUICE_BUILD/tests/cluster_seen
# Two Open MPI daemons on one machine can interfere with each other (rtc).
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rtc=^hwloc
export PRTE_MCA_hwloc_default_binding_policy=none # Open MPI 5
told=()
if [[ $(mpirun --version) == *"Open MPI) 5."* ]]; then
  ! timeout 60 salloc -Q -N2 -n4 mpirun -n 4 "$seen" >"$work/seen" 2>"$work/err" || fail "process 0 is not misplaced"
  grep -q "process 0 does not run on the job's first host, .*SLUICE_ENDPOINT=HOST:PORT.*(Open MPI's mpirun)$" \
    "$work/err" || fail "mpirun in salloc: $(<"$work/err")"
  told=(-x SLUICE_ENDPOINT=n1:23456)
fi
timeout 60 salloc -Q -N2 -n4 mpirun "${told[@]}" -n 4 "$seen" >"$work/seen" || fail "mpirun in salloc"
[[ $(grep -c "of 4, local . of ., endpoint n1:[23].*starter Open MPI's mpirun$" "$work/seen") == 4 ]] ||
  fail "mpirun in salloc: $(cat "$work/seen")"
