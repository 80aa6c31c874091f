#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A GGUF file is loaded as it is. Its metadata sets the model's options, and its losses equal those
# of PyTorch with the model that transformers makes of it (tests/reference/make_gguf.py), on any
# grid. Contradictions and unsupported files are rejected with an error that names them.
# labels: outside
# needs: zeromq pcre2 utf8proc
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

tiny=$reference/gguf/tiny.gguf
train=(--data "$reference/text.txt" --context 32 --batch 4 --lr 1e-3 --min-lr 1e-3 --warmup 0)

# same NAME WORDS...: five steps with the file have to give PyTorch's losses.
same() {
  local file=$reference/gguf/$1
  shift
  ends 0 "$actorrun" --quiet --report report --init "$file.gguf" --steps 5 "$@" llama "${train[@]}"
  python3 - report "$file.txt" <<'PY' || fail "$file $*: other losses than PyTorch's"
import json, sys
ours = [s["loss"] for s in json.load(open(sys.argv[1]))["steps"]]
theirs = [float(line.split()[1]) for line in open(sys.argv[2]) if line[0] != "#"]
sys.exit(len(ours) != len(theirs) or not max(abs(a - b) / b for a, b in zip(ours, theirs)) < 1e-6)
PY
}
same tiny
same qwen2
same tiny --stages 2 --microbatches 2
same tiny --stages 2 --tensor 2 -n 2 "${patient[@]}"

# refused NAMED WORDS...: actorrun has to reject WORDS with an error that contains NAMED.
refused() {
  local named=$1
  shift
  ends 2 "$actorrun" "$@"
  grep -qF -- "$named" err || fail "the message names $named"
}
refused "--heads 2 contradicts $tiny, which says 4 (llama.attention.head_count)" --init "$tiny" llama \
  "${train[@]}" --heads 2
refused "--tied 1 contradicts" --init "$tiny" llama "${train[@]}" --tied
refused "--vocab 300 contradicts" --init "$tiny" llama "${train[@]}" --vocab 300
refused "should be llama, not gpt" --init "$tiny" gpt "${train[@]}"
refused "--context 128 is more than --positions 64" --init "$tiny" llama --data "$reference/text.txt" --context 128
head -c 20000 "$tiny" >short.gguf
refused "short.gguf is truncated: tensor " --init short.gguf llama "${train[@]}"

# edited OLD NEW NAMED: replaces OLD with NEW, which is as long; the file has to be rejected with
# NAMED.
edited() {
  LC_ALL=C sed "s/$1/$2/" "$tiny" >edited.gguf
  refused "$3" --init edited.gguf llama "${train[@]}"
}
edited general.architecture general.architectura 'unknown architecture ""'
edited llama.block_count llamb.block_count "has no llama.block_count"
edited token_embd.weight tokem_embd.weight "has no tensor token_embd.weight"
edited blk.1.ffn_up.weight blk.1.ffn_op.weight "has no tensor model.layers.1.mlp.up_proj.weight"

# rewritten NAME JSON: writes the file with other keys (null: without the key) and adjusted tensor
# bytes.
python3 - "$tiny" <<'PY'
import json, struct, sys
raw = open(sys.argv[1], "rb").read()
at = 24
def take(form):
    global at
    out = struct.unpack_from("<" + form, raw, at)
    at += struct.calcsize("<" + form)
    return out[0]
text = lambda t: struct.pack("<Q", len(t)) + t
def take_text():
    global at
    n = take("Q")
    at += n
    return raw[at - n:at]
WIDTH = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
def take_value(kind):
    global at
    if kind == 8: return text(take_text())
    if kind == 9:
        inner, n = take("I"), take("Q")
        return struct.pack("<IQ", inner, n) + b"".join(take_value(inner) for _ in range(n))
    at += WIDTH[kind]
    return raw[at - WIDTH[kind]:at]
