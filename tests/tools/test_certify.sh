#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --certify writes the same file with any schedule, stages and processes, and for a resumed run.
# --recheck confirms that a run matches a file, or names the step and the tensor that differ.
# labels: outside
# needs: zeromq
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

model=(gpt --layers 3 --width 32 --heads 2 --context 32 --batch 8 --data "$reference/text.txt")
run=("$actorrun" --quiet --microbatches 4)

ends 0 "${run[@]}" --steps 5 --certify whole.jsonl "${model[@]}"
[[ $(wc -l <whole.jsonl) == 5 ]] || fail "a line for each step"
grep -q '"step": 5, "loss": "0x1\.' whole.jsonl || fail "the loss by its bits"
grep -q '"transformer.wte.weight:m": "' whole.jsonl || fail "hashes of the optimizer's state"

# Other plans produce the same file.
same() {
  ends 0 "${run[@]}" "$@" --steps 5 --certify other.jsonl --recheck whole.jsonl "${model[@]}"
  cmp -s whole.jsonl other.jsonl || fail "$*: another file"
}
same --stages 3 --schedule zb-h1
same --stages 2 --schedule gpipe --recompute full
same -n 2 --stages 2 "${patient[@]}"
same --workers 1

# A parameter sharded over two devices hashes like the whole parameter. With a learning rate of 0 it
# keeps its initial values.
ends 0 "${run[@]}" --steps 1 --certify one.jsonl "${model[@]}" --lr 0 --min-lr 0 --weight-decay 0
ends 0 "${run[@]}" --steps 1 --certify parts.jsonl --tensor 2 "${model[@]}" --lr 0 --min-lr 0 --weight-decay 0
parameters() { grep -o '"parameters": "[0-9a-f]*"' "$1"; }
[[ $(parameters one.jsonl) == $(parameters parts.jsonl) ]] || fail "parts hash to another sum"

# A run that resumes with other stages continues the file.
ends 0 "${run[@]}" --steps 2 --checkpoint kept --every 1 --certify again.jsonl "${model[@]}"
ends 0 "${run[@]}" --steps 5 --checkpoint kept --resume --stages 3 --certify again.jsonl --recheck whole.jsonl "${model[@]}"
cmp -s whole.jsonl again.jsonl || fail "a resumed run has another file"

# --recheck names the difference.
sed '3s|"transformer.h.1.ln_1.weight": "[0-9a-f]\{16\}"|"transformer.h.1.ln_1.weight": "0"|' whole.jsonl >changed.jsonl
cmp -s whole.jsonl changed.jsonl && fail "nothing was changed"
ends 2 "${run[@]}" --steps 5 --recheck changed.jsonl "${model[@]}"
says 'step 3: transformer.h.1.ln_1.weight differs from changed.jsonl, and 0 more of' err
ends 2 "${run[@]}" --steps 5 --seed 2 --recheck whole.jsonl "${model[@]}"
says 'step 1: transformer.h.0.attn.c_attn.bias differs from whole.jsonl' err
ends 2 "${run[@]}" --steps 6 --recheck whole.jsonl "${model[@]}"
says 'whole.jsonl: has no step 6' err
echo '{"step": 1' >torn.jsonl
ends 2 "${run[@]}" --steps 1 --recheck torn.jsonl "${model[@]}"
says 'torn.jsonl:1: not JSON' err
ends 2 "${run[@]}" --steps 1 --recheck absent.jsonl "${model[@]}"
says 'absent.jsonl' err
ends 2 "${run[@]}" --steps 1 --devices timed:1 --certify a.jsonl "${model[@]}"
says '--certify: timed devices hold no values' err
# A certificate that a full disk cut is an error, and so is one with a gap before the steps of a resumed run. A line
# that a killed run cut, and steps that a resumed run repeats, are replaced.
ln -s /dev/full full.jsonl
ends 1 "${run[@]}" --steps 2 --certify full.jsonl "${model[@]}"
says 'writing full.jsonl failed: No space left on device' err
ends 0 "${run[@]}" --steps 4 --checkpoint cut --every 2 --certify parts.jsonl "${model[@]}"
cp parts.jsonl all.jsonl
{ head -3 all.jsonl; tail -1 all.jsonl | head -c 50; } >parts.jsonl
rm -r cut/step-4
ends 0 "${run[@]}" --steps 4 --checkpoint cut --resume --every 2 --certify parts.jsonl "${model[@]}"
cmp parts.jsonl all.jsonl || fail "a resumed certificate differs"
head -1 all.jsonl >parts.jsonl
rm -r cut/step-4
ends 2 "${run[@]}" --steps 4 --checkpoint cut --resume --every 2 --certify parts.jsonl "${model[@]}"
says '--certify: parts.jsonl ends at step 1, but the run continues at step 3; name another file' err
ends 2 "${run[@]}" --steps 1 --certify no/such/folder.jsonl "${model[@]}"
says '--certify: cannot write no/such/folder.jsonl: No such file' err
echo "--certify: a run is the same step by step, or the difference is named"
