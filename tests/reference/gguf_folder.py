#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a Hugging Face folder, or a file of make_models.py, as a GGUF file in the way of llama.cpp's converters.

    python3 gguf_folder.py FOLDER|FILE.json OUT.gguf [TYPE]

It needs no packages.

TYPE (f32, f16, q8_0, ...; see PACK) is the type of matrices whose rows are whole blocks, or TYPE,TYPE,... of one after the
other; vectors, convolutions and routers are f32. check_gguf.py reads the file with ggml's Python package.
"""
import array
import glob
import json
import math
import os
import struct
import sys

from model_folder import values

U32, F32, BOOL, TEXT, ARRAY = 4, 6, 7, 8, 9


# ---- keys -------------------------------------------------------------------------------------------------------------

def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def pack_value(value):
    if isinstance(value, bool):
        return struct.pack("<IB", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", U32, value)
    if isinstance(value, float):
        return struct.pack("<If", F32, value)
    if isinstance(value, str):
        return struct.pack("<I", TEXT) + text(value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", ARRAY, TEXT, len(value)) + b"".join(map(text, value))
    if isinstance(value[0], bool):
        return struct.pack("<IIQ", ARRAY, BOOL, len(value)) + bytes(value)
    return struct.pack("<IIQ", ARRAY, U32, len(value)) + b"".join(struct.pack("<I", v) for v in value)


# ---- tensors: (shape, list of numbers) --------------------------------------------------------------------------------

class Tensor:
    def __init__(self, shape, data):
        self.shape, self.data = list(shape), data

    def __len__(self):
        return self.shape[0]

    def rows(self, axis=0):
        """Returns the parts along an axis, of those before it separately: [outer][n] lists of numbers."""
        outer, n = math.prod(self.shape[:axis]), self.shape[axis]
        each = math.prod(self.shape[axis + 1:])
        return [[self.data[(o * n + i) * each:(o * n + i + 1) * each] for i in range(n)] for o in range(outer)]

    def take(self, order, axis=0):
        """Keeps the parts of an order of indices."""
        shape = self.shape[:axis] + [len(order)] + self.shape[axis + 1:]
        return Tensor(shape, [x for group in self.rows(axis) for i in order for x in group[i]])

    def turned(self):
        *outer, n, m = self.shape
        out = [self.data[(o * n + i) * m + j] for o in range(math.prod(outer)) for j in range(m) for i in range(n)]
        return Tensor([*outer, m, n], out)

    def shaped(self, *shape):
        return Tensor(shape, self.data)

    def map(self, function):
        return Tensor(self.shape, [function(x) for x in self.data])


def stack(tensors):
    return Tensor([len(tensors), *tensors[0].shape], [x for t in tensors for x in t.data])


def halves(tensor, axis):
    n = tensor.shape[axis] // 2
    return tensor.take(range(n), axis), tensor.take(range(n, 2 * n), axis)


def adjacent(tensor, heads):
    """Makes the numbers that rotate together adjacent: 0, n/2, 1, n/2 + 1, ... in each head."""
    n = tensor.shape[0] // heads
    return tensor.take([h * n + i // 2 + i % 2 * (n // 2) for h in range(heads) for i in range(n)])


def tiled(c, width, first=0):
    """The order of value heads that take key heads in turn."""
    keys, heads = c["linear_num_key_heads"], c["linear_num_value_heads"]
    each = heads // keys
    order = [(k * each + e) * width + w for e in range(each) for k in range(keys) for w in range(width)]
    return list(range(first)) + [first + i for i in order]


# ---- families ---------------------------------------------------------------------------------------------------------
# A function of a family takes config.json and a dictionary of a layer's tensors by the rest of their names, and returns
# the layer's tensors by GGUF's names.

PLAIN = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate": "ffn_gate_inp"}
AFTER = {**PLAIN, "post_attention_layernorm": "post_attention_norm"}


def rename(tensors, names):
    out = {}
    for name, tensor in tensors.items():
        stem, dot, suffix = name.rpartition(".")
        if name in names:
            out[names[name]] = tensor
        elif stem in names and suffix in ("weight", "bias"):
            out[names[stem] + dot + suffix] = tensor
        else:
            raise ValueError("no name for " + name)
    return out


def merge_experts(tensors, at, parts):
    """Stacks the tensors AT.N.PART.weight of all experts."""
    out = {k: t for k, t in tensors.items() if not k.startswith(at + ".") or k[len(at) + 1:].split(".")[0].isalpha()}
    for part, name in parts.items():
        each = [k for k in tensors if k.startswith(at + ".") and k.endswith(f".{part}.weight") and k[len(at) + 1].isdigit()]
        if each:
            out[name + ".weight"] = stack([tensors[f"{at}.{i}.{part}.weight"] for i in range(len(each))])
    return out


EXPERTS = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"}
SAME = {name: name for name in EXPERTS.values()}
SHARED = {f"mlp.shared_expert.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")}
SHARED_ALL = {f"mlp.shared_experts.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")}
CORRECTION = {"mlp.gate.e_score_correction_bias": "exp_probs_b.bias"}


def plain(c, tensors):
    return rename(tensors, PLAIN)


def paired(c, tensors):
    out = rename(tensors, PLAIN)
    for name in list(out):
        if name.startswith("attn_q."):
            out[name] = adjacent(out[name], c["num_attention_heads"])
        if name.startswith("attn_k."):
            out[name] = adjacent(out[name], c["num_key_value_heads"])
    return out


def with_experts(c, tensors):
    tensors = merge_experts(tensors, "mlp.experts", EXPERTS)
    out = rename(tensors, {**PLAIN, **SAME, **SHARED, "mlp.shared_expert_gate": "ffn_gate_inp_shexp"})
    if "ffn_gate_inp_shexp.weight" in out:
        out["ffn_gate_inp_shexp.weight"] = out["ffn_gate_inp_shexp.weight"].shaped(c["hidden_size"])
    return out


def qwen3_next(c, tensors):
    """The rows of in_proj_qkvz are those of q, k, v and z of each key head; files have all q, then all k, and so on."""
    names = {**AFTER, **SAME, **SHARED, "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "linear_attn.in_proj_ba": "ssm_ba",
             "linear_attn.conv1d": "ssm_conv1d", "linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias",
             "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out"}
    joint = tensors.pop("linear_attn.in_proj_qkvz.weight", None)
    out = rename(merge_experts(tensors, "mlp.experts", EXPERTS), names)
    if joint:
        heads, key = c["linear_num_key_heads"], c["linear_key_head_dim"]
        value = c["linear_num_value_heads"] // heads * c["linear_value_head_dim"]
        rows, at = [], 0
        for width in (key, key, value, value):
            rows.append([h * 2 * (key + value) + at + i for h in range(heads) for i in range(width)])
            at += width
        out["attn_qkv.weight"], out["attn_gate.weight"] = joint.take(rows[0] + rows[1] + rows[2]), joint.take(rows[3])
    for name, tensor in out.items():
        if name.endswith("norm.weight") and name != "ssm_norm.weight":
            out[name] = tensor.map(lambda x: x + 1)
        if name == "ssm_conv1d.weight":
            out[name] = tensor.shaped(tensor.shape[0], tensor.shape[-1])
        if name == "ssm_a":
            out[name] = tensor.map(lambda x: -math.exp(x))
        if name == "ffn_gate_inp_shexp.weight":
            out[name] = tensor.shaped(c["hidden_size"])
    return out


def qwen35(c, tensors):
    names = {**AFTER, **SAME, **SHARED, "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "linear_attn.in_proj_qkv": "attn_qkv",
             "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_a": "ssm_alpha",
             "linear_attn.conv1d": "ssm_conv1d", "linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias",
             "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out"}
    out = rename(merge_experts(tensors, "mlp.experts", EXPERTS), names)
    width, first = c["linear_value_head_dim"], 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"]
    for name, tensor in out.items():
        if name.endswith("norm.weight") and name != "ssm_norm.weight":
            out[name] = tensor.map(lambda x: x + 1)
        if name in ("attn_qkv.weight", "ssm_conv1d.weight"):
            tensor = tensor.shaped(tensor.shape[0], tensor.shape[-1])
            out[name] = tensor.take(tiled(c, width, first))
        if name == "attn_gate.weight":
            out[name] = tensor.take(tiled(c, width))
        if name == "ssm_a":
            out[name] = tensor.map(lambda x: -math.exp(x)).take(tiled(c, 1))
        if name in ("ssm_beta.weight", "ssm_alpha.weight", "ssm_dt.bias"):
            out[name] = tensor.take(tiled(c, 1))
        if name == "ssm_out.weight":
            out[name] = tensor.take(tiled(c, width), 1)
        if name == "ffn_gate_inp_shexp.weight":
            out[name] = tensor.shaped(c["hidden_size"])
    return out


def gpt_oss(c, tensors):
    out = dict(tensors)
    both, bias = out.pop("mlp.experts.gate_up_proj").turned(), out.pop("mlp.experts.gate_up_proj_bias")
    for i, part in enumerate(("gate", "up")):
        out[f"ffn_{part}_exps.weight"] = both.take(range(i, both.shape[1], 2), 1)
        out[f"ffn_{part}_exps.bias"] = bias.take(range(i, bias.shape[1], 2), 1)
    out["ffn_down_exps.weight"] = out.pop("mlp.experts.down_proj").turned()
    return rename(out, {**AFTER, **SAME, "self_attn.sinks": "attn_sinks.weight", "mlp.router": "ffn_gate_inp",
                        "mlp.experts.down_proj_bias": "ffn_down_exps.bias"})


def deepseek(c, tensors):
    names = {**PLAIN, **SAME, **SHARED_ALL, **CORRECTION, "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
             "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
             "self_attn.kv_b_proj": "attn_kv_b"}
    out = rename(merge_experts(tensors, "mlp.experts", EXPERTS), names)
    nope, value, latent = c["qk_nope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]
    both = out.pop("attn_kv_b.weight").shaped(c["num_attention_heads"], nope + value, latent)
    out["attn_k_b.weight"] = both.take(range(nope), 1).turned()
    out["attn_v_b.weight"] = both.take(range(nope, nope + value), 1)
    return out


def glm4_moe(c, tensors):
    return rename(merge_experts(tensors, "mlp.experts", EXPERTS), {**AFTER, **SAME, **SHARED_ALL, **CORRECTION})


def minimax(c, tensors):
    experts = {"w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps"}
    return rename(merge_experts(tensors, "block_sparse_moe.experts", experts),
                  {**PLAIN, **SAME, "block_sparse_moe.gate": "ffn_gate_inp", "block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias"})


def lfm2(c, tensors):
    experts = {"w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps"}
    names = {**PLAIN, **SAME, "operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "self_attn.out_proj": "attn_output",
             "self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm", "feed_forward.w1": "ffn_gate",
             "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down", "conv.conv": "shortconv.conv", "conv.in_proj": "shortconv.in_proj",
             "conv.out_proj": "shortconv.out_proj", "feed_forward.gate": "ffn_gate_inp", "feed_forward.expert_bias": "exp_probs_b.bias"}
    out = rename(merge_experts(tensors, "feed_forward.experts", experts), names)
    if "shortconv.conv.weight" in out:
        t = out["shortconv.conv.weight"]
        out["shortconv.conv.weight"] = t.shaped(t.shape[0], t.shape[2])
    return out


def state_names(at):
    return {f"{at}.in_proj": "ssm_in", f"{at}.out_proj": "ssm_out", f"{at}.conv1d": "ssm_conv1d", f"{at}.A_log": "ssm_a", f"{at}.D": "ssm_d",
            f"{at}.dt_bias": "ssm_dt.bias", f"{at}.norm": "ssm_norm"}


def states(out, groups):
    for name, t in out.items():
        if name == "ssm_conv1d.weight":
            out[name] = t.shaped(t.shape[0], t.shape[2])
        if name == "ssm_a":
            out[name] = t.map(lambda x: -math.exp(x)).shaped(t.shape[0], 1)
        if name == "ssm_d":
            out[name] = t.shaped(t.shape[0], 1)
        if name == "ssm_norm.weight":
            out[name] = t.shaped(groups, t.shape[0] // groups)
    return out


def granite(c, tensors):
    tensors = dict(tensors)
    shared = "_shexp" if c.get("num_local_experts") else ""
    for at, suffix, axis in (("block_sparse_moe", "_exps", 1), ("shared_mlp", shared, 0)):
        both = tensors.pop(at + ".input_linear.weight", None)
        if both:
            tensors[f"ffn_gate{suffix}.weight"], tensors[f"ffn_up{suffix}.weight"] = halves(both, axis)
            tensors[f"ffn_down{suffix}.weight"] = tensors.pop(at + ".output_linear.weight")
    own = {name: name for part in ("gate", "up", "down") for name in (f"ffn_{part}", f"ffn_{part}_exps", f"ffn_{part}_shexp")}
    out = rename(tensors, {**PLAIN, **own, **state_names("mamba"), "block_sparse_moe.router.layer": "ffn_gate_inp"})
    for name, heads in (("attn_q.weight", c["num_attention_heads"]), ("attn_k.weight", c["num_key_value_heads"])):
        if name in out:
            out[name] = adjacent(out[name], heads)
    return states(out, c.get("mamba_n_groups", 1))


def nemotron_h(c, tensors):
    own = {"norm": "attn_norm", **state_names("mixer"), **{f"mixer.{a}_proj": f"attn_{b}" for a, b in zip("qkvo", ("q", "k", "v", "output"))},
           "mixer.up_proj": "ffn_up", "mixer.down_proj": "ffn_down", "mixer.gate": "ffn_gate_inp",
           "mixer.gate.e_score_correction_bias": "exp_probs_b.bias", "mixer.fc1_latent_proj": "ffn_latent_down",
           "mixer.fc2_latent_proj": "ffn_latent_up", "mixer.shared_experts.up_proj": "ffn_up_shexp",
           "mixer.shared_experts.down_proj": "ffn_down_shexp"}
    out = rename(merge_experts(tensors, "mixer.experts", EXPERTS), {**own, **SAME})
    for name, heads in (("attn_q.weight", c["num_attention_heads"]), ("attn_k.weight", c["num_key_value_heads"])):
        if name in out:
            out[name] = adjacent(out[name], heads)
    return states(out, c["n_groups"])


def glm4(c, tensors):
    return rename(tensors, {**PLAIN, "post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm",
                            "post_attention_layernorm": "ffn_norm", "mlp.gate_up_proj": "ffn_up"})


def gemma2(c, tensors):
    out = rename(tensors, {**AFTER, "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"})
    return {name: t.map(lambda x: x + 1) if "norm" in name else t for name, t in out.items()}


def phi3(c, tensors):
    return rename(tensors, {**PLAIN, "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"})


def gemma4(c, tensors):
    return rename(tensors, {**AFTER, "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
                            "layer_scalar": "layer_output_scale.weight", "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj",
                            "post_per_layer_input_norm": "post_norm", "router.proj": "ffn_gate_inp", "router.scale": "ffn_gate_inp.scale",
                            "router.per_expert_scale": "ffn_down_exps.scale", "experts.gate_up_proj": "ffn_gate_up_exps.weight",
                            "experts.down_proj": "ffn_down_exps.weight", "post_feedforward_layernorm_1": "post_ffw_norm_1",
                            "pre_feedforward_layernorm_2": "pre_ffw_norm_2", "post_feedforward_layernorm_2": "post_ffw_norm_2"})


# model_type: GGUF's architecture and the function
FAMILIES = {"qwen3_moe": ("qwen3moe", with_experts), "qwen2_moe": ("qwen2moe", with_experts), "olmoe": ("olmoe", with_experts),
            "qwen3_5_text": ("qwen35", qwen35), "qwen3_5_moe_text": ("qwen35moe", qwen35), "gpt_oss": ("gpt-oss", gpt_oss),
            "deepseek_v3": ("deepseek2", deepseek), "glm4_moe": ("glm4moe", glm4_moe), "minimax_m2": ("minimax-m2", minimax),
            "lfm2": ("lfm2", lfm2), "lfm2_moe": ("lfm2moe", lfm2), "granite": ("granite", granite), "granitemoe": ("granitemoe", granite),
            "granitemoehybrid": ("granitehybrid", granite), "nemotron_h": ("nemotron_h_moe", nemotron_h), "smollm3": ("smollm3", paired),
            "glm4": ("glm4", glm4), "gemma2": ("gemma2", gemma2), "ernie4_5": ("ernie4_5", plain), "arcee": ("arcee", paired),
            "phi3": ("phi3", phi3), "gemma4_text": ("gemma4", gemma4),
            "qwen3_next": ("qwen3next", qwen3_next), "seed_oss": ("seed_oss", lambda c, t: rename(t, AFTER))}

# keys of config.json by GGUF's; the first that is there
KEYS = {"block_count": ("num_hidden_layers",), "context_length": ("max_position_embeddings",), "embedding_length": ("hidden_size",),
        "feed_forward_length": ("intermediate_size",), "attention.head_count": ("num_attention_heads",),
        "attention.head_count_kv": ("num_key_value_heads",), "attention.key_length": ("head_dim",), "attention.value_length": ("head_dim",),
        "attention.layer_norm_rms_epsilon": ("rms_norm_eps", "norm_eps", "layer_norm_epsilon"),
        "expert_count": ("num_local_experts", "num_experts", "n_routed_experts"), "expert_used_count": ("num_experts_per_tok", "top_k_experts"),
        "expert_feed_forward_length": ("moe_intermediate_size",), "expert_shared_count": ("n_shared_experts",),
        "expert_shared_feed_forward_length": ("shared_expert_intermediate_size", "shared_intermediate_size",
                                              "moe_shared_expert_intermediate_size"),
        "expert_group_count": ("n_group",), "expert_group_used_count": ("topk_group",), "expert_weights_scale": ("routed_scaling_factor",),
        "expert_weights_norm": ("norm_topk_prob",), "leading_dense_block_count": ("first_k_dense_replace", "num_dense_layers"),
        "attention.scale": ("attention_multiplier",), "embedding_scale": ("embedding_multiplier",), "residual_scale": ("residual_multiplier",),
        "logit_scale": ("logits_scaling",), "attn_logit_softcapping": ("attn_logit_softcapping",),
        "final_logit_softcapping": ("final_logit_softcapping",), "ssm.conv_kernel": ("linear_conv_kernel_dim", "mamba_d_conv", "conv_kernel"),
        "ssm.state_size": ("linear_key_head_dim", "mamba_d_state", "ssm_state_size"),
        "ssm.group_count": ("linear_num_key_heads", "mamba_n_groups", "n_groups"),
        "ssm.time_step_rank": ("linear_num_value_heads", "mamba_n_heads", "mamba_num_heads"), "shortconv.l_cache": ("conv_L_cache",),
        "attention.q_lora_rank": ("q_lora_rank",), "attention.kv_lora_rank": ("kv_lora_rank",), "moe_latent_size": ("moe_latent_size",)}
FLOATS = ("attn_logit_softcapping", "final_logit_softcapping", "attention.scale", "embedding_scale", "residual_scale", "logit_scale", "expert_weights_scale", "attention.layer_norm_rms_epsilon")
HAS_WINDOW = ("gpt_oss", "gemma2")
SIGMOID = ("glm4_moe", "lfm2_moe", "minimax_m2", "deepseek_v3")


def layer_kinds(c):
    """Returns for each layer whether it has attention, and experts or a feed-forward half of its own."""
    kinds = c.get("layer_types") or c.get("layers_block_type")
    return [(k in ("full_attention", "attention"), k in ("moe", "mlp")) for k in kinds]


def gemma4_keys(c):
    windows, rope = [t == "sliding_attention" for t in c["layer_types"]], c["rope_parameters"]
    full = c["per_layer_config"][str(windows.index(False))]
    kv, shared, ffn = full.get("num_key_value_heads", c["num_key_value_heads"]), c["num_kv_shared_layers"], c["intermediate_size"]
    wide = [i >= len(windows) - shared and c["use_double_wide_mlp"] for i in range(len(windows))]
    return {"attention.key_length": full["head_dim"], "attention.value_length": full["head_dim"], "attention.key_length_swa": c["head_dim"],
            "attention.value_length_swa": c["head_dim"], "attention.sliding_window_pattern": windows, "attention.sliding_window": c["sliding_window"],
            "attention.head_count_kv": [c["num_key_value_heads"] if w else kv for w in windows], "attention.shared_kv_layers": shared,
            "embedding_length_per_layer_input": c["hidden_size_per_layer_input"], "rope.dimension_count": full["head_dim"],
            "rope.dimension_count_swa": c["head_dim"], "rope.freq_base": rope["full_attention"]["rope_theta"],
            "rope.freq_base_swa": rope["sliding_attention"]["rope_theta"],
            "feed_forward_length": [2 * ffn if w else ffn for w in wide] if any(wide) else ffn}


def factors_of(c):
    """Returns tensors of factors of rotary angles."""
    rope = c.get("rope_parameters") or {}
    if rope.get("rope_type") == "longrope":
        return {f"rope_factors_{k}.weight": Tensor([len(rope[k + "_factor"])], rope[k + "_factor"]) for k in ("long", "short")}
    if c["model_type"] != "gemma4_text":
        return {}
    pairs = c["per_layer_config"][str(c["layer_types"].index("full_attention"))]["head_dim"] // 2
    turning = int(rope["full_attention"]["partial_rotary_factor"] * pairs)
    return {"rope_freqs.weight": Tensor([pairs], [1.0] * turning + [1e30] * (pairs - turning))}


def keys_of(c):
    kind = c["model_type"]
    out = {}
    for key, names in KEYS.items():
        value = next((c[n] for n in names if c.get(n) is not None), None)
        if value is not None and not (kind.startswith("qwen") and key == "expert_weights_norm"):
            out[key] = float(value) if key in FLOATS else value
    rope = c.get("rope_parameters") or {}
    if kind == "gemma4_text":
        return {**out, **gemma4_keys(c)}
    head = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    out["rope.freq_base"] = float(rope.get("rope_theta", c.get("rope_theta", 10000.0)))
    if kind != "nemotron_h":
        out["rope.dimension_count"] = int(head * rope.get("partial_rotary_factor", 0.25 if kind.startswith("qwen3_5") else 1))
    if rope.get("rope_type") == "yarn":
        out.update({"rope.scaling.type": "yarn", "rope.scaling.factor": float(rope["factor"]),
                    "rope.scaling.original_context_length": rope["original_max_position_embeddings"]})
    if rope.get("rope_type") == "longrope":
        factor = c["max_position_embeddings"] / c["original_max_position_embeddings"]
        out.update({"rope.scaling.original_context_length": c["original_max_position_embeddings"],
                    "rope.scaling.attn_factor": math.sqrt(1 + math.log(factor) / math.log(c["original_max_position_embeddings"]))})
    if kind in SIGMOID:
        out["expert_gating_func"] = 2
    if kind in HAS_WINDOW:
        out["attention.sliding_window"] = c["sliding_window"]
    if kind in ("gpt_oss", "minimax_m2"):
        out["expert_feed_forward_length"] = c["intermediate_size"]
    if kind == "qwen3_next":
        out["full_attention_interval"] = c["layer_types"].index("full_attention") + 1
        out["ssm.inner_size"] = c["linear_num_value_heads"] * c["linear_value_head_dim"]
    if kind.startswith("qwen3_5"):
        out["ssm.inner_size"] = c["linear_num_value_heads"] * c["linear_value_head_dim"]
        out["full_attention_interval"] = 4
        out["rope.dimension_sections"] = [11, 11, 10, 0]
    if kind == "granitemoehybrid":
        out["ssm.inner_size"] = c["mamba_expand"] * c["hidden_size"]
        out["rope.scaling.finetuned"] = c.get("position_embedding_type") == "rope"
    if kind == "nemotron_h":
        out["ssm.inner_size"] = c["mamba_num_heads"] * c["mamba_head_dim"]
        out["block_count"] = len(layer_kinds(c))
        width = "moe_intermediate_size" if "moe" in c["layers_block_type"] else "intermediate_size"
        if width == "intermediate_size":
            out = {key: value for key, value in out.items() if not key.startswith(("expert_", "moe_"))}
        out["feed_forward_length"] = [c[width] * half for _, half in layer_kinds(c)]
    if kind in ("granitemoehybrid", "nemotron_h", "lfm2", "lfm2_moe"):
        out["attention.head_count_kv"] = [c["num_key_value_heads"] * attention for attention, _ in layer_kinds(c)]
    if kind == "lfm2" and c.get("block_auto_adjust_ff_dim"):
        inner, unit = 2 * c["intermediate_size"] // 3, c["block_multiple_of"]
        out["feed_forward_length"] = (inner + unit - 1) // unit * unit
    if kind == "deepseek_v3":
        nope, turning, value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
        out.update({"attention.head_count_kv": 1, "attention.key_length": c["kv_lora_rank"] + turning, "attention.value_length": c["kv_lora_rank"],
                    "attention.key_length_mla": nope + turning, "attention.value_length_mla": value, "rope.dimension_count": turning})
        if rope.get("mscale_all_dim"):
            out["rope.scaling.yarn_log_multiplier"] = 0.1 * rope["mscale_all_dim"]
    return out


# ---- types ------------------------------------------------------------------------------------------------------------

def nearest(x):
    return int(math.floor(abs(x) + 0.5)) * (1 if x >= 0 else -1)


def half(x):
    return struct.pack("<e", x)


def q8_0(x):
    scale = max(map(abs, x)) / 127
    return half(scale) + struct.pack("<32b", *(nearest(v / scale) if scale else 0 for v in x))


def q4_0(x):
    scale = max(x, key=abs) / -8
    q = [min(15, max(0, int(v / scale + 8.5))) if scale else 8 for v in x]
    return half(scale) + bytes(q[i] | q[i + 16] << 4 for i in range(16))


def mxfp4(x):
    most = max(map(abs, x))
    e = max(0, math.frexp(most)[1] - 1 - 2 + 127) if most else 0
    steps = [0, .5, 1, 1.5, 2, 3, 4, 6]
    q = [min(range(8), key=lambda i: abs(steps[i] - abs(v) / 2.0 ** (e - 127))) | (8 if v < 0 else 0) for v in x]
    return bytes([e]) + bytes(q[i] | q[i + 16] << 4 for i in range(16))


UNEVEN = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def places(x, scale):
    """Returns the places of numbers in a table of multiples of a scale, two in a byte."""
    q = [min(range(16), key=lambda i: abs(UNEVEN[i] * scale - v)) for v in x]
    return bytes(q[i] | q[i + 16] << 4 for i in range(16))


def iq4_nl(x):
    d = round_half(max(x, key=abs) / -127)
    return half(d) + places(x, d)


def iq4_xs(x):
    parts = [x[i:i + 32] for i in range(0, 256, 32)]
    scale = [max(p, key=abs) / -127 for p in parts]
    d = round_half(max(map(abs, scale)) / 31)
    s = steps(scale, d, -32, 31)
    low, top = sum((v + 32 & 15) << 4 * j for j, v in enumerate(s)), sum((v + 32 >> 4) << 2 * j for j, v in enumerate(s))
    return half(d) + struct.pack("<HI", top, low) + b"".join(places(p, v * d) for p, v in zip(parts, s))


def q5_1(x):
    d, m = round_half((max(x) - min(x)) / 31), round_half(min(x))
    q = steps([v - m for v in x], d, 0, 31)
    fifth = struct.pack("<I", sum((v >> 4) << i for i, v in enumerate(q)))
    return half(d) + half(m) + fifth + bytes(q[i] & 15 | (q[i + 16] & 15) << 4 for i in range(16))


def steps(x, scale, first, last):
    """Returns numbers as the nearest whole multiples of a scale."""
    return [min(last, max(first, nearest(v / scale))) if scale else 0 for v in x]


def round_half(x):
    return struct.unpack("<e", half(x))[0]


def offset_parts(x, bits):
    """Returns a head of two halves and eight scales and minima of six bits, and 256 numbers."""
    parts = [x[i:i + 32] for i in range(0, 256, 32)]
    less = [max(0, -min(p)) for p in parts]
    scale = [(max(0, max(p)) + m) / (2**bits - 1) for p, m in zip(parts, less)]
    d, least = round_half(max(scale) / 63), round_half(max(less) / 63)
    s, m = steps(scale, d, 0, 63), steps(less, least, 0, 63)
    bytes_ = [s[i] | s[i + 4] >> 4 << 6 for i in range(4)] + [m[i] | m[i + 4] >> 4 << 6 for i in range(4)]
    bytes_ += [s[i + 4] & 15 | (m[i + 4] & 15) << 4 for i in range(4)]
    numbers = [q for p, a, b in zip(parts, s, m) for q in steps([v + b * least for v in p], a * d, 0, 2**bits - 1)]
    return half(d) + half(least) + bytes(bytes_), numbers


def fours(q):
    """Packs four bits of 256 numbers: parts of 32 in pairs."""
    return bytes(q[i + k] & 15 | (q[i + k + 32] & 15) << 4 for i in range(0, 256, 64) for k in range(32))


def q4_k(x):
    head, q = offset_parts(x, 4)
    return head + fours(q)


def q5_k(x):
    head, q = offset_parts(x, 5)
    return head + bytes(sum((q[32 * j + k] >> 4) << j for j in range(8)) for k in range(32)) + fours(q)


def half_parts(x, last, most):
    """Returns a scale, those of sixteen parts, and 256 numbers from -last - 1 to last."""
    parts = [x[i:i + 16] for i in range(0, 256, 16)]
    scale = [max(map(abs, p)) / last for p in parts]
    d = round_half(max(scale) / most)
    s = steps(scale, d, 0, most)
    return d, s, [q for p, a in zip(parts, s) for q in steps(p, a * d, -last - 1, last)]


def q6_k(x):
    d, s, q = half_parts(x, 31, 127)
    q = [v + 32 for v in q]
    low = bytes(q[i + k] & 15 | (q[i + k + 64] & 15) << 4 for i in (0, 128) for k in range(64))
    top = bytes(sum((q[i + k + 32 * j] >> 4) << 2 * j for j in range(4)) for i in (0, 128) for k in range(32))
    return low + top + bytes(s) + half(d)


def q3_k(x):
    d, s, q = half_parts(x, 3, 31)
    q, s = [v + 4 for v in q], [v + 32 for v in s]
    third = bytes(sum((q[32 * j + k] >> 2) << j for j in range(8)) for k in range(32))
    two = bytes(sum((q[i + k + 32 * j] & 3) << 2 * j for j in range(4)) for i in (0, 128) for k in range(32))
    scales = bytes(s[i] & 15 | (s[i + 8] & 15) << 4 for i in range(8))
    scales += bytes(sum((s[i + 4 * j] >> 4) << 2 * j for j in range(4)) for i in range(4))
    return third + two + scales + half(d)


def q2_k(x):
    parts = [x[i:i + 16] for i in range(0, 256, 16)]
    less = [max(0, -min(p)) for p in parts]
    scale = [(max(0, max(p)) + m) / 3 for p, m in zip(parts, less)]
    d, least = round_half(max(scale) / 15), round_half(max(less) / 15)
    s, m = steps(scale, d, 0, 15), steps(less, least, 0, 15)
    q = [v for p, a, b in zip(parts, s, m) for v in steps([v + b * least for v in p], a * d, 0, 3)]
    two = bytes(sum(q[i + k + 32 * j] << 2 * j for j in range(4)) for i in (0, 128) for k in range(32))
    return bytes(a | b << 4 for a, b in zip(s, m)) + two + half(d) + half(least)


# name: number, numbers and bytes of a block, function
PACK = {"f32": (0, 1, 4, None), "f16": (1, 1, 2, lambda x: half(x[0])), "q4_0": (2, 32, 18, q4_0), "q8_0": (8, 32, 34, q8_0),
        "bf16": (30, 1, 2, lambda x: struct.pack("<I", struct.unpack("<I", struct.pack("<f", x[0]))[0] + 0x7fff
                                                 + (struct.unpack("<I", struct.pack("<f", x[0]))[0] >> 16 & 1))[2:]),
        "mxfp4": (39, 32, 17, mxfp4), "q5_1": (7, 32, 24, q5_1), "iq4_nl": (20, 32, 18, iq4_nl), "iq4_xs": (23, 256, 136, iq4_xs),
        "q2_k": (10, 256, 84, q2_k), "q3_k": (11, 256, 110, q3_k), "q4_k": (12, 256, 144, q4_k), "q5_k": (13, 256, 176, q5_k),
        "q6_k": (14, 256, 210, q6_k)}


def type_for(name, tensor, wanted):
    small = len(tensor.shape) < 2 or any(word in name for word in ("norm", "conv", "ffn_gate_inp", "ssm_a", "ssm_d", "bias"))
    return "f32" if small or tensor.shape[-1] % PACK[wanted][1] else wanted


def pack(tensor, kind):
    _, numbers, _, function = PACK[kind]
    if not function:
        return array.array("f", tensor.data).tobytes()
    return b"".join(function(tensor.data[i:i + numbers]) for i in range(0, len(tensor.data), numbers))


# ---- the file ---------------------------------------------------------------------------------------------------------

WHOLE = {"model.embed_tokens_per_layer": "per_layer_token_embd", "model.per_layer_model_projection": "per_layer_model_proj",
         "model.per_layer_projection_norm": "per_layer_proj_norm", "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "model.embedding_norm": "token_embd_norm",
         "backbone.embeddings": "token_embd", "backbone.norm_f": "output_norm"}


def read_made(path):
    """Returns config.json and the tensors of a file of make_models.py."""
    with open(path) as file:
        made = json.load(file)
    out = {}
    for name, (shape, center, scale) in made["tensors"].items():
        data = array.array("f")
        data.frombytes(values(name, shape, center, scale))
        out[name] = Tensor(shape, data.tolist())
    return made["config"], out


def read_folder(folder):
    out = {}
    for path in sorted(glob.glob(os.path.join(folder, "model*.safetensors"))):
        with open(path, "rb") as file:
            raw = file.read()
        begin = 8 + struct.unpack("<Q", raw[:8])[0]
        for name, t in json.loads(raw[8:begin]).items():
            if name != "__metadata__":
                at, to = (begin + x for x in t["data_offsets"])
                bits = raw[at:to] if t["dtype"] == "F32" else b"".join(b"\0\0" + raw[i:i + 2] for i in range(at, to, 2))
                assert t["dtype"] in ("F32", "BF16"), t["dtype"]
                out[name] = Tensor(t["shape"], array.array("f", bits).tolist())
    with open(os.path.join(folder, "config.json")) as file:
        return json.load(file), out


def convert(c, tensors):
    """Returns the architecture, its keys, and the tensors under GGUF's names."""
    architecture, function = FAMILIES[c["model_type"]]
    if architecture == "nemotron_h_moe" and "moe" not in c["layers_block_type"]:
        architecture = "nemotron_h"
    layers, out = {}, {}
    for name, tensor in tensors.items():
        words = name.split(".")
        if words[1] == "layers":
            layers.setdefault(int(words[2]), {})[".".join(words[3:])] = tensor
        else:
            out.update(rename({name: tensor}, WHOLE))
    if architecture.startswith(("qwen35", "qwen3next", "gemma2")):
        out["output_norm.weight"] = out["output_norm.weight"].map(lambda x: x + 1)
    for i in sorted(layers):
        out.update({f"blk.{i}.{name}": tensor for name, tensor in function(c, layers[i]).items()})
    return architecture, keys_of(c), {**out, **factors_of(c)}


def write(path, architecture, keys, tensors, kind="f32"):
    pairs = {"general.architecture": architecture, **{key if key.startswith("tokenizer.") else f"{architecture}.{key}": value for key, value in keys.items()}}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    head += b"".join(text(key) + pack_value(value) for key, value in pairs.items())
    data, kinds = b"", kind.split(",")
    for i, (name, tensor) in enumerate(tensors.items()):
        its = type_for(name, tensor, kinds[i % len(kinds)])
        head += text(name) + struct.pack("<I", len(tensor.shape)) + b"".join(struct.pack("<Q", n) for n in reversed(tensor.shape))
        head += struct.pack("<IQ", PACK[its][0], len(data))
        data += pack(tensor, its)
        data += bytes(-len(data) % 32)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + data)


if __name__ == "__main__":
    write(sys.argv[2], *convert(*(read_folder if os.path.isdir(sys.argv[1]) else read_made)(sys.argv[1])), *sys.argv[3:4])
