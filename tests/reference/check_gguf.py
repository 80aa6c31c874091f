#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares GGUF files of gguf_folder.py with what ggml's own Python package, and transformers, read from them.

    pip install gguf torch transformers
    python3 check_gguf.py FOLDER FILE.gguf

Names have to be those of the package's map of the architecture, and values those of the folder. Where transformers reads
the architecture, the logits of the file have to be the folder's.
"""
import os
import sys

import gguf
import numpy as np
import torch
from gguf.quants import dequantize
from transformers import AutoModelForCausalLM
from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

from gguf_folder import convert, read_folder


def check_values(reader, tensors):
    """The package has to read the numbers that were written, and to know all names."""
    architecture = reader.get_field("general.architecture").contents()
    number = {name: value for value, name in gguf.MODEL_ARCH_NAMES.items()}[architecture]
    known = {gguf.TENSOR_NAMES[t] for t in gguf.MODEL_TENSORS[number]}
    worst = 0.0
    for t in reader.tensors:
        words = t.name.split(".")
        stem = ".".join("{bid}" if i == 1 and words[0] == "blk" else w for i, w in enumerate(words))
        assert stem in known or stem.rpartition(".")[0] in known, f"{t.name} is no tensor of {architecture}"
        want = np.array(tensors[t.name].data, dtype=np.float32).reshape(tensors[t.name].shape)
        got = dequantize(t.data, t.tensor_type).reshape(want.shape)
        worst = max(worst, float(np.abs(got - want).max() / (np.abs(want).max() + 1e-9)))
    missing = set(tensors) - {t.name for t in reader.tensors}
    assert not missing, missing
    return architecture, worst


def logits_of(folder, **more):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **more).eval()
    with torch.no_grad():
        return model(input_ids=torch.arange(1, 25)[None]).logits


def main():
    folder, path = sys.argv[1:3]
    config, tensors = read_folder(folder)
    architecture, worst = check_values(gguf.GGUFReader(path), convert(config, tensors)[2])
    line = f"{path}: {architecture}: values within {worst:.2g}"
    try:
        theirs = logits_of(os.path.dirname(os.path.abspath(path)), gguf_file=os.path.basename(path))
        line += f"; transformers' logits within {(theirs - logits_of(folder)).abs().max().item():.2g}"
    except (ValueError, NotImplementedError, KeyError, AttributeError, RuntimeError) as why:
        line += f"; transformers does not read it ({str(why).splitlines()[0][:80]})"
    print(line, flush=True)


if __name__ == "__main__":
    main()
