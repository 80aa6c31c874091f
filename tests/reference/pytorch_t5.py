#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports a T5 of any size without the memory for its weights: all numbers of a parameter are one zero in the file.

    pytorch_t5.py --layers 64 --width 1024 --inner 16384 --heads 32 --key-width 64 --vocab 64128 FILE.pt2

Its encoder and its decoder have so many layers each. The file is for the virtual clock, where no weight is read; trained,
it would learn nothing, as nothing tells its numbers apart.
"""
import argparse

import torch
import transformers

ROWS, SOURCE, TARGET = 6, 128, 130  # lengths that no other dim has


class Loss(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        with torch.device("meta"):
            self.model = transformers.T5ForConditionalGeneration(config)
        for module in self.model.modules():
            for name, p in list(module.named_parameters(recurse=False)):
                setattr(module, name, torch.nn.Parameter(torch.zeros(()).expand(p.shape)))
        self.model.tie_weights()

    def forward(self, ids, labels):
        return self.model(input_ids=ids, labels=labels).loss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("layers", "width", "inner", "heads", "key-width", "vocab"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("file")
    o = parser.parse_args()
    module = Loss(transformers.T5Config(
        vocab_size=o.vocab, d_model=o.width, d_kv=o.key_width, d_ff=o.inner, num_layers=o.layers, num_heads=o.heads,
        dropout_rate=0.0, use_cache=False, pad_token_id=0, decoder_start_token_id=0)).train()
    example = (torch.ones(ROWS, SOURCE, dtype=torch.long), torch.ones(ROWS, TARGET, dtype=torch.long))
    torch.export.save(torch.export.export(module, example, strict=False), o.file)
    print(sum(p.numel() for p in module.parameters()), "parameters")


main()
