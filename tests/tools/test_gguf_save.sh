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

# A LLaMA with biases: the rows of q and k are in another order in the file, biases included. Heads
# that are no quotient of the width need two keys.
wide_heads=(llama --layers 1 --width 32 --heads 4 --kv-heads 2 --head-dim 16 --bias attention --vocab 256)
ends 0 "$actorrun" --quiet --steps 3 --save biased.safetensors "${wide_heads[@]}" "${train[@]}" --lr 0.1
ends 0 "$actorrun" --quiet --init biased.safetensors --steps 0 --save biased.gguf "${wide_heads[@]}" "${train[@]}"
ends 0 "$actorrun" --quiet --init biased.safetensors --steps 1 --report of.json "${wide_heads[@]}" "${train[@]}"
ends 0 "$actorrun" --quiet --init biased.gguf --steps 1 --report again.json llama "${train[@]}"
cmp <(losses of.json) <(losses again.json) || fail "biases are not in the order of their rows"
python3 - <<'PY' || fail "q's bias and weight are in different orders, or a key is missing"
import struct, sys
data = open("biased.gguf", "rb").read()
for key in b"llama.attention.key_length", b"llama.attention.value_length":
    at = data.index(key) + len(key)
    if struct.unpack_from("<I", data, at + 4) != (16,):
        sys.exit(1)
PY

# Tokens that a tokenizer puts around texts, whatever its post-processor.
python3 - "$reference/tokenizers/smollm.json" <<'PY'
import json, os, sys
tokenizer = json.load(open(sys.argv[1]))
begin, end = [next(t for t in tokenizer["added_tokens"] if t["id"] == i) for i in (1, 2)]
def template(before, after):
    mark = lambda t: {"SpecialToken": {"id": t["content"], "type_id": 0}}
    row = [mark(begin)] * before + [{"Sequence": {"id": "A", "type_id": 0}}] + [mark(end)] * after
    ids = {t["content"]: {"id": t["content"], "ids": [t["id"]], "tokens": [t["content"]]} for t in (begin, end)}
    return {"type": "TemplateProcessing", "single": row, "pair": row, "special_tokens": ids}
level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
for name, post in ("plain", None), ("begin", template(1, 0)), ("sequence", {"type": "Sequence", "processors": [level, template(1, 0)]}), \
        ("end", template(0, 1)), ("two", template(2, 0)):
    os.mkdir(name)
    tokenizer["post_processor"] = post
    json.dump(tokenizer, open(name + "/tokenizer.json", "w"))
    json.dump({"bos_token": begin["content"], "eos_token": end["content"]}, open(name + "/tokenizer_config.json", "w"))
PY
small=(llama --layers 1 --width 32 --heads 2 --vocab 700 "${train[@]}")
for case in "plain 0 0" "begin 1 0" "sequence 1 0" "end 0 1"; do
  read -r name bos eos <<<"$case"
  ends 0 "$actorrun" --quiet --steps 0 --tokenizer "$name/tokenizer.json" --save "$name.gguf" "${small[@]}"
  python3 - "$name.gguf" "$bos" "$eos" <<'PY' || fail "$case: other tokens are put around texts"
import sys
data = open(sys.argv[1], "rb").read()
flag = lambda key: data[data.index(key) + len(key) + 4]
sys.exit([flag(b"tokenizer.ggml.add_bos_token"), flag(b"tokenizer.ggml.add_eos_token")] != [int(x) for x in sys.argv[2:]])
PY
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

# Readers know LLaMA 3's numbers; factors of others say nothing to them.
for rope in low_freq_factor=1,high_freq_factor=4,original_max_position_embeddings=4096 \
  low_freq_factor=2,high_freq_factor=4,original_max_position_embeddings=8192; do
  own=(--layers 1 --width 64 --heads 2 --ffn 64 --vocab 256 --rope "llama3:factor=8,$rope" --theta 500000)
  ends 2 "$actorrun" --quiet --steps 0 --save rope.gguf llama "${own[@]}" "${train[@]}"
  says "GGUF files keep its factors alone" err
done

# Rows that consist of whole blocks of 256.
wide=(llama --layers 1 --width 256 --heads 4 --ffn 512 --vocab 256 --data "$reference/text.txt" --context 16 --batch 2)
ends 0 "$actorrun" --quiet --steps 10 --save wide.gguf "${wide[@]}"
ends 0 "$actorrun" --quiet --steps 1 --report of.json --init wide.gguf "${wide[@]}"
ends 0 "$actorrun" --quiet --steps 0 --init wide.gguf --save packed.gguf:q4_k "${wide[@]}"
ends 0 "$actorrun" --quiet --steps 1 --report less.json --init packed.gguf "${wide[@]}"
within 2 of.json less.json
((4 * $(stat -c %s packed.gguf) < $(stat -c %s wide.gguf))) || fail "four bits take as much room as 32"

mkdir scaled
cp "$reference"/hf_gemma3/* scaled
sed -i 's/"query_pre_attn_scalar": [0-9]*/"query_pre_attn_scalar": 100/' scaled/config.json
# refused NAMED WORDS...: actorrun has to reject WORDS with an error that contains NAMED.
refused() {
  local named=$1
  shift
  ends 2 "$actorrun" --steps 0 "$@"
  grep -qF -- "$named" err || fail "the message names $named"
}
refused "the tokenizer puts 2 tokens before a text and 0 behind it" --tokenizer two/tokenizer.json --save a.gguf "${small[@]}"
refused "--query-scalar is 100, but readers of a GGUF file of gemma3 use" --save a.gguf --init scaled llama "${train[@]}"
refused "the type must be f32, f16, bf16, q8_0, q4_0 or q4_k" --save a.gguf:q3_k "${wide[@]}"
refused "gpt with these options cannot be written as GGUF; save to a folder or FILE.safetensors" --save a.gguf gpt --data "$reference/text.txt"
refused "only a run of one process can write a GGUF file; save to a folder" --save a.gguf -n 2 --stages 2 llama --layers 2 --data "$reference/text.txt"
