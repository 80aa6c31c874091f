#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Options in a file: --print-config writes a file that gives the same run, and the command line
# takes precedence over the file. An unknown key, a wrong type and invalid TOML are rejected with
# file, line and key.
# labels: unthreaded
# needs: zeromq libevent tomlplusplus
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

model=(--layers 2 --width 16 --heads 2 --context 16 --batch 4 --data "$reference/text.txt")
run() { ends 0 "$actorrun" "$@"; }
# same FILE WORDS...: a run from FILE has to have the plan and the losses of a run with WORDS.
same() {
  local file=$1
  shift
  rm -f a.json b.json
  run "$@" --quiet --report a.json
  run --config "$file" --report b.json
  hexes a.json >a
  hexes b.json >b
  [[ -s a ]] && cmp -s a b || fail "$file: other losses than those of $*"
  [[ $(grep -o '"plan":[^,]*' a.json | head -1) == "$(grep -o '"plan":[^,]*' b.json | head -1)" ]] || fail "$file: another plan"
}

# ---- round trips ---------------------------------------------------------------------------
words=(--steps 3 --stages 2 --microbatches 2 --quota act.b=2 --quota fwd=2 --seed 7 --look-ahead 0 --optimizer 'adamw:lr=1e-2' --quiet
       gpt "${model[@]}" --lr 0.00025 --clip 5e-1)
run --print-config "${words[@]}"
cp out c.toml
says 'quota = ["act.b=2", "fwd=2"]' out
says 'quiet = true' out
says 'steps = 3' out
says 'clip = 0.5' out
says 'name = "gpt"' out
run --config c.toml --print-config
cmp -s out c.toml || fail "a file that is read and printed is another"
same c.toml "${words[@]}"
run --print-config "--config=c.toml" --steps 4 gpt
says 'steps = 4' out
grep -q 'steps = 3' out && fail "the file goes before the command line"
run --print-config --config c.toml --quota act.b=3 --lr 0.5
says 'quota = "act.b=3"' out; says 'lr = 0.5' out; says 'clip = 0.5' out
run --print-config --prompt $'a "b" \\ c\td\ne\x01 \xc3\xa9' --generate 2 gpt "${model[@]}"
cp out odd.toml
run --config odd.toml --print-config
cmp -s out odd.toml || fail "odd letters read back as others"
ends 2 "$actorrun" --print-config --prompt $'\xff' gpt "${model[@]}"
says "--print-config" err
run --processes 2 "${patient[@]}" --config c.toml
for tool in actortune "actortune plan" actorserve; do
  [[ -x $bin/${tool%% *} ]] || continue
  # shellcheck disable=SC2086 # two words
  ends 0 "$bin/"$tool --print-config --stages 2 gpt --layers 2
  cp out t.toml
  # shellcheck disable=SC2086
  ends 0 "$bin/"$tool --config t.toml --print-config
  cmp -s out t.toml || fail "$tool: another file"
done

# ---- refusals ------------------------------------------------------------------------------
# refused TEXT LINES...: a file of these lines has to be rejected with TEXT.
refused() {
  printf '%s\n' "${@:2}" >bad.toml
  ends 2 "$actorrun" --config bad.toml --dry-run gpt "${model[@]}"
  says "$1" err
}
refused "bad.toml:2: stpes: unknown option; did you mean steps?" 'seed = 1' 'stpes = 3'
refused "bad.toml:1: steps: must be a whole number" 'steps = "3"'
refused "bad.toml:1: steps: must be a whole number" 'steps = 3.5'
refused "bad.toml:1: steps: must be a whole number" 'steps = [1, 2]'
refused "bad.toml:1: watchdog: must be a number" 'watchdog = true'
refused "bad.toml:3: quiet: must be true or false" '# a comment' '' 'quiet = 1'
refused "bad.toml:1: quota: must be a string, or an array of strings" 'quota = 2'
refused "bad.toml:1: quota: must be a string, or an array of strings" 'quota = ["a=1", 2]'
refused "bad.toml:1: steps: --steps -1: must be between" 'steps = -1'
refused "bad.toml:1: help: allowed only on the command line" 'help = true'
refused "bad.toml:1: config: allowed only on the command line" 'config = "x"'
refused "bad.toml:2: model.layer: unknown option; did you mean layers?" '[model]' 'layer = 2'
refused "bad.toml:2: model.layers: must be a whole number" '[model]' 'layers = "2"'
refused "bad.toml:2: model.name: must be a string" '[model]' 'name = 2'
refused "bad.toml:2: other.steps: unknown table; the only table is [model]" '[other]' 'steps = 2'
refused "bad.toml:1: steps: must be a whole number" 'steps = 2026-01-01'
refused "bad.toml:1: prompt: the string has a zero byte" 'prompt = "a\u0000b"'
refused "bad.toml:1: model.x: unknown option" '[model.x]' 'layers = 2'
refused "bad.toml:1: " 'steps = = 3'
refused "bad.toml:2: " 'steps = 3' 'steps = 4'
printf '[model]\nlayers = 2\n' >bad.toml
ends 2 "$actorrun" --config bad.toml
says "bad.toml:2: model.layers: unknown option, and no MODEL is named" err
ends 2 "$actorrun" --config none.toml gpt "${model[@]}"
says "--config none.toml: cannot open none.toml" err
ends 2 "$actorrun" --config c.toml --config c.toml
says "only one file is allowed, and c.toml was given first" err
ends 2 "$actorrun" --config
says "--config needs a value" err
