#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes gguf/: small models as GGUF files, one with tensors of many types, and the losses of finetune.py
on text.txt with the models that transformers reads from them (NAME.txt: step, loss, gradient norm).

    pip install torch transformers accelerate safetensors gguf sentencepiece numpy
    python3 make_gguf.py [--out DIR]

ggml's package writes the files: tiny.gguf is a LLaMA with the rows of q and k in ggml's order, qwen2.gguf a
Qwen2 with biases and a tied classifier. Their tokens are bytes, and they have no tokenizer. blocks.txt has
one line per type that Sluice unpacks: its name, the bytes of 256 random numbers, and the f32 numbers that
ggml's package unpacks from them, both in hexadecimal.

pieces.gguf has only a tokenizer, trained by SentencePiece (from PyPI) on text.txt and the texts of
make_tokenizers.py. pieces.txt has one line per text: the text and its SentencePiece tokens, each as JSON,
separated by a tab.
"""
import argparse
import io
import json
import os
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import sentencepiece
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from make_reference import HERE, seeded_weights
from make_tokenizers import TEXTS, random_texts

CONFIG = dict(vocab_size=256, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=20000.0,
              tie_word_embeddings=False, bos_token_id=None, eos_token_id=None, pad_token_id=None)
QWEN2 = dict(CONFIG, num_hidden_layers=1, tie_word_embeddings=True, rms_norm_eps=1e-6, rope_theta=50000.0)
MODELS = {"tiny": ("llama", LlamaForCausalLM, LlamaConfig(**CONFIG)),
          "qwen2": ("qwen2", Qwen2ForCausalLM, Qwen2Config(**QWEN2, use_sliding_window=False))}
NAMES = [("model.embed_tokens.", "token_embd."), ("model.norm.", "output_norm."), ("lm_head.", "output."),
         ("model.layers.", "blk."), ("input_layernorm.", "attn_norm."), ("self_attn.q_proj.", "attn_q."),
         ("self_attn.k_proj.", "attn_k."), ("self_attn.v_proj.", "attn_v."), ("self_attn.o_proj.", "attn_output."),
         ("post_attention_layernorm.", "ffn_norm."), ("mlp.gate_proj.", "ffn_gate."), ("mlp.up_proj.", "ffn_up."),
         ("mlp.down_proj.", "ffn_down.")]
TYPES = {"token_embd": Type.Q8_0, "output": Type.Q4_0, "attn_q": Type.Q4_1, "attn_k": Type.BF16, "attn_v": Type.F16,
         "attn_output": Type.Q4_0, "ffn_gate": Type.Q4_1, "ffn_up": Type.Q8_0, "ffn_down": Type.F32}


def name_of(name):
    for theirs, ours in NAMES:
        name = name.replace(theirs, ours)
    return name


def as_neighbours(weight, heads):
    """Interleaves the rows of each head: one of the first half, one of the second, and so on."""
    return weight.reshape(heads, 2, -1, weight.shape[-1]).swapaxes(1, 2).reshape(weight.shape)


def write(path, architecture, model):
    config = model.config
    out = gguf.GGUFWriter(path, architecture)
    out.add_block_count(config.num_hidden_layers)
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_rope_freq_base(config.rope_parameters["rope_theta"])
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_vocab_size(config.vocab_size)
    if architecture == "llama":
        out.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    for name, tensor in model.state_dict().items():
        values, ours = tensor.float().numpy(), name_of(name)
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        kind = Type.F32 if values.ndim < 2 else TYPES.get(ours.split(".")[-2], Type.F32)
        if architecture == "llama" and ".attn_q." in ours:
            values = as_neighbours(values, config.num_attention_heads)
        if architecture == "llama" and ".attn_k." in ours:
            values = as_neighbours(values, config.num_key_value_heads)
        out.add_tensor(ours, gguf.quants.quantize(np.ascontiguousarray(values), kind), raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def write_blocks(path):
    """Writes random blocks, with f16 scales of moderate size."""
    rng = np.random.default_rng(4)
    scales = {Type.F16: (2, [0]), Type.Q4_0: (18, [0]), Type.Q4_1: (20, [0, 2]), Type.Q8_0: (34, [0]), Type.Q4_K: (144, [0, 2]),
              Type.Q5_K: (176, [0, 2]), Type.Q6_K: (210, [208]), Type.Q5_0: (22, [0]), Type.Q5_1: (24, [0, 2]), Type.Q2_K: (84, [80, 82]),
              Type.Q3_K: (110, [108]), Type.IQ4_NL: (18, [0]), Type.IQ4_XS: (136, [0]), Type.MXFP4: (17, []), Type.IQ2_XXS: (66, [0]),
              Type.IQ2_XS: (74, [0]), Type.IQ2_S: (82, [0]), Type.IQ3_XXS: (98, [0]), Type.IQ3_S: (110, [0]), Type.IQ1_S: (50, [0]),
              Type.IQ1_M: (56, [])}
    with open(path, "w") as file:
        for kind, (size, places) in scales.items():
            blocks = rng.integers(0, 256, (256 // gguf.GGML_QUANT_SIZES[kind][0], size), dtype=np.uint8)
            for place in places:
                blocks[:, place:place + 2] = rng.normal(size=(len(blocks), 1)).astype(np.float16).view(np.uint8)
            if kind == Type.MXFP4:  # the scale is a power of two; some are subnormal floats
                blocks[:, 0] = [0, 1, 2] + list(rng.integers(100, 140, len(blocks) - 3))
            if kind == Type.IQ1_M:  # the scale is in the upper bits of four words
                words, scale = blocks[:, 48:].copy().view("<u2"), int(np.float16(rng.normal()).view(np.uint16))
                words = words & 0xFFF | np.array([(scale >> 4 * w & 15) << 12 for w in range(4)], dtype="<u2")
                blocks[:, 48:] = words.astype("<u2").view(np.uint8)
            values = gguf.quants.dequantize(blocks.reshape(-1) if kind == Type.F16 else blocks, kind)
            file.write(f"{kind.name} {blocks.tobytes().hex()} {values.astype('<f4').tobytes().hex()}\n")


def train_pieces(texts):
    """Trains a tokenizer like LLaMA 2's: BPE, separate digits, byte fallback, no normalization."""
    with open(os.path.join(HERE, "text.txt"), encoding="utf-8") as file:
        corpus = file.read().split("\n") + [line for text in texts for line in text.split("\n")]
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for line in corpus if line and "\0" not in line), model_writer=trained,
        model_type="bpe", vocab_size=700, byte_fallback=True, split_digits=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, character_coverage=0.98,
        minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())


