#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports small random models with torch.export, and writes PyTorch's results beside each file.

    python3 pytorch_export.py --out DIR [--pack DIR] [NAME ...]

DIR/NAME/ gets model.pt2, its inputs as .npy, grads.safetensors (the gradient of every parameter) and figures.json:
the loss, the norm, sum and a few values of each gradient, and the losses of ten AdamW steps without weight decay.
With --pack, NAME.tar.gz has everything except the gradients. The tests use the files in pytorch/.
"""
import argparse
import copy
import gzip
import json
import math
import os
import re
import sys
import tarfile
import zlib

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from torch.utils._python_dispatch import TorchDispatchMode

# Seeds with which no token is so near to another expert that rounding could change its route.
SEEDS = {"gpt-oss": 5, "mixtral": 29, "deepseek-v3": 10, "qwen3-next": 5}
STEPS = 10
ADAMW = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
BATCH, LENGTH, VOCABULARY = 4, 16, 96
NO_TOKENS = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)
DECODER = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
               num_key_value_heads=2, max_position_embeddings=32, use_cache=False, **NO_TOKENS)


class LanguageLoss(torch.nn.Module):
    """Mean cross entropy of a transformers model that takes ids and labels."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, labels):
        return self.model(input_ids=ids, labels=labels).loss


# ---- models: functions that return a module and its inputs by name -------------------------------------------------

def tokens(*shape, low=0):
    return torch.randint(low, VOCABULARY, shape)


def language(config, cls=None):
    cls = cls or getattr(transformers, type(config).__name__.replace("Config", "ForCausalLM"))
    ids = tokens(BATCH, LENGTH)
    return LanguageLoss(cls(config)), dict(ids=ids, labels=ids.clone())


def gpt2():
    return language(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, use_cache=False, **NO_TOKENS), transformers.GPT2LMHeadModel)


def llama():
    return language(transformers.LlamaConfig(**DECODER))


def qwen3():
    return language(transformers.Qwen3Config(**DECODER, head_dim=8))


def gemma3():
    return language(transformers.Gemma3TextConfig(
        **DECODER, head_dim=8, query_pre_attn_scalar=8, sliding_window=5,
        layer_types=["sliding_attention", "full_attention"]), transformers.Gemma3ForCausalLM)


def olmo2():
    return language(transformers.Olmo2Config(**DECODER))


def phi3():
    return language(transformers.Phi3Config(**DECODER))


def mamba2():
    return language(transformers.Mamba2Config(
        vocab_size=VOCABULARY, hidden_size=32, num_heads=4, head_dim=16, state_size=8, n_groups=2, chunk_size=8,
        num_hidden_layers=2, use_cache=False, **NO_TOKENS))


def gpt_oss():
    return language(transformers.GptOssConfig(
        **DECODER | dict(intermediate_size=32), head_dim=8, num_local_experts=4, num_experts_per_tok=2,
        sliding_window=5, layer_types=["sliding_attention", "full_attention"]))


def mixtral():
    return language(transformers.MixtralConfig(
        **DECODER | dict(intermediate_size=32), num_local_experts=4, num_experts_per_tok=2))


def deepseek_v3():
    return language(transformers.DeepseekV3Config(
        **DECODER | dict(num_key_value_heads=4), moe_intermediate_size=16, n_shared_experts=1, n_routed_experts=8,
        num_experts_per_tok=2, n_group=2, topk_group=1, first_k_dense_replace=1, q_lora_rank=16, kv_lora_rank=16,
        qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8))


def qwen3_next():
    return language(transformers.Qwen3NextConfig(
        **DECODER, head_dim=8, moe_intermediate_size=16, shared_expert_intermediate_size=16, num_experts=4,
        num_experts_per_tok=2, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
        linear_value_head_dim=8, layer_types=["linear_attention", "full_attention"]))


def rwkv():
    module, inputs = language(transformers.RwkvConfig(
        vocab_size=VOCABULARY, context_length=32, hidden_size=32, attention_hidden_size=32, intermediate_size=64,
        num_hidden_layers=2, use_cache=False, **NO_TOKENS))
    return module, {name: value[:, :8].clone() for name, value in inputs.items()}  # a few calls per position


def bert():
    module, inputs = language(transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=0),
        transformers.BertForMaskedLM)
    inputs["labels"][:, 1::3] = -100
    return module, inputs


