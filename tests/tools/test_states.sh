#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A hybrid, most of whose blocks keep a recurrent state instead of keys and values, learns a text.
# With --exact its losses, parameters and optimizer state have the same bits on any grid: in pieces,
# on stages, with sharded data, tensors and sequences, with recomputation, and over processes. A
# server answers as actorrun --generate does. The same holds for Mamba-2, and for blocks with both
# kinds of attention, experts and documents. Experts can start from a dense model's feed-forward
# half. Bad options are rejected.
# labels: outside
# needs: zeromq
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

data=$reference/text.txt
model=(hybrid --layers 4 --width 32 --heads 4 --kv-heads 2 --context 128 --batch 8 --data "$data" --exact-leaf 32)
run=("$actorrun" --quiet --exact --steps 3)
ends 0 "${run[@]}" --certify one.jsonl "${model[@]}"
for grid in "--pieces 4" "--stages 4 --microbatches 4 --schedule zb-h1" "--tensor 2 --data-parallel 2 --pieces 2" \
  "--sequence 2" "--pieces 2 --recompute full" "--pieces 4 --piece-order layers --stages 2" \
  "--stages 2 --pieces 2 --microbatches 2 --schedule seq1f1b" "-n 2 --stages 2 --shard parameters --data-parallel 2"; do
  # shellcheck disable=SC2086
  ends 0 "${run[@]}" $grid "${patient[@]}" --recheck one.jsonl "${model[@]}"
done

# Mamba-2, whose convolutions also keep states.
mamba=(mamba2 --layers 4 --width 32 --head-dim 8 --groups 2 --state 12 --context 128 --batch 8 --data "$data" --exact-leaf 32)
ends 0 "${run[@]}" --certify mamba.jsonl "${mamba[@]}"
for grid in "--pieces 4" "--stages 4 --microbatches 4 --schedule zb-h1" "--tensor 2 --data-parallel 2 --pieces 2" \
  "--data-parallel 4" "--pieces 2 --recompute full" "--pieces 4 --piece-order layers --stages 2" \
  "--stages 2 --pieces 2 --microbatches 2 --schedule seq1f1b" "-n 2 --stages 2 --shard parameters --data-parallel 2" \
  "--sequence 2" "-n 2 --sequence 2 --pieces 2 --recompute full" "--sequence 2 --tensor 2 --stages 2 --microbatches 4" \
  "--sequence 2 --pieces 2 --data-parallel 2 --shard parameters --schedule seq1f1b --stages 2"; do
  # shellcheck disable=SC2086
  ends 0 "${run[@]}" $grid "${patient[@]}" --recheck mamba.jsonl "${mamba[@]}"
done
ends 2 "$actorrun" --steps 1 --sequence 2 mamba2 --width 32 --head-dim 8 --groups 2 --conv 8 --context 12 --batch 2 --data "$data"
says 'each reads 7 positions before its own, but its neighbour has only 6' err
for wrong in "--groups 3:--groups 3 does not divide the 8 heads" "--head-dim 7:twice --width 32 is not a multiple of --head-dim 7"; do
  # shellcheck disable=SC2086
  ends 2 "$actorrun" --steps 1 mamba2 --width 32 --head-dim 8 --data "$data" ${wrong%%:*}
  says "${wrong#*:}" err
done

# Devices that exchange states learn the same up to the order of sums, over processes too. The bytes
# that they move do not depend on the length.
losses() { python3 -c 'import json, sys; [print(s["loss"], s["grad_norm"]) for s in json.load(open(sys.argv[1]))["steps"]]' "$1"; }
moved() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["runtime"]["moved_bytes_per_step"]["sequence"])' "$1"; }
exchanged=(--quiet --steps 3 --sequence-states exchange)
for shared in "hybrid --layers 2 --width 32 --heads 4 --kv-heads 2 --softmax-every 0" \
  "mamba2 --layers 2 --width 32 --head-dim 8 --state 12"; do
  for context in 64 256; do
    # shellcheck disable=SC2206
    words=($shared --context $context --batch 4 --data "$data")
    ends 0 "$actorrun" "${exchanged[@]}" --report one.json "${words[@]}"
    ends 0 "$actorrun" "${exchanged[@]}" -n 2 --sequence 2 "${patient[@]}" --report two.json "${words[@]}"
    paste <(losses one.json) <(losses two.json) |
      awk '{ for (i = 1; i < 3; i++) { d = ($i - $(i + 2)) / $i; if (d > 1e-6 || d < -1e-6) exit 1 } n++ } END { exit n != 3 }' ||
      fail "$shared, $context positions: $(losses one.json) and $(losses two.json)"
    moved two.json >"bytes.$context"
  done
  cmp bytes.64 bytes.256 || fail "$shared: bytes depend on the length"
done
# 2 layers, 2 readers, 4 sequences of 2 heads, 8 x 8 numbers and 8 gates each, plus the
# convolution's rows.
ends 0 "$actorrun" "${exchanged[@]}" --sequence 2 --report two.json hybrid --layers 2 --width 32 --heads 4 --kv-heads 2 \
  --softmax-every 0 --context 64 --batch 4 --data "$data"
[ "$(moved two.json)" -eq $((2 * 2 * 4 * 2 * (8 * 8 + 8) * 4)) ] || fail "$(moved two.json) bytes"
refused() { ends 2 "$actorrun" --steps 1 --sequence 2 "${@:2}" "${model[@]}" && says "$1" err; }
refused '--exact: not supported with --sequence-states exchange' --exact --sequence-states exchange
refused "unknown sequence states 'other': must be auto, heads or exchange" --sequence-states other
refused '--sequence-states exchange: needs one run of positions per device, but --sequence-layout zigzag makes two' \
  --sequence-states exchange --sequence-layout zigzag