def type_of(model, token):
    return 2 if model.IsUnknown(token) else 3 if model.IsControl(token) else 6 if model.IsByte(token) else 1


def make_pieces(out):
    texts = [t for t in TEXTS + list(random_texts(200, 5)) if t and not any(m in t for m in ("<s>", "</s>", "<unk>", "\0"))]
    model = train_pieces(texts)
    tokens = range(model.GetPieceSize())
    writer = gguf.GGUFWriter(os.path.join(out, "pieces.gguf"), "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([model.IdToPiece(t) for t in tokens])
    writer.add_token_scores([model.GetScore(t) for t in tokens])
    writer.add_token_types([type_of(model, t) for t in tokens])
    writer.add_bos_token_id(model.bos_id())
    writer.add_eos_token_id(model.eos_id())
    writer.add_unk_token_id(model.unk_id())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open(os.path.join(out, "pieces.txt"), "w") as file:
        for text in texts:
            file.write(json.dumps(text) + "\t" + json.dumps([model.bos_id()] + model.encode(text)) + "\n")


def read_back(path, folder):
    """Writes the folder that transformers reads from the file, in fp32."""
    # The file has no tokenizer, so only the model can be loaded.
    at, name = os.path.split(path)
    model = AutoModelForCausalLM.from_pretrained(at, gguf_file=name, dtype=torch.float32)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    read = type(model)(model.config)
    read.load_state_dict(model.state_dict())
    read.save_pretrained(folder)


def make(out, seed, name, architecture, kind, config):
    model = kind(config).eval()
    seeded_weights(model, seed)
    path = os.path.join(out, name + ".gguf")
    write(path, architecture, model)
    with tempfile.TemporaryDirectory() as folder:
        read_back(path, folder)
        run = [sys.executable, os.path.join(HERE, "finetune.py"), folder, os.path.join(HERE, "text.txt"),
               "--context", "32", "--batch", "4", "--steps", "5", "--lr", "1e-3"]
        losses = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    with open(os.path.join(out, name + ".txt"), "w") as file:
        file.write(f"# torch={torch.__version__} transformers={transformers.__version__}\n{losses}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=HERE)
    out = os.path.join(parser.parse_args().out, "gguf")
    os.makedirs(out, exist_ok=True)
    write_blocks(os.path.join(out, "blocks.txt"))
    make_pieces(out)
    for seed, (name, model) in enumerate(MODELS.items()):
        make(out, 30 + seed, name, *model)


if __name__ == "__main__":
    main()
