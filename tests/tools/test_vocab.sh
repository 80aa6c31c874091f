#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --vocab-parallel splits the vocabulary's tables over all stages. The losses equal those of a run
# without it within rounding, and have the same bits with any schedule, processes and timing. The
# traffic is known to the byte. On the virtual clock all stages are equally fast for any vocabulary.
# The same holds with --vocab-barriers 1, with which stages keep one microbatch less.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
gpt=(gpt --layers 4 --width 16 --heads 2 --context 16 --batch 8 --data "$reference/tokens.u16")
llama=(llama --layers 4 --width 24 --heads 6 --kv-heads 3 --ffn 40 --context 12 --batch 8 --vocab 259
       --data "$reference/tokens.u16")
run() {
  ends 0 timeout 100 "$actorrun" --quiet --steps 4 --microbatches 4 "$@"
}
near() { # REPORT REPORT: losses differ by less than 1e-6, relatively
  paste <(grep -oE '"loss":[^,]*' "$1" | grep -oE '[0-9.]+$') \
        <(grep -oE '"loss":[^,]*' "$2" | grep -oE '[0-9.]+$') |
    awk '{ d = $1 / $2 - 1; if (d > 1e-6 || d < -1e-6) bad = 1 } END { exit bad || NR < 4 }'
}

# ---- losses: each line splits sums in another way; all runs of a line have the same bits -----------
models() { [ "$1" = gpt ] && model=("${gpt[@]}") || model=("${llama[@]}"); }
same() { # MODEL COMMON -- WAY, WAY ...
  local name=$1 common=$2 first=
  shift 2
  models "$name"
  for way in "$@"; do
    # shellcheck disable=SC2086
    run $common $way --vocab-parallel --report v.json "${model[@]}"
    near v.json "$name.one" || fail "$name $common $way: other losses than one device's"
    [ -n "$first" ] || first=$(hexes v.json)
    [ "$(hexes v.json)" = "$first" ] || fail "$name $common $way: other bits than with ${1:-nothing}"
  done
}
for name in gpt llama; do models $name; run --report $name.one "${model[@]}"; done
patient="${patient[*]}"
same gpt "--stages 4" "" "--schedule zb-h1" "--schedule gpipe" "-n 2 $patient" "--jitter 50" "--recompute full" \
     "--quota spread=1" "--grain layer"
same llama "--stages 2" "" "--schedule zb-v" "--schedule interleaved" "-n 2 $patient" "--home act=disk" "--schedule auto"
same llama "--stages 3 --data-parallel 2 --shard parameters" "" "-n 6 $patient --schedule zb-h1"
same llama "--stages 2 --tensor 3 --data-parallel 2 --shard gradients" "" "-n 4 $patient"
same gpt "--stages 2 --tensor 2 --sequence 2" "" "-n 2 $patient --schedule zb-v"
same gpt "--stages 2 --pieces 2" "" "--schedule seq1f1b -n 2 $patient"
once="--vocab-barriers 1"
same gpt "--stages 4 $once" "" "--schedule zb-h1 -n 4 $patient" "--jitter 50 --recompute full" "--quota spread=1 --grain layer"
same llama "--stages 2 $once" "--schedule zb-v" "-n 2 $patient --home act=disk --exchange inline"
same llama "--stages 2 --tensor 2 --data-parallel 2 --shard parameters $once" "" "-n 2 $patient --schedule zb-h1"
same gpt "--stages 2 --sequence 2 --pieces 2 $once" "" "--piece-order layers -n 2 $patient"

# An evaluation gives the same result as without; a checkpoint resumes with other stages and other
# barriers.
run --stages 2 --eval "$reference/tokens.u16" --eval-every 4 --report a.json "${gpt[@]}"
# shellcheck disable=SC2086
run --stages 2 --vocab-parallel $once --eval "$reference/tokens.u16" --eval-every 4 --report b.json \
  --checkpoint c --every 2 --save w.safetensors "${gpt[@]}"
evals() { grep -o '"evaluations".*' "$1" | tr -d '\n' ; }
python3 - <<'END' || fail "the evaluation is another"
import json
a, b = (json.load(open(f))["evaluations"][0]["loss"] for f in ("a.json", "b.json"))
assert abs(a / b - 1) < 1e-6, (a, b)
END
cp -r c twice
run --steps 8 --resume --checkpoint c --stages 4 --report more.json "${gpt[@]}"
run --steps 8 --resume --checkpoint twice --stages 3 --vocab-parallel --report twice.json "${gpt[@]}"
run --steps 8 --stages 4 --report whole.json "${gpt[@]}"
python3 - <<'END' || fail "a run that goes on without it, or otherwise, has other losses"
import json
more, twice, whole = (json.load(open(f))["steps"] for f in ("more.json", "twice.json", "whole.json"))
for found in more, twice:
    assert len(found) == 4
    for a, b in zip(found, whole[4:]): assert abs(a["loss"] / b["loss"] - 1) < 1e-5, (a, b)
END

