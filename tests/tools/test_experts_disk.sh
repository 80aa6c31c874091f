#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Experts on disk: answers have the same bits as with experts in memory, alone and together, for any
# number of experts that layers hold. The bytes read are those of the experts that were wanted and
# not held. With --memory, layers hold as many as fit. Invalid settings are refused by name.
# labels: outside
# needs: libevent
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

actorserve=$bin/actorserve
mkdir -p disk
export TMPDIR=$PWD/disk
shape=(--context 64 --layers 2 --width 24 --heads 3 --top-k 3)
odd=(mixtral "${shape[@]}" --experts 7 --expert-ffn 40)
ends 0 "$actorrun" --quiet --steps 3 --save odd.safetensors "${odd[@]}" --data "$reference/text.txt" --batch 2

# try OUT WORDS...: serves three prompts, alone and together, and writes the answers and counts.
try() {
  local to=$1
  shift
  python3 - "$to" "$actorserve" --port 0 --quota kv=16 "$@" <<'PY' || fail "$*"
import json, re, subprocess, sys, threading, urllib.request
to, *words = sys.argv[1:]
server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
url = server.stdout.readline().split()[-1]
def ask(prompt):
    body = {"prompt": prompt, "max_tokens": 9, "temperature": 0, "logprobs": 1}
    with urllib.request.urlopen(url + "/completions", json.dumps(body).encode()) as answer:
        choice = json.load(answer)["choices"][0]
    return choice["text"], choice["logprobs"]["token_logprobs"]
prompts = ["And the king", "x", "In the beginning was"]
together = [None] * len(prompts)
def store(i): together[i] = ask(prompts[i])
threads = [threading.Thread(target=store, args=(i,)) for i in range(len(prompts))]
for t in threads: t.start()
for t in threads: t.join()
alone = [ask(p) for p in prompts]
assert alone == together, "other bits together"
with urllib.request.urlopen(url.removesuffix("/v1") + "/metrics") as answer:
    counts = dict(re.findall(r"^sluice_(experts?_\w+)_total (\d+)", answer.read().decode(), re.M))
server.terminate()
assert server.wait() == 0
json.dump([alone, {k: int(n) for k, n in counts.items()}], open(to, "w"))
PY
}

# counted OUT PART HELD: every part wanted was held or read, and has PART bytes.
counted() {
  python3 - "$@" <<'PY' || fail "$1: $(cat "$1")"
import json, sys
answers, n = json.load(open(sys.argv[1]))
part, want_all = int(sys.argv[2]), sys.argv[3]
assert answers == json.load(open("memory.json"))[0], "other bits than in memory"
assert n["experts_wanted"] == n["experts_held"] + n["experts_read"] + n["experts_guessed_right"], n
assert (n["experts_guessed"] > 0) == (want_all == "ahead"), n
assert n["expert_bytes_guessed"] - n["expert_bytes_wasted"] == part * n["experts_guessed_right"], n
assert n["expert_bytes_read"] == part * n["experts_read"] > 0, n
assert want_all != "all" or n["experts_read"] <= 14, n
PY
}

model=(--init odd.safetensors "${odd[@]}")
bytes=$((3 * 24 * 40 * 4))
try memory.json "${model[@]}"
for n in 2 5; do
  try out.json --weights experts --quota experts=$n "${model[@]}"
  counted out.json $bytes some
done
try out.json --weights disk --quota experts=7 "${model[@]}"
counted out.json $bytes all
try out.json --weights experts --home experts@h.1=device "${model[@]}"
counted out.json $bytes some
# Guesses of earlier layers do not change bits, also of another stage's layers.
try out.json --weights experts --prefetch 1 --quota experts=2 "${model[@]}"
counted out.json $bytes ahead
try out.json --weights experts --prefetch 1 --quota experts=5 --stages 2 --devices cpu:2x1 "${model[@]}"
counted out.json $bytes ahead
# With one block on each stage, weights that a disk would save nothing of stay in memory.
SLUICE_CHECK=slots try out.json --weights disk --prefetch 1 --quota experts=2 --rows 3 --stages 2 --devices cpu:2x1 "${model[@]}"
counted out.json $bytes ahead
SLUICE_CHECK=slots try out.json --weights experts --quota experts=4 --rows 3 "${model[@]}"
counted out.json $bytes some
try out.json --weights experts --memory 620K --rows 4 --sequences 3 "${model[@]}"
counted out.json $bytes some

# Blocks of a GGUF file are read as they are stored: by rows of 34 or 20 bytes for 32 numbers, in whole words.
blocks=(qwen-moe --qk-norm --context 64 --layers 2 --width 96 --heads 3 --top-k 3 --experts 4 --expert-ffn 288)
ends 0 "$actorrun" --quiet --steps 1 --save blocks/ "${blocks[@]}" --data "$reference/text.txt" --batch 1
for type in q8_0:$((2 * 288 * 104 + 96 * 308)) q4_0:$((2 * 288 * 60 + 96 * 180)); do
  python3 "$reference/gguf_folder.py" blocks blocks.gguf "${type%:*}"
  try memory.json blocks.gguf
  try out.json --weights experts --quota experts=2 blocks.gguf
  counted out.json "${type#*:}" some
done

# Planes: the same bits with few slots and with all; a part has a plane of each matrix.
plane=$(((2 * 40 * (1 + 1) + 24 * (2 + 1)) * 4))
try memory.json --weights experts --experts planes:2..4 --quota experts=1000 "${model[@]}"
try out.json --weights experts --experts planes:2..4 --prefetch 1 --quota experts=9 "${model[@]}"
counted out.json $plane ahead
for how in "planes:2..4 8" "planes:2..4 13" "planes:2..4,ascending 9"; do
  try out.json --weights experts --experts "${how% *}" --quota "experts=${how#* }" "${model[@]}"
  counted out.json $plane some
