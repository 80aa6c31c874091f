/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of ops that several tests share. test_rows.c compares their results with references,
 * test_claims.c with themselves in teams and in place, and gpu/test_kernels.c GPUs with the CPU.
 * Gradient rules follow from the ops. */
#ifndef SLUICE_TESTS_SUPPORT_CLAIMS_H
#define SLUICE_TESTS_SUPPORT_CLAIMS_H

#include <sluice/attention.h>
#include <sluice/functions.h>

#include "ops/functions.h"
#include "ops/ops.h"
#include "tests/support/kernel_call.h"
#include "tests/support/reference_experts.h"
#include "tests/support/reference_functions.h"
#include "tests/support/reference_images.h"
#include "tests/support/reference_indexed.h"
#include "tests/support/reference_losses.h"

#define F32(...) SL_TYPE(SL_F32, __VA_ARGS__)
#define I32(...) SL_TYPE(SL_I32, __VA_ARGS__)
#define NOTHING ((sl_type){SL_F32, -1, {0}})

typedef struct math_claim {
  const sl_op *op;
  reference_fn *reference;
  sl_attrs attrs;
  int nin;
  sl_type in[5];
  int below;   /* ids are in [0, below) */
  double from; /* other values are in [from - 1, from + 1); if negative, it is added to ids too */
} math_claim;

/* Window over the images of claims. */
static const sl_window strided = {.stride = {2, 3}, .pad = {1, 2}, .dilation = {2, 1}};
static const sl_window grouped = {.pad = {1, 1}, .groups = 2};
static const sl_window tiled = {.pad = {1, 1}};
static const sl_window tiled_unevenly = {.pad = {0, 2}};
static const sl_window along = {.stride = {0, 2}, .pad = {0, 1}, .dilation = {0, 2}};
static const sl_window pool_of_3 = {.size = {3, 2}, .stride = {2, 1}, .pad = {1, 1}};
static const sl_window pool_of_2 = {.size = {2, 2}};
static const sl_window pool_along = {.size = {0, 3}, .stride = {0, 2}, .pad = {0, 1}};

static const sl_values floats = {F32(2, 3), (const float[]){1.5f, -2, 3, 0, 0.25f, -7}};
static const sl_values integers = {I32(6), (const int32_t[]){4, -1, 1 << 30, 0, 7, 2}};
static const sl_values filled = {F32(2, 3, 5), NULL};
static const sl_bag padded = {.pads = true, .padding = 2}, means = {true, true, 1};

static const double three_eighths = 0.375; /* fraction of a microbatch */

