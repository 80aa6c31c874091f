# SPDX-License-Identifier: Apache-2.0
"""Weights that folders store as small numbers with scales: 8-bit floats with a scale of a matrix, a row or a block, NVFP4
as ModelOpt and compressed-tensors store it, and integers of 8 and 4 bits. The numbers equal those decoded here, a note
says what they are read into, and layouts that are not known are refused by name.

labels: outside
"""
import json
import os
import random
import struct

from tool import ACTORRUN, ends, tensors

random.seed(5)
WIDTH, INNER, WORDS = 64, 160, 256
MODEL = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=WIDTH, intermediate_size=INNER,
             num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, vocab_size=WORDS, rms_norm_eps=1e-5,
             max_position_embeddings=64, rope_theta=1e4, tie_word_embeddings=True)
SHAPES = {"self_attn.q_proj": (WIDTH, WIDTH), "self_attn.k_proj": (WIDTH, WIDTH), "self_attn.v_proj": (WIDTH, WIDTH),
          "self_attn.o_proj": (WIDTH, WIDTH), "mlp.gate_proj": (INNER, WIDTH), "mlp.up_proj": (INNER, WIDTH),
          "mlp.down_proj": (WIDTH, INNER)}


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bf16(x):
    return struct.unpack("<f", b"\0\0" + struct.pack("<f", x)[2:])[0]


def e4m3(v):
    exponent, fraction = v >> 3 & 15, v & 7
    size = (8 + fraction) * 2.0 ** (exponent - 10) if exponent else fraction * 2.0 ** -9
    return -size if v & 128 else size


FP4 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]


def floats(values):
    return ("F32", struct.pack(f"<{len(values)}f", *values))


def fp8_bytes(n, most=0x77):
    """Random floats of 8 bits up to a size, none of them NaN."""
    return bytes(random.randrange(most) | random.randrange(2) << 7 for _ in range(n))


def scales(n):
    return [f32(random.uniform(1e-3, 3e-3)) for _ in range(n)]


# Each makes the tensors of a weight by the ends of their names, (dtype, bytes, shape), and the decoded numbers.

