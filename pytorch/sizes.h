/* SPDX-License-Identifier: Apache-2.0 */
/* Symbolic sizes of a program exported with torch.export.Dim. */
#ifndef SLUICE_PYTORCH_SIZES_H
#define SLUICE_PYTORCH_SIZES_H

#include "pytorch/program.h"

/* Finds the symbolic number of rows, dim 0 of the first input that has one there, and marks the
 * dims into which it enters (sli_pt_type.rows). SL_E_UNSUPPORTED names an input in which it is
 * another dim only. */
sl_status sli_pt_sizes_find_rows(sli_pt_program *p);
/* Returns whether the expression of a size, or NULL, has a symbol other than the number of rows. */
bool sli_pt_size_varies(const sli_pt_program *p, const char *text);
/* Computes a size for a number of rows; `d` is 0 for a symbol. Returns false if its expression is
 * not understood. */
bool sli_pt_size(const sli_pt_program *p, const sli_pt_value *v, int d, int64_t rows, int64_t *out);

#endif