/* clang-format off */
static const math_claim math_claims[] = {
    {&sl_op_gather, ref_gather, {.along.axes = 1, .place.whole = 7}, 2, {F32(7, 33), I32(5, 1)}, 7, 0},
    {&sl_op_gather, ref_gather, {0}, 2, {F32(6, 9), I32(6, 4)}, 9, 0},
    {&sl_op_gather, ref_gather, {.along.axes = 2}, 2, {F32(3, 5, 4), I32(1, 7, 4)}, 5, 0},
    {&sl_op_gather, ref_gather, {.along.axes = 2}, 2, {F32(3, 5, 40), I32(3, 7, 1)}, 5, 0},
    {&sl_op_gather, ref_gather, {.along.axes = 2}, 2, {I32(3, 5, 4), I32(3, 7, 1)}, 5, 0},
    {&sl_op_scatter_add, ref_scatter_add, {.along.axes = 1, .place.whole = 7}, 3,
     {F32(5, 33), I32(5, 1), F32(7, 33)}, 7, 0},
    {&sl_op_scatter_add, ref_scatter_add, {.along.axes = 1, .place.whole = 4}, 2, {F32(150, 8), I32(150, 1)}, 4,
     0},
    {&sl_op_scatter_add, ref_scatter_add, {.along.axes = 2}, 3, {F32(3, 7, 4), I32(1, 7, 4), F32(3, 5, 4)},
     5, 0},
    {&sl_op_top_k, ref_top_k, {.along.k = 3}, 1, {F32(7, 33)}, 0, 0},
    {&sl_op_top_k, ref_top_k, {.along.axes = 2, .along.k = 5}, 1, {F32(3, 5, 7)}, 0, 0},
    {&sl_op_top_k, ref_top_k, {.along.k = 1}, 1, {F32(3, 300)}, 0, 0},
    {&sl_op_cumsum, ref_cumsum, {0}, 1, {F32(7, 33)}, 0, 0},
    {&sl_op_cumsum, ref_cumsum, {.along.axes = 2, .along.exclusive = true}, 1, {F32(3, 70, 5)}, 0, 0},
    {&sl_op_cumsum, ref_cumsum, {.along.axes = 1, .along.reverse = true}, 1, {F32(9, 33)}, 0, 0},
    {&sl_op_cumsum, ref_cumsum, {.along.reverse = true, .along.exclusive = true}, 1, {F32(2, 301)}, 0, 0},
    {&sl_op_cumsum, ref_cumsum, {.along.exclusive = true}, 1, {I32(2, 301)}, 9, 0},
    {&sl_op_expand, ref_expand, {.shape.ndims = 3, .shape.dims = {4, 0, 5}}, 1, {F32(7, 1)}, 0, 0},
    {&sl_op_expand, ref_expand, {0}, 2, {F32(3, 1, 5), F32(2, 3, 7, 5)}, 0, 0},
    {&sl_op_expand, ref_expand, {.shape.ndims = 2, .shape.dims = {3, 0}}, 1, {I32(300)}, 7, 0},
    {&sl_op_one_hot, ref_one_hot, {.one_hot.classes = 5}, 1, {I32(3, 7)}, 5, 0},
    {&sl_op_to_f32, ref_detach, {0}, 1, {SL_SCALAR(SL_F64)}, 0, 0},
    {&sl_op_to_f64, ref_detach, {0}, 1, {SL_SCALAR(SL_F32)}, 0, 0},
    {&sl_op_cast, ref_cast, {0}, 1, {F32(7, 33)}, 0, 4},
    {&sl_op_cast, ref_cast, {0}, 1, {I32(7, 33)}, 9, 0},
    {&sl_op_arange, ref_arange, {.along.axes = 2}, 1, {F32(3, 5, 4)}, 0, 0},
    {&sl_op_constant, ref_constant, {.user = &floats}, 0, {NOTHING}, 0, 0},
    {&sl_op_constant, ref_constant, {.user = &integers}, 1, {F32(6)}, 0, 0},
    {&sl_op_constant, ref_constant, {.fill.value = -2.5f, .user = &filled}, 1, {I32(2, 3, 5)}, 5, 0},
    {&sl_op_group_norm, ref_group_norm, {.norm.groups = 3}, 3, {F32(4, 6, 5, 3), F32(6), F32(6)}, 0, 0},
    {&sl_op_group_norm, ref_group_norm, {.norm.groups = 4, .norm.eps = 0.1f}, 3, {F32(5, 8, 70), F32(8), F32(8)},
     0, 0},
    {&sl_op_batch_norm, ref_batch_norm, {0}, 5, {F32(4, 6, 5, 3), F32(6), F32(6), F32(6), F32(6)}, 0, 0},
    {&sl_op_batch_norm, ref_batch_norm, {.norm.eps = 0.1f}, 5, {F32(7, 6), F32(6), F32(6), F32(6), F32(6)}, 0, 0},
    {&sl_op_batch_norm, ref_batch_norm, {.norm.given = true}, 5, {F32(4, 6, 35), F32(6), F32(6), F32(6), F32(6)}, 0, 1.5},
    {&sl_op_group_norm, ref_group_norm, {.norm.groups = 2}, 3, {F32(7, 6), F32(6), F32(6)}, 0, 0},
    {&sl_op_embedding_bag, ref_embedding_bag, {0}, 2, {I32(6, 4), F32(7, 33)}, 7, 0},
    {&sl_op_embedding_bag, ref_embedding_bag, {.user = &padded}, 3,
     {I32(3, 2, 5), F32(7, 9), F32(3, 2, 5)}, 7, 0},
    {&sl_op_embedding_bag, ref_embedding_bag, {.place.whole = 6, .user = &means}, 2, {I32(5, 4), F32(6, 8)},
     6, 0},
    {&sl_op_attention, ref_attention, {.attention.heads = 4, .attention.kv_heads = 2, .attention.full = true}, 3,
     {F32(2, 70, 32), F32(2, 70, 16), F32(2, 70, 16)}, 0, 0},
    {&sl_op_attention, ref_attention, {.attention.heads = 1, .attention.full = true, .attention.scale = 0.25f}, 3,
     {F32(1, 9, 7), F32(1, 9, 7), F32(1, 9, 7)}, 0, 0},
    {&sl_op_attention, ref_attention, {.attention.heads = 2, .attention.window = 5}, 3,
     {F32(2, 37, 14), F32(2, 37, 14), F32(2, 37, 14)}, 0, 0},
    {&sl_op_attention, ref_attention, {.attention.heads = 1, .attention.window = 1}, 3,
     {F32(1, 70, 8), F32(1, 70, 8), F32(1, 70, 8)}, 0, 0},
    {&sl_op_attention, ref_attention, {.attention.heads = 1, .attention.window = 70, .attention.full = true}, 3,
     {F32(1, 200, 16), F32(1, 200, 16), F32(1, 200, 16)}, 0, 0},
    {&sl_op_attention, ref_attention, {.attention.heads = 2, .attention.kv_heads = 1}, 4, /* with documents, one hidden */
     {F32(2, 70, 32), F32(2, 70, 16), F32(2, 70, 16), I32(2, 70)}, 4, -1},
    {&sl_op_attention, ref_attention, {.attention.heads = 1, .attention.window = 9, .attention.full = true}, 4,
     {F32(1, 140, 7), F32(1, 140, 7), F32(1, 140, 7), I32(1, 140)}, 2, -1},
    {&sl_op_attention, ref_attention, {.attention.heads = 4, .attention.kv_heads = 2, .attention.cap = 0.5f}, 3,
     {F32(2, 70, 32), F32(2, 70, 16), F32(2, 70, 16)}, 0, 0},
    {&sl_op_attention, ref_attention, {.attention.heads = 1, .attention.window = 9, .attention.full = true, .attention.cap = 0.3f}, 4,
     {F32(1, 140, 7), F32(1, 140, 7), F32(1, 140, 7), I32(1, 140)}, 2, -1},
    {&sl_op_attention, ref_attention, {.attention.heads = 1, .attention.window = 9, .attention.shown = 70}, 3,
     {F32(1, 270, 2), F32(1, 270, 2), F32(1, 270, 2)}, 0, 0},
    {&sl_op_attention, ref_attention, {.attention.heads = 4, .attention.kv_heads = 2, .attention.window = 20, .attention.shown = 5}, 4,
     {F32(2, 150, 32), F32(2, 150, 16), F32(2, 150, 16), I32(2, 150)}, 2, -1},
    {&sl_op_attention_dual, ref_attention_dual, {.attention.heads = 4, .attention.kv_heads = 2, .attention.chunk = 64}, 5,
     {F32(1, 150, 8), F32(1, 150, 4), F32(1, 150, 4), F32(1, 150, 8), F32(1, 150, 8)}, 0, 0},
    {&sl_op_attention_dual, ref_attention_dual, {.attention.heads = 1, .attention.window = 100, .attention.chunk = 64}, 5,
     {F32(1, 210, 2), F32(1, 210, 2), F32(1, 210, 2), F32(1, 210, 2), F32(1, 210, 2)}, 0, 0},
    {&sl_op_grouped_linear, ref_grouped_linear, {0}, 3, {F32(7, 9), I32(7, 2), F32(5, 11, 9)}, 5, 0},
    /* each expert with 64 rows and more, and without any */
    {&sl_op_grouped_linear, ref_grouped_linear, {.place.whole = 3}, 3,
     {F32(2, 70, 2, 5), I32(2, 70, 2), F32(3, 8, 5)}, 3, -1},
    {&sl_op_grouped_linear, ref_grouped_linear, {.place.whole = 20}, 3,
     {F32(30, 33), I32(30, 3), F32(20, 1, 33)}, 20, 0},
    {&sl_op_combine, ref_combine, {0}, 2, {F32(2, 7, 3, 33), F32(2, 7, 3)}, 0, 0},
    {&sl_op_conv, ref_conv, {0}, 3, {F32(2, 3, 5, 6), F32(4, 3, 3, 2), F32(4)}, 0, 0},
    {&sl_op_conv, ref_conv, {.user = &strided}, 3, {F32(3, 2, 7, 6), F32(5, 2, 3, 3), F32(5)}, 0, 0},
    {&sl_op_conv, ref_conv, {.user = &grouped}, 2, {F32(2, 4, 4, 5), F32(6, 2, 3, 3)}, 0, 0},
    {&sl_op_conv, ref_conv, {0}, 3, {F32(2, 7, 3, 5), F32(4, 7, 1, 1), F32(4)}, 0, 0},
    {&sl_op_conv, ref_conv, {.user = &tiled}, 3, {F32(3, 16, 7, 5), F32(17, 16, 3, 3), F32(17)}, 0, 0},
    {&sl_op_conv, ref_conv, {.user = &tiled_unevenly}, 2, {F32(2, 18, 4, 6), F32(16, 18, 3, 3)}, 0, 0},
    {&sl_op_conv, ref_conv, {.user = &along}, 3, {F32(2, 3, 11), F32(4, 3, 3), F32(4)}, 0, 0},
    {&sl_op_max_pool, ref_max_pool, {.user = &pool_of_3}, 1, {F32(2, 3, 7, 5)}, 0, 0},
    {&sl_op_max_pool, ref_max_pool, {.user = &pool_of_2}, 1, {F32(2, 3, 6, 5)}, 0, 0},
    {&sl_op_max_pool, ref_max_pool, {.user = &pool_along}, 1, {F32(3, 2, 9)}, 0, 0},
    {&sl_op_mean_pool, ref_mean_pool, {.user = &pool_of_3}, 1, {F32(2, 3, 7, 5)}, 0, 0},
    {&sl_op_mean_pool, ref_mean_pool, {0}, 1, {F32(2, 3, 7, 5)}, 0, 0},
    {&sl_op_mean_pool, ref_mean_pool, {.user = &pool_along}, 1, {F32(3, 2, 9)}, 0, 0},
    {&sl_op_silu, ref_silu, {0}, 1, {F32(7, 33)}, 0, 0},
    {&sl_op_sigmoid, ref_sigmoid, {0}, 1, {F32(7, 33)}, 0, 0},
    {&sl_op_exp, ref_exp, {0}, 1, {F32(7, 33)}, 0, 0},
    {&sl_op_log, ref_log, {0}, 1, {F32(7, 33)}, 0, 1.25},
    {&sl_op_sqrt, ref_sqrt, {0}, 1, {F32(7, 33)}, 0, 1.25},
    {&sl_op_rsqrt, ref_rsqrt, {0}, 1, {F32(7, 33)}, 0, 1.5},
    {&sl_op_abs, ref_abs, {0}, 1, {F32(7, 33)}, 0, 0},
    {&sl_op_clamp, ref_clamp, {.function.c = -0.5f, .function.u = 0.25f}, 1, {F32(7, 33)}, 0, 0},
    {&sl_op_softcap, ref_softcap, {.function.c = 0.75f}, 1, {F32(7, 33)}, 0, 0},
    {&sl_op_softcap, ref_softcap, {.function.c = 30}, 1, {F32(7, 33)}, 0, 0},
    {&sl_op_softcap, ref_softcap, {.function.c = 2}, 1, {SL_SCALAR(SL_F64)}, 0, 0},
    {&sl_op_gelu_erf, ref_gelu_erf, {0}, 1, {F32(7, 33)}, 0, 0},
    {&sl_op_gelu_erf, ref_gelu_erf, {0}, 1, {F32(7, 33)}, 0, -1.5},
    {&sl_op_erf, ref_erf, {0}, 1, {F32(7, 33)}, 0, 0.5},
    {&sl_op_sin, ref_sin, {0}, 1, {F32(7, 33)}, 0, 9},
    {&sl_op_cos, ref_cos, {0}, 1, {F32(7, 33)}, 0, -3},
    {&sl_op_cos, ref_cos, {0}, 1, {SL_SCALAR(SL_F64)}, 0, 0},
    {&sl_op_softplus, ref_softplus, {0}, 1, {F32(7, 33)}, 0, 0},
    {&sl_op_softplus, ref_softplus, {0}, 1, {F32(7, 33)}, 0, 22},
    {&sl_op_floor, ref_floor, {0}, 1, {F32(7, 33)}, 0, 1.5},
    {&sl_op_detach, ref_detach, {0}, 1, {F32(7, 33)}, 0, 0},
    {&sl_op_neg, ref_neg, {0}, 1, {F32(7, 33)}, 0, 0},
    {&sl_op_scale, ref_scale, {.function.c = -2.5f}, 1, {F32(7, 33)}, 0, 0},
    {&sl_op_scale, ref_scale, {.function.c = -2.5f}, 1, {SL_SCALAR(SL_F64)}, 0, 0},
    {&sl_op_add_constant, ref_add_constant, {.function.c = 0.75f}, 1, {F32(7, 33)}, 0, 0},
    {&sl_op_log, ref_log, {0}, 1, {SL_SCALAR(SL_F64)}, 0, 1.25},
    {&sl_op_silu, ref_silu, {0}, 1, {SL_SCALAR(SL_F32)}, 0, 0},
    {&sl_op_add_broadcast, ref_add_any, {0}, 2, {F32(3, 7, 33), F32(33)}, 0, 0},
    {&sl_op_add_broadcast, ref_add_any, {0}, 2, {F32(7, 1), F32(3, 1, 5)}, 0, 0},
    {&sl_op_add_broadcast, ref_add_any, {0}, 2, {SL_SCALAR(SL_F64), SL_SCALAR(SL_F64)}, 0, 0},
    {&sl_op_sub, ref_sub, {0}, 2, {F32(7, 33), F32(7, 33)}, 0, 0},
    {&sl_op_sub, ref_sub, {0}, 2, {F32(2, 3, 4), F32(2, 1, 4)}, 0, 0},
    {&sl_op_mul_broadcast, ref_mul_any, {0}, 2, {F32(5, 33), F32(1)}, 0, 0},
    {&sl_op_mul_broadcast, ref_mul_any, {0}, 2, {F32(2, 1, 3, 1, 2, 1, 2, 3), F32(3, 1, 2, 2, 1, 3)},
     0, 0},
    {&sl_op_div, ref_div, {0}, 2, {F32(7, 33), F32(7, 1)}, 0, 2},
    {&sl_op_div, ref_div, {0}, 2, {SL_SCALAR(SL_F32), F32(4, 5)}, 0, 2},
    {&sl_op_maximum, ref_maximum, {0}, 2, {F32(7, 33), F32(33)}, 0, 0},
    {&sl_op_minimum, ref_minimum, {0}, 2, {F32(33), F32(7, 33)}, 0, 0},
    {&sl_op_function, ref_function, {.function.number = SLI_FUNCTION_atan}, 1, {F32(7, 33)}, 0, 0},
    {&sl_op_function, ref_function, {.function.number = SLI_FUNCTION_hardtanh, .function.c = -0.5f, .function.u = 0.25f}, 1,
     {F32(7, 33)}, 0, 0},
    {&sl_op_function, ref_function, {.function.number = SLI_FUNCTION_length}, 1, {SL_SCALAR(SL_F32)}, 0, 2},
    {&sl_op_function2, ref_function2, {.function.number = SLI_FUNCTION2_pow}, 2, {F32(7, 33), F32(33)}, 0, 2},
    {&sl_op_function2, ref_function2, {.function.number = SLI_FUNCTION2_atan2}, 2, {F32(7, 1), F32(3, 1, 5)}, 0, 2},
    {&sl_op_whole, ref_whole, {.function.number = SLI_WHOLE_remainder}, 2, {I32(7, 33), I32(7, 1)}, 9, 0},
    {&sl_op_whole, ref_whole, {.function.number = SLI_WHOLE_sub, .function.range = SLI_WHOLE_U8}, 2, {I32(7, 33), I32(33)}, 9,
     0},
    {&sl_op_whole_reduce, ref_whole_reduce, {.function.number = SLI_WHOLE_add, .along.axes = 2}, 1, {I32(3, 7, 5)}, 9, 0},
    {&sl_op_whole_reduce, ref_whole_reduce, {.function.number = SLI_WHOLE_max, .along.keep = true}, 1, {I32(3, 7, 5)}, 9, 0},
    {&sl_op_lt, ref_lt, {0}, 2, {F32(7, 33), F32(33)}, 0, 0},
    {&sl_op_le, ref_le, {0}, 2, {I32(7, 33), I32(33)}, 5, 0},
    {&sl_op_gt, ref_gt, {0}, 2, {F32(7, 33), F32(7, 1)}, 0, 0},
    {&sl_op_ge, ref_ge, {0}, 2, {I32(7, 33), I32(7, 33)}, 5, 0},
    {&sl_op_eq, ref_eq, {0}, 2, {I32(7, 33), I32(1)}, 5, 0},
    {&sl_op_ne, ref_ne, {0}, 2, {I32(7, 33), I32(1)}, 5, 0},
    {&sl_op_where, ref_where, {0}, 3, {I32(7, 33), F32(7, 33), F32(33)}, 2, 0},
    {&sl_op_where, ref_where, {0}, 3, {I32(7, 1), F32(1), F32(2, 7, 5)}, 2, 0},
    {&sl_op_reduce_sum, ref_reduce_sum, {.along.axes = 4}, 1, {F32(3, 7, 33)}, 0, 0},
    {&sl_op_reduce_sum, ref_reduce_sum, {.along.axes = 1, .along.keep = true, .along.factor = 0.25f}, 1, {F32(130, 33)}, 0, 0},
    {&sl_op_reduce_sum, ref_reduce_sum, {.along.axes = 5}, 1, {F32(3, 5, 4, 7)}, 0, 0},
    {&sl_op_reduce_sum, ref_reduce_sum, {0}, 1, {F32(7, 33)}, 0, 0},
    {&sl_op_reduce_max, ref_reduce_max, {.along.axes = 2}, 1, {F32(3, 7, 5)}, 0, 0},
    {&sl_op_reduce_max, ref_reduce_max, {.along.axes = 5, .along.keep = true}, 1, {F32(3, 7, 300)}, 0, 0},
    {&sl_op_mean, ref_mean, {0}, 1, {F32(7, 33)}, 0, 0},
    {&sl_op_mean, ref_mean, {0}, 1, {F32(77)}, 0, 0},
    {&sl_op_matmul, ref_matmul, {0}, 2, {F32(7, 13), F32(13, 5)}, 0, 0},
    {&sl_op_matmul, ref_matmul, {.product.transposed = true}, 2, {F32(2, 3, 7, 13), F32(3, 5, 13)}, 0, 0},
    {&sl_op_matmul, ref_matmul, {.product.left_transposed = true}, 2, {F32(2, 1, 13, 7), F32(3, 13, 8)}, 0,
     0},
    {&sl_op_matmul, ref_matmul, {.product.left_transposed = true, .product.transposed = true}, 2,
     {F32(3, 4, 16, 8), F32(3, 4, 8, 16)}, 0, 0},
    {&sl_op_softmax, ref_softmax, {0}, 1, {F32(7, 33)}, 0, 0},
    {&sl_op_softmax, ref_softmax, {.along.axes = 2}, 1, {F32(3, 7, 33)}, 0, 0},
    {&sl_op_log_softmax, ref_log_softmax, {.along.axes = 4}, 1, {F32(2, 3, 300)}, 0, 0},
    {&sl_op_log_softmax, ref_log_softmax, {.along.axes = 1}, 1, {F32(7, 5)}, 0, 0},
    {&sl_op_share, ref_share, {.user = &three_eighths}, 1, {SL_SCALAR(SL_F64)}, 0, 0},
    {&sl_op_share, ref_share, {0}, 1, {SL_SCALAR(SL_F32)}, 0, 0},
    {&sl_op_target_weight, ref_target_weight, {.loss.ignore = 3}, 2, {I32(7, 33), NOTHING}, 5,
     0},
    {&sl_op_target_weight, ref_target_weight, {.loss.ignore = INT32_MIN}, 2, {I32(7, 33), F32(5)}, 5, 2},
    {&sl_op_weighted_cross_entropy, ref_weighted_cross_entropy, {0}, 4,
     {F32(7, 33), I32(7), SL_SCALAR(SL_F64), NOTHING}, 33, 2},
    {&sl_op_weighted_cross_entropy, ref_weighted_cross_entropy,
     {.loss.ignore = INT32_MIN, .loss.smoothing = 0.25f, .loss.spread = 0.25f / 5}, 4,
     {F32(2, 20, 5), I32(2, 20), SL_SCALAR(SL_F64), F32(5)}, 5, 2},
    {&sl_op_weighted_cross_entropy, ref_weighted_cross_entropy,
     {.loss.ignore = 1, .loss.smoothing = 0.125f, .loss.spread = 0.125f / 1031}, 4,
     {F32(9, 1031), I32(9), SL_SCALAR(SL_F64), NOTHING}, 3, 2},
};
/* clang-format on */

