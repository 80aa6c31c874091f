#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the reference data of this folder with PyTorch and Hugging Face transformers.

The script gives tiny GPT-2 and LLaMA models seeded weights, saves them, and
trains them for a few steps in fp32 and again in fp64. The C tests compare
Sluice's losses with those in fp64. README.md specifies every file.

    python3 make_reference.py [--out DIR]
"""
import argparse
import math
import os
import sys

import numpy as np
import safetensors
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

HERE = os.path.dirname(os.path.abspath(__file__))

# Sizes of the models, and the seeds of their weights.
MODELS = {
    "gpt": dict(arch="gpt", layers=4, width=64, heads=4, context=32, vocab=256, norm_eps=1e-5,
                seed=11),
    "llama": dict(arch="llama", layers=3, width=64, heads=4, kv_heads=2, ffn=176, context=32,
                  vocab=256, theta=10000.0, norm_eps=1e-5, seed=12),
    "hf_gpt2": dict(arch="gpt", layers=2, width=32, heads=2, context=32, vocab=256,
                    norm_eps=1e-5, seed=13),
    "hf_llama": dict(arch="llama", layers=2, width=32, heads=4, kv_heads=2, ffn=88, context=32,
                     vocab=256, theta=10000.0, norm_eps=1e-5, seed=14),
}

# Settings of a training run. Floats are rounded to fp32, like those in a C struct.
TRAIN = dict(steps=20, batch=8, microbatches=4, lr=3e-3, min_lr=3e-4, warmup=4, decay_steps=16,
             beta1=0.9, beta2=0.95, adam_eps=1e-8, weight_decay=0.1, clip=1.0)


def f32(x):
    return float(np.float32(x))


def text_of(settings):
    return " ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}"
                    for k, v in settings.items())


# ---- models ----------------------------------------------------------------

def config_of(m):
    common = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None, use_cache=False,
                  attn_implementation="sdpa")
    if m["arch"] == "gpt":
        return GPT2Config(
            vocab_size=m["vocab"], n_positions=m["context"], n_embd=m["width"], n_layer=m["layers"],
            n_head=m["heads"], activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0,
            attn_pdrop=0.0, layer_norm_epsilon=m["norm_eps"], tie_word_embeddings=True, **common)
    return LlamaConfig(
        vocab_size=m["vocab"], hidden_size=m["width"], intermediate_size=m["ffn"],
        num_hidden_layers=m["layers"], num_attention_heads=m["heads"],
        num_key_value_heads=m["kv_heads"], max_position_embeddings=m["context"],
        rms_norm_eps=m["norm_eps"],
        rope_parameters={"rope_type": "default", "rope_theta": m["theta"]},
        attention_dropout=0.0, tie_word_embeddings=False, **common)


def empty_model(m):
    model = (GPT2LMHeadModel if m["arch"] == "gpt" else LlamaForCausalLM)(config_of(m))
    return model.eval()  # the config has no dropout; eval also turns it off


def seeded_weights(model, seed):
    """Sets weights large enough that every tensor affects the loss: matrices of
    variance about 1/fan_in, biases and positions far from 0, gains far from 1."""
    rng = np.random.Generator(np.random.PCG64(seed))
    one = 0.0 if model.config.model_type.startswith("gemma") else 1.0  # Gemma adds 1 itself
    with torch.no_grad():
        for name, p in model.named_parameters():  # a tied tensor appears once
            noise = rng.standard_normal(tuple(p.shape))
            if p.ndim == 1:
                is_gain = name.endswith("weight")
                value = one + 0.2 * noise if is_gain else 0.1 * noise
            elif "wpe" in name:
                value = 0.3 * noise
            elif "wte" in name or "embed_tokens" in name:
                value = 0.15 * noise
            else:
                value = noise / math.sqrt(model.config.hidden_size)
            p.copy_(torch.from_numpy(value.astype(np.float32)))


def build(kind):
    model = empty_model(MODELS[kind])
    seeded_weights(model, MODELS[kind]["seed"])
    return model


def stored_tensors(model):
    """Returns the tensors that transformers stores: all parameters, without a tied lm_head."""
    return {name: p.detach().contiguous() for name, p in model.named_parameters()}


class TrueDouble:
    """Context in which LLaMA's norm and RoPE compute double tensors in double
    precision; by default transformers rounds both to fp32."""

    def __enter__(self):
        self.norm = modeling_llama.LlamaRMSNorm.forward
        self.rope = modeling_llama.LlamaRotaryEmbedding.forward

        def norm(self, x):
            return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)
                                                  + self.variance_epsilon))

        def rope(self, x, position_ids):
            theta = self.config.rope_parameters["rope_theta"]
            dim = self.config.head_dim
            inv = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
            angle = position_ids[..., None].double() * inv
            angle = torch.cat((angle, angle), dim=-1)
            return angle.cos(), angle.sin()

        modeling_llama.LlamaRMSNorm.forward = norm
        modeling_llama.LlamaRotaryEmbedding.forward = rope

    def __exit__(self, *_):
        modeling_llama.LlamaRMSNorm.forward = self.norm
        modeling_llama.LlamaRotaryEmbedding.forward = self.rope


def loss_of(model, tokens, targets):
    logits = model(input_ids=tokens).logits
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten()), logits


# ---- data ------------------------------------------------------------------

def rows_of(stream, context, first, count):
    """Returns sequences first .. first+count-1 of the repeating, unshuffled data."""
    whole = (len(stream) - 1) // context
    at = [(i % whole) * context for i in range(first, first + count)]
    tokens = np.stack([stream[a:a + context] for a in at]).astype(np.int64)
    targets = np.stack([stream[a + 1:a + context + 1] for a in at]).astype(np.int64)
    return torch.from_numpy(tokens), torch.from_numpy(targets)


# ---- training ----------------------------------------------------------------

def lr_at(o, step):
    lr, low = f32(o["lr"]), f32(o["min_lr"])
    if step < o["warmup"]:
        return f32(lr * (step + 1) / o["warmup"])
    t = (step - o["warmup"]) / (o["decay_steps"] - o["warmup"])
    return f32(low + 0.5 * (1 + math.cos(math.pi * min(max(t, 0.0), 1.0))) * (lr - low))


def train(kind, stream, dtype):
    """Returns rows (loss, grad_norm, lr), the gradients of step 0 and the final weights."""
    o, model = TRAIN, build(kind).to(dtype)
    named = dict(model.named_parameters())
    params = list(named.values())
    optimizer = torch.optim.AdamW(
        [dict(params=[p for p in params if p.ndim >= 2], weight_decay=f32(o["weight_decay"])),
         dict(params=[p for p in params if p.ndim < 2], weight_decay=0.0)],
        betas=(f32(o["beta1"]), f32(o["beta2"])), eps=f32(o["adam_eps"]), foreach=False)
    rows, first_grads = [], None
    micro = o["batch"] // o["microbatches"]
    for step in range(o["steps"]):
        optimizer.zero_grad()
        tokens, targets = rows_of(stream, MODELS[kind]["context"], step * o["batch"], o["batch"])
        total = 0.0
        for j in range(o["microbatches"]):
            part = slice(j * micro, (j + 1) * micro)
            loss, _ = loss_of(model, tokens[part], targets[part])
            (loss / o["microbatches"]).backward()
            total += loss.item() / o["microbatches"]
        if first_grads is None:
            first_grads = {n: p.grad.detach().double().clone() for n, p in named.items()}
        norm = math.sqrt(sum(p.grad.double().pow(2).sum().item() for p in params))
        scale = min(1.0, f32(o["clip"]) / (norm + 1e-6))
        lr = lr_at(o, step)
        for p in params:
            p.grad.mul_(scale)
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
        rows.append((total, norm, lr))
    return rows, first_grads, {n: p.detach().double() for n, p in named.items()}


def probe(x):
    """Returns sum x[i] cos(i), which differs for a transposed or permuted tensor."""
    x = x.double().flatten().numpy()
    return float((x * np.cos(np.arange(x.size, dtype=np.float64))).sum())


def write_training(kind, stream, out):
    r32, _, w32 = train(kind, stream, torch.float32)
    with TrueDouble():
        r64, grads, w64 = train(kind, stream, torch.float64)
    config = f"{text_of(MODELS[kind])} tokens=tokens.u16 {text_of(TRAIN)}"
    versions = (f"torch={torch.__version__} transformers={transformers.__version__} "
                f"safetensors={safetensors.__version__} numpy={np.__version__}")
    with open(os.path.join(out, f"{kind}_losses.txt"), "w") as f:
        f.write(f"# {config} {versions}\n")
        f.write("# step loss grad_norm lr loss_f64 grad_norm_f64\n")
        for step, ((l, g, lr), (l64, g64, _)) in enumerate(zip(r32, r64)):
            f.write(f"{step} {l:.12g} {g:.12g} {lr:.12g} {l64:.15g} {g64:.15g}\n")
    with open(os.path.join(out, f"{kind}_tensors.txt"), "w") as f:
        f.write(f"# {config} {versions}\n")
        f.write("# name shape decay grad_norm grad_probe final_norm final_probe fp32_max_diff\n")
        for name, g in grads.items():
            w = w64[name]
            f.write(f"{name} {'x'.join(map(str, w.shape))} {int(w.ndim >= 2)} "
                    f"{g.norm().item():.12g} {probe(g):.12g} {w.norm().item():.12g} "
                    f"{probe(w):.12g} {(w32[name] - w).abs().max().item():.3g}\n")
    dl = max(abs(a[0] - b[0]) / b[0] for a, b in zip(r32, r64))
    dg = max(abs(a[1] - b[1]) / b[1] for a, b in zip(r32, r64))
    print(f"{kind}: loss {r64[0][0]:.6f} -> {r64[-1][0]:.6f}, grad norm {r64[0][1]:.4f} -> "
          f"{r64[-1][1]:.4f}; fp32 from fp64, relative: loss {dl:.2e}, grad norm {dg:.2e}")


# ---- expected logits of the files saved by transformers ----------------------

def write_pretrained(kind, stream, out):
    model, folder = build(kind), os.path.join(out, kind)
    model.save_pretrained(folder)
    extra = os.path.join(folder, "generation_config.json")
    if os.path.exists(extra):
        os.remove(extra)  # the tests generate no text with it
    tokens, targets = rows_of(stream, MODELS[kind]["context"], 0, 2)
    with torch.no_grad():
        _, logits32 = loss_of(model, tokens, targets)
        with TrueDouble():
            loss, logits = loss_of(model.double(), tokens, targets)
    save_file({"tokens": tokens.int(), "targets": targets.int(), "logits": logits.float(),
               "loss": loss.float().reshape(1), "loss_f64": loss.reshape(1)},
              os.path.join(folder, "expected.safetensors"), metadata={"format": "pt"})
    for name in ("model", "expected"):  # safetensors makes files readable for the owner only
        os.chmod(os.path.join(folder, f"{name}.safetensors"), 0o644)
    print(f"{kind}: loss {loss.item():.9f}, largest logit {logits.abs().max().item():.3f}, "
          f"fp32 from fp64: {(logits32 - logits).abs().max().item():.2e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=HERE)
    out = parser.parse_args().out
    os.makedirs(out, exist_ok=True)
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    with open(os.path.join(HERE, "text.txt"), "rb") as f:
        stream = np.frombuffer(f.read(), np.uint8).astype("<u2")
    stream.tofile(os.path.join(out, "tokens.u16"))
    for kind in ("gpt", "llama"):
        path = os.path.join(out, f"{kind}_init.safetensors")
        save_file(stored_tensors(build(kind)), path, metadata={"format": "pt"})
        os.chmod(path, 0o644)
        write_training(kind, stream, out)
    for kind in ("hf_gpt2", "hf_llama"):
        write_pretrained(kind, stream, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
