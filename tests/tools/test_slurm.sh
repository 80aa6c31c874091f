#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Under a real Slurm of two nodes, `srun -N2 -n4 actorrun ...` is one job of four processes. They
# agree on their numbers, the meeting point and the key, and the losses equal those of one process.
# labels: outside
# needs: zeromq
set -euo pipefail
source "$SLUICE_SOURCE/tests/support/slurm.sh"
slurm_enter "$@"

# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
trap 'slurm_stop; end_test' EXIT

slurm_start "$work/slurm" || fail "Slurm does not start"
run=(timeout 60)
seen=$SLUICE_BUILD/tests/cluster_seen

"${run[@]}" srun -N2 -n4 "$seen" >"$work/seen" || fail "srun: $(cat "$work/seen")"
sort -o "$work/seen" "$work/seen"
cat "$work/seen"
for process in 0 1 2 3; do
  grep -q "^process $process of 4, .* endpoint n1:2[0-9]*, job slurm-1.0, .* starter Slurm's srun$" \
    "$work/seen" || fail "process $process is missing"
done
[[ $(grep -o 'endpoint.*' "$work/seen" | sort -u | wc -l) == 1 ]] || fail "they do not agree"
[[ $(grep -c 'local 0 of' "$work/seen") == 2 ]] || fail "two processes are their node's first"
[[ $(stat -c %a "$work/.config/sluice/secret") == 600 ]] || fail "the secret is not private"

"${run[@]}" srun -n1 "$seen" | grep -q "^process 0 of 1, .* endpoint , " || fail "srun -n1"

cat >"$work/batch" <<END
#!/bin/bash
exec "$seen"
END
"${run[@]}" sbatch -Q -N2 -n4 -o "$work/batch.out" "$work/batch"
for _ in $(seq 100); do [[ -s $work/batch.out ]] && break; sleep 0.1; done
grep -q "^process 0 of 1, .* starter none$" "$work/batch.out" ||
  fail "a batch script is no step: $(cat "$work/batch.out")"

job=(--stages 4 --microbatches 4 --steps 5 --quiet "${patient[@]}")
model=(gpt --layers 4 --width 16 --heads 2 --context 16 --batch 8 --lr 1e-3
       --data "$reference/tokens.u16")
"$actorrun" "${job[@]}" --report "$work/one.json" "${model[@]}"
"${run[@]}" srun -N2 -n4 "$actorrun" "${job[@]}" --report "$work/four.json" "${model[@]}" ||
  fail "srun actorrun"
cmp <(hexes "$work/one.json") <(hexes "$work/four.json") || fail "the losses differ"

status=0
"${run[@]}" srun -N2 -n4 "$actorrun" --restarts 1 "${model[@]}" >"$work/out" 2>&1 || status=$?
((status == 2)) || fail "--restarts under srun: status $status"
grep -q "others of its job, and only it can restart them" "$work/out" || fail "$(cat "$work/out")"
