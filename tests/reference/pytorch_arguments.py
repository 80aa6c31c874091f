#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes pytorch/arguments.def: the default arguments of every call in the table, by PyTorch's schemas.

    python3 pytorch_arguments.py > ../../pytorch/arguments.def

Run it again when pytorch/calls.c gets a call whose arguments have defaults.
"""
import os
import re

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
HEAD = '''/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of calls that need not be read, made by tests/reference/pytorch_arguments.py:
 *
 *     ARGUMENTS(call, text)
 *
 * The text lists NAME=DEFAULT, or NAME* for an argument that the result's type states or that
 * changes no number. Arguments after "|" are given by keyword. Others must be read. */
'''

# Arguments that change no number.
SILENT = set("layout device pin_memory memory_format non_blocking copy sparse sparse_grad cudnn_enabled cudnn_enable implicit path "
             "stable sorted enable_gqa half_to_float".split())
# Arguments that the type of the result states, by call.
STATED = {}
for names, arguments in (
        ("view reshape _unsafe_view flatten unflatten squeeze unsqueeze view_as reshape_as",
         "size shape start_dim end_dim dim sizes other"),
        ("expand expand_as", "size other"),
        ("zeros ones full empty new_zeros new_ones new_full new_empty zeros_like ones_like full_like empty_like scalar_tensor zero_ "
         "fill_ fill", "self size dtype"),
        ("arange", "end dtype"), ("eye", "n m dtype"), ("linspace", "steps dtype"), ("tril_indices triu_indices", "dtype"),
        ("to _to_copy type_as", "dtype other"), ("copy_", "self"),
        ("split split_with_sizes chunk tensor_split", "split_size split_sizes chunks sections indices"),
        ("adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool1d adaptive_max_pool2d", "output_size"),
        ("upsample_nearest1d upsample_nearest2d upsample_linear1d upsample_bilinear2d upsample_bicubic2d", "output_size"),
        ("rand randn rand_like randn_like", "size dtype"), ("bernoulli_", "self"),
        ("native_group_norm", "N C HxW"), ("slice", "end"), ("repeat_interleave", "output_size"),
        ("instance_norm batch_norm", "momentum"), ("convolution", "output_padding")):
    for name in names.split():
        STATED[name] = set(arguments.split())


def calls():
    text = open(os.path.join(HERE, "../../pytorch/calls.c")).read()
    found = set(re.findall(r'\b(?:ONE|TWO|CALL|VIEW|WITH|OF|LOSS|MADE)\("([^"]+)"', text))
    found |= set(re.findall(r'\{"aten\.([^"]+)"', text))
    for name in re.findall(r'\bCOMPARE\("([^"]+)"', text):
        found |= {name + ".Tensor", name + ".Scalar"}
    for name in re.findall(r'\bBITS\("([^"]+)"', text):
        found |= {name + ".Tensor", name + ".Scalar"}
    return sorted(found)


def written(value):
    if isinstance(value, list):
        return str(value[0]) if value and len(set(value)) == 1 else "[]"
    return str(value)


def main():
    print(HEAD, end="")
    for call in calls():
        name, overload = call.rsplit(".", 1)
        schema = getattr(getattr(torch.ops.aten, name), overload)._schema
        words, keyword = [], False
        for a in schema.arguments:
            if a.kwarg_only and not keyword:
                words.append("|")
                keyword = True
            if a.name in SILENT or a.name in STATED.get(name, ()):
                words.append(a.name + "*")
            elif a.has_default_value():
                words.append(a.name + "=" + written(a.default_value))
        if words and words[-1] == "|":
            words.pop()
        if words:
            print('ARGUMENTS("aten.%s", "%s")' % (call, " ".join(words)))


if __name__ == "__main__":
    main()