ends 2 "$actorrun" --steps 1 --sequence 2 --sequence-states heads mamba2 --width 32 --head-dim 8 --data "$data"
says 'cannot be split by heads over 2 sequence-parallel devices: it has 1 key/value heads' err

# A window, softmax blocks only, and no softmax blocks.
for every in 1 0; do
  ends 0 "$actorrun" --quiet --steps 1 "${model[@]:0:11}" --data "$data" --window 16 --softmax-every $every
done

# A hybrid starts from the weights of a LLaMA; parameters that the LLaMA lacks are new.
hybrid=(hybrid --data "$data" --context 32 --batch 4 --lr 1e-3 --warmup 0)
for folder in hf_qwen2 hf_llama3; do
  ends 0 "$actorrun" --quiet --steps 20 --init "$reference/$folder" --init-new '*gk_proj*,*g_norm*' --report r.json \
    --save from.safetensors "${hybrid[@]}" --window 16
  python3 -c 'import json; s = json.load(open("r.json"))["steps"]; assert s[-1]["loss"] < s[0]["loss"] - .1, s' ||
    fail "$folder: it learns nothing"
done
ends 2 "$actorrun" --steps 1 --init "$reference/hf_qwen2" "${hybrid[@]}"
says 'gk_proj' err
ends 2 "$actorrun" --steps 1 --init "$reference/hf_qwen2" --init-new 'gk_proj' "${hybrid[@]}"
says 'gk_proj, which may be absent from the weights, matches no parameter' err
ends 2 "$actorrun" --steps 1 --init-new '*gk_proj*' "${hybrid[@]}"
says '--init-new: needs --init with the other weights' err
ends 2 "$actorrun" --steps 1 --init "$reference/hf_qwen2" --init-new '*gk_proj*,*g_norm*' --save x/ "${hybrid[@]}"
says "no config.json is possible: no Hugging Face model matches hybrid with these options; save the weights alone (--save FILE.safetensors)" err
ends 2 "$actorrun" --steps 1 --init "$reference/hf_mistral" "${hybrid[@]}"
says 'the model should be llama, not hybrid' err

small=(--layers 2 --width 32 --heads 2 --context 64)
ends 0 "$actorrun" --quiet --steps 30 --lr 1e-2 --warmup 0 --report r.json --save w.safetensors hybrid "${small[@]}" \
  --data "$data"
python3 -c 'import json; s = json.load(open("r.json"))["steps"]; assert s[-1]["loss"] < s[0]["loss"] - 1.5, s[-1]' ||
  fail "it learns nothing"

# Both kinds of attention side by side, experts in some blocks, several documents per row.
both=(hybrid --layers 4 --width 32 --heads 4 --kv-heads 2 --context 128 --batch 8 --data "$data" --side-by-side --gates keys --window 40
  --document-end 32 --experts 4 --top-k 1 --ffn 48 --shared-ffn 48 --dense-blocks 0,2 --aux-loss 0 --exact-leaf 32)
ends 0 "${run[@]}" --certify both.jsonl "${both[@]}"
for grid in "--pieces 4" "--stages 4 --microbatches 4 --schedule zb-h1" "--data-parallel 2 --expert-parallel 2" "--sequence 2" \
  "--tensor 2 --pieces 2 --recompute full" "-n 2 --stages 2 --shard parameters --data-parallel 2"; do
  # shellcheck disable=SC2086
  ends 0 "${run[@]}" $grid "${patient[@]}" --recheck both.jsonl "${both[@]}"
done
for wrong in "--gates other:hybrid: --gates other: must be own or keys" "--dense-blocks 9:hybrid: --dense-blocks 9: must be none, or block numbers" \
  "--spikes 3:hybrid: --spikes: not supported with --experts"; do
  # shellcheck disable=SC2086
  ends 2 "$actorrun" --steps 1 "${both[@]}" ${wrong%%:*}
  says "${wrong#*:}" err
done

# Experts that start from a dense model's feed-forward half compute nearly the same.
dense=(hybrid --layers 4 --width 64 --heads 4 --context 64 --batch 8 --ffn 128 --side-by-side --data "$data" --lr 3e-3 --warmup 0)
sparse=("${dense[@]}" --experts 16 --top-k 1 --shared-ffn 128 --aux-loss 0)
first() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["steps"][0]["loss"])' "$1"; }
ends 0 "$actorrun" --quiet --steps 60 --save dense.safetensors "${dense[@]}"
ends 0 "$actorrun" --quiet --steps 1 --init dense.safetensors --report d.json "${dense[@]}"
ends 0 "$actorrun" --quiet --steps 1 --init dense.safetensors --upcycle --init-new '*mlp.gate.weight' --report s.json "${sparse[@]}"
python3 -c 'import sys; dense, sparse = map(float, sys.argv[1:]); assert abs(sparse / dense - 1) < 0.01' "$(first d.json)" \
  "$(first s.json)" || fail "upcycled: $(first d.json), then $(first s.json)"
ends 2 "$actorrun" --steps 1 --init dense.safetensors --init-new '*mlp.gate.weight' "${sparse[@]}"
says 'experts.0' err
ends 2 "$actorrun" --steps 1 --init dense.safetensors --upcycle "${dense[@]}"
says '--upcycle: hybrid has no experts' err
ends 2 "$actorrun" --steps 1 --upcycle "${sparse[@]}"
says '--upcycle: needs --init with a dense model' err
echo "states: the same numbers on any grid"