def t5():
    module, inputs = language(transformers.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=4, num_heads=4, dropout_rate=0.0,
        relative_attention_num_buckets=8, relative_attention_max_distance=16, use_cache=False, pad_token_id=0,
        decoder_start_token_id=0), transformers.T5ForConditionalGeneration)
    return module, dict(ids=inputs["ids"], labels=tokens(BATCH, 10, low=1))


class SpeechLoss(LanguageLoss):
    def forward(self, features, labels):
        return self.model(input_features=features, labels=labels).loss


def whisper():
    model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(
        vocab_size=VOCABULARY, num_mel_bins=8, d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
        max_source_positions=12, max_target_positions=16, dropout=0.0, use_cache=False, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None))
    return SpeechLoss(model), dict(features=torch.randn(BATCH, 8, 24), labels=tokens(BATCH, 10))


class ImageLoss(LanguageLoss):
    def forward(self, pixels, labels):
        return self.model(pixel_values=pixels, labels=labels).loss


def image(config, size):
    config.num_labels = 10
    cls = getattr(transformers, type(config).__name__.replace("Config", "ForImageClassification"))
    return ImageLoss(cls(config)), dict(pixels=torch.randn(BATCH, 3, size, size), labels=torch.randint(10, (BATCH,)))


def vit():
    return image(transformers.ViTConfig(
        image_size=16, patch_size=4, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0), 16)


def convnext():
    return image(transformers.ConvNextConfig(
        hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1], drop_path_rate=0.0, patch_size=2, image_size=32), 32)


def resnet():
    return image(transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[16, 24, 32], depths=[1, 2, 1], layer_type="bottleneck"), 32)


def swin():
    return image(transformers.SwinConfig(
        image_size=32, patch_size=4, embed_dim=16, depths=[2, 1], num_heads=[2, 4], window_size=4, mlp_ratio=2.0,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, drop_path_rate=0.0), 32)


class PairsLoss(LanguageLoss):
    def forward(self, ids, pixels):
        return self.model(input_ids=ids, pixel_values=pixels, return_loss=True).loss


def clip():
    common = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                  attention_dropout=0.0)
    model = transformers.CLIPModel(transformers.CLIPConfig(
        text_config=dict(**common, vocab_size=VOCABULARY, max_position_embeddings=16, eos_token_id=2, bos_token_id=1,
                         pad_token_id=0),
        vision_config=dict(**common, image_size=16, patch_size=4), projection_dim=16, logit_scale_init_value=0.7))
    return PairsLoss(model), dict(ids=tokens(BATCH, 12), pixels=torch.randn(BATCH, 3, 16, 16))


# ---- models of other packages --------------------------------------------------------------------------------------

class ClassLoss(LanguageLoss):
    def forward(self, pixels, labels):
        return F.cross_entropy(self.model(pixels), labels)


def classes(model, size):
    return ClassLoss(model), dict(pixels=torch.randn(BATCH, 3, size, size), labels=torch.randint(10, (BATCH,)))


def timm_vit():
    from timm.models.vision_transformer import VisionTransformer
    return classes(VisionTransformer(img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=4, num_classes=10), 32)


def timm_efficientnet():
    import timm
    return classes(timm.create_model("test_efficientnet", num_classes=10), 64)


def torchvision_mobilenet():
    from torchvision.models import MobileNetV2
    return classes(MobileNetV2(
        num_classes=10, width_mult=0.25, dropout=0.0,
        inverted_residual_setting=[[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 2, 2]]), 32)


def torchvision_shufflenet():
    from torchvision.models.shufflenetv2 import ShuffleNetV2
    return classes(ShuffleNetV2([2, 2, 2], [8, 16, 32, 64, 64], num_classes=10), 64)


class SequenceLoss(LanguageLoss):
    def forward(self, ids, labels):
        return F.cross_entropy(self.model(ids).transpose(1, 2), labels)


def x_transformers():
    from x_transformers import Decoder, TransformerWrapper
    text = tokens(BATCH, LENGTH + 1)
    model = TransformerWrapper(num_tokens=VOCABULARY, max_seq_len=32, attn_layers=Decoder(
        dim=32, depth=2, heads=4, attn_dim_head=8, rotary_pos_emb=True, ff_glu=True))
    return SequenceLoss(model), dict(ids=text[:, :-1].clone(), labels=text[:, 1:].clone())


class NoiseLoss(LanguageLoss):
    def forward(self, noisy, times, noise):
        return F.mse_loss(self.model(noisy, times).sample, noise)


