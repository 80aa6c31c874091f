#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Families of dense models: their folders (tests/reference/make_dense.py) have PyTorch's losses on any grid, and
# are written as they were read; a GGUF file of the same weights has the same losses; what actorrun and
# actorserve answer is what transformers generates; what is not done is refused by name.
# labels: outside
# needs: zeromq libevent pcre2 utf8proc
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need curl
need python3

data=(--data "$reference/text.txt" --context 32 --batch 4)
train=("${data[@]}" --lr 1e-3 --min-lr 1e-3 --warmup 0)

# run REPORT WORDS...
run() {
  local report=$1
  shift
  ends 0 "$actorrun" --quiet --report "$report" "$@"
}
# near REPORT FILE: losses differ by less than 1e-6, each by the other
near() {
  python3 - "$@" <<'PY' || fail "$1: other losses than in $2"
import json, sys
ours = [s["loss"] for s in json.load(open(sys.argv[1]))["steps"]]
theirs = [float(line.split()[1]) for line in open(sys.argv[2]) if line[0] != "#"]
sys.exit(len(ours) != len(theirs) or not max(abs(a - b) / b for a, b in zip(ours, theirs)) < 1e-6)
PY
}
# holds FOLDER FOLDER: the same tensors, bit for bit, whatever their files and types
holds() {
  python3 - "$@" <<'PY' || fail "$1 and $2 hold other tensors"
import glob, json, struct, sys
def tensors(folder):
    found = {}
    for path in glob.glob(folder + "/*.safetensors"):
        data = open(path, "rb").read()
        n = struct.unpack("<Q", data[:8])[0]
        for name, t in json.loads(data[8:8 + n]).items():
            if name == "__metadata__": continue
            a, b = t["data_offsets"]
            raw, wide = data[8 + n + a:8 + n + b], bytearray()
            if t["dtype"] == "BF16":
                for i in range(0, len(raw), 2): wide += b"\0\0" + raw[i:i + 2]
            found[name] = (t["shape"], bytes(wide or raw))
    return found
a, b = map(tensors, sys.argv[1:])
sys.exit(not a or a != b)
PY
}
# A token is a letter here, so that an answer says which it is.
letters() {
  python3 - "$1" <<'PY'
import json, sys
model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
         "fuse_unk": False, "byte_fallback": False, "vocab": {chr(256 + i): i for i in range(256)}, "merges": []}
json.dump({"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None,
           "decoder": None, "model": model}, open(sys.argv[1] + "/tokenizer.json", "w"))
PY
}
# tokens: the letters of a text as numbers
tokens() { python3 -c 'import sys; print(*[ord(c) - 256 for c in sys.stdin.read().split()])'; }

