# SPDX-License-Identifier: Apache-2.0
# Functions for tests that compare folders of model families with transformers. Source this file
# after tool.sh; `data` holds the data options, `model` the model's name.

# run REPORT WORDS...: trains and writes REPORT.
run() {
  local report=$1
  shift
  ends 0 "$actorrun" --quiet --report "$report" "$@"
}
# near REPORT FILE: the losses have to differ by less than 1e-6, relatively.
near() {
  python3 - "$@" <<'PY' || fail "$1: other losses than in $2"
import json, sys
ours = [s["loss"] for s in json.load(open(sys.argv[1]))["steps"]]
theirs = [float(line.split()[1]) for line in open(sys.argv[2]) if line[0] != "#"]
worst = max(abs(a - b) / b for a, b in zip(ours, theirs))
print(f"{sys.argv[1]}, {sys.argv[2].split('/')[-2]}: {worst:.2g}")
sys.exit(len(ours) != len(theirs) or not worst < 1e-6)
PY
}
# holds FOLDER FOLDER: both have to hold the same tensors, bit for bit, whatever their files and
# types.
holds() {
  python3 - "$@" <<'PY' || fail "$1 and $2 hold other tensors"
import glob, json, struct, sys
def tensors(folder):
    found = {}
    for path in glob.glob(folder + "/model*.safetensors"):
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
for name in sorted(set(a) | set(b)):
    if a.get(name) != b.get(name): print(name, "differs")
sys.exit(not a or a != b)
PY
}
# Writes a tokenizer in which each token is a letter, so that an answer shows its tokens.
letters() {
  python3 - "$1" <<'PY'
import json, sys
model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
         "fuse_unk": False, "byte_fallback": False, "vocab": {chr(256 + i): i for i in range(256)}, "merges": []}
json.dump({"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None,
           "decoder": None, "model": model}, open(sys.argv[1] + "/tokenizer.json", "w"))
PY
}
# tokens: prints the letters of a text as token ids.
tokens() { python3 -c 'import sys; print(*[ord(c) - 256 for c in sys.stdin.read().split()])'; }

# answers FAMILY MODEL: compares 50 greedy tokens of actorrun, and of actorserve alone and among
# concurrent requests.
answers() {
  local family=$1 model=$2 folder=$work/letters prompt want text
  rm -rf "$folder"
  cp -r "$reference/hf_$family" "$folder"
  letters "$folder"
  prompt=$(head -1 "$folder/greedy.txt")
  want=$(tail -1 "$folder/greedy.txt")
  text=$(python3 -c 'import sys; print("".join(chr(256 + int(t)) for t in sys.argv[1].split()))' "$prompt")
  ends 0 "$actorrun" --quiet --init "$folder" --steps 0 --generate 50 --temperature 0 --prompt "$text" "$model"
  [[ "$(tokens <out)" == "$prompt $want" ]] || fail "$family: actorrun answers $(tokens <out), not $prompt $want"
  served "$folder" "$prompt" "$want"
}

# served FOLDER PROMPT WANT WORDS...: compares the answers of actorserve to the prompt, and to the
# prompt with parts of the answer, all at once.
served() {
  local folder=$1 prompt=$2 want=$3 url
  background "$bin/actorserve" --port 0 "${@:4}" "$folder"
  until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended"; sleep 0.01; done
  url=$(<out)
  url=${url##* }
  python3 - "$url" "$prompt" "$want" <<'PY' || fail "$folder: the server's answers are other ones"
import json, sys, threading, urllib.request
url, prompt, want = sys.argv[1], *([int(t) for t in text.split()] for text in sys.argv[2:])
got = [None] * 5
def ask(i):
    body = {"prompt": prompt + want[:7 * i], "max_tokens": len(want) - 7 * i, "temperature": 0}
    with urllib.request.urlopen(urllib.request.Request(url + "/completions", json.dumps(body).encode())) as reply:
        got[i] = [ord(c) - 256 for c in json.load(reply)["choices"][0]["text"].split()]
asking = [threading.Thread(target=ask, args=(i,)) for i in range(5)]
for t in asking: t.start()
for t in asking: t.join()
sys.exit(got != [want[7 * i:] for i in range(5)])
PY
  kill -INT "$pid"
  wait "$pid" || fail "$folder: the server ends badly"
}
# refused NAMED WORDS...: actorrun has to reject WORDS with an error that contains NAMED.
refused() {
  local named=$1
  shift
  ends 2 "$actorrun" "$@"
  grep -qF -- "$named" err || fail "the message names $named"
}