def diffusers_unet():
    from diffusers import UNet2DModel
    model = UNet2DModel(
        sample_size=16, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4, attention_head_dim=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))
    return NoiseLoss(model), dict(noisy=torch.randn(BATCH, 3, 16, 16), times=torch.randint(1000, (BATCH,)),
                                  noise=torch.randn(BATCH, 3, 16, 16))


MODELS = {f.__name__.replace("_", "-"): f for f in (
    gpt2, llama, qwen3, gemma3, olmo2, phi3, mamba2, gpt_oss, mixtral, deepseek_v3, qwen3_next, rwkv, bert, t5, whisper,
    vit, convnext, resnet, clip, swin, timm_vit, timm_efficientnet, torchvision_mobilenet, torchvision_shufflenet,
    x_transformers, diffusers_unet)}
# Exported again with a dynamic batch size.
DYNAMIC = {"gpt2-dynamic": gpt2, "resnet-dynamic": resnet}
MODELS |= DYNAMIC


# ---- weights -------------------------------------------------------------------------------------------------------

def scatter_weights(module):
    """Sets every parameter to values that affect the loss: none stays at zero, one, or a deviation of 0.02."""
    for name, p in module.named_parameters():
        noise = torch.randn(p.shape)
        if p.dim() < 2 or p.numel() == p.shape[-1]:
            p.data.add_(0.1 * noise)
        elif re.search(r"embed|wte|wpe|token|position|relative|shared", name):
            p.data.copy_(0.3 * noise)
        elif p.dim() == 2 or ("experts" in name and p.dim() == 3):
            p.data.copy_(noise * math.sqrt(2 / (p.shape[-1] + p.shape[-2])))
            if re.search(r"(router|gate)\.weight$", name):
                p.data.mul_(2)
        else:
            p.data.copy_(noise / math.sqrt(p[0].numel()))
    for name, buffer in module.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(0.05 * torch.randn(buffer.shape))


# ---- PyTorch's results ---------------------------------------------------------------------------------------------

class Routing(TorchDispatchMode):
    """Records the smallest distance between the last value that a topk takes and the first that it leaves."""

    def __init__(self):
        super().__init__()
        self.margin = None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.topk.default and args[0].shape[-1] > args[1]:
            best = torch.sort(args[0], dim=-1, descending=True).values
            margin = (best[..., args[1] - 1] - best[..., args[1]]).min().item()
            self.margin = margin if self.margin is None else min(margin, self.margin)
        return out


def sample(name, t):
    """Returns norm, sum and eight values of a tensor, whose positions depend only on the name."""
    flat = t.detach().reshape(-1)
    at = [zlib.crc32(f"{name}:{i}".encode()) % flat.numel() for i in range(8)]
    return dict(shape=list(t.shape), norm=flat.double().norm().item(), sum=flat.double().sum().item(), at=at,
                values=[flat[i].item() for i in at])


def gradients(module, inputs):
    """Returns the loss and the gradients by name, without parameters that do not affect the loss."""
    module.zero_grad()
    loss = module(*inputs.values())
    loss.backward()
    return loss.item(), {n: p.grad.clone() for n, p in module.named_parameters() if p.grad is not None}


