#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Mixtures of experts: Hugging Face folders (tests/reference/make_experts.py) have PyTorch's losses
# and survive a round trip bit for bit. Mixtures equal the dense model where they should, and have
# the same losses on any stages and grid. Invalid settings are rejected with an error that names
# them.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

data=(--data "$reference/text.txt" --context 32 --batch 4)
train=("${data[@]}" --lr 1e-3 --min-lr 1e-3 --warmup 0)

# run REPORT WORDS...: trains and writes REPORT.
run() {
  local report=$1
  shift
  ends 0 "$actorrun" --quiet --report "$report" "$@"
}

# near WITHIN REPORT REPORT|FILE: the losses have to differ by less than WITHIN, relatively.
near() {
  python3 - "$@" <<'PY' || fail "$2 and $3: losses differ by $1 or more"
import json, sys
def losses(path):
    if path.endswith(".txt"):
        return [float(line.split()[1]) for line in open(path) if line[0] != "#"]
    return [s["loss"] for s in json.load(open(path))["steps"]]
a, b = losses(sys.argv[2]), losses(sys.argv[3])
worst = max(abs(x - y) / y for x, y in zip(a, b))
sys.exit(not a or len(a) != len(b) or not worst < float(sys.argv[1]))
PY
}

# ---- PyTorch's losses, and round trips ------------------------------------------------------------

# holds FOLDER FOLDER: both have to hold the same tensors, bit for bit, whatever their files and
# types.
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

