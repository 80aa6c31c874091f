#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Batch norm and its running statistics: losses, norms, statistics and weights match PyTorch for 1 and 4
# microbatches, and so does an evaluation, which reads the statistics. Every schedule, and a resumed run,
# saves the same file. Channels are sharded, rows are not.
# labels: numbers outside
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need python3
model=$SLUICE_SOURCE/tests/models/batch_norm.c

# compare.py GOT WANT: checks that two files have the same f32 tensors within 1e-6, behind headers of any length.
cat >compare.py <<'END'
import json, struct, sys
def load(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + n])
    head.pop("__metadata__", None)
    at = lambda v: raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]
    return {k: struct.unpack("<%df" % (len(at(v)) // 4), at(v)) for k, v in head.items()}
got, want = load(sys.argv[1]), load(sys.argv[2])
assert set(got) == set(want), sorted(set(got) ^ set(want))
for name in want:
    for a, b in zip(got[name], want[name]):
        assert abs(a - b) <= 1e-6 * (1 + abs(b)), "%s: %.9g, of PyTorch %.9g" % (name, a, b)
END

# train M OPTIONS...: trains 6 steps of M microbatches and saves f.safetensors.
train() {
  ends 0 "$actorrun" --steps 6 --microbatches "$1" --init "$reference/batch_norm_init.safetensors" \
    --save f.safetensors "${@:2}" "$model"
}

for m in 1 4; do
  train $m --eval-every 6
  python3 compare.py f.safetensors "$reference/batch_norm_$m.safetensors" || fail "$m microbatches: other numbers"
  awk -v m=$m '$1 == m && $2 == "step" { printf "%.4f %.3f\n", $5, $7 }' "$reference/batch_norm.txt" >want
  sed -n 's/^step .*loss \([0-9.]*\) .*norm \([0-9.]*\) .*/\1 \2/p' out >got
  cmp -s got want || fail "$m microbatches: losses and norms $(tr '\n' ' ' <got)"
  says "eval $(awk -v m=$m '$1 == m && $2 == "eval" { printf "%.4f", $3 }' "$reference/batch_norm.txt")" out
  mv f.safetensors "whole.$m"
done

for options in '--stages 2' '--stages 2 --schedule gpipe' '--stages 2 --schedule zb-h1' '--recompute full' \
               '--stages 2 --recompute full -n 2' '--workers 1'; do
  # shellcheck disable=SC2086
  train 4 "${patient[@]}" $options
  cmp -s f.safetensors whole.4 || fail "$options: other bits"
done

train 4 "${patient[@]}" --tensor 2
python3 compare.py f.safetensors "$reference/batch_norm_4.safetensors" || fail "channels shared out: other numbers"
ends 2 "$actorrun" --steps 1 --microbatches 2 --data-parallel 2 "$model"
says "batch_norm) has no rule for 2 data-parallel devices" err

ends 0 "$actorrun" --steps 3 --microbatches 4 --init "$reference/batch_norm_init.safetensors" --checkpoint c "$model"
ends 0 "$actorrun" --steps 6 --microbatches 4 --checkpoint c --resume --save f.safetensors "$model"
cmp -s f.safetensors whole.4 || fail "a resumed run has other bits"
