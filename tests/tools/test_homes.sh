#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Registers that are offloaded to disk change no loss, whatever else the run does. Checkpoints do
# not depend on homes. Invalid homes are rejected before the run, and the folder is empty
# afterwards.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

lies_in_memory() { [[ $(stat -f -c %T "$1") == @(tmpfs|ramfs) ]]; }
apart=$work # a folder on a disk
! lies_in_memory "$work" || apart=$(mktemp -d /var/tmp/homes.XXXXXX)
trap 'end_test; rm -rf "$apart"' EXIT
! lies_in_memory "$apart" || skip "there is no disk here"
disk=$apart/disk
mkdir "$disk"

model=(gpt --layers 6 --width 16 --heads 2 --context 16 --batch 4 --data "$reference/text.txt")
job=(--steps 2 --microbatches 2 --grain layer --disk "$disk" "${patient[@]}")
both=(--home act=disk --home state=disk --home weights=disk --quota weights=1)
moved() { # REPORT WHERE: bytes per step
  python3 -c 'import json, sys; print(int(json.load(open(sys.argv[1]))["runtime"]["moved_bytes_per_step"][sys.argv[2]]))' "$@"
}
same() { [[ -s $1 && $(hexes "$1") == "$(hexes "$2")" ]] || fail "$3: other losses"; }
empty() { [[ -z $(ls -A "$disk") ]] || fail "$1 left something: $(ls -A "$disk")"; }

# ---- no loss changes ----------------------------------------------------------------------
for way in "" "--stages 2 -n 2" "--stages 2 --schedule zb-h1" "--data-parallel 2"; do
  # shellcheck disable=SC2086
  ends 0 "$actorrun" "${job[@]}" $way --report kept.json "${model[@]}"
  grep -q "to and from disk" out && fail "$way: what is nowhere else is moved"
  for home in "--home act=disk" "--home state=disk" "${both[*]}"; do
    # shellcheck disable=SC2086
    ends 0 "$actorrun" "${job[@]}" $way $home --report away.json "${model[@]}"
    same kept.json away.json "$way $home"
    (($(moved away.json disk) > 0)) || fail "$way $home: the report has nothing on disk"
    grep -qE '^  to and from disk: [0-9.]+ [KM]iB a step, [0-9.]+ [kMG]?B/s$' out ||
      fail "$way $home: it is not said what went to disk"
  done
done
empty "a run"

# Frozen parameters are read but never written.
frozen=(--freeze 'h.*' --home 'weights@h.*=disk')
ends 0 "$actorrun" "${job[@]}" --freeze 'h.*' --report kept.json "${model[@]}"
ends 0 "$actorrun" "${job[@]}" "${frozen[@]}" --plan away.plan --report away.json "${model[@]}"
same kept.json away.json "frozen parameters on disk"
grep -q '^actor fill:param.*<B' away.plan || fail "the way back reads them elsewhere"
! grep -q '^actor spill:' away.plan || fail "frozen parameters are written"

# The traffic equals the plan's: on one device everything that is written is read once.
ends 0 "$actorrun" "${job[@]}" --home act=disk --report away.json "${model[@]}"
planned=$(python3 -c 'import json; print(json.load(open("away.json"))["predicted"]["moved_bytes_per_step"]["disk"])')
[[ $(moved away.json disk) == "$planned" ]] || fail "$(moved away.json disk) bytes are not $planned"
ends 0 "$actorrun" "${job[@]}" --home act=disk --dry-run "${model[@]}"
grep -qE '^cpu:0 disk .* [1-9][0-9.]* KiB$' out || fail "the memory table has nothing on disk"

# ---- checkpoints --------------------------------------------------------------------------
# A run with a checkpoint in between equals an uninterrupted run, also from initial weights and in
# saved weights.
whole=("$actorrun" "${job[@]}" --steps 4)
ends 0 "${whole[@]}" --report whole.json --save whole.safetensors "${model[@]}"
for turn in "away stays" "stays away"; do
  rm -rf c
  args=()
  [[ $turn == away* ]] && args=("${both[@]}")
  ends 0 "$actorrun" "${job[@]}" "${args[@]}" --checkpoint c --every 2 --report first.json "${model[@]}"
  args=()
  [[ $turn == *\ away ]] && args=("${both[@]}")
  ends 0 "${whole[@]}" "${args[@]}" --checkpoint c --every 2 --resume --report second.json \
    --save second.safetensors "${model[@]}"
  [[ $(hexes first.json; hexes second.json) == "$(hexes whole.json)" ]] || fail "$turn: other losses"
  cmp -s whole.safetensors second.safetensors || fail "$turn: other weights"
done
ends 0 "$actorrun" "${job[@]}" --init whole.safetensors --report kept.json "${model[@]}"
ends 0 "$actorrun" "${job[@]}" "${both[@]}" --init second.safetensors --report away.json "${model[@]}"
same kept.json away.json "from weights"

# ---- invalid homes ------------------------------------------------------------------------
refused() { # STATUS WORDS OPTIONS...
  ends "$1" "$actorrun" "${job[@]}" "${@:3}" "${model[@]}"
  says "$2" err
  grep -q "^step" out && fail "${*:3}: it ran"
  return 0
}
refused 2 "home x=disk: only act, act.b, act.w, kv, state and weights can be moved" --home x=disk
refused 2 "home act=tape: must be device, host or disk, not 'tape'" --home act=tape
refused 2 "home act@nope=disk: the model has no block of that name; its last is head" --home act@nope=disk
refused 2 "home act=host: not supported on cpu devices, whose memory is the host's" --home act=host
refused 2 "--home act: must be NAME=HOME" --home act
refused 2 "grain pass: offloaded data moves block by block" --home act=disk --grain pass
refused 2 "home state: saves nothing here: keeping the registers takes 188 KiB of a device, moving them 2" \
  --home state=disk --quota fill=64
