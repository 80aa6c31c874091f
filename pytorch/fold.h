/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on constants, computed ahead of time. Each function sets the arrays of the outputs, or
 * leaves them if it cannot compute the call. */
#ifndef SLUICE_PYTORCH_FOLD_H
#define SLUICE_PYTORCH_FOLD_H

#include "pytorch/import.h"

typedef void sli_pt_fold_fn(sli_import *m, const sli_pt_node *n, const sli_pt_call *row);

sli_pt_fold_fn sli_fold_bits_not, sli_fold_one, sli_fold_two, sli_fold_fill, sli_fold_arange,
    sli_fold_same, sli_fold_cast, sli_fold_view, sli_fold_unsqueeze, sli_fold_expand,
    sli_fold_permute, sli_fold_slice, sli_fold_select, sli_fold_cat, sli_fold_index,
    sli_fold_cumsum, sli_fold_diff, sli_fold_pad, sli_fold_triangle, sli_fold_where, sli_fold_eye,
    sli_fold_reduce, sli_fold_put, sli_fold_repeat, sli_fold_split, sli_fold_clamp, sli_fold_copy,
    sli_fold_gather, sli_fold_meshgrid, sli_fold_roll, sli_fold_pow, sli_fold_index_put,
    sli_fold_argmax, sli_fold_linspace, sli_fold_triangle_indices;

/* Functions for constants. */
double sli_fn_add(double a, double b), sli_fn_sub(double a, double b),
    sli_fn_mul(double a, double b), sli_fn_div(double a, double b), sli_fn_rsub(double a, double b),
    sli_fn_min(double a, double b), sli_fn_max(double a, double b), sli_fn_lt(double a, double b),
    sli_fn_le(double a, double b), sli_fn_gt(double a, double b), sli_fn_ge(double a, double b),
    sli_fn_eq(double a, double b), sli_fn_ne(double a, double b), sli_fn_and(double a, double b),
    sli_fn_or(double a, double b), sli_fn_xor(double a, double b),
    sli_fn_floor_divide(double a, double b), sli_fn_remainder(double a, double b),
    sli_fn_pow(double a, double b), sli_fn_both(double a, double b),
    sli_fn_either(double a, double b), sli_fn_differ(double a, double b),
    sli_fn_left(double a, double b), sli_fn_right(double a, double b);
double sli_fn_neg(double a), sli_fn_not(double a), sli_fn_rsqrt(double a), sli_fn_sigmoid(double a),
    sli_fn_relu(double a), sli_fn_silu(double a), sli_fn_reciprocal(double a),
    sli_fn_sign(double a), sli_fn_softplus(double a), sli_fn_gelu(double a),
    sli_fn_square(double a), sli_fn_isnan(double a), sli_fn_isinf(double a),
    sli_fn_isfinite(double a);

#endif
