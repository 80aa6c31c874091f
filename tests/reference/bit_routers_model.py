# SPDX-License-Identifier: Apache-2.0
"""A small Mixtral with bit routers, whose numbers are sines: the folder that tests and bit_routers.py read. 40 and 24
are no multiples of the groups of planes."""
import json
import math
import os
import struct

LAYERS, WIDTH, HEADS, EXPERTS, TOP_K, INNER, CONTEXT, WIDTHS = 2, 24, 2, 4, 2, 40, 32, 3
OPTIONS = (f"mixtral --context {CONTEXT} --layers {LAYERS} --width {WIDTH} --heads {HEADS} --experts {EXPERTS} "
           f"--top-k {TOP_K} --expert-ffn {INNER}")
RUNS = [{"alpha": 0.0, "capacity": None}, {"alpha": 0.2, "capacity": None},
        {"alpha": 0.05, "capacity": [0.3, 0.4, 0.3]}]  # of training, each of so many steps
STEPS = {"steps": 6, "rows": 2, "context": 32, "lr": 0.03}
PROMPTS = ["And the king said", "planes of one bit each", "a b c d e f g"]


def shapes():
    """Yields name, shape, mean and size of each tensor."""
    yield "model.embed_tokens.weight", (256, WIDTH), 0, 1
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield layer + name + ".weight", (WIDTH,), 1, 0.1
        for name in "qkvo":
            yield layer + f"self_attn.{name}_proj.weight", (WIDTH, WIDTH), 0, 0.3
        moe = layer + "block_sparse_moe."
        yield moe + "gate.weight", (EXPERTS, WIDTH), 0, 0.4
        for e in range(EXPERTS):
            yield moe + f"experts.{e}.w1.weight", (INNER, WIDTH), 0, 0.3
            yield moe + f"experts.{e}.w3.weight", (INNER, WIDTH), 0, 0.3
            yield moe + f"experts.{e}.w2.weight", (WIDTH, INNER), 0, 0.3
            yield moe + f"experts.{e}.bits.weight", (WIDTHS, WIDTH), 0, 0.5
    yield "model.norm.weight", (WIDTH,), 1, 0.1
    yield "lm_head.weight", (256, WIDTH), 0, 0.3


def write(folder, routed=True):
    os.makedirs(folder, exist_ok=True)
    header, data, at = {}, bytearray(), 0
    for name, shape, mean, size in shapes():
        if "bits" in name and not routed:
            continue
        count = math.prod(shape)
        values = [mean + size * math.sin(0.7 + 12.9898 * (at + i) ** 1.3) for i in range(count)]
        at += count
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *values)
    head = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + data)
    config = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_hidden_layers": LAYERS,
              "hidden_size": WIDTH, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
              "head_dim": WIDTH // HEADS, "max_position_embeddings": CONTEXT, "vocab_size": 256, "rms_norm_eps": 1e-5,
              "tie_word_embeddings": False, "intermediate_size": INNER, "num_local_experts": EXPERTS,
              "num_experts_per_tok": TOP_K, "rope_theta": 10000.0, "hidden_act": "silu", "attention_bias": False,
              "bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "torch_dtype": "float32"}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