# answers FAMILY: 50 tokens by actorrun, and alone and among others by actorserve
answers() {
  local family=$1 folder=$work/letters prompt want text url
  rm -rf "$folder"
  cp -r "$reference/hf_$family" "$folder"
  letters "$folder"
  prompt=$(head -1 "$folder/greedy.txt")
  want=$(tail -1 "$folder/greedy.txt")
  text=$(python3 -c 'import sys; print("".join(chr(256 + int(t)) for t in sys.argv[1].split()))' "$prompt")
  ends 0 "$actorrun" --quiet --init "$folder" --steps 0 --generate 50 --temperature 0 --prompt "$text" llama
  [[ "$(tokens <out)" == "$prompt $want" ]] || fail "$family: actorrun answers $(tokens <out), not $prompt $want"
  background "$bin/actorserve" --port 0 "$folder"
  until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended"; sleep 0.01; done
  url=$(<out)
  url=${url##* }
  python3 - "$url" "$prompt" "$want" <<'PY' || fail "$family: the server's answers are other ones"
import json, sys, threading, urllib.request
url, prompt, want = sys.argv[1], *([int(t) for t in text.split()] for text in sys.argv[2:])
got = [None] * 5
def ask(i):
    body = {"prompt": prompt + want[:7 * i], "max_tokens": 50 - 7 * i, "temperature": 0}
    with urllib.request.urlopen(urllib.request.Request(url + "/completions", json.dumps(body).encode())) as reply:
        got[i] = [ord(c) - 256 for c in json.load(reply)["choices"][0]["text"].split()]
asking = [threading.Thread(target=ask, args=(i,)) for i in range(5)]
for t in asking: t.start()
for t in asking: t.join()
sys.exit(got != [want[7 * i:] for i in range(5)])
PY
  kill -INT "$pid"
  wait "$pid" || fail "$family: the server ends badly"
}

families=(gemma3 olmo2 phi3 qwen3)
mkdir saved unpacked
for family in "${families[@]}"; do
  folder=$reference/hf_$family
  run whole --init "$folder" --steps 5 llama "${train[@]}"
  near whole "$folder/losses.txt"
  run gguf --init "$reference/gguf/$family.gguf" --steps 5 llama "${train[@]}"
  cmp <(hexes whole) <(hexes gguf) || fail "$family: a GGUF file trains as the folder does"
  for grid in "--stages 2 --microbatches 2 --pieces 2" "--tensor 2 -n 2" "--data-parallel 2 --shard parameters" \
    "--sequence 2 --recompute full"; do
    # shellcheck disable=SC2086
    run grid --init "$folder" --steps 5 $grid "${patient[@]}" llama "${train[@]}"
    near grid "$folder/losses.txt"
  done
  # What is written holds what was read, says the same in config.json, and trains alike; as does what a GGUF file becomes.
  ends 0 "$actorrun" --quiet --init "$folder" --steps 0 --save "saved/$family/" --stages 2 llama "${data[@]}"
  holds "$folder" "saved/$family"
  ends 0 "$actorrun" --quiet --init "$reference/gguf/$family.gguf" --steps 0 --save "unpacked/$family/" llama "${data[@]}"
  holds "$folder" "unpacked/$family"
  for again in saved unpacked; do
    run again --init "$again/$family" --steps 5 llama "${train[@]}"
    cmp <(hexes whole) <(hexes again) || fail "$family: a folder that was $again trains as the one that was read"
    grep -q "\"model_type\":[[:space:]]*\"$family" "$again/$family/config.json" || fail "$family: $again/config.json has another model_type"
  done
  answers "$family"
done

# refused NAMED WORDS...
refused() {
  local named=$1
  shift
  ends 2 "$actorrun" "$@"
  grep -qF -- "$named" err || fail "the message names $named"
}
# edited FAMILY OLD NEW NAMED: its folder with another config.json is refused by that name
edited() {
  rm -rf edited
  cp -r "$reference/hf_$1" edited
  sed -i "s/$2/$3/" edited/config.json
  refused "$4" --init edited llama "${train[@]}"
}
refused "--qk-norm 1 contradicts $reference/hf_llama/config.json, which says 0 (model_type)" --init "$reference/hf_llama" llama \
  "${train[@]}" --qk-norm
refused "llama: --qk-norm or --qk-norm-whole, not both" --steps 1 llama "${train[@]}" --qk-norm --qk-norm-whole
refused "llama: --norms here: it is one of before, after, both" --steps 1 llama "${train[@]}" --norms here
refused "no model of Hugging Face's is as llama with these options" --steps 1 --save x/ llama "${train[@]}" --qk-norm --norms after
# With --exact the bits are the same on any grid.
exact=("$actorrun" --quiet --exact --steps 2)
words=(llama --data "$reference/text.txt" --context 64 --batch 4 --layers 2 --width 32 --heads 4 --kv-heads 2 --exact-leaf 32 --packed
  --window 20 --full-every 2 --local-theta 500 --norms both --gate gelu --logit-cap 9 --qk-norm-whole --plus-one --scaled-embedding --tied)
ends 0 "${exact[@]}" --certify bits.jsonl "${words[@]}"
for grid in "--pieces 2 --stages 2" "--tensor 2 --data-parallel 2" "--sequence 2"; do
  # shellcheck disable=SC2086
  ends 0 "${exact[@]}" $grid --recheck bits.jsonl "${words[@]}"
done
# Keys of files of before transformers 5 say the same.
cp -r "$reference/hf_gemma3" old
cp "$reference/hf_gemma3/older.json" old/config.json
run older --init old --steps 5 llama "${train[@]}"
near older "$reference/hf_gemma3/older.txt"
# A model that was trained anew is written as what it is.
small=(--layers 4 --width 32 --heads 2 --kv-heads 1 --head-dim 16)
made() {
  local type=$1
  shift
  rm -rf made
  run fresh --steps 2 --save made/ llama "${train[@]}" "${small[@]}" "$@"
  grep -q "\"model_type\":[[:space:]]*\"$type\"" made/config.json || fail "$*: a folder of another type: $(<made/config.json)"
  run one --init made --steps 1 llama "${train[@]}"
  run two --init made/model.safetensors --steps 1 llama "${train[@]}" "${small[@]}" "$@"
  cmp <(hexes one) <(hexes two) || fail "$*: the folder is another model"
}
gemma=(--qk-norm --norms both --plus-one --gate gelu --scaled-embedding --tied)
made gemma3_text "${gemma[@]}" --window 5 --full-every 3 --local-theta 5000 --rope linear:factor=2 --logit-cap 9 --query-scalar 30
made gemma3_text "${gemma[@]}"
made olmo2 --norms after --qk-norm-whole
made phi3 --packed --window 9
made qwen3 --qk-norm --tied --bias attention
made mistral --window 9
made llama --theta 500
refused "of models with a --window only mistral, phi3 and gemma3_text are known" --save made/ llama "${train[@]}" --window 8 --qk-norm
refused "no model of Hugging Face's is as llama with these options" --save made/ llama "${train[@]}" "${gemma[@]}" --rope linear:factor=2
refused "llama: --gate relu: it is silu or gelu" --steps 1 llama "${train[@]}" --gate relu
edited gemma3 '"model_type": "gemma3_text"' '"model_type": "gemma3"' 'sees pictures'
edited gemma3 '"attn_logit_softcapping": null' '"attn_logit_softcapping": 50' attn_logit_softcapping
edited gemma3 '"use_bidirectional_attention": false' '"use_bidirectional_attention": true' use_bidirectional_attention
edited gemma3 '"gelu_pytorch_tanh"' '"gelu"' hidden_activation
edited gemma3 '"num_hidden_layers": 4' '"num_hidden_layers": 3' 'layer_types is no pattern of windows'
edited gemma3 '"sliding_attention",' '"chunked_attention",' 'layer_types is no pattern of windows'
edited gemma3 '"sliding_window": 7' '"sliding_window": null' 'sliding_window is null, but some layers have one'
edited gemma3 '"rope_type": "default"' '"rope_type": "linear", "factor": 2' 'angles of sliding_attention are stretched'
edited gemma3 '"full_attention": {' '"chunked_attention": {' chunked_attention
edited phi3 '"rope_type": "default"' '"rope_type": "longrope", "short_factor": [1], "long_factor": [2]' 'rope_type longrope is not supported'
edited phi3 '"partial_rotary_factor": 1.0' '"partial_rotary_factor": 0.5' partial_rotary_factor
edited olmo2 '"hidden_act": "silu"' '"hidden_act": "relu"' hidden_act
refused "--norms before contradicts $reference/hf_olmo2/config.json, which says after (model_type)" --init "$reference/hf_olmo2" llama \
  "${train[@]}" --norms before
refused "--full-every 3 contradicts $reference/gguf/gemma3.gguf, which says 2 (gemma3.attention.sliding_window_pattern)" \
  --init "$reference/gguf/gemma3.gguf" llama "${train[@]}" --full-every 3
edited qwen3 '"use_sliding_window": false' '"use_sliding_window": true/; s/"sliding_window": null/"sliding_window": 8' 'sliding window of'
edited qwen3 '"full_attention",' '"sliding_attention",' 'layer_types'
edited qwen3 '"rope_type": "default"' '"rope_type": "dynamic", "factor": 2' dynamic
edited qwen3 '"head_dim": 16,' '' 'model.layers.0.self_attn.q_proj.weight'
LC_ALL=C sed 's/blk.1.attn_q_norm.weight/blk.1.attn_x_norm.weight/' "$reference/gguf/qwen3.gguf" >edited.gguf
refused "has no tensor model.layers.1.self_attn.q_norm.weight" --init edited.gguf llama "${train[@]}"
LC_ALL=C sed 's/blk.1.attn_q_norm.weight/blk.1.attn_q_norm.biases/' "$reference/gguf/qwen3.gguf" >edited.gguf
refused "has no tensor model.layers.1.self_attn.q_norm.weight" --init edited.gguf llama "${train[@]}"
echo "dense: ${#families[@]} families"