for family in mixtral:mixtral qwen2_moe:qwen-moe qwen3_moe:qwen-moe; do
  folder=$reference/hf_${family%:*} model=${family#*:}
  run "$family" --init "$folder" --steps 10 "$model" "${train[@]}" --aux-loss 0
  near 2e-6 "$family" "$folder/losses.txt"
  ends 0 "$actorrun" --quiet -n 2 --stages 2 "${patient[@]}" --init "$folder" --steps 0 --save saved/ \
    "$model" "${data[@]}"
  holds "$folder" saved
  rm -rf saved
done
small=(--layers 2 --width 32 --heads 4 --kv-heads 2)
ends 0 "$actorrun" --quiet --steps 1 --save made/ qwen-moe "${train[@]}" "${small[@]}" --experts 3 \
  --expert-ffn 24 --shared-ffn 40 --bias qkv --norm-topk 1
run folder --init made --steps 1 qwen-moe "${train[@]}"
run file --init made/model.safetensors --steps 1 qwen-moe "${train[@]}" "${small[@]}" --experts 3 \
  --expert-ffn 24 --shared-ffn 40 --bias qkv --norm-topk 1 --eps 1e-5
near 1e-12 folder file

# ---- equal to the dense model -----------------------------------------------------------------------

# Each expert is a copy of the dense model's feed-forward half.
ends 0 "$actorrun" --quiet --steps 0 --save dense.safetensors llama "${data[@]}" "${small[@]}" --ffn 40
python3 - <<'PY'
import json, struct
data = open("dense.safetensors", "rb").read()
n = struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:8 + n])
for experts in 1, 4:
    out, body = {}, b""
    def put(name, shape, raw):
        global body
        out[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    for name, t in head.items():
        if name == "__metadata__": continue
        raw = data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]
        layer, _, part = name.partition(".mlp.")
        of = {"gate_proj.weight": "w1", "up_proj.weight": "w3", "down_proj.weight": "w2"}.get(part)
        for e in range(experts if of else 1):
            put(f"{layer}.block_sparse_moe.experts.{e}.{of}.weight" if of else name, t["shape"], raw)
        if of == "w1":
            gate = struct.pack(f"<{experts * 32}f", *[(i * 7 % 11 - 5) / 100 for i in range(experts * 32)])
            put(f"{layer}.block_sparse_moe.gate.weight", [experts, 32], gate)
    text = json.dumps(out).encode()
    text += b" " * (-len(text) % 8)
    open(f"experts{experts}.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body)
PY
# Gradient clipping is off, because the router's gradient counts in the norm.
run dense --init dense.safetensors --steps 20 llama "${train[@]}" "${small[@]}" --ffn 40 --clip 0
run one --init experts1.safetensors --steps 20 mixtral "${train[@]}" "${small[@]}" --expert-ffn 40 \
  --experts 1 --top-k 1 --aux-loss 0 --clip 0
near 1e-6 one dense
# Equal experts each learn only from their tokens, so they stay equal only if they are frozen.
run dense --init dense.safetensors --steps 20 --freeze mlp llama "${train[@]}" "${small[@]}" --ffn 40
run four --init experts4.safetensors --steps 20 --freeze block_sparse_moe mixtral "${train[@]}" "${small[@]}" \
  --expert-ffn 40 --experts 4 --aux-loss 0
near 1e-6 four dense

# ---- grids ----------------------------------------------------------------------------------------------

# A number of experts that the devices do not divide, and all kinds of losses.
model=(mixtral "${train[@]}" "${small[@]}" --expert-ffn 40 --experts 7 --z-loss 0.01)
run whole --steps 3 "${model[@]}"
for how in "--data-parallel 2 --shard parameters" "--tensor 2" "--sequence 2" "--recompute full"; do
  # shellcheck disable=SC2086
  run shared --steps 3 $how "${model[@]}"
  near 1e-6 shared whole
done
run staged --steps 3 --stages 2 --microbatches 2 "${model[@]}"
run other --steps 3 -n 2 --stages 2 --microbatches 2 --schedule zb-h1 "${patient[@]}" "${model[@]}"
near 1e-300 other staged
run uncut --steps 2 "${model[@]}" --aux-loss 0
run cut --steps 2 --pieces 2 --stages 2 --schedule seq1f1b "${model[@]}" --aux-loss 0
near 1e-6 cut uncut
ends 0 "$actorrun" --quiet --steps 2 --checkpoint kept --every 1 "${model[@]}"
run resumed --steps 3 --stages 2 --checkpoint kept --resume "${model[@]}"
python3 - <<'PY' || fail "a resumed run has other losses"
import json
a, b = (json.load(open(f))["steps"][-1]["loss_hex"] for f in ("whole", "resumed"))
raise SystemExit(a != b)
PY

# The report has the rows that each expert received and dropped, on any grid.
run limited --steps 2 "${model[@]}" --expert-capacity 0.75
run there --steps 2 -n 2 --data-parallel 2 "${patient[@]}" "${model[@]}" --expert-capacity 0.75
python3 - <<'PY' || fail "tallies: not all that experts were given"
import json
for report in "limited", "there":
    tallies = json.load(open(report))["tallies"]
    for block in "h.0", "h.1":
        load, dropped = tallies[block + ".load"], tallies[block + ".dropped"]
        assert sum(load["sum"]) == 2 * 4 * 32 * 2 and sum(load["last"]) == 4 * 32 * 2
        # an expert takes ceil(0.75 T k / 7) of the T tokens of a device
        most = 28 if report == "limited" else 2 * 14
        assert all(0 <= d <= n and n - d <= most for n, d in zip(load["last"], dropped["last"]))
    assert sum(dropped["sum"]) > 0
PY

# ---- rejected settings ------------------------------------------------------------------------------------

# refused NAMED WORDS...: actorrun has to reject WORDS with an error that contains NAMED.
refused() {
  local named=$1
  shift
  ends 2 "$actorrun" "$@"
  grep -qF -- "$named" err || fail "the message names $named"
}
refused "--top-k 8 is more than --experts 7" --steps 1 "${model[@]}" --top-k 8
refused "expert-capacity" --steps 1 "${model[@]}" --expert-capacity -1
refused "which says 4 (num_local_experts)" --init "$reference/hf_mixtral" mixtral "${data[@]}" --experts 8
refused "should be mixtral, not llama" --init "$reference/hf_mixtral" llama "${data[@]}"
