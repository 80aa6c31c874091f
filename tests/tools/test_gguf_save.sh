#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# GGUF files that actorrun writes. In f32 a reloaded file has the model's losses bit for bit; with
# fewer bits the losses are close. Each family's tensor names, RoPE parameters, rows and tokenizer
# survive.
# labels: outside
# needs: pcre2 utf8proc
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

train=(--data "$reference/text.txt" --context 32 --batch 4 --lr 1e-3 --min-lr 1e-3 --warmup 0)
losses() { grep -o '"loss":[^,}]*' "$1"; }
# run REPORT WORDS...: trains for three steps.
run() {
  local report=$1
  shift
  ends 0 "$actorrun" --quiet --report "$report" --steps 3 "$@" llama "${train[@]}"
}
# within PERCENT A B: the first losses have to differ by at most PERCENT. The file stores RoPE
# parameters with nine digits.
within() {
  paste <(losses "$2" | head -1) <(losses "$3" | head -1) | awk -v most="$1" -F'[:\t]' '
    { d = 100 * ($2 - $4) / $2; bad = d > most || -d > most } END { exit bad || !NR }' ||
    fail "$3 is not within $1 % of $2: $(losses "$2" | head -1), $(losses "$3" | head -1)"
}

for model in hf_llama hf_mistral hf_qwen2 hf_qwen3 hf_olmo2 hf_phi3 hf_gemma3; do
  from=$reference/$model
  run of.json --init "$from"
  ends 0 "$actorrun" --quiet --init "$from" --steps 0 --save "$model.gguf" llama "${train[@]}"
  run again.json --init "$model.gguf"
  if [[ $model = hf_qwen2 ]]; then within 1e-5 of.json again.json; continue; fi
  cmp <(losses of.json) <(losses again.json) || fail "$model: a GGUF file in f32 is another model"
  for type in f16 bf16 q8_0 q4_0; do
    ends 0 "$actorrun" --quiet --init "$from" --steps 0 --save "$model.gguf:$type" llama "${train[@]}"
    run less.json --init "$model.gguf"
    within "$([[ $type = q4_0 ]] && echo 3 || echo 0.3)" of.json less.json
  done
done

# Scaled RoPE: LLaMA 3 is stored as factors, the other kinds as metadata.
for rope in llama3:factor=8,low_freq_factor=1,high_freq_factor=4,original_max_position_embeddings=8192 linear:factor=2 \
  yarn:factor=4,original_max_position_embeddings=64; do
  own=(--layers 1 --width 64 --heads 2 --ffn 64 --vocab 256 --rope "$rope" --theta 500000)
  ends 0 "$actorrun" --quiet --steps 0 --save rope.gguf llama "${own[@]}" "${train[@]}"
  ends 0 "$actorrun" --quiet --steps 1 --report of.json llama "${own[@]}" "${train[@]}"
  ends 0 "$actorrun" --quiet --steps 1 --report again.json --init rope.gguf llama "${train[@]}"
  within 1e-5 of.json again.json
done

# Rows that consist of whole blocks of 256.
wide=(llama --layers 1 --width 256 --heads 4 --ffn 512 --vocab 256 --data "$reference/text.txt" --context 16 --batch 2)
ends 0 "$actorrun" --quiet --steps 10 --save wide.gguf "${wide[@]}"
ends 0 "$actorrun" --quiet --steps 1 --report of.json --init wide.gguf "${wide[@]}"
ends 0 "$actorrun" --quiet --steps 0 --init wide.gguf --save packed.gguf:q4_k "${wide[@]}"
ends 0 "$actorrun" --quiet --steps 1 --report less.json --init packed.gguf "${wide[@]}"
within 2 of.json less.json
((4 * $(stat -c %s packed.gguf) < $(stat -c %s wide.gguf))) || fail "four bits take as much room as 32"

# refused NAMED WORDS...: actorrun has to reject WORDS with an error that contains NAMED.
refused() {
  local named=$1
  shift
  ends 2 "$actorrun" --steps 0 "$@"
  grep -qF -- "$named" err || fail "the message names $named"
}
refused "the type must be f32, f16, bf16, q8_0, q4_0 or q4_k" --save a.gguf:q3_k "${wide[@]}"
refused "gpt with these options cannot be written as GGUF; save to a folder or FILE.safetensors" --save a.gguf gpt --data "$reference/text.txt"
refused "only a run of one process can write a GGUF file; save to a folder" --save a.gguf -n 2 --stages 2 llama --layers 2 --data "$reference/text.txt"