/* Says whether the claims cover an op, directly or as a gradient rule. */
static inline bool claim_covers(const sl_op *op) {
  bool covers = false;
  for (size_t i = 0; i < SLI_COUNT(math_claims); i++) {
    covers |= math_claims[i].op == op;
    for (const sl_grad_rule *r = math_claims[i].op->grad; r->nwrt; r++) covers |= r->op == op;
  }
  return covers;
}

static inline void array_random_from(void *p, const sl_type *type, int below, double from) {
  array_random(p, type, below);
  for (int64_t e = 0; from != 0 && e < sl_type_elements(type); e++) {
    if (type->dtype == SL_F64) ((double *)p)[e] += from;
    if (type->dtype == SL_F32) ((float *)p)[e] += (float)from;
    if (type->dtype == SL_I32 && from < 0) ((int32_t *)p)[e] += (int32_t)from;
  }
}

/* Fills the inputs with random values. */
static inline void claim_fill(const math_claim *c, kernel *k) {
  for (int i = 0; i < k->nin; i++)
    if (k->in[i]) array_random_from(k->in[i], &k->in_type[i], c->below, c->from);
}

/* Makes the call of a gradient rule for a call that was made, with random gradients of its
 * outputs. */
static inline kernel claim_rule(const kernel *forward, const sl_grad_rule *rule) {
  sl_type types[MAX_IN] = {0};
  const void *data[MAX_IN];
  int n = sli_rule_arguments(rule, forward->nin, forward->nout);
  for (int a = 0; a < n; a++) {
    sl_grad_arg arg = sli_rule_argument(rule, forward->nin, forward->nout, a);
    bool is_in = arg.kind == SL_ARG_IN, is_out = arg.kind == SL_ARG_OUT;
    data[a] = NULL;
    types[a] = NOTHING;
    if (is_in && arg.index >= forward->nin) continue;
    types[a] = is_in ? forward->in_type[arg.index] : forward->out_type[arg.index];
    data[a] = is_in ? forward->in[arg.index] : is_out ? forward->out[arg.index] : NULL;
    if (!is_in && !is_out) types[a].dtype = SL_F32;
  }
  kernel k =
      kernel_create(rule->op, forward->attrs, n, types, sli_rule_gradients(rule, forward->nin));
  for (int i = 0; i < n; i++) {
    if (data[i]) memcpy(k.in[i], data[i], sl_type_bytes(&types[i]));
    else if (k.in[i]) array_random(k.in[i], &types[i], 0);
  }
  return k;
}

#endif