refused 2 "home weights=disk: not with two-slot parameters (--quota param=2), which stay on their device" \
  --home weights=disk --quota param=2
refused 2 "home weights: saves nothing here: keeping the registers takes" --home weights=disk --quota weights=64
refused 2 "home weights: nothing to move" --home weights=disk --data-parallel 2 \
  --shard parameters
refused 2 "unknown quota weights" --quota weights=2
refused 2 "offload act=1: must be activations=SHARE, with SHARE from 0 to 1" --home act=disk --offload act=1
refused 2 "offload activations=1.5: must be activations=SHARE, with SHARE from 0 to 1" --home act=disk \
  --offload activations=1.5
refused 2 "offload activations=1: needs sequences cut into pieces" --home act=disk --offload activations=1
refused 2 "offload activations=1: needs a home for activations" --pieces 2 --offload activations=1
refused 2 "cannot be combined with recompute full" --pieces 2 --home act=disk --offload activations=1 \
  --recompute full
refused 2 "--disk :1M: not DIR or DIR:SIZE" --home act=disk --disk :1M
refused 2 "folder $apart/nosuchdir: No such file" --home act=disk --disk "$apart/nosuchdir"
refused 2 "home kv=disk: keys and values move piece by piece, one block after another (--pieces K --piece-order layers)" \
  --home kv=disk --pieces 2
refused 2 "piece order layers: needs sequences cut into pieces (--pieces K)" --piece-order layers
refused 2 "--piece-order rows: must be one of tokens, layers" --piece-order rows
refused 2 "grain pass: piece order layers runs block by block, which needs grain layer" \
  --grain pass --piece-order layers --pieces 2
ends 0 "$actorrun" "${job[@]}" --stages 2 --piece-order layers --pieces 2 "${model[@]}"
says "the pipeline fills 2 times more slowly" err
! lies_in_memory /dev/shm ||
  refused 2 "folder /dev/shm is in memory (tmpfs), not on a disk" --home act=disk --disk /dev/shm
refused 3 "on disk (--disk DIR:SIZE) but its budget is 100 KiB" --home act=disk --disk "$disk:100K"
grep -qE 'cpu:0 needs [0-9.]+ KiB on disk' err || fail "not how much is needed: $(cat err)"
says "largest holders: act.b" err
refused 3 "no schedule of 2 devices stays within --disk of 4.0 KiB" --home act=disk --disk "$disk:4K" \
  --schedule auto --stages 2 --dry-run
ends 0 "$actorrun" "${job[@]}" --home act=disk --disk "$disk:1G" "${model[@]}"

# ---- --home auto ---------------------------------------------------------------------------
# The choice fits, changes no loss, and equals the plan that its options make by hand.
large=(gpt --layers 6 --width 16 --heads 2 --context 64 --batch 16 --data "$reference/text.txt")
whole=("$actorrun" --steps 2 --microbatches 2 --schedule gpipe --disk "$disk" "${patient[@]}")
ends 0 "${whole[@]}" --report kept.json "${large[@]}"
chosen() { sed -n 's/^homes auto: //p' out; }
needs() { figure 'max(sum(d["peak_bytes"][k] for k in ("total",)) for d in devices)' "$1"; }
figure() { python3 -c 'import json, sys; print(eval(sys.argv[1], json.load(open(sys.argv[2]))))' "$@"; }
for share in 8 7 6; do
  memory=$(($(needs kept.json) * share / 10))
  ends 0 "${whole[@]}" --memory "$memory" --home auto --report auto.json "${large[@]}"
  same kept.json auto.json "--home auto"
  (($(needs auto.json) <= memory)) || fail "--home auto takes $(needs auto.json) bytes of $memory"
  options=$(chosen)
  [[ $options == --* ]] || fail "nothing was chosen"
  grep -qE '^  the best of [0-9]+ plans: .* a step, .* of a device' out || fail "not what it costs"
  # shellcheck disable=SC2086
  ends 0 "${whole[@]}" --memory "$memory" $options --report hand.json "${large[@]}"
  [[ $(figure plan_hash hand.json) == "$(figure plan_hash auto.json)" ]] || fail "$options: another plan"
done
ends 0 "${whole[@]}" --memory 1G --home auto --dry-run "${large[@]}"
[[ $(chosen) == "everything stays where it is made" ]] || fail "what fits is moved: $(chosen)"
# The user's settings for a block take precedence; several processes find the same homes.
ends 0 "${whole[@]}" --memory "$memory" --home auto --home act@h.5=device --recompute none --stages 2 -n 2 \
  --report auto.json "${large[@]}"
same kept.json auto.json "-n 2 --home auto"

refused 2 "home auto: needs --memory SIZE, the memory of a device" --home auto
refused 2 "home auto cannot be combined with --schedule auto" --home auto --memory 1M --schedule auto
refused 2 "--host-memory much: not a size such as 64G" --home act=disk --host-memory much
refused 2 "recompute full@nope: the model has no block of that name; its last is head" --recompute full@nope
refused 2 "--recompute all: must be one of none, selective, full, whole" --recompute all@h.1
refused 3 "home auto: none of" --home auto --memory 10K
says "plans fits; the smallest, --" err
says "(there is 10.0 KiB)" err

# ---- no leftovers -------------------------------------------------------------------------
for how in "" named; do
  SLUICE_DISK=$how background "$actorrun" "${job[@]}" "${both[@]}" --steps 1000000 "${model[@]}"
  until grep -q "^step 1/" out; do kill -0 "$pid" || fail "it has ended"; sleep 0.02; done
  kill -9 "$pid"
  wait "$pid" 2>/dev/null || :
  empty "kill -9"
done