tensors, count = struct.unpack_from("<QQ", raw, 8)
keys = {}
for _ in range(count):
    name, kind = take_text(), take("I")
    keys[name.decode()] = (kind, take_value(kind))
infos = []
for _ in range(tensors):
    name, n = take_text(), take("I")
    dims = [take("Q") for _ in range(n)]
    infos.append((name, dims, take("I"), take("Q")))
data = raw[(at + 31) // 32 * 32:]
u32, f32, flag, words = lambda v: (4, struct.pack("<I", v)), lambda v: (6, struct.pack("<f", v)), lambda v: (7, bytes([v])), lambda v: (8, text(v.encode()))
array = lambda *v: (9, struct.pack("<IQ", 4, len(v)) + struct.pack(f"<{len(v)}I", *v))
def put(path, more=(), gone=(), **changed):
    now = {k: v for k, v in {**keys, **{("llama." + k if "." not in k[:8] else k): v for k, v in changed.items()}, **dict(more)}.items() if k not in gone}
    rest = infos + [(b, d, 0, (len(data) + 31) // 32 * 32) for b, d in extra]
    out = b"GGUF" + struct.pack("<IQQ", 3, len(rest), len(now)) + b"".join(text(k.encode()) + struct.pack("<I", t) + v for k, (t, v) in now.items())
    for name, dims, kind, offset in rest:
        out += text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, offset)
    body = data + bytes(-len(data) % 32) + bytes(4096) if extra else data
    open(path + ".gguf", "wb").write(out + bytes(-len(out) % 32) + body)
extra = []
L = "llama."
for key, value in {"attention.scale": f32(.1), "logit_scale": f32(2), "embedding_scale": f32(5), "residual_scale": f32(.5),
                   "attention.clamp_kqv": f32(.1), "final_logit_softcapping": f32(30), "attention.causal": flag(0),
                   "attention.value_length": u32(32), "attention.head_count_kv": array(2, 1), "feed_forward_length": array(64, 32),
                   "rope.dimension_sections": array(1, 2), "rope.scaling.yarn_log_multiplier": f32(.1), "rope.scaling.attn_factor": f32(.5),
                   "expert_count": u32(4), "rope.freq_base_swa": f32(1e4), "some.new.key": u32(3)}.items():
    put("bad." + key, {L + key: value})
put("bad.general.type", {"general.type": words("adapter")})
put("bad.rope.scaling.factor", {L + "rope.scaling.type": words("none"), L + "rope.scaling.factor": f32(2)})
put("bad.rope.scaling.type", {L + "rope.scaling.type": words("longrope")})
yarn = {L + "rope.scaling.type": words("yarn"), L + "rope.scaling.factor": f32(4), L + "rope.scaling.original_context_length": u32(16)}
put("bad.rope.scaling.yarn_ext_factor", {**yarn, L + "rope.scaling.yarn_ext_factor": f32(0)})
for word, name, dims in (("up_proj.bias", b"blk.0.ffn_up.bias", [64]), ("attn_q_norm", b"blk.1.attn_q_norm.weight", [8]),
                         ("ffn_gate_inp", b"blk.0.ffn_gate_inp.weight", [32]), ("token_embd_norm", b"token_embd_norm.weight", [32])):
    extra = [(name, dims)]
    put("bad." + word)
extra = [(b"blk.0.attn_rot_embd.weight", [4])]
put("good.rot_embd")
extra = []
put("good.others", {"mradermacher.quantize_version": u32(2), "quantize.imatrix.entries_count": u32(3), "general.license": words("mit"),
                    "general.sampling.temp": f32(.6), L + "vocab_size": u32(256), L + "attention.value_length": u32(8),
                    L + "rope.scaling.finetuned": flag(0), "general.tags": (9, struct.pack("<IQ", 8, 1) + text(b"chat")), "general.type": words("model")})
put("yarn", {**yarn, L + "rope.scaling.yarn_beta_fast": f32(8), L + "rope.scaling.yarn_beta_slow": f32(2), L + "rope.scaling.attn_factor": f32(.5)})
put("linear", {L + "rope.scale_linear": f32(4)})
PY
for file in bad.*.gguf; do
  word=${file#bad.}
  refused "${word%.gguf}" --init "$file" llama "${train[@]}"
done
ends 0 "$actorrun" --quiet --report base --init "$tiny" --steps 1 llama "${train[@]}"
for file in good.*.gguf; do
  ends 0 "$actorrun" --quiet --report good --init "$file" --steps 1 llama "${train[@]}"
  cmp <(grep loss_hex base) <(grep loss_hex good) || fail "$file is what it was"
done
for rope in "yarn:factor=4,original_max_position_embeddings=16,beta_fast=8,beta_slow=2,attention_factor=0.5693147181" linear:factor=4; do
  ends 0 "$actorrun" --quiet --report keys --init "${rope%%:*}.gguf" --steps 1 llama "${train[@]}"
  ends 0 "$actorrun" --quiet --init "$tiny" --steps 0 --save "${rope%%:*}.safetensors" llama "${train[@]}"
  ends 0 "$actorrun" --quiet --report option --init "${rope%%:*}.safetensors" --steps 1 llama "${train[@]}" --layers 2 \
    --width 32 --heads 4 --kv-heads 2 --ffn 64 --theta 20000 --rope "$rope"
  python3 - keys option <<'PY' || fail "the keys of ${rope%%:*} are those of $rope"
import json, sys
a, b = (json.load(open(f))["steps"][0]["loss"] for f in sys.argv[1:])
sys.exit(abs(a - b) > 1e-6 * a)
PY
done

# ---- RoPE frequencies of LLaMA 3, whose factors are in the file ------------------------------------

ends 0 "$actorrun" --quiet --init "$tiny" --steps 0 --save plain/ llama "${train[@]}"
[[ ! -e plain/tokenizer.json ]] || fail "bytes are no tokenizer"
python3 - "$tiny" <<'PY'
import math, struct, sys
data, pairs, factor = open(sys.argv[1], "rb").read(), 4, 32.0
def stretched(j):
    turns = 8192 * 20000.0 ** (-j / pairs) / (2 * math.pi)
    stay = min(max((turns - 1) / 3, 0), 1)
    return 1 / (stay + (1 - stay) / factor)
last = struct.pack("<Q", 13) + b"output.weight"
name, end = b"rope_freqs.weight", data.index(last) + len(last) + 4 + 2 * 8 + 4 + 8
begin = (end + 31) // 32 * 32
values = data[begin:] + bytes(-(len(data) - begin) % 32)
info = struct.pack("<Q", len(name)) + name + struct.pack("<IQIQ", 1, pairs, 0, len(values))
for path, factors in (("long.gguf", [stretched(j) for j in range(pairs)]), ("odd.gguf", [1, 2, 3, 32])):
    head = data[:8] + struct.pack("<Q", struct.unpack("<Q", data[8:16])[0] + 1) + data[16:end] + info
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + values + struct.pack("<4f", *factors))
PY
ends 0 "$actorrun" --quiet --report long --init long.gguf --steps 2 llama "${train[@]}"
grep -q '"rope":[[:space:]]*"llama3:factor=32,' long || fail "the factors are those of LLaMA 3"
ends 0 "$actorrun" --quiet --report same --init plain/model.safetensors --steps 2 llama "${train[@]}" --layers 2 \
  --width 32 --heads 4 --kv-heads 2 --ffn 64 --theta 20000 \
  --rope llama3:factor=32,low_freq_factor=1,high_freq_factor=4,original_max_position_embeddings=8192
cmp <(grep loss_hex long) <(grep loss_hex same) || fail "a file with factors trains as one with the option"
refused "rope_freqs.weight has factors that are not" --init odd.gguf llama "${train[@]}"

# ---- saved models load again ------------------------------------------------------------------------

ends 0 "$actorrun" --quiet --report file --init "$tiny" --steps 2 llama "${train[@]}"
ends 0 "$actorrun" --quiet --report folder --init plain --steps 2 llama "${train[@]}"
cmp <(grep loss_hex file) <(grep loss_hex folder) || fail "a folder made of the file trains as the file does"

# A file made here has a tokenizer and chat settings; saving the model keeps both.
python3 - "$reference/tokenizers/smollm.json" "$tiny" <<'PY'
import json, struct, sys
read = json.load(open(sys.argv[1]))
vocab = {**read["model"]["vocab"], **{t["content"]: t["id"] for t in read["added_tokens"]}}
tokens, special = sorted(vocab, key=vocab.get), {t["content"] for t in read["added_tokens"]}
text = lambda t: struct.pack("<Q", len(t.encode())) + t.encode()
array = lambda kind, items: struct.pack("<IIQ", 9, kind, len(items)) + b"".join(items)
keys = {"tokenizer.ggml.model": struct.pack("<I", 8) + text("gpt2"), "tokenizer.ggml.pre": struct.pack("<I", 8) + text("smollm"),
        "tokenizer.ggml.tokens": array(8, [text(t) for t in tokens]),
        "tokenizer.ggml.token_type": array(5, [struct.pack("<i", 3 if t in special else 1) for t in tokens]),
        "tokenizer.ggml.merges": array(8, [text(" ".join(m)) for m in read["model"]["merges"]]),
        "tokenizer.ggml.eos_token_id": struct.pack("<II", 4, vocab["<|im_end|>"]),
        "tokenizer.chat_template": struct.pack("<I", 8) + text("a template"),
        "tokenizer.chat_template.tool_use": struct.pack("<I", 8) + text("with tools")}
def write(path, keys, tensors=0, rest=b"", data=b""):
    head = b"GGUF" + struct.pack("<IQQ", 3, tensors, len(keys)) + b"".join(text(k) + v for k, v in keys.items()) + rest
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + data)
write("tokens.gguf", keys)
write("part.gguf", {"split.count": struct.pack("<IH", 2, 3)})
model, last = open(sys.argv[2], "rb").read(), struct.pack("<Q", 13) + b"output.weight"
tensors, count = struct.unpack("<QQ", model[8:24])
end = model.index(last) + len(last) + 4 + 2 * 8 + 4 + 8
begin = (end + 31) // 32 * 32
write("both.gguf", keys, tensors, model[24:end], model[begin:])
both = open("both.gguf", "r+b")
both.seek(16)
both.write(struct.pack("<Q", count + len(keys)))
PY
refused "part.gguf is one of 3 split files of a model, and only a single file can be read (llama-gguf-split --merge makes one)" --init part.gguf llama "${train[@]}"
small=(--layers 1 --width 16 --heads 2 --vocab 700)
ends 0 "$actorrun" --quiet --report one --tokenizer tokens.gguf --steps 1 llama "${train[@]}" "${small[@]}"
ends 0 "$actorrun" --quiet --report two --tokenizer "$reference/tokenizers/smollm.json" --steps 1 llama "${train[@]}" "${small[@]}"
cmp <(grep loss_hex one) <(grep loss_hex two) || fail "a GGUF file makes the tokens that tokenizer.json makes"
ends 0 "$actorrun" --quiet --init both.gguf --steps 0 --save both/ llama
ends 0 "$actorrun" --quiet --report two --tokenizer both/tokenizer.json --steps 1 llama "${train[@]}" "${small[@]}"
cmp <(grep loss_hex one) <(grep loss_hex two) || fail "the tokenizer.json that is saved makes them too"
python3 - both/tokenizer_config.json <<'PY' || fail "the chat templates go along"
import json, sys
all = {one["name"]: one["template"] for one in json.load(open(sys.argv[1]))["chat_template"]}
sys.exit(all != {"default": "a template", "tool_use": "with tools"})
PY
grep -q '"eos_token_id":[[:space:]]*2' both/generation_config.json || fail "so do the marks"
