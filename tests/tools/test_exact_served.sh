#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The log-probabilities that `actorserve --exact` returns over HTTP equal those of `actorrun --exact
# --logprobs`, bit for bit. The cases: chunked prompts, two stages, concurrent requests that give up
# pages, and training on several grids. Models include a hybrid with spiking layers, learned tokens
# in front of each row, and positions in chunks. Without --exact some values differ. --logprobs
# writes the same file on any grid, and rejects what it does not support.
# labels: outside
# needs: libevent zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need python3
draw
both="$SLUICE_SOURCE/tests/support/serve_exact.py"

LC_ALL=C tr -d '\200-\377' <"$reference/text.txt" >ascii.txt

# serve WORDS...: starts a server as $pid at $port.
serve() {
  background "$bin/actorserve" --port 0 --prefix-caching off "$@"
  until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended"; sleep 0.01; done
  port=$(sed -E 's,.*:([0-9]+)/.*,\1,' out)
}
drained() {
  kill -INT "$pid"
  wait "$pid" || fail "the server ends with status $?"
}
rows=12 context=192
gpt=(gpt --layers 2 --width 32 --heads 2)
llama=(llama --layers 3 --width 48 --heads 6 --kv-heads 2 --ffn 80 --bias qkv)
hybrid=(hybrid --layers 2 --width 48 --heads 6 --kv-heads 2 --ffn 144 --spikes 3)
sinks=(hybrid --layers 2 --width 48 --heads 6 --kv-heads 2 --ffn 144 --side-by-side --gates keys --window 20 --sink-tokens 70)
dual=(llama --layers 2 --width 48 --heads 6 --kv-heads 2 --ffn 80
  --rope dual-chunk:chunk_size=96,local_size=32,original_max_position_embeddings=80)
oss=(gpt-oss --layers 2 --width 48 --heads 6 --kv-heads 2 --experts 4 --expert-ffn 32)
latents=(deepseek --layers 2 --width 48 --heads 6 --latent 16 --nope-dim 8 --rope-dim 4 --value-dim 10 --experts 4 --expert-ffn 32)
shape=(--vocab 128 --context "$context")
tight=(--stages 2 --rows 24 --sequences 6 --report served.json)

# compared STATUS TRAINING...: compares the answers with the log-probabilities that training writes.
compared() {
  local want=$1
  shift
  ends 0 "$actorrun" --quiet --steps 1 --logprobs told.jsonl "$@" --batch $rows --data tokens.u16
  ends "$want" python3 "$both" compare answers.json told.jsonl
}
for name in gpt llama hybrid sinks dual oss latents; do
  declare -n model=$name
  pages=4 grids=("--data-parallel 2 --microbatches 3 --stages 2" "--tensor 2 --recompute full")
  case $name in
    sinks) pages=6 ;;
    dual | oss | latents) ;;
    *) grids+=("--exact-leaf 32 --pieces 2 --data-parallel 2 -n 2 ${patient[*]}" "--exact-leaf 32 --sequence 2 --shard parameters"
      "--stages 2 --vocab-parallel --microbatches 2") ;;
  esac
  ends 0 "$actorrun" --quiet --steps 6 --save $name.safetensors "${model[@]}" "${shape[@]}" --lr 1e-2 --warmup 0 \
    --data ascii.txt
  serve --exact "${tight[@]}" --quota kv=$pages --init $name.safetensors "${model[@]}" "${shape[@]}"
  ends 0 python3 "$both" ask "$port" "$seed" $rows $context answers.json tokens.u16
  drained
  python3 -c 'import json; x = json.load(open("served.json")); assert x["rows_again"] > 0, x' || fail "no pages were given up"
  trained=(--exact --init $name.safetensors "${model[@]}" "${shape[@]}")
  compared 0 "${trained[@]}"
  cp told.jsonl first.jsonl
  for grid in "${grids[@]}"; do
    # shellcheck disable=SC2086
    compared 0 $grid "${trained[@]}"
    cmp -s first.jsonl told.jsonl || fail "$name, $grid: other log-probabilities"
  done
done

# Without --exact the comparison has to fail.
serve --init llama.safetensors "${llama[@]}" "${shape[@]}"
ends 0 python3 "$both" ask "$port" "$seed" $rows $context answers.json tokens.u16
drained
compared 1 --init llama.safetensors "${llama[@]}" "${shape[@]}"

# refused TEXT TOOL...: TOOL has to fail with TEXT.
refused() {
  local text=$1
  shift
  ends 2 "$@" --init llama.safetensors "${llama[@]}" "${shape[@]}"
  says "$text" err
}
refused "--exact: not supported with --dtype bf16" "$bin/actorserve" --exact --dtype bf16
refused "--exact: not supported with keys and values in bf16" "$bin/actorserve" --exact --kv bf16
learns=(gpt --layers 1 --width 16 --heads 2 --context 16 --batch 4 --data "$reference/text.txt")
ends 2 "$actorrun" --logprobs l.jsonl --devices timed:1 "${learns[@]}"
says "--logprobs: timed devices hold no values" err
ends 2 "$actorrun" --logprobs l.jsonl pipeline
says "--logprobs: the model must have exactly one cross entropy" err

# With a vocabulary split over stages and devices the log-probabilities equal those of one device,
# and training does not change.
near() { # FILE FILE: equal up to rounding
  python3 - "$@" <<'END'
import json, sys
a, b = ([x for line in open(path) for x in json.loads(line)["logprobs"]] for path in sys.argv[1:])
assert len(a) == len(b) > 100 and all(abs(x - y) < 1e-5 * (1 + abs(x)) for x, y in zip(a, b)), "other log-probabilities"
END
}
wide=(gpt --layers 2 --width 16 --heads 2 --context 16 --batch 4 --data "$reference/text.txt")
ends 0 "$actorrun" --quiet --steps 3 --logprobs one.jsonl "${wide[@]}"
for grid in "--vocab-parallel --stages 2" "--vocab-parallel --stages 2 --vocab-barriers 1 -n 2 ${patient[*]}" "--tensor 2"; do
  # shellcheck disable=SC2086
  ends 0 "$actorrun" --quiet --steps 3 $grid --certify with.jsonl --logprobs told.jsonl "${wide[@]}"
  near one.jsonl told.jsonl || fail "$grid: other log-probabilities"
  # shellcheck disable=SC2086
  ends 0 "$actorrun" --quiet --steps 3 $grid --recheck with.jsonl "${wide[@]}"
done

# A resumed run continues the file.
more=(--quiet --logprobs kept.jsonl --checkpoint kept --every 1 "${learns[@]}")
ends 0 "$actorrun" --steps 2 "${more[@]}"
ends 0 "$actorrun" --steps 3 --resume "${more[@]}"
(($(wc -l <kept.jsonl) == 12)) || fail "$(wc -l <kept.jsonl) rows of three steps"
ends 0 "$actorrun" --quiet --steps 3 --logprobs whole.jsonl "${learns[@]}"
cmp kept.jsonl whole.jsonl
echo "--exact: what is served is what is trained"
