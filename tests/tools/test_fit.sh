#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --schedule auto finds a plan whenever one of its schedules fits with the fewest possible slots,
# and reports its choice. If none fits, it reports how much memory the smallest plan needs and which
# options would fit. Without a budget, a plan has to fit into the memory of the host.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

model=(gpt --layers 4 --width 128 --heads 4 --context 64 --batch 16 --data "$reference/text.txt")
least=(--stages 4 --microbatches 8 --schedule gpipe --quota act.b=1)
auto=(--stages 4 --microbatches 8 --schedule auto)

# ---- a plan that fits is found -----------------------------------------------------------
ends 0 "$actorrun" "${least[@]}" --memory 5.2M --steps 1 "${model[@]}"
ends 0 "$actorrun" "${auto[@]}" --memory 5.2M --steps 1 --report r.json "${model[@]}"
grep -qE '^schedule auto \([a-z0-9-]+\): .*act\.b@0=1 .*act\.b@3=1 ' out || fail "what was chosen is not said"
grep -qE '"schedule":[[:space:]]*"auto \(' r.json || fail "nor in the report"
ends 0 "$actorrun" "${auto[@]}" --memory 5.6M --steps 1 -n 2 "${patient[@]}" "${model[@]}"
[[ $(grep -c '^schedule auto' out) == 1 ]] || fail "one process says it"

# ---- otherwise the error states the memory needed -------------------------------------------
ends 3 "$actorrun" "${auto[@]}" --memory 4.5M --dry-run "${model[@]}"
grep -qE 'no schedule of 4 devices fits in 4\.5 MiB per device: .* needs 5\.[0-9] MiB;' err ||
  fail "not how much is needed"
grep -qE 'these would fit: --schedule 1f1b --quota act=1 --' err || fail "no remedy"
what=$(grep -oE -- '--schedule 1f1b --quota act=1 (--recompute [a-z]+|--microbatches [0-9]+)' err | head -1)
# shellcheck disable=SC2086
ends 0 "$actorrun" --stages 4 --microbatches 8 $what --memory 4.5M --dry-run "${model[@]}"

# ---- activations can be offloaded ---------------------------------------------------------
deep=(gpt --layers 8 --width 64 --heads 4 --context 64 --batch 4 --data "$reference/text.txt")
ends 3 "$actorrun" --memory 12M --dry-run "${deep[@]}"
grep -qE -- '--home act=disk \(1[01]\.[0-9] MiB, and [0-9.]+ MiB of disk\)' err || fail "not to disk: $(cat err)"
ends 0 "$actorrun" --memory 12M --home act=disk --dry-run "${deep[@]}"
ends 3 "$actorrun" --memory 12M --home act=disk --disk .:4M --dry-run "${deep[@]}"
says "on disk (--disk DIR:SIZE) but its budget is 4.0 MiB" err
grep -qE 'these would fit: --recompute [a-z]+ \([0-9.]+ MiB, and [0-9.]+ [KM]iB of disk\)' err ||
  fail "not what is less on disk"
grep -qF -- '--home act' <(grep -o 'would fit.*' err) && fail "what is there already is no remedy"
ends 3 "$actorrun" --memory 12M --devices timed:1 --dry-run "${deep[@]}"
grep -qE -- '--home act=host \([0-9.]+ MiB, and [0-9.]+ MiB of host\)' err || fail "not to the host: $(cat err)"
ends 3 "$actorrun" --memory 12M --grain pass --dry-run "${deep[@]}"
grep -qF -- '--home' err && fail "passes are not blocks"
# So can the optimizer state.
light=(gpt --layers 8 --width 64 --heads 4 --context 8 --batch 1 --data "$reference/text.txt")
ends 3 "$actorrun" --memory 5.4M --dry-run "${light[@]}"
grep -qE 'these would fit: .*--home state=disk \([0-9.]+ MiB, and [0-9.]+ MiB of disk\)' err ||
  fail "not the state to disk: $(cat err)"
ends 0 "$actorrun" --memory 5.4M --home state=disk --dry-run "${light[@]}"
# If durations are known, the error gives the step time as well.
modelled=(--devices timed:1 --clock virtual --machine h100-sxm-80gb)
ends 3 "$actorrun" --memory 12M "${modelled[@]}" --dry-run "${deep[@]}"
grep -qE -- '--home act=host \([0-9.]+ MiB, and [0-9.]+ MiB of host; [0-9.]+ [mu]s a step\)' err ||
  fail "not how long it takes: $(cat err)"
said=$(grep -oE -- '--recompute full \([^)]*\)' err | grep -oE '[0-9.]+ [mu]s')
ends 0 "$actorrun" "${modelled[@]}" --recompute full --dry-run "${deep[@]}"
says "a step takes $said " out
python3 - "$SLUICE_SOURCE/machines/h100-sxm-80gb.json" >unknown.json <<'PY'
import json, sys
print(json.dumps({k: v for k, v in json.load(open(sys.argv[1])).items() if not k.startswith("copy_")}))
PY
ends 3 "$actorrun" --memory 12M --devices timed:1 --clock virtual --machine unknown.json --dry-run "${deep[@]}"
grep -qE -- '--home act=host \([0-9.]+ MiB, and [0-9.]+ MiB of host\)' err || fail "what nobody knows is said: $(cat err)"
# Several remedies together, if none alone suffices.
ends 3 "$actorrun" --memory 5M --dry-run --data-parallel 2 --microbatches 2 gpt --layers 16 --width 32 \
  --heads 4 --context 256 --batch 4 --data "$reference/text.txt"
grep -qE 'would fit: --recompute full --home act=disk (--shard parameters )?\([0-9.]+ MiB, and [0-9.]+ [KM]iB of disk\)' err ||
  fail "not all together: $(cat err)"

# ---- the host ----------------------------------------------------------------------------------
huge=(gpt --layers 96 --width 12288 --heads 96 --context 2048 --batch 512 --vocab 50257
      --data "$reference/text.txt")
for what in --dry-run "--steps 1"; do
  # shellcheck disable=SC2086
  ends 3 "$actorrun" $what "${huge[@]}"
  grep -qE 'the plan needs [0-9.]+ TiB but this host has [0-9.]+ [GT]iB .*; (these would fit|the smallest plan tried is)' err ||
    fail "no numbers: $(cat err)"
done
ends 3 "$actorrun" --stages 4 --microbatches 8 --dry-run "${huge[@]}"
says "the plan's 4 devices on this host need" err
ends 0 "$actorrun" --stages 4 --microbatches 8 --memory 100T --dry-run "${huge[@]}"
ends 0 "$actorrun" --stages 4 --microbatches 8 --clock virtual --dry-run "${huge[@]}"
ends 0 "$actorrun" --devices timed:4 --stages 4 --microbatches 8 --dry-run "${huge[@]}"
