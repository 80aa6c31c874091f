/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the table of calls that add ops. Each reads the call's arguments by their names and
 * sets the tensors of its outputs. */
#ifndef SLUICE_PYTORCH_EMIT_H
#define SLUICE_PYTORCH_EMIT_H

#include "pytorch/import.h"

typedef void sli_pt_emit_fn(sli_import *m, const sli_pt_node *n, const sli_pt_call *row);

/* arithmetic.c */
sli_pt_emit_fn sli_emit_one, sli_emit_add, sli_emit_sub, sli_emit_rsub, sli_emit_mul, sli_emit_div,
    sli_emit_two, sli_emit_compare, sli_emit_and, sli_emit_or, sli_emit_not, sli_emit_where,
    sli_emit_pow, sli_emit_clamp, sli_emit_cast, sli_emit_floor_divide, sli_emit_dropout,
    sli_emit_gelu, sli_emit_square, sli_emit_reciprocal, sli_emit_draw, sli_emit_nothing,
    sli_emit_leaky, sli_emit_detach;
/* views.c */
sli_pt_emit_fn sli_emit_same, sli_emit_view, sli_emit_expand, sli_emit_permute, sli_emit_slice,
    sli_emit_select, sli_emit_cat, sli_emit_split, sli_emit_pad, sli_emit_repeat,
    sli_emit_interleave, sli_emit_roll, sli_emit_put, sli_emit_copy, sli_emit_triangle,
    sli_emit_unbind, sli_emit_flip, sli_emit_upsample, sli_emit_diff, sli_emit_broadcast;
/* along.c */
sli_pt_emit_fn sli_emit_sum, sli_emit_mean, sli_emit_max, sli_emit_softmax, sli_emit_cumsum,
    sli_emit_topk, sli_emit_argmax, sli_emit_variance, sli_emit_norm2;
/* indexed.c */
sli_pt_emit_fn sli_emit_embedding, sli_emit_index, sli_emit_gather, sli_emit_scatter, sli_emit_sort,
    sli_emit_grouped, sli_emit_histc, sli_emit_index_put, sli_emit_index_add, sli_emit_one_hot;
/* layers.c */
sli_pt_emit_fn sli_emit_linear, sli_emit_addmm, sli_emit_matmul, sli_emit_einsum,
    sli_emit_layer_norm, sli_emit_rms_norm, sli_emit_group_norm, sli_emit_batch_norm, sli_emit_conv,
    sli_emit_pool, sli_emit_adaptive_pool, sli_emit_attention, sli_emit_cross_entropy, sli_emit_mse;

/* Attention by the arguments of a call, on heads [B, H, T, D]; there may be fewer heads of keys and
 * values than of queries. */
sl_tensor *sli_pt_attend(sli_import *m, const sli_pt_node *n, const sli_pt_value *q,
                         const sli_pt_value *k, const sli_pt_value *v);

#endif
