#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Block-sparse attention in llama and hybrid: with a share of 1 the losses equal those of full
# attention, bit for bit. With less the model learns, evaluations report the recall, and grids that
# shard data, heads and positions give the same bits. Options and servers that do not support it are
# rejected.
# labels: outside
# needs: zeromq
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

data=$reference/text.txt
size=(--layers 2 --width 32 --heads 4 --kv-heads 2 --context 320 --batch 4 --data "$data")
run=("$actorrun" --quiet --exact --steps 3)

# All blocks.
for model in llama hybrid; do
  ends 0 "${run[@]}" --report plain.json $model "${size[@]}"
  ends 0 "${run[@]}" --report all.json $model "${size[@]}" --attend-blocks 1
  python3 - <<'END_OF_PYTHON' || fail "$model: --attend-blocks 1 has other losses"
import json
plain, blocks = ([s["loss"] for s in json.load(open(f))["steps"]] for f in ("plain.json", "all.json"))
assert plain == blocks and len(plain) == 3, (plain, blocks)
END_OF_PYTHON
done

# Few blocks, on grids of devices.
few=(llama "${size[@]}" --attend-blocks 0.5 --exact-leaf 32)
ends 0 "${run[@]}" --certify one.jsonl "${few[@]}"
for grid in "--stages 2 --microbatches 2 --schedule zb-h1" "--tensor 2 --data-parallel 2" "--sequence 2" "--recompute full"; do
  # shellcheck disable=SC2086
  ends 0 "${run[@]}" $grid "${patient[@]}" --recheck one.jsonl "${few[@]}"
done

ends 0 "$actorrun" --quiet --steps 20 --lr 1e-2 --warmup 0 --report r.json --eval "$data" --eval-every 20 --eval-rows 4 \
  --save w.safetensors llama "${size[@]}" --attend-blocks 0.5
python3 - <<'END_OF_PYTHON' || fail "it learns nothing, or tells no recall"
import json
r = json.load(open("r.json"))
assert r["steps"][-1]["loss"] < r["steps"][0]["loss"] - 1, r["steps"]
recall = [e["metrics"]["attention recall"] for e in r["evaluations"]]
assert recall and all(0.3 < x < 1 for x in recall), recall
END_OF_PYTHON

ends 2 "${run[@]}" "${few[@]}" --document-end 0
says 'llama: --attend-blocks chooses among all earlier tokens: cannot be combined with --document-end' err
ends 2 "${run[@]}" "${few[@]}" --window 64
says 'combined with --window' err
ends 2 "${run[@]}" --pieces 2 "${few[@]}"
says 'choose_blocks' err
ends 2 "$bin/actorserve" --port 0 --init w.safetensors "${few[@]:0:11}" --attend-blocks 0.5
says 'choose_blocks' err
echo "blocks: all are plain attention, few learn"