# ---- bytes ----------------------------------------------------------------------------------------
# Bytes between two stages, in addition to those without --vocab-parallel: input and gradient of the
# classifier, output and gradient of the embedding, 4 S h numbers; three numbers per position for
# each stage's part of the vocabulary; and one of the two rows of tokens, which both stages need.
moved() { # ARGUMENTS...
  run --steps 1 --stages 2 -n 2 --microbatches 1 --report m.json "$@" llama --layers 2 --width 64 --heads 4 --kv-heads 2 --context 256 --batch 1 --data "$reference/tokens.u16"
  sed -n '/"runtime"/,/}/p' m.json | grep -oE '"pipeline":[^,}]*' | grep -oE '[0-9]+$'
}
for barriers in 1 2; do
  more=$(($(moved --vocab-parallel --vocab-barriers $barriers) - $(moved)))
  [ $more -eq $((4 * 256 * 64 * 4 + 2 * 256 * 3 * 4 + 256 * 4)) ] ||
    fail "$more bytes more are moved with $barriers barriers"
done

# ---- the virtual clock -----------------------------------------------------------------------------
# Utilization of the model's matrix products is the same with a vocabulary of 32,000 and 256,000.
# Each stage has an equal part of the vocabulary, and one more microbatch than in 1F1B for each
# barrier. Without --vocab-parallel it falls.
python3 - "$actorrun" "$reference/tokens.u16" <<'END' || fail "it is not as good with many words"
import json, subprocess, sys
def share(words, *options):
    subprocess.run([sys.argv[1], "--quiet", "--clock", "virtual", "--devices", "timed:8", "--machine", "a100-sxm-80gb",
                    "--stages", "8", "--microbatches", "128", "--steps", "3", "--report", "s.json", *options, "gpt",
                    "--layers", "32", "--width", "3072", "--heads", "24", "--context", "2048", "--batch", "128",
                    "--vocab", str(words), "--data", sys.argv[2]], check=True)
    report = json.load(open("s.json"))
    tables = [d["peak_bytes"]["parameters"] for d in report["devices"]]
    flops = report["predicted"]["flops_per_step"]
    return flops / report["step_seconds"], [d["peak_activations"] for d in report["devices"]], tables
found = {}
for words in 32000, 256000:
    plain, kept, _ = share(words)
    once, one_more, _ = share(words, "--vocab-parallel", "--vocab-barriers", "1")
    spread, more, tables = share(words, "--vocab-parallel")
    found[words] = plain, spread, once
    print(f"{words} words: {plain:.4g} flop/s on the last stage, {spread:.4g} spread, {once:.4g} with one barrier; "
          f"kept {kept} {more} {one_more}")
    assert kept == [8, 7, 6, 5, 4, 3, 2, 1] and more == [10, 9, 8, 7, 6, 5, 4, 3], (kept, more)
    assert one_more == [9, 8, 7, 6, 5, 4, 3, 2], one_more
    assert max(tables) - min(tables) < 0.05 * max(tables) + 4 * 3072 * 2048 * 2, tables
for way in 1, 2: assert abs(found[256000][way] / found[32000][way] - 1) < 0.02, found
assert found[256000][0] / found[32000][0] < 0.9, found
END

# ---- rejected settings -------------------------------------------------------------------------------
refused() { # TEXT ARGUMENTS...
  local text=$1
  shift
  ends 2 timeout 60 "$actorrun" --quiet --steps 1 "$@"
  says "$text" err
}
refused "--vocab-parallel: needs several --stages" --vocab-parallel "${gpt[@]}"
refused "op chunk.1/mse.1 (mse) makes a loss without classes to split over the stages" --vocab-parallel --stages 2 pipeline
refused "--vocab-barriers 3: must be between 1 and 2" --vocab-parallel --vocab-barriers 3 --stages 2 "${gpt[@]}"
refused "--vocab-barriers 1: needs --vocab-parallel" --vocab-barriers 1 --stages 2 "${gpt[@]}"
refused "head/linear.1:rescale cannot lie as S1 along the tensor axis together with the other layouts" --vocab-parallel \
  --vocab-barriers 1 --stages 2 --tensor 2 --sbp head/linear.1:soft=-,S2 --sbp head/linear.1:rescale=-,S1 "${gpt[@]}"
refused "--vocab-barriers 1: op chunk.1/mse.1 (mse) is not a cross entropy that weights all rows equally" \
  --vocab-parallel --vocab-barriers 1 --stages 2 pipeline

# ---- reported plan ---------------------------------------------------------------------------------------
# Sums beside the passes may include zeros, whose actors read nothing.
head -c 24000 /dev/zero >zeros.u16
ends 0 "$actorrun" --quiet --dry-run --vocab-parallel --vocab-barriers 1 --stages 4 --tensor 5 --data-parallel 3 --sequence 3 \
  --schedule gpipe --microbatches 3 gpt --width 48 --heads 6 --layers 2 --context 12 --batch 12 --vocab 96 --data zeros.u16
ends 0 "$actorrun" --quiet --stages 2 --vocab-parallel --vocab-barriers 1 --show-sbp --dry-run "${gpt[@]}"
says "linear.1:ahead             S2 S0 -> P" out
says "a microbatch waits for all stages once" out
