#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Man pages list every option and render. Completion knows the options, their values, commands and
# models.
# labels: unthreaded
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

share=$SLUICE_BUILD/share
tools=(actorrun actortrace actortune)
[[ ! -x $bin/actorserve ]] || tools+=(actorserve)
options() { sed -n 's/^  --\([a-z0-9-]*\).*/\1/p' "$1"; }

# ---- man pages ---------------------------------------------------------------------------
for tool in "${tools[@]}"; do
  page=$share/man/man1/$tool.1
  [[ -s $page ]] || fail "$page is not there"
  for section in NAME SYNOPSIS DESCRIPTION; do
    grep -qx "[.]SH $section" "$page" || fail "$page: no section $section"
  done
  all=(all)
  [[ $tool != actortrace ]] || all=()
  ends 0 "$bin/$tool" --help "${all[@]}"
  options out >names
  (($(wc -l <names) > 8)) || fail "$tool --help: only $(wc -l <names) options"
  while read -r name; do
    grep -q "^[.]BI .-.-${name//-/.-}\b" <(tr '\\' . <"$page") || fail "$page: --$name is not there"
  done <names
  ! grep -n '^[.'\'']' "$page" | grep -vE '^[0-9]+:[.](TH|SH|SS|TP|BI?|nf|fi|ad|nh)\b' || fail "$page: text that roff takes for a request"
  if type -P groff >/dev/null; then
    ends 0 groff -man -Tutf8 -ww -W break "$page"
    [[ ! -s err ]] || fail "$page: groff says so"
    says "$tool" out
  fi
done
for command in PLAN MACHINE SERVE; do
  grep -qx "[.]SH \"ACTORTUNE $command\"" "$share/man/man1/actortune.1" || fail "actortune.1: no section of $command"
done

for command in STATUS CTL; do
  sed "1,/^[.]SH \"ACTORRUN $command\"/d" "$share/man/man1/actorrun.1" >section
  [[ -s section ]] || fail "actorrun.1: no section of $command"
  grep -q 'help$' <(tr '\\' . <section) || fail "actorrun.1: $command has no options"
done
ends 0 "$bin/actorrun" status --help
says "--json" out
ends 0 "$bin/actorrun" ctl --help
says "trace [FILE | off]" out

# ---- completion ---------------------------------------------------------------------------
# complete WORDS...: writes the completions of the last word to `out`.
complete_words() {
  bash -c 'set -u; for file in "$0"/*; do source "$file"; done
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    how=$(complete -p "${1##*/}") how=${how% *}
    "${how##* }" && ((${#COMPREPLY[@]} == 0)) || printf "%s\n" "${COMPREPLY[@]}"' \
    "$share/bash-completion/completions" "$@" >out 2>err || fail "completing $*"
  [[ ! -s err ]] || fail "completing $*"
}
# gives WORD COMMAND...: WORD has to be among the completions.
gives() { complete_words "${@:2}"; grep -qxF -- "$1" out || fail "\"${*:2}\" does not give $1"; }
# only WORDS COMMAND...: WORDS have to be all completions.
only() { complete_words "${@:2}"; [[ $(tr '\n' ' ' <out) == "$1" ]] || fail "\"${*:2}\" gives something other than $1"; }

only '--schedule ' actorrun --sche
only '--schedule ' /usr/bin/actorrun --sche
only 'zb-h1 zb-h2 zb-v ' actorrun --schedule zb
only 'zb-h1 zb-h2 zb-v ' actorrun --schedule = zb
only 'parallel ' actorrun --help par
only '--layers --layout ' actorrun gpt --lay
only '--layout ' actorrun --lay
only 'status ' actorrun stat
only '--json ' actorrun status --j
only 'quota ' actorrun ctl 123 q
gives gpt actorrun g
gives --steps actorrun --auto --s
only '' actorrun --save s
only '' actorrun gpt --data s
only 'plan ' actortune pl
only '--effort ' actortune plan --eff
gives --slo actortune serve --slo
gives --verify actortune --ver
only '--no-color ' actortrace --no
only 'reasons ' actortrace rea
[[ ! -x $bin/actorserve ]] || only '--api-key --api-key-file ' actorserve --api