def fp8(rows, columns, down, across, end="_scale", flat=False):
    high, wide = -(-rows // down), -(-columns // across)
    raw, by = fp8_bytes(rows * columns), scales(high * wide)
    shape = [] if flat else [high, wide]
    values = [f32(e4m3(raw[r * columns + c]) * by[r // down * wide + c // across])
              for r in range(rows) for c in range(columns)]
    return {"": ("F8_E4M3", raw, [rows, columns]), end: (*floats(by), shape)}, values


def nvfp4(rows, columns, modelopt):
    raw = bytes(random.randrange(256) for _ in range(rows * columns // 2))
    small = bytes(random.randrange(0x30, 0x60) for _ in range(rows * columns // 16))
    second = f32(0.004 if modelopt else 300.0)
    by = [f32(e4m3(v) * second if modelopt else e4m3(v) / second) for v in small]
    values = [f32(FP4[raw[i // 2] >> i % 2 * 4 & 15] * by[i // 16]) for i in range(rows * columns)]
    name, other = ("", "_scale_2") if modelopt else ("_packed", "_global_scale")
    return {name: ("U8", raw, [rows, columns // 2]), "_scale": ("F8_E4M3", small, [rows, columns // 16]),
            other: (*floats([second]), [] if modelopt else [1])}, values


def int8(rows, columns):
    raw, by = bytes(random.randrange(256) for _ in range(rows * columns)), scales(rows)
    values = [f32((v - 256 if v > 127 else v) * by[i // columns]) for i, v in enumerate(raw)]
    return {"": ("I8", raw, [rows, columns]), "_scale": (*floats(by), [rows, 1])}, values


def int4(rows, columns, group=32):
    raw, by = bytes(random.randrange(256) for _ in range(rows * columns // 2)), scales(rows * columns // group)
    by = [bf16(x) for x in by]
    values = [f32(((raw[i // 2] >> i % 2 * 4 & 15) - 8) * by[i // group]) for i in range(rows * columns)]
    packed = b"".join(struct.pack("<f", x)[2:] for x in by)
    shape = struct.pack("<2q", rows, columns)
    return {"_packed": ("I32", raw, [rows, columns // 8]), "_scale": ("BF16", packed, [rows, columns // group]),
            "_shape": ("I64", shape, [2])}, values


def compressed(form, **weights):
    return dict(quant_method="compressed-tensors", format=form, quantization_status="compressed", ignore=["lm_head"],
                config_groups={"group_0": dict(targets=["Linear"], weights=dict(symmetric=True, **weights))})


KINDS = {
    "blocks": (lambda r, c: fp8(r, c, 128, 128, "_scale_inv"), dict(quant_method="fp8", weight_block_size=[128, 128])),
    "tensor": (lambda r, c: fp8(r, c, r, c, flat=True), dict(quant_method="modelopt", quant_algo="FP8")),
    "rows": (lambda r, c: fp8(r, c, 1, c), compressed("float-quantized", type="float", num_bits=8, strategy="channel")),
    "runs": (lambda r, c: fp8(r, c, 1, 32), compressed("float-quantized", type="float", num_bits=8, strategy="group")),
    "modelopt": (lambda r, c: nvfp4(r, c, True), dict(quant_method="modelopt", quant_algo="NVFP4", group_size=16)),
    "nvfp4": (lambda r, c: nvfp4(r, c, False),
              compressed("nvfp4-pack-quantized", type="float", num_bits=4, strategy="tensor_group", group_size=16)),
    "int8": (int8, compressed("int-quantized", type="int", num_bits=8, strategy="channel")),
    "int4": (int4, compressed("pack-quantized", type="int", num_bits=4, strategy="group", group_size=32)),
}
FORMATS = dict(modelopt="NVFP4", nvfp4="NVFP4", int8="INT8", int4="INT4", blocks="FP8", tensor="FP8", rows="FP8",
               runs="FP8")


def write_folder(name, entries, config):
    header, data = {}, b""
    for key, (dtype, raw, shape) in entries.items():
        header[key] = dict(dtype=dtype, shape=shape, data_offsets=[len(data), len(data) + len(raw)])
        data += raw
    text = json.dumps(header).encode()
    os.makedirs(name, exist_ok=True)
    with open(f"{name}/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    with open(f"{name}/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)


def make(kind):
    function, how = KINDS[kind]
    plain = [f32(random.gauss(0, 0.05)) for _ in range(WORDS * WIDTH)]
    entries = {"model.embed_tokens.weight": (*floats(plain), [WORDS, WIDTH]),
               "model.norm.weight": (*floats([1.0] * WIDTH), [WIDTH])}
    for norm in ("input_layernorm", "post_attention_layernorm"):
        entries[f"model.layers.0.{norm}.weight"] = (*floats([1.0] * WIDTH), [WIDTH])
    wanted = {}
    for module, (rows, columns) in SHAPES.items():
        made, wanted[module] = function(rows, columns)
        for end, entry in made.items():
            entries[f"model.layers.0.{module}.weight{end}"] = entry
        entries[f"model.layers.0.{module}.input_scale"] = (*floats([1.0]), [])
    return entries, {**MODEL, "quantization_config": how}, wanted


RUN = "--quiet --steps 0 llama --data {reference}/text.txt:u8 --context 8 --batch 1"
made = {kind: make(kind) for kind in KINDS}
for kind, (entries, config, wanted) in made.items():
    write_folder(kind, entries, config)
    err = ends(0, ACTORRUN, f"--init {kind} --save {kind}.safetensors {RUN}").stderr
    saved = tensors(f"{kind}.safetensors")
    for module, values in wanted.items():
        got = struct.unpack(f"<{len(values)}f", saved[f"model.layers.0.{module}.weight"])
        assert list(got) == values, (kind, module, [p for p in zip(got, values) if p[0] != p[1]][:3])
    assert f"7 matrices of {kind} are stored in {FORMATS[kind]}, with scales, and read into fp32" in err, (kind, err)


def refused(kind, text, entries=None, **how):
    all_entries, config, _ = made[kind]
    config = {**config, "quantization_config": {**config["quantization_config"], **how}}
    write_folder("wrong", {k: v for k, v in {**all_entries, **(entries or {})}.items() if v}, config)
    err = ends(2, ACTORRUN, f"--init wrong --save x.safetensors {RUN}").stderr
    assert text in err, (text, err)


UP = "model.layers.0.mlp.up_proj.weight"
refused("blocks", 'quant_method is "gptq"; supported: ', quant_method="gptq")
refused("blocks", "weight_block_size is [64,64]", weight_block_size=[64, 64])
refused("modelopt", 'quant_algo is "W4A8_AWQ"; supported: FP8, NVFP4', quant_algo="W4A8_AWQ")
refused("rows", 'format is "marlin-24"', format="marlin-24")
refused("int4", "weights.symmetric is false",
        config_groups={"group_0": {"weights": {"type": "int", "symmetric": False}}})
refused("int4", 'weights.actorder is "group"',
        config_groups={"group_0": {"weights": {"type": "int", "actorder": "group"}}})
refused("rows", "transform_config is ", transform_config={"config_groups": {"u": {}}})
refused("int4", f"{UP}_zero_point", {UP + "_zero_point": ("I32", bytes(4), [1])})
refused("modelopt", "scales of its numbers are missing", {UP + "_scale": None})
refused("nvfp4", f"{UP}_scale is F8_E4M3[160, 3]", {UP + "_scale": ("F8_E4M3", fp8_bytes(480), [160, 3])})
refused("modelopt", f"{UP} is U8[160, 31]", {UP: ("U8", bytes(160 * 31), [160, 31])})
