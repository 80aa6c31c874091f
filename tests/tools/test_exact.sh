#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --exact: models have the same losses, parameters and optimizer state, bit for bit, on random
# grids: data parallel, tensor, sequence, experts, pieces, microbatches, stages, schedules,
# sharding, homes and processes. A run that resumes on another grid continues with the same bits.
# Options that would change bits are rejected with an error that names them.
# labels: outside
# needs: zeromq
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

seed=${SLUICE_SEED:-$RANDOM} grids=${SLUICE_GRIDS:-5}
echo "seed $seed"
RANDOM=$seed
data=$reference/text.txt
pick() { # WORDS...: sets `picked` to one of them
  local words=("$@")
  picked=${words[RANDOM % $#]}
}

# Draws a grid for a batch of 8 rows and stores it in `grid`.
draw() {
  grid=()
  pick 1 2 4 && local data_devices=$picked
  pick 1 2 && local microbatches=$picked
  ((data_devices == 4)) || { pick 1 2 4 && microbatches=$picked; }
  ((! counts)) || microbatches=1
  grid+=(--data-parallel "$data_devices" --microbatches "$microbatches")
  pick 1 1 2 4 && local tensor=$picked
  ((tensor == 1)) || grid+=(--tensor "$tensor")
  pick 1 2 2 4 8
  (((! leaves && tensor <= picked) || data_devices * tensor * microbatches <= 8)) || picked=1 # one row per device
  ((! experts || picked == 1 || data_devices * tensor % picked)) || {
    grid+=(--expert-parallel "$picked")
    ((tensor == 1 || RANDOM % 2)) || grid+=(--expert-tensor 1)
  }
  pick 1 2 3 && local stages=$picked
  ((stages == 1)) || { pick 1f1b gpipe zb-h1 && grid+=(--stages "$stages" --schedule "$picked"); }
  ((stages != 2 || ! words || RANDOM % 2)) || grid+=(--vocab-parallel)
  pick none full && grid+=(--recompute "$picked")
  ((data_devices == 1)) || { pick nothing optimizer gradients parameters && grid+=(--shard "$picked"); }
  ((RANDOM % 3)) || grid+=(-n 2 "${patient[@]}")
  ((leaves)) || return 0
  pick 1 1 2 3 8 && local pieces=$picked
  ((pieces == 1)) || grid+=(--pieces "$pieces")
  ((pieces < 8)) || grid+=(--piece-order layers)
  ((pieces < 8 || states)) || grid+=(--home kv=disk --disk "$work")
  ((pieces != 3)) || grid+=(--cut balanced)
  pick 1 2 4 && local sequence=$picked
  ((pieces == 1 && ! states)) || ((sequence < 4)) || sequence=2
  ((pieces > 2 || sequence == 1)) || grid+=(--sequence "$sequence")
  ((pieces > 1 || sequence == 1 || states)) || {
    pick "auto" "ring --sequence-layout contiguous" "ring --sequence-layout zigzag"
    # shellcheck disable=SC2206
    grid+=(--sequence-attention $picked)
  }
}

try() { # NAME MODEL...: compares random grids with one device
  local name=$1 i leaves=0 counts=0 words=1 experts=0 states=0
  shift
  [[ $1 != */digits.c ]] || words=0 # stages cannot share 10 classes
  [[ $1 != mixtral && $1 != qwen-moe ]] || experts=1
  [[ $1 != mamba2 ]] || states=1 # and no KV cache
  [[ $experts == 0 || $* == *--aux-loss\ 0* ]] || counts=1 # the balance loss is per microbatch
  [[ $* != *--exact-leaf* ]] || leaves=1
  ends 0 "$actorrun" --quiet --exact --steps 4 --certify "$name.jsonl" "$@"
  for ((i = 0; i < grids; i++)); do
    draw
    ends 0 "$actorrun" --quiet --exact --steps 4 "${grid[@]}" --certify other.jsonl --recheck "$name.jsonl" "$@"
    cmp -s "$name.jsonl" other.jsonl || fail "$name, ${grid[*]}: other numbers"
  done
}
gpt=(gpt --layers 3 --width 32 --heads 4 --context 32 --batch 8 --data "$data")
try gpt "${gpt[@]}"
try llama llama --layers 3 --width 32 --heads 4 --kv-heads 2 --ffn 48 --context 32 --batch 8 --data "$data"
long=(--heads 4 --context 256 --batch 8 --exact-leaf 32 --data "$data")
try gpt-leaves gpt --layers 3 --width 32 "${long[@]}"
try llama-leaves llama --layers 3 --width 32 --kv-heads 2 --ffn 48 "${long[@]}"
try mamba2 mamba2 --layers 3 --width 32 --head-dim 8 --groups 8 --state 6 --context 256 --batch 8 --exact-leaf 32 \
  --data "$data"
moe=(--layers 2 --width 32 --heads 4 --context 32 --batch 8 --data "$data")
try mixtral mixtral "${moe[@]}"
try qwen-moe qwen-moe "${moe[@]}"
try mixtral-unbalanced mixtral "${moe[@]}" --aux-loss 0 --top-k 3
try mixtral-leaves mixtral --layers 2 --width 32 "${long[@]}" --aux-loss 0 --experts 9
try digits "$SLUICE_SOURCE/examples/digits.c" --data "$SLUICE_SOURCE/examples/digits.u8" --batch 8

# Batches with odd factors, on odd numbers of devices and microbatches: one rounding of the loss's gradient.
odd() { # NAME GRID... -- MODEL...
  local name=$1 grids=() grid
  shift
  while [[ $1 != -- ]]; do grids+=("$1") && shift; done
  shift
  ends 0 "$actorrun" --quiet --exact --steps 2 --certify "$name.jsonl" "$@"
  for grid in "${grids[@]}"; do
    # shellcheck disable=SC2086
    ends 0 "$actorrun" --quiet --exact --steps 2 $grid --recheck "$name.jsonl" "$@"
  done
}
small=(--layers 1 --width 24 --heads 3 --context 20 --data "$data")
odd five "--data-parallel 2" "--data-parallel 5" "--microbatches 5" -- gpt "${small[@]}" --batch 5
odd seven "--microbatches 7" "--data-parallel 3 --shard parameters" -- gpt "${small[@]}" --batch 7
odd experts "--data-parallel 3" "--data-parallel 3 --expert-parallel 3" -- mixtral "${small[@]}" --batch 8 --z-loss 0.01
odd rows "--microbatches 3" "--microbatches 3 --stages 2" -- deepseek --layers 1 --width 24 --heads 3 --context 20 --latent 8 \
  --nope-dim 8 --rope-dim 4 --value-dim 6 --dense-layers 0 --experts 3 --expert-ffn 24 --aux-loss 0 --batch 3 --data "$data"
# Tables of one row, which have the type of a row in microbatches of one row.
cat >tables.c <<'END'
#include <sluice/sluice.h>
static const sl_option options[] = {{"data", SL_OPTION_TEXT, NULL, "`FILE` to learn", 0, 0}, {0}};
static sl_status build(sl_graph *g, const sl_args *args) {
  sl_tensor *next, *ids = sl_tokens(g, sl_arg_text(args, "data"), sl_microbatch_rows(g, 3), 16, 256, &next);
  sl_tensor *words = sl_param(g, SL_TYPE(SL_F32, 256, 16), SL_NORMAL(0.1f), "words");
  sl_tensor *places = sl_param(g, SL_TYPE(SL_F32, 1, 16, 16), SL_NORMAL(0.1f), "places");
  sl_tensor *gains = sl_param(g, SL_TYPE(SL_F32, 1, 16, 16), SL_NORMAL(0.1f), "gains");
  sl_tensor *halves = sl_param(g, SL_TYPE(SL_F32, 1, 8, 32), SL_NORMAL(0.1f), "halves");
  sl_tensor *x = sl_add(g, sl_embedding(g, ids, words), places);
  x = sl_add(g, sl_mul(g, x, gains), sl_reshape(g, halves, 1, 16, 16));
  sl_tensor *logits = sl_linear(g, sl_gelu(g, x), words, NULL);
  sl_train(g, sl_cross_entropy(g, logits, next), &(sl_optimizer){.lr = 0.05f});
  return sl_graph_status(g);
}
SL_MODEL(tables, "tables that all rows share", options, build);
END
odd tables "--microbatches 3" "--microbatches 3 --tensor 2" "--data-parallel 3" -- tables.c --data "$data"
tar -xzf "$reference/pytorch/gpt2.tar.gz"
tar -xzf "$reference/pytorch/whisper.tar.gz"
odd gpt2 "--microbatches 2" "--microbatches 4" "--data-parallel 2" -- gpt2/model.pt2 --input ids=gpt2/ids.npy --input labels=gpt2/labels.npy
odd whisper "--microbatches 2" -- whisper/model.pt2 --input features=whisper/features.npy --input labels=whisper/labels.npy

# A run that resumes on other grids has the numbers of an uninterrupted run.
ends 0 "$actorrun" --quiet --exact --steps 1 --checkpoint kept --every 1 --data-parallel 4 "${gpt[@]}"
ends 0 "$actorrun" --quiet --exact --steps 2 --checkpoint kept --every 1 --resume --resume-with microbatches --stages 3 --microbatches 2 "${gpt[@]}"
ends 0 "$actorrun" --quiet --exact --steps 4 --checkpoint kept --resume --resume-with microbatches --data-parallel 2 --recheck gpt.jsonl "${gpt[@]}"

# The losses equal those of a run without --exact, up to rounding.
ends 0 "$actorrun" --quiet --steps 4 --certify plain.jsonl "${gpt[@]}"
last() { grep -o '"loss": "[^"]*"' "$1" | tail -1 | cut -d'"' -f4; }
printf '%.4f\n' "$(last gpt.jsonl)" >a
printf '%.4f\n' "$(last plain.jsonl)" >b
cmp -s a b || fail "losses: $(cat a) and $(cat b)"

refused() { # TEXT OPTIONS...
  local text=$1
  shift
  ends 2 "$actorrun" --quiet --exact --steps 1 "$@" "${gpt[@]}"
  says "--exact: not supported with $text" err
}
refused '--vocab-barriers 1' --vocab-parallel --vocab-barriers 1 --stages 2
refused '--dtype bf16' --dtype bf16

ends 2 "$actorrun" --quiet --exact --data-parallel 4 --tensor 4 --expert-parallel 2 --expert-tensor 1 mixtral "${moe[@]}"
says 'too few rows, and --exact keeps the positions of a row together' err

ends 2 "$actorrun" --quiet --exact --steps 1 mixtral "${moe[@]}" --expert-capacity 1.5
says '--exact: op h.0/expert_limit.1 (expert_limit) drops rows depending on how many a device has' err

leaf() { # TEXT OPTIONS...
  local text=$1
  shift
  ends 2 "$actorrun" --quiet --exact --steps 1 "${gpt[@]}" "$@"
  says "$text" err
}
leaf 'classes the stages can split in whole groups' --vocab-parallel --stages 3
leaf '--exact: --pieces cuts sequences, so --exact-leaf must be given' --pieces 2
leaf '--exact-leaf 48: must be a multiple of 32' --exact-leaf 48 --context 96
leaf '--exact-leaf 64: must divide the 96 positions of embedding/source.1' --exact-leaf 64 --context 96
leaf '3 pieces asked for, but the sequences of embedding/source.1 have only 2 leaves' --exact-leaf 32 --context 64 --pieces 3
leaf '--exact-leaf 32: the 96 positions of piece 0 are not whole leaves for 2 devices' --exact-leaf 32 --context 96 \
  --sequence 2
leaf '--exact: not supported with --sequence-attention ring and --pieces' --exact-leaf 32 --context 128 --pieces 2 --sequence 2 \
  --sequence-attention ring
leaf '--exact-leaf 32: the 64 positions of piece 0 are not whole leaves for 4 runs (--sequence-layout zigzag)' \
  --exact-leaf 32 --context 64 --sequence 2 --sequence-attention ring

# More devices than key/value heads, with windows and separated documents.
near=(llama --layers 2 --width 32 --heads 4 --kv-heads 1 --window 70 --document-end 32 --context 256 --batch 4
  --exact-leaf 32 --data "$data")
ends 0 "$actorrun" --quiet --exact --steps 3 --certify near.jsonl "${near[@]}"
for how in "4" "8 --sequence-layout contiguous" "2 --sequence-attention ring --tensor 2 --data-parallel 2" "4 --stages 2 --microbatches 2"; do
  # shellcheck disable=SC2086
  ends 0 "$actorrun" --quiet --exact --steps 3 --recheck near.jsonl --sequence $how "${near[@]}"
done

echo "--exact: the same numbers on any grid"
