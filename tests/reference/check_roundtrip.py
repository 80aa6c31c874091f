#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks a safetensors file written by Sluice: transformers must find exactly the
names and shapes that it expects, and compute the expected logits.

    check_roundtrip.py FILE KIND                      expected.safetensors of hf_* kinds
    check_roundtrip.py FILE KIND --original OTHER     the logits of another weights file

KIND is gpt, llama, hf_gpt2 or hf_llama. Exits with 0 if the logits match, else with 1.
"""
import argparse
import os
import sys

import numpy as np
import torch
from safetensors.torch import load_file

from make_reference import HERE, MODELS, empty_model, rows_of


def load(path, kind):
    """Returns the model with the file's weights, or exits with an error."""
    model, stored = empty_model(MODELS[kind]), load_file(path)
    wanted = {name: tuple(p.shape) for name, p in model.named_parameters()}
    if "lm_head.weight" not in wanted:  # tied: the file may have a copy of the embedding
        stored.pop("lm_head.weight", None)
    faults = [f"missing {n}" for n in wanted if n not in stored]
    faults += [f"unknown {n}" for n in stored if n not in wanted]
    faults += [f"{n} is {tuple(t.shape)}, should be {wanted[n]}" for n, t in stored.items()
               if n in wanted and tuple(t.shape) != wanted[n]]
    if faults:
        more = f"; and {len(faults) - 5} more" if len(faults) > 5 else ""
        sys.exit(f"{path}: " + "; ".join(faults[:5]) + more)
    model.load_state_dict(stored, strict=False)  # only the tied lm_head may be absent
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("kind", choices=MODELS)
    parser.add_argument("--original", help="weights that should give the same logits")
    parser.add_argument("--tolerance", type=float, default=2e-5, help="largest difference allowed")
    args = parser.parse_args()

    model = load(args.file, args.kind)
    with torch.no_grad():
        if args.original:
            stream = np.fromfile(os.path.join(HERE, "tokens.u16"), "<u2")
            tokens, _ = rows_of(stream, MODELS[args.kind]["context"], 0, 4)
            expected = load(args.original, args.kind)(input_ids=tokens).logits
        elif args.kind.startswith("hf_"):
            data = load_file(os.path.join(HERE, args.kind, "expected.safetensors"))
            tokens, expected = data["tokens"].long(), data["logits"]
        else:
            parser.error(f"{args.kind} has no expected logits: give --original")
        logits = model(input_ids=tokens).logits
    worst = (logits - expected).abs().max().item()
    print(f"{args.file}: largest logit difference {worst:.3g} (allowed {args.tolerance:g})")
    return 0 if worst <= args.tolerance else 1


if __name__ == "__main__":
    sys.exit(main())