def halves(inputs):
    return [{n: t[:BATCH // 2] for n, t in inputs.items()}, {n: t[BATCH // 2:] for n, t in inputs.items()}]


def train(module, microbatches):
    """Returns the losses of several AdamW steps on the same batch, each the mean over its microbatches."""
    adamw = torch.optim.AdamW(module.parameters(), foreach=False, **ADAMW)
    losses = []
    for _ in range(STEPS):
        adamw.zero_grad()
        loss = sum(module(*m.values()) for m in microbatches) / len(microbatches)
        loss.backward()
        adamw.step()
        losses.append(loss.item())
    return losses


def figures_of(module, inputs, grads_file):
    """Returns the figures of one step and of ten. "rounding" is the distance of an fp32 gradient from the fp64 one."""
    start = {n: t.detach().clone() for n, t in module.state_dict().items()}
    loss, found = gradients(module, inputs)
    save_file({n: g.contiguous() for n, g in found.items()}, grads_file)
    changed = {n: b.clone() for n, b in module.named_buffers() if n in start and not torch.equal(b, start[n])}
    module.load_state_dict(start)
    with Routing() as routing:
        losses = train(module, [inputs])
    after = {n: sample(n, b) for n, b in module.named_buffers() if n in changed}
    module.load_state_dict(start)
    losses_of_halves = train(module, halves(inputs))
    module.load_state_dict(start)
    wide = copy.deepcopy(module).double()
    if any("experts" in n for n in found):
        wide.model.set_experts_implementation("eager")  # the grouped products do not support fp64
    exact = gradients(wide, {n: t.double() if t.is_floating_point() else t for n, t in inputs.items()})
    entries = {n: sample(n, g) | dict(rounding=(g - exact[1][n]).norm().item()) for n, g in found.items()}
    return dict(torch=torch.__version__.split("+")[0], transformers=transformers.__version__, loss=loss,
                loss_f64=exact[0], losses=losses, losses_of_halves=losses_of_halves, routing_margin=routing.margin,
                gradients=entries, without_gradient=[n for n, _ in module.named_parameters() if n not in found],
                buffers={n: sample(n, b) for n, b in changed.items()}, buffers_after_ten=after)


# ---- the file ------------------------------------------------------------------------------------------------------

def without_folders(graph):
    """Reduces each stack trace to its two innermost calls, and their files to the names."""
    for node in graph["nodes"]:
        trace = node["metadata"].get("stack_trace")
        if trace:
            calls = re.split(r'^(?= *File ")', trace, flags=re.M)
            node["metadata"]["stack_trace"] = re.sub(r'File "[^"]*/', 'File "', "".join(calls[-2:]))
        for argument in node["inputs"]:
            if "as_graph" in argument["arg"]:
                without_folders(argument["arg"]["as_graph"]["graph"])


def rewrite(source, target, bare=False):
    """Copies an archive in the layout of torch.export.save, without sample inputs or this machine's folders. A bare one
    has no source lines, either."""
    reader = torch._C.PyTorchFileReader(source)
    writer = torch._C.PyTorchFileWriter(target)
    writer.set_min_version(6)
    for name in reader.get_all_records():
        if name.startswith((".data/", "data/sample_inputs/")) or name in ("version", "byteorder"):
            continue
        data = reader.get_record(name)
        if name == "models/model.json":
            program = json.loads(data)
            without_folders(program["graph_module"]["graph"])
            for node in program["graph_module"]["graph"]["nodes"] if bare else ():
                node["metadata"] = {}
            data = json.dumps(program, separators=(",", ":")).encode()
        writer.write_record(name, data, len(data))
    writer.write_end_of_file()


def export(folder, module, inputs, dynamic_shapes=None):
    program = torch.export.export(module, tuple(inputs.values()), strict=False, dynamic_shapes=dynamic_shapes)
    raw = os.path.join(folder, "raw.pt2")
    torch.export.save(program, raw)
    rewrite(raw, os.path.join(folder, "model.pt2"))
    return program


def pack(folder, target):
    """Packs the files that tests need into a reproducible archive."""
    def plain(entry):
        entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname, entry.mode = 0, 0, 0, "", "", 0o644
        return entry

    with open(target, "wb") as out, gzip.GzipFile("", "wb", 9, out, 0) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for file in sorted(os.listdir(folder)):
            if file not in ("raw.pt2", "grads.safetensors"):
                tar.add(os.path.join(folder, file), f"{os.path.basename(folder)}/{file}", filter=plain)


def build(name):
    """Returns the module in training mode, and its inputs by name."""
    torch.manual_seed(SEEDS.get(name, 0))
    module, inputs = MODELS[name]()
    scatter_weights(module)
    return module.train(), inputs


def make(name, out):
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    module, inputs = build(name)
    for key, value in inputs.items():
        np.save(os.path.join(folder, key + ".npy"), value.numpy())
    batch = ({0: torch.export.Dim("batch", min=2, max=64)},) * len(inputs)
    program = export(folder, module, inputs, batch if name in DYNAMIC else None)
    again = program.module()(*inputs.values()).item()
    figures = figures_of(module, inputs, os.path.join(folder, "grads.safetensors"))
    with open(os.path.join(folder, "figures.json"), "w") as file:
        json.dump(figures, file, indent=1)
    worst = max((g["rounding"] / max(g["norm"], 1e-30), n) for n, g in figures["gradients"].items())
    print(name, os.path.getsize(os.path.join(folder, "model.pt2")), "bytes,", len(program.graph.nodes), "nodes, loss",
          figures["loss"], again - figures["loss"], "to", figures["losses"][-1], figures["losses_of_halves"][-1],
          "margin", figures["routing_margin"], "rounding", worst, "without", figures["without_gradient"], flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--pack", metavar="DIR")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in options.names or MODELS:
        make(name, options.out)
        if options.pack:
            pack(os.path.join(options.out, name), os.path.join(options.pack, name + ".tar.gz"))


if __name__ == "__main__":
    sys.exit(main())
