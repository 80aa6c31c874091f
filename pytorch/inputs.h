/* SPDX-License-Identifier: Apache-2.0 */
/* Data of a program's inputs from files: --input NAME=FILE. */
#ifndef SLUICE_PYTORCH_INPUTS_H
#define SLUICE_PYTORCH_INPUTS_H

#include <sluice/graph.h>
#include <sluice/pytorch.h>

/* Adds a source of all inputs of a program to a graph, and sets outs[count]. files[i] is a .npy or
 * .safetensors file (FILE:TENSOR) with rows, which are taken in order, starting over after the
 * last. For an input without rows it has the single value. SL_E_INPUT names the file. */
sl_status sli_pt_inputs(sl_graph *g, int count, const sl_exported_input *inputs,
                        const char *const *files, int64_t rows, sl_tensor **outs);

#endif
