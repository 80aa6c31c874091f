#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Models are served on emulated GPUs: greedy text is the CPU's, on one GPU, on stages, on a grid and
# in several processes, with weights, pages and prefixes in other memories. actorserve answers with
# the CPU's tokens, and log-probabilities close to its own.
# labels: outside
# needs: libevent zeromq pcre2 utf8proc
set -euo pipefail
# shellcheck source=tests/support/emulated.sh
source "$SLUICE_SOURCE/tests/support/emulated.sh"
need curl
need python3
actorserve=$SLUICE_BUILD/tests/emulated_actorserve

train() { # MODEL WORDS...
  local model=$1
  shift
  ends 0 "$actorrun" --quiet --steps 6 --save "$model.safetensors" "$model" --data "$reference/text.txt" \
    --layers 2 --context 64 --lr 1e-2 --warmup 0 "$@"
}
# writes FILE MODEL OPTIONS... -- WORDS...: generates greedy text.
writes() {
  local to=$1 model=$2 options=()
  shift 2
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  shift
  ends 0 "$actorrun" --quiet "${patient[@]}" --temperature 0 --steps 0 --generate 12 --prompt "And the " \
    --init "$model.safetensors" "${options[@]}" "$model" --layers 2 --context 64 "$@"
  cp out "$to"
}
as_on_cpu() { cmp -s cpu "$1" || fail "$1: $(<"$1"), on the CPU $(<cpu)"; }

small=(--width 32 --heads 4 --kv-heads 2 --window 20 --bias qkv)
train llama "${small[@]}"
writes cpu llama -- "${small[@]}"
writes one llama --devices cuda -- "${small[@]}"
as_on_cpu one
SLUICE_EMULATED_GUARD=1 SLUICE_EMULATED_GPUS=2 writes stages llama --devices cuda --stages 2 -- "${small[@]}"
as_on_cpu stages
SLUICE_EMULATED_GUARD=1 SLUICE_EMULATED_GPUS=2 writes tensor llama --devices cuda --tensor 2 -- "${small[@]}"
as_on_cpu tensor
writes processes llama --devices cuda -n 2 --stages 2 -- "${small[@]}"
as_on_cpu processes

# A table that two stages read is on both, whether or not their GPUs reach each other.
tied=(--width 32 --heads 4)
train gpt "${tied[@]}"
writes cpu gpt -- "${tied[@]}"
for peers in 0 1; do
  SLUICE_EMULATED_GUARD=1 SLUICE_EMULATED_GPUS=2 SLUICE_EMULATED_PEERS=$peers writes stages gpt --devices cuda \
    --stages 2 -- "${tied[@]}"
  as_on_cpu stages
done

# a SERVER's answers: text, and log-probabilities.
serve() { # WORDS...
  background "$actorserve" --port 0 --context 64 "$@"
  until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended"; sleep 0.01; done
  url=$(<out)
  url=${url##* }
}
drained() {
  local got=0
  kill -INT "$pid"
  wait "$pid" || got=$?
  ((got == 0)) || fail "it ends with status $got"
}
answers() { # FILE
  for request in '"temperature":0' '"temperature":1.1,"seed":3,"top_k":20' '"temperature":0.9,"top_p":0.8,"seed":4' \
    '"temperature":1,"seed":5,"frequency_penalty":1.5,"logit_bias":{"65":3}'; do
    curl -sS "$url/completions" -d "{\"prompt\":\"And the King \",\"max_tokens\":12,\"logprobs\":3,$request}"
    echo
  done >"$1"
}
near() { # FILE FILE MOST
  python3 - "$@" <<'PY' || fail "$1 and $2 differ"
import json, sys
one, two = ([json.loads(line)["choices"][0] for line in open(name)] for name in sys.argv[1:3])
assert len(one) == len(two) == 4
for a, b in zip(one, two):
    assert a["text"] == b["text"], (a["text"], b["text"])
    for x, y in zip(a["logprobs"]["token_logprobs"], b["logprobs"]["token_logprobs"]):
        assert abs(x - y) < float(sys.argv[3]), (x, y)
PY
}
model=(--init llama.safetensors llama --layers 2 "${small[@]}")
serve "${model[@]}"
answers on_cpu
drained
for options in "--report graphs" "--rows 4" "--prefix-caching host:1M --quota kv=2" "--weights disk" "--kv bf16"; do
  # shellcheck disable=SC2086
  SLUICE_CUDA_GRAPHS=1 serve --devices cuda $options "${model[@]}"
  answers on_gpu
  drained
  most=1e-5
  [[ $options != "--kv bf16" ]] || most=2e-2
  near on_cpu on_gpu $most
done
# Ticks with the same number of rows are replayed as a CUDA graph.
python3 - <<'PY' || fail "no tick is replayed: $(<graphs)"
import json
x = json.load(open("graphs"))
assert 0 < x["replayed"] < x["ticks"], x
PY
serve --kv q8_0 "${model[@]}"
answers on_cpu
drained
serve --devices cuda --kv q8_0 "${model[@]}"
answers on_gpu
drained
near on_cpu on_gpu 1e-3

# Experts that are read as rows want them have the bits of experts in memory; experts in planes are near the CPU's.
export TMPDIR=$PWD
mixture=(--width 32 --heads 2 --experts 4 --expert-ffn 16)
train qwen-moe "${mixture[@]}"
mixture=(--init qwen-moe.safetensors qwen-moe --layers 2 "${mixture[@]}")
# answer_as FILE MOST OPTIONS...: answers of the server are within MOST of those of FILE.
answer_as() {
  SLUICE_EMULATED_GUARD=1 SLUICE_EMULATED_GPUS=2 serve "${@:3}" "${mixture[@]}"
  answers on_gpu
  drained
  near "$1" on_gpu "$2"
}
serve --devices cuda "${mixture[@]}"
answers in_memory
drained
for options in "--quota experts=2" "--prefetch 1 --quota experts=3 --rows 5" "--quota experts=2 --stages 2"; do
  # shellcheck disable=SC2086
  answer_as in_memory 1e-30 --devices cuda --weights experts $options
done
serve --weights experts --experts planes:2..4 "${mixture[@]}"
answers on_cpu
drained
answer_as on_cpu 1e-5 --devices cuda --weights experts --experts planes:2..4 --quota experts=7
