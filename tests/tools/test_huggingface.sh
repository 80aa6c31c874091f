#!/bin/bash
# A Hugging Face folder goes in as it is: its config.json gives the model's options, its losses are
# those of PyTorch (tests/reference/make_pretrained.py), and what contradicts it or cannot be is
# refused by name. What is saved goes in again.
# labels: outside
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

data=$reference/text.txt
train=(--data "$data" --context 32 --batch 4 --lr 1e-3 --min-lr 1e-3 --warmup 0)

losses() { python3 -c 'import json, sys
for s in json.load(open(sys.argv[1]))["steps"]: print(s["step"], s["loss_hex"])' "$1"; }

# run REPORT WORDS...: trains, and leaves its losses in REPORT.losses
run() {
  local report=$1
  shift
  ends 0 "$actorrun" --quiet --report "$report" "$@"
  losses "$report" >"$report.losses"
}

# same REPORT FILE: the losses that PyTorch had
same() {
  python3 - "$1.losses" "$2" <<'PY' || fail "$1: other losses than in $2"
import sys
ours = [float.fromhex(line.split()[1]) for line in open(sys.argv[1])]
theirs = [float(line.split()[1]) for line in open(sys.argv[2]) if line[0] != "#"]
worst = max(abs(a - b) / b for a, b in zip(ours, theirs))
sys.exit(len(ours) != len(theirs) or not worst < 1e-6)
PY
}

# ---- as in PyTorch ------------------------------------------------------------------------------

for name in qwen2 llama3 mistral; do
  run "$name" --init "$reference/hf_$name" --steps 5 llama "${train[@]}"
  same "$name" "$reference/hf_$name/losses.txt"
done
run cut --init "$reference/hf_llama3" --steps 5 --stages 2 --microbatches 2 --pieces 2 llama "${train[@]}"
same cut "$reference/hf_llama3/losses.txt"
run both --init "$reference/hf_qwen2" --steps 5 -n 2 --stages 2 "${patient[@]}" --save pair/ llama "${train[@]}"
same both "$reference/hf_qwen2/losses.txt"

# ---- the options are the folder's -----------------------------------------------------------------

run folder --init "$reference/hf_llama" --steps 3 llama "${train[@]}"
run file --init "$reference/hf_llama/model.safetensors" --steps 3 llama "${train[@]}" --layers 2 \
  --width 32 --heads 4 --kv-heads 2 --ffn 88
cmp folder.losses file.losses || fail "a folder and the options it stands for train alike"
run folder --init "$reference/hf_gpt2" --steps 3 gpt "${train[@]}" --heads 2
run file --init "$reference/hf_gpt2/model.safetensors" --steps 3 gpt "${train[@]}" --layers 2 --width 32 \
  --heads 2
cmp folder.losses file.losses || fail "a GPT-2 folder and the options it stands for train alike"

# refused NAMED WORDS...
refused() {
  local named=$1
  shift
  ends 2 "$actorrun" "$@"
  grep -qF -- "$named" err || fail "the message names $named"
}
refused "--heads 2 contradicts $reference/hf_llama/config.json, which says 4 (num_attention_heads)" \
  --init "$reference/hf_llama" llama "${train[@]}" --heads 2
refused "--eps 1e-6" --init "$reference/hf_gpt2" gpt "${train[@]}" --eps 1e-6
refused "--theta 1e6" --init "$reference/hf_llama" llama "${train[@]}" --theta 1e6
refused "--tied 1" --init "$reference/hf_llama" llama "${train[@]}" --tied
refused "--rope linear:factor=2" --init "$reference/hf_qwen2" llama "${train[@]}" --rope linear:factor=2
refused "--window 8 contradicts $reference/hf_mistral/config.json, which says 7 (sliding_window)" \
  --init "$reference/hf_mistral" llama "${train[@]}" --window 8
refused "--window 8" --init "$reference/hf_llama" llama "${train[@]}" --window 8
refused "only mistral has a --window" --save made/ llama "${train[@]}" --window 8 --bias qkv
refused "only mistral has a --window" --save made/ gpt "${train[@]}" --window 8
refused "--context 64 is more than --positions 32" --init "$reference/hf_llama" llama --data "$data" --context 64
refused "should be llama, not gpt" --init "$reference/hf_llama" gpt "${train[@]}"

# edited OLD NEW NAMED: hf_llama with another config.json is refused by that name
edited() {
  rm -rf edited
  cp -r "$reference/hf_llama" edited
  sed -i "s/$1/$2/" edited/config.json
  refused "$3" --init edited llama "${train[@]}"
}
edited '"model_type": "llama"' '"model_type": "bert"' bert
edited '"silu"' '"gelu"' hidden_act
edited '"mlp_bias": false' '"mlp_bias": true' mlp_bias
edited '"attention_dropout"' '"quantization_config": {"bits": 4}, "x"' quantization_config
edited '"hidden_size": 32' '"hidden_size": "32"' hidden_size
edited '"num_hidden_layers": 2,' '' num_hidden_layers
edited '"rope_type": "default"' '"rope_type": "longrope", "factor": 2' longrope
edited '"rope_type": "default"' '"rope_type": "yarn", "factor": 2, "mscale": 1' mscale
edited '"mlp_bias": false' '"sliding_window": 16' "sliding window of 16"
edited '"vocab_size": 256' '"vocab_size": 300' model.embed_tokens.weight
edited '^{' '' "no JSON object"

# ---- what is saved goes in again ----------------------------------------------------------------------

ends 0 "$actorrun" --quiet --init "$reference/hf_llama3" --steps 2 --save tuned/ llama "${train[@]}"
ends 0 "$actorrun" --quiet --init "$reference/hf_llama3" --steps 2 --save tuned.safetensors llama "${train[@]}"
cmp tuned/model.safetensors tuned.safetensors || fail "a folder has the same weights"
run again --init tuned --steps 2 --save tuned llama "${train[@]}"
grep -q '"rope_type":[[:space:]]*"llama3"' tuned/config.json || fail "config.json is kept"
grep -q float32 tuned/config.json || fail "config.json says that weights are fp32"
model=(--layers 2 --width 32 --heads 4 --kv-heads 2 --bias qkv --tied --positions 64 --theta 50000
       --rope yarn:factor=4,original_max_position_embeddings=16 --eps 1e-6)
ends 0 "$actorrun" --quiet --steps 2 --save made/ llama "${train[@]}" "${model[@]}"
run folder --init made --steps 2 llama "${train[@]}"
run file --init made/model.safetensors --steps 2 llama "${train[@]}" "${model[@]}"
cmp folder.losses file.losses || fail "config.json says all of the options that weights were made with"
ends 0 "$actorrun" --quiet --steps 2 --save near/ llama "${train[@]}" --layers 2 --width 32 --heads 4 \
  --window 5
grep -q '"sliding_window":[[:space:]]*5' near/config.json || fail "config.json says the window"
run folder --init near --steps 2 llama "${train[@]}"
run file --init near/model.safetensors --steps 2 llama "${train[@]}" --layers 2 --width 32 --heads 4 \
  --window 5
cmp folder.losses file.losses || fail "a window goes out and in"
run again --init pair --steps 1 llama "${train[@]}"
refused "cannot make the folder" --steps 1 --save no/such/ llama "${train[@]}"

# ---- text by its tokenizer ----------------------------------------------------------------------------

mkdir tokens
cp "$reference/tokenizers/llama3.json" tokens/tokenizer.json
small=(--layers 1 --width 16 --heads 2 --vocab 2100)
ends 0 "$actorrun" --quiet --steps 1 --save tokens/ llama "${train[@]}" "${small[@]}"
run plain --init tokens --steps 2 llama "${train[@]}"
run given --init tokens/model.safetensors --tokenizer tokens/tokenizer.json --steps 2 llama "${train[@]}" "${small[@]}"
cmp plain.losses given.losses || fail "the tokenizer of the folder is used"
ends 0 "$actorrun" --quiet --init tokens --steps 2 --eval "$data" --eval-every 2 llama "${train[@]}"
run bytes --init tokens --steps 2 llama "${train[@]:2}" --data "$data:u8"
cmp -s plain.losses bytes.losses && fail "bytes are other tokens"
ends 0 "$actorrun" --quiet --init tokens --steps 0 --generate 5 --temperature 0 --prompt "Hello  wörld 中" llama
grep -q "^Hello  wörld 中" out || fail "what was written begins with the prompt"
ends 0 "$actorrun" --quiet --init tokens --steps 1 --save copy/ llama "${train[@]}"
cmp copy/tokenizer.json tokens/tokenizer.json || fail "the tokenizer goes along"
refused "vocabulary of 500" --tokenizer tokens/tokenizer.json --steps 0 --generate 1 --prompt "The whole" \
  llama --layers 1 --width 16 --heads 2 --vocab 500

# A long text is made into tokens once: the next run finds them, and another text or tokenizer does not.
for _ in {1..1300}; do cat "$data"; done >long.txt
run first --init tokens --steps 2 llama "${train[@]:2}" --data long.txt
kept=(.cache/sluice/tokens/*.u32)
((${#kept[@]} == 1)) && [[ -s ${kept[0]} ]] || fail "the tokens are kept"
inode=$(stat -c %i "${kept[0]}")
touch -d "40 days ago" "${kept[0]}" .cache/sluice/tokens/{0-4.u32,mine.txt}
run second --init tokens --steps 2 llama "${train[@]:2}" --data long.txt
cmp first.losses second.losses || fail "kept tokens are the same"
[[ $(stat -c %i "${kept[0]}") == "$inode" ]] || fail "the tokens are not made again"
cp "$reference/tokenizers/smollm.json" other.json
run third --init tokens/model.safetensors --tokenizer other.json --steps 2 llama "${train[@]:2}" --data long.txt "${small[@]}"
cmp -s first.losses third.losses && fail "another tokenizer makes other tokens"
[[ ! -e .cache/sluice/tokens/0-4.u32 && -e .cache/sluice/tokens/mine.txt && -e ${kept[0]} ]] ||
  fail "what nobody has used for long goes, and nothing else: $(ls .cache/sluice/tokens)"
echo "one more line" >>long.txt
run fourth --init tokens --steps 2 llama "${train[@]:2}" --data long.txt
kept=(.cache/sluice/tokens/*.u32)
((${#kept[@]} == 3)) || fail "each is kept by itself"
XDG_CACHE_HOME=/proc run nowhere --init tokens --steps 2 llama "${train[@]:2}" --data long.txt
cmp nowhere.losses fourth.losses || fail "without a place to keep them they are the same"

printf 'abc\xff' >bad.txt
refused "bad.txt: byte 3 is no UTF-8" --init tokens llama "${train[@]}" --data bad.txt
echo '{}' >tokens/tokenizer.json
refused "tokens/tokenizer.json: there is no model" --init tokens llama "${train[@]}"