done
# A file in planes has the bits of planes made when the weights are loaded, also for fewer planes; its base is fixed.
write=("$actorrun" --quiet --steps 0 --init odd.safetensors "${odd[@]}" --data "$reference/text.txt")
ends 0 "${write[@]:0:6}" --planes 2..4 --save planes.safetensors "${write[@]:6}"
planes=(--weights experts --init planes.safetensors "${odd[@]}")
try out.json --experts planes:2..4 --quota experts=9 "${planes[@]}"
counted out.json $plane some
try memory.json --weights experts --experts planes:2..3 --quota experts=1000 "${model[@]}"
try out.json --experts planes:2..3 --quota experts=8 --rows 3 "${planes[@]}"
counted out.json $plane some
ends 0 "$actorrun" --quiet --steps 1 --init planes.safetensors --save again.safetensors "${odd[@]}" --data "$reference/text.txt"
for wrong in 3..4:base 2..5:planes; do
  ends 2 "$actorserve" --port 0 --experts "planes:${wrong%:*}" "${planes[@]}"
  says "w1.weight.planes2 has" err
  says "planes:2..4" err
done
# damage WORDS CODE: edits the header h and the bytes d of the file, which is then refused with these words.
damage() {
  python3 - "$2" <<'PY'
import json, struct, sys
data = open("planes.safetensors", "rb").read()
n = struct.unpack("<Q", data[:8])[0]
h, d = json.loads(data[8:8 + n]), bytearray(data[8 + n:])
name = "model.layers.1.block_sparse_moe.experts.2.w2.weight.planes2"
at = h[name]["data_offsets"][0]
exec(sys.argv[1])
head = json.dumps(h).encode()
open("bad.safetensors", "wb").write(struct.pack("<Q", len(head)) + head + d)
PY
  ends 2 timeout 60 "$actorserve" --port 0 --weights experts --experts planes:2..4 --init bad.safetensors "${odd[@]}"
  says "$1" err
  says "experts.2.w2.weight" err
}
damage "number 0 of row 3 of plane 2 is nan" 'at += ((2 * 24 + 3) * 3 + 2) * 4; d[at:at+4] = struct.pack("<f", float("nan"))'
damage "must be U32[2 to 8, 24, 3]" 'h[name]["shape"] = [4, 12, 6]'
damage "must be U32[2 to 8, 24, 3]" 'h[name]["dtype"] = "F32"'
damage "no planes of model.layers.1.block_sparse_moe.experts.2.w2.weight" 'h["x"] = h.pop(name)'
refuse_planes() {
  ends 2 "${write[@]:0:6}" "${@:2}" "${write[@]:6}"
  says "$1" err
}
refuse_planes "--planes 2..9: must be A..B, or B, with 2 <= A <= B <= 8" --planes 2..9 --save x.safetensors
refuse_planes "--planes 2: needs --save FILE" --planes 2
refuse_planes "must be a safetensors file, not GGUF or a folder" --planes 2 --save x.gguf
refuse_planes "must be a safetensors file, not GGUF or a folder" --planes 2 --save x/
ends 2 "$actorrun" --quiet --steps 0 --planes 2..4 --save x.safetensors gpt --data "$reference/text.txt"
says "--planes: the model has no matrices of experts" err

# Blocks of several kinds, whose other weights come block by block.
next=(qwen3-next --context 64 --layers 4 --width 32 --heads 2 --top-k 2 --experts 4 --expert-ffn 16)
ends 0 "$actorrun" --quiet --steps 1 --save next.safetensors "${next[@]}" --data "$reference/text.txt" --batch 1
try memory.json --init next.safetensors "${next[@]}"
try out.json --weights disk --rows 5 --init next.safetensors "${next[@]}"
counted out.json $((3 * 32 * 16 * 4)) some
ends 2 "$actorserve" --port 0 --weights experts --tensor 2 --devices cpu:2x1 "${model[@]}"
says "home experts=disk: no experts here can be read as rows want them" err
python3 - <<'PY'
import json, struct
data = bytearray(open("odd.safetensors", "rb").read())
n = struct.unpack("<Q", data[:8])[0]
begin = json.loads(data[8:8 + n])["model.layers.1.block_sparse_moe.experts.2.w1.weight"]["data_offsets"][0]
data[8 + n + begin:8 + n + begin + 4] = struct.pack("<f", float("nan"))
open("nan.safetensors", "wb").write(data)
PY
ends 2 "$actorserve" --port 0 --weights experts --experts planes:2..4 --init nan.safetensors "${odd[@]}"
says "model.layers.1.block_sparse_moe.experts.*.w1.weight: element 1920 is not finite" err
ends 2 "$actorserve" --port 0 --experts planes:2..4 "${model[@]}"
says "--experts planes:2..4: needs --weights experts" err
for wrong in planes planes:1..4 planes:4..2 planes:2..9 planes:2.. planes:2..4, planes:2..4,x; do
  ends 2 "$actorserve" --port 0 --weights experts --experts $wrong "${model[@]}"
  says "--experts $wrong: must be whole, or planes:A..B" err
done

ends 2 "$actorserve" --port 0 --prefetch 1 "${model[@]}"
says "--prefetch 1: needs --weights experts" err
ends 2 "$actorserve" --port 0 --quota experts=2 "${model[@]}"
says "--quota experts=2: needs --weights disk or --weights experts" err
ends 2 "$actorserve" --port 0 --weights expert "${model[@]}"
says "--weights expert" err
ends 3 "$actorserve" --port 0 --weights experts --memory 100K "${model[@]}"
