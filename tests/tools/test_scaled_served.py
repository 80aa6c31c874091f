# SPDX-License-Identifier: Apache-2.0
"""Servers keep matrices of 8-bit floats (scales of blocks, rows or the matrix) and NVFP4 as a folder stores them. Answers
have the bits of the same numbers in fp32, alone and beside others, on two tensor-parallel devices and with experts; the
report has the bytes of each format. Emulated GPUs write the same text, with keys and values in fp8 too. Numbers that
are none are refused by name.

labels: outside
needs: libevent
"""
import json
import os
import random
import re
import struct

from tool import BUILD, Server, ends, read, work, write

random.seed(7)
WIDTH, INNER, WORDS = 128, 256, 256
LLAMA = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=WIDTH, intermediate_size=INNER,
             num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, vocab_size=WORDS, rms_norm_eps=1e-5,
             max_position_embeddings=64, rope_theta=1e4, tie_word_embeddings=True)
MIXTRAL = dict(LLAMA, architectures=["MixtralForCausalLM"], model_type="mixtral", num_local_experts=3,
               num_experts_per_tok=2)
ATTENTION = {f"self_attn.{name}_proj": (WIDTH, WIDTH) for name in "qkvo"}
DENSE = {"mlp.gate_proj": (INNER, WIDTH), "mlp.up_proj": (INNER, WIDTH), "mlp.down_proj": (WIDTH, INNER)}
EXPERTS = {f"block_sparse_moe.experts.{e}.{name}": shape for e in range(3)
           for name, shape in (("w1", (INNER, WIDTH)), ("w2", (WIDTH, INNER)), ("w3", (INNER, WIDTH)))}


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def fp8(rows, columns, down, across):
    """Small 8-bit floats, subnormal ones among them, and scales of parts of the matrix."""
    raw = bytes(random.randrange(0x44) | random.randrange(2) << 7 for _ in range(rows * columns))
    high, wide = -(-rows // down), -(-columns // across)
    scales = [random.uniform(.02, .06) for _ in range(high * wide)]
    return {"": ("F8_E4M3", raw, [rows, columns]), "_scale_inv": ("F32", floats(scales), [high, wide])}


def nvfp4(rows, columns, second, end):
    raw = bytes(random.randrange(256) for _ in range(rows * columns // 2))
    small = bytes(random.randrange(0x30, 0x40) for _ in range(rows * columns // 16))
    return {"" if end == "_scale_2" else "_packed": ("U8", raw, [rows, columns // 2]),
            "_scale": ("F8_E4M3", small, [rows, columns // 16]), end: ("F32", floats([second]), [1])}


COMPRESSED = dict(quant_method="compressed-tensors", format="nvfp4-pack-quantized", quantization_status="compressed",
                  config_groups={"group_0": dict(targets=["Linear"], weights=dict(
                      symmetric=True, type="float", num_bits=4, strategy="tensor_group", group_size=16))})
BLOCKS = dict(quant_method="fp8", weight_block_size=[128, 128])
KINDS = {"blocks": ("FP8", lambda r, c: fp8(r, c, 128, 128), BLOCKS),
         "rows": ("FP8", lambda r, c: fp8(r, c, 1, c), BLOCKS),
         "matrix": ("FP8", lambda r, c: fp8(r, c, r, c), BLOCKS),
         "modelopt": ("NVFP4", lambda r, c: nvfp4(r, c, .03, "_scale_2"),
                      dict(quant_method="modelopt", quant_algo="NVFP4", group_size=16)),
         "packed": ("NVFP4", lambda r, c: nvfp4(r, c, 33., "_global_scale"), COMPRESSED)}


def make(folder, kind, config, mixture, damage=None):
    entries, header, data = {}, {}, b""

    def plain(name, *shape, size=.3):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [size] * count if len(shape) == 1 else [random.gauss(0, size) for _ in range(count)]
        entries[name] = ("F32", floats(values), list(shape))

    plain("model.embed_tokens.weight", WORDS, WIDTH, size=.2)
    plain("model.norm.weight", WIDTH, size=.1)  # logits are close to each other
    for layer in range(2):
        place = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            plain(f"{place}{norm}.weight", WIDTH, size=1)
        if mixture:
            plain(place + "block_sparse_moe.gate.weight", 3, WIDTH)
        for module, (rows, columns) in {**ATTENTION, **(EXPERTS if mixture else DENSE)}.items():
            for end, (dtype, raw, shape) in kind[1](rows, columns).items():
                entries[f"{place}{module}.weight{end}"] = (dtype, raw, shape)
    if damage:
        dtype, raw, shape = entries[damage]
        entries[damage] = (dtype, b"\x7f" + raw[1:], shape)
    for name, (dtype, raw, shape) in entries.items():
        header[name] = dict(dtype=dtype, shape=shape, data_offsets=[len(data), len(data) + len(raw)])
        data += raw
    text = json.dumps(header).encode()
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    write(folder + "/config.json", json.dumps({**config, "quantization_config": kind[2]}))
    return sum(2 * 132 * r * c // 128 if kind[0] == "FP8" else 2 * 76 * r * c // 128
               for r, c in {**ATTENTION, **(EXPERTS if mixture else DENSE)}.values())


PROMPTS = [[7, 9, 200, 31, 5], [1], list(range(40, 75))]


def answers(folder, options, program=BUILD + "/bin/actorserve", prompts=PROMPTS):
    """Returns greedy tokens and log-probabilities of prompts that are asked together, and the weights' bytes."""
    with Server(f"--init {folder} --report {work}/report.json {options}", program) as server:
        got = server.ask("/completions", prompt=prompts, max_tokens=6, temperature=0, logprobs=1)
    choices = [(c["text"], c["logprobs"]["token_logprobs"]) for c in sorted(got["choices"], key=lambda c: c["index"])]
    return choices, json.loads(read("report.json"))["weights"]


EMULATED = BUILD + "/tests/emulated_actorserve"


def on_gpus(folder, options, wanted):
    """Checks that emulated GPUs write the wanted text. Returns the weights' bytes."""
    got, weights = answers(folder, "--devices cuda " + options, EMULATED)
    assert [c[0] for c in got] == [c[0] for c in wanted], (folder, got, wanted)
    for (_, a), (_, b) in zip(got, wanted):
        assert all(abs(x - y) < 1e-4 for x, y in zip(a, b) if x is not None), (folder, a, b)
    return weights


for name, kind in KINDS.items():
    for mixture in (False, True) if name in ("blocks", "packed") else (False,):
        folder = name + "-mixture" * mixture
        bytes_of = make(folder, kind, MIXTRAL if mixture else LLAMA, mixture)
        got, weights = answers(folder, "")
        plain, unpacked = answers(folder, "--dtype fp32")
        assert weights[kind[0]] == bytes_of and kind[0] not in unpacked, (folder, weights, unpacked, bytes_of)
        assert got == plain, (folder, got, plain)
        if name in ("rows", "packed"):
            assert got == answers(folder, "--tensor 2")[0], folder
        if os.access(EMULATED, os.X_OK) and name in ("blocks", "modelopt", "packed"):
            weights = on_gpus(folder, "", got)
            assert weights[kind[0]] == bytes_of, (folder, weights)

# Pages in fp8: answers alone are those beside others.
eight, _ = answers("rows", "--kv fp8")
for i, prompt in enumerate(PROMPTS):
    assert answers("rows", "--kv fp8", prompts=[prompt])[0] == [eight[i]], (prompt, eight)
assert eight != answers("rows", "")[0], "pages in fp8 change no answer"
if os.access(EMULATED, os.X_OK):
    on_gpus("rows", "--kv fp8", eight)

UP = "model.layers.1.mlp.up_proj.weight"
make("wrong", KINDS["blocks"], LLAMA, False, damage=UP)
err = ends(2, BUILD + "/bin/actorserve", "--port 0 --init wrong").stderr
assert re.search(rf"wrong.*tensor {UP}: .*is NaN", err), err
