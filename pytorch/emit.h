/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the call table that add ops. Each reads the call's arguments by name and sets the
 * tensors of its outputs. */
#ifndef SLUICE_PYTORCH_EMIT_H
#define SLUICE_PYTORCH_EMIT_H

#include "pytorch/import.h"

typedef void sli_pt_emit_fn(sli_import *m, const sli_pt_node *n, const sli_pt_call *row);

/* arithmetic.c */
sli_pt_emit_fn sli_emit_one, sli_emit_add, sli_emit_sub, sli_emit_rsub, sli_emit_mul, sli_emit_div,
    sli_emit_two, sli_emit_compare, sli_emit_where, sli_emit_pow, sli_emit_clamp, sli_emit_cast,
    sli_emit_floor_divide, sli_emit_dropout, sli_emit_gelu, sli_emit_square, sli_emit_reciprocal,
    sli_emit_draw, sli_emit_nothing, sli_emit_leaky, sli_emit_detach, sli_emit_bernoulli;
/* whole.c */
sli_pt_emit_fn sli_emit_whole, sli_emit_any;
/* functions.c; losses.c */
sli_pt_emit_fn sli_emit_of, sli_emit_loss, sli_emit_nll;
/* views.c */
sli_pt_emit_fn sli_emit_same, sli_emit_view, sli_emit_expand, sli_emit_permute, sli_emit_slice,
    sli_emit_select, sli_emit_cat, sli_emit_split, sli_emit_pad, sli_emit_repeat,
    sli_emit_interleave, sli_emit_roll, sli_emit_put, sli_emit_copy, sli_emit_triangle,
    sli_emit_unbind, sli_emit_flip, sli_emit_upsample, sli_emit_diff, sli_emit_broadcast,
    sli_emit_narrow, sli_emit_movedim;
/* along.c */
sli_pt_emit_fn sli_emit_sum, sli_emit_mean, sli_emit_max, sli_emit_softmax, sli_emit_cumsum,
    sli_emit_topk, sli_emit_argmax, sli_emit_prod, sli_emit_cumprod, sli_emit_variance,
    sli_emit_norm2, sli_emit_logsumexp;
/* indexed.c */
sli_pt_emit_fn sli_emit_embedding, sli_emit_index, sli_emit_gather, sli_emit_scatter, sli_emit_sort,
    sli_emit_grouped, sli_emit_histc, sli_emit_index_put, sli_emit_index_add, sli_emit_one_hot,
    sli_emit_scatter_add, sli_emit_scatter_reduce;
/* volumes.c */
sli_pt_emit_fn sli_emit_conv3d;
/* bags.c */
sli_pt_emit_fn sli_emit_embedding_bag;
/* layers.c */
sli_pt_emit_fn sli_emit_linear, sli_emit_addmm, sli_emit_matmul, sli_emit_einsum,
    sli_emit_layer_norm, sli_emit_rms_norm, sli_emit_group_norm, sli_emit_batch_norm, sli_emit_conv,
    sli_emit_pool, sli_emit_adaptive_pool, sli_emit_attention, sli_emit_cross_entropy, sli_emit_mse,
    sli_emit_outer, sli_emit_instance_norm;
/* recurrent.c */
sli_pt_emit_fn sli_emit_recurrent, sli_emit_cell;
/* images.c */
sli_pt_emit_fn sli_emit_linear_up, sli_emit_cubic_up, sli_emit_edges, sli_emit_unfold,
    sli_emit_im2col, sli_emit_pixels, sli_emit_channels, sli_emit_conv_transpose;

/* Results of calls, for `of` in the table: the call's result, or NULL. */
sl_tensor *sli_of_addc(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_bce(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_bce_logits(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_ceil(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_celu(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_clamp(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_cosine_embedding(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_cosine_similarity(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_elu(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_frac(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_function(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_function2(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_glu(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_hardshrink(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_hardtanh(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_hinge_embedding(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_huber(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_isfinite(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_isinf(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_isnan(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_kl_div(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_l1(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_lerp(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_log_sigmoid(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_logit(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_margin_ranking(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_mish(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_pairwise_distance(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_poisson_nll(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_powers(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_prelu(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_selu(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_sign(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_smooth_l1(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_soft_margin(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_softplus(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_softshrink(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_threshold(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_triplet_margin(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_trunc(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_of_weight_norm(sli_import *m, const sli_pt_node *n);

/* Apply a function of ops/functions.def by its number. */
sl_tensor *sli_pt_function(sli_import *m, int function, sl_tensor *x);
sl_tensor *sli_pt_function2(sli_import *m, int function, sl_tensor *a, sl_tensor *b);

/* Means over any windows, and nearest positions, as products with constants. */
sl_tensor *sli_pt_window_mean(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_pt_adaptive_mean(sli_import *m, const sli_pt_node *n);
sl_tensor *sli_pt_nearest(sli_import *m, const sli_pt_node *n);
/* Returns whether an upsampling repeats every position equally often. */
bool sli_pt_repeats_positions(const sli_import *m, const sli_pt_node *n);
/* Pads with positions of the tensor itself: "reflect", "replicate", "circular". Returns NULL for
 * another mode. */
sl_tensor *sli_pt_edges(sli_import *m, const sli_pt_node *n, sl_tensor *x, const char *mode);
/* Adds positions with a constant value around a dim, or removes some. */
sl_tensor *sli_pt_pad_dim(sli_import *m, sl_tensor *t, int dim, int64_t before, int64_t after,
                          double value);
/* Finds the tensor whose leading dims were merged to get x. */
sl_tensor *sli_pt_before_flattening(sl_tensor *x);

/* Computes attention from the arguments of a call, on heads [B, H, T, D]. Keys and values may have
 * fewer heads than queries. */
sl_tensor *sli_pt_attend(sli_import *m, const sli_pt_node *n, const sli_pt_value *q,
                         const sli_pt_value *k, const sli_pt_value *v);
/* Returns whether a mask is causal, and sets *window (0: none). hides: its flags say which keys are
 * hidden; else which are seen. a NULL: not a constant. */
bool sli_pt_causal(const sli_pt_array *a, bool hides, int64_t *window);
/* Computes causal attention: the match has queries, keys and values, their scale and the scores'
 * cap, and the window. */
sl_tensor *sli_pt_attend_causal(sli_import *m, const sli_pt_node *n, const sli_match *of);

#endif
