/* SPDX-License-Identifier: Apache-2.0 */
/* An op that gets wrong shapes reports what it expected and what it got.
 * labels: unthreaded */
#include <string.h>

#include "tests/support/kernel_call.h"

#define F32(...) SL_TYPE(SL_F32, __VA_ARGS__)
#define I32(...) SL_TYPE(SL_I32, __VA_ARGS__)

static const sl_reshaping wrong = {F32(7, 33), F32(7, 3, 10)}, halves = {F32(4, 6), F32(12, 2)};
static const sl_lengths lengths = {2, (const int64_t[]){2, 6}};

static const sl_bag mean = {.mean = true};
static const sl_values halves_of = {SL_TYPE(SL_F64, 2), NULL};

/* clang-format off */
static const sl_rope half = {.part = 0.5};

static const struct misfit {
  const sl_op *op;
  sl_attrs attrs;
  int nin;
  sl_type in[5];
  const char *text;
} misfits[] = {
    {&sl_op_linear, {0}, 2, {F32(7, 33), F32(5, 32)},
     "weight must be f32[n, 33], got f32[5, 32]"},
    {&sl_op_linear, {.product.transposed = true}, 2, {F32(7, 33), F32(5, 33)},
     "weight must be f32[33, n], got f32[5, 33]"},
    {&sl_op_linear, {0}, 3, {F32(7, 33), F32(5, 33), F32(6)}, "bias must be f32[5], got f32[6]"},
    {&sl_op_linear, {0}, 2, {I32(7, 33), F32(5, 33)}, "x must be f32[..., n], got i32[7, 33]"},
    {&sl_op_linear_w, {0}, 2, {F32(7, 33), F32(8, 5)}, "dy must be f32[7, 5], got f32[8, 5]"},
    {&sl_op_embedding, {0}, 2, {F32(7), F32(5, 33)}, "ids must be i32[..., n], got f32[7]"},
    {&sl_op_embedding, {0}, 2, {I32(7), F32(33)}, "table must be f32[m, n], got f32[33]"},
    {&sl_op_position, {0}, 2, {F32(1, 7, 33), F32(6, 33)},
     "table must be f32[n, 33] with n >= 7, got f32[6, 33]"},
    {&sl_op_position, {.place.first = 2}, 2, {F32(1, 7, 33), F32(8, 33)},
     "table must be f32[n, 33] with n >= 9, got f32[8, 33]"},
    {&sl_op_grouped_linear, {0}, 3, {F32(7, 33), I32(7, 2), F32(4, 5, 32)},
     "x must be f32 with a row of 32 for each token or id of ids i32[7, 2], got f32[7, 33]"},
    {&sl_op_grouped_linear, {0}, 3, {F32(7, 33), F32(7, 2), F32(4, 5, 33)},
     "ids must be i32[..., n], got f32[7, 2]"},
    {&sl_op_combine, {0}, 2, {F32(7, 2, 33), F32(7, 3)}, "weights must be f32[7, 2], got f32[7, 3]"},
    {&sl_op_expert_limit, {.experts.count = 4}, 2, {I32(7, 2), F32(7, 2)},
     "attrs.experts.count and attrs.experts.factor must be given"},
    {&sl_op_plane_values, {.planes.base = 3, .planes.width = 2}, 1, {F32(7, 3)},
     "attrs.planes must be the bits of the base and of all planes, 2 <= base <= width <= 8"},
    {&sl_op_bit_choice, {.experts.count = 4, .experts.ncapacities = 3, .experts.capacity = {300000, 300000, 300000}}, 2, {F32(7, 2, 3), I32(7, 2)},
     "attrs.experts.capacity must be a capacity for each of p's 3, at least 1000000 in all, and attrs.experts.count experts"},
    {&sl_op_bit_choice, {0}, 2, {F32(7, 2, 3), I32(7, 3)}, "ids must be i32[7, 2], got i32[7, 3]"},
    {&sl_op_add, {0}, 2, {F32(7, 33), F32(33)}, "input 1 must be f32[7, 33], got f32[33]"},
    {&sl_op_reshape, {.user = &wrong}, 1, {F32(7, 33)},
     "x must have 210 elements, as the new shape f32[7, 3, 10] has, got f32[7, 33]"},
    {&sl_op_reshape, {.user = &halves}, 1, {F32(4, 5)}, "dim 1 must be 6, got f32[4, 5]"},
    {&sl_op_permute, {.shape.ndims = 2, .shape.dims = {0, 0}}, 1, {F32(7, 33)},
     "attrs.shape.dims must name each of the 2 dims once, got f32[7, 33]"},
    {&sl_op_split, {.along.axes = 1, .user = &lengths}, 1, {F32(7, 33)},
     "the parts have 8 positions of dim 0 together, got f32[7, 33]"},
    {&sl_op_dropout, {.distribution.dropped = 1}, 1, {F32(7)},
     "attrs.distribution.dropped, the probability that an element is dropped, must be in [0, 1), got 1"},
    {&sl_op_spikes, {.spikes.k = -1}, 1, {F32(7)},
     "attrs.spikes.k, the divisor of mean|x| in the threshold, must be finite and not negative, got -1"},
    {&sl_op_quantize, {0}, 1, {I32(7, 3)}, "w must be f32[..., n], got i32[7, 3]"},
    {&sl_op_concat, {.along.axes = 1}, 2, {F32(7, 33), F32(2, 32)},
     "input 1 must be f32[2, 33], got f32[2, 32]"},
    {&sl_op_concat, {.along.axes = 4}, 2, {F32(7, 33), F32(7, 33)},
     "attrs.along.axes must have exactly one bit, for a dim of the inputs, not 0x4, got f32[7, 33]"},
    {&sl_op_layernorm, {0}, 3, {F32(7, 33), F32(33), F32(7)}, "bias must be f32[33], got f32[7]"},
    {&sl_op_rotary, {.rotary.heads = 2}, 1, {F32(1, 7, 6)},
     "x must be f32[b, t, n] with n a multiple of 2 * 2 heads, got f32[1, 7, 6]"},
    {&sl_op_rotary, {.rotary.heads = 2, .user = &half}, 1, {F32(1, 7, 12)},
     "0.5 of a head's 6 numbers must be an even number to rotate, got f32[1, 7, 12]"},
    {&sl_op_rotary, {.rotary.heads = 5, .user = &half}, 1, {F32(1, 7, 12)},
     "x must be f32[b, t, n] with n a multiple of 5 heads, got f32[1, 7, 12]"},
    {&sl_op_attention, {.attention.heads = 3, .attention.kv_heads = 2}, 3, {F32(1, 7, 6)},
     "heads must be a positive multiple of kv_heads, got 3 and 2"},
    {&sl_op_attention, {.attention.heads = 2}, 3, {F32(1, 7, 6), F32(1, 7, 6), F32(1, 7, 3)},
     "v must be f32[1, 7, 6], got f32[1, 7, 3]"},
    {&sl_op_attention, {.attention.heads = 2}, 4, {F32(1, 7, 6), F32(1, 7, 6), F32(1, 7, 6), I32(7)},
     "ids must be i32[1, 7], got i32[7]"},
    {&sl_op_attention, {.attention.heads = 2, .attention.window = -1}, 3, {F32(1, 7, 6), F32(1, 7, 6), F32(1, 7, 6)},
     "a window must be at least 1 position, or 0 for none, got -1"},
    {&sl_op_attention, {.attention.heads = 2, .attention.cap = -1}, 3, {F32(1, 7, 6), F32(1, 7, 6), F32(1, 7, 6)},
     "a cap on scores must be above 0, or 0 for none, got -1"},
    {&sl_op_documents, {0}, 1, {I32(7)}, "tokens must be i32[m, n], got i32[7]"},
    {&sl_op_attention_packed, {.attention.heads = 2}, 1, {F32(1, 7, 16)},
     "qkv must be f32[b, t, 6 * n] with n up to 512, got f32[1, 7, 16]"},
    {&sl_op_cross_entropy, {0}, 2, {F32(7, 33), I32(8)}, "targets must be i32[7], got i32[8]"},
    {&sl_op_cross_entropy_join, {0}, 1, {F32(7, 8)},
     "parts must be f32[..., 3 * n], got f32[7, 8]"},
    {&sl_op_sub, {0}, 2, {F32(7, 33), F32(7, 32)},
     "a tensor broadcast with f32[7, 33] must have 33 or 1 at dim 1 from the end, got f32[7, 32]"},
    {&sl_op_where, {0}, 3, {F32(7), F32(7), F32(7)},
     "the condition must be i32[..., n], got f32[7]"},
    {&sl_op_clamp, {.function.c = 1, .function.u = -1}, 1, {F32(7)},
     "the lower bound must not be above the upper one, got 1 and -1"},
    {&sl_op_softcap, {0}, 1, {F32(7)}, "the cap must be finite and above 0, got 0"},
    {&sl_op_softcap, {.function.c = INFINITY}, 1, {F32(7)}, "the cap must be finite and above 0, got "
"inf"},
    {&sl_op_reduce_sum, {.along.axes = 4}, 1, {F32(7, 33)},
     "attrs.along.axes must be dims of x, but 0x4 has others, got f32[7, 33]"},
    {&sl_op_softmax, {.along.axes = 3}, 1, {F32(7, 33)},
     "attrs.along.axes must have exactly one bit, for a dim of x, not 0x3, got f32[7, 33]"},
    {&sl_op_matmul, {0}, 2, {F32(7, 33), F32(32, 5)},
     "b must be f32[..., 33, n], got f32[32, 5]"},
    {&sl_op_gather, {.along.axes = 2}, 2, {F32(3, 5, 4), I32(3, 7, 2)},
     "index must be i32 of 3 dims that, except for dim 1, equal those of f32[3, 5, 4] or 1, got "
     "i32[3, 7, 2]"},
    {&sl_op_gather, {.along.axes = 8}, 2, {F32(3, 5), I32(3, 7)},
     "attrs.along.axes must have exactly one bit, for a dim of the indexed tensor, not 0x8, got f32[3, "
"5]"},
    {&sl_op_scatter_add, {.along.axes = 1}, 2, {F32(5, 3), I32(5, 1)},
     "attrs.place.whole must give the number of positions of the sums if there is no x"},
    {&sl_op_scatter_add, {.along.axes = 1}, 3, {F32(5, 3), I32(6, 1), F32(7, 3)},
     "src must be f32[6, 3], got f32[5, 3]"},
    {&sl_op_top_k, {.along.k = 9}, 1, {F32(3, 8)},
     "attrs.along.k, the number wanted of the 8 along dim 1, must be from 1 to that number, not 9, "
"got "
     "f32[3, 8]"},
    {&sl_op_cumsum, {.along.axes = 4}, 1, {F32(3, 8)},
     "attrs.along.axes must have exactly one bit, for a dim of x, not 0x4, got f32[3, 8]"},
    {&sl_op_one_hot, {0}, 1, {I32(3)},
     "attrs.one_hot.classes, the number of classes, must be at least 1, not 0"},
    {&sl_op_expand, {.shape.ndims = 2, .shape.dims = {4, 5}}, 1, {F32(3, 1)},
     "x must have 4 or 1 at dim 2 from the end, got f32[3, 1]"},
    {&sl_op_expand, {.shape.ndims = 1, .shape.dims = {5}}, 1, {F32(3, 1)},
     "x cannot be expanded to 1 dims: at least its own number, and at most 8, got f32[3, 1]"},
    {&sl_op_group_norm, {.norm.groups = 4}, 3, {F32(2, 6, 5), F32(6), F32(6)},
     "x must be f32[n, c, ...] with c a multiple of the 4 groups (attrs.norm.groups), got f32[2, 6, 5]"},
    {&sl_op_batch_norm, {0}, 5, {F32(6), F32(6), F32(6), F32(6), F32(6)},
     "x must be f32[n, c, ...], got f32[6]"},
    {&sl_op_batch_norm, {0}, 5, {F32(2, 6, 5), F32(6), F32(6), F32(6), F32(5)},
     "variance must be f32[6], got f32[5]"},
    {&sl_op_batch_norm, {0}, 5, {F32(1, 6), F32(6), F32(6), F32(6), F32(6)},
     "x must have at least two numbers per channel, got f32[1, 6]"},
    {&sl_op_running_part, {.running.momentum = 2}, 1, {F32(6)}, "attrs.running.momentum must be from 0 to 1, got 2"},
    {&sl_op_embedding_bag, {.user = &mean}, 3, {I32(4, 5), F32(7, 3), F32(4, 5)},
     "weights need sums, but a mean is asked for"},
    {&sl_op_embedding_bag, {0}, 3, {I32(4, 5), F32(7, 3), F32(5)},
     "weights must be f32[4, 5], got f32[5]"},
    {&sl_op_constant, {0}, 0, {F32(0)}, "attrs.user must point to an sl_values"},
    {&sl_op_constant, {.user = &halves_of}, 0, {F32(0)}, "constants must be f32 or i32, got f64[2]"},
    {&sl_op_to_f32, {0}, 1, {F32(7)}, "x must be f64[..., n], got f32[7]"},
    {&sl_op_to_f64, {0}, 1, {F32(7)}, "x must be f32 scalar, got f32[7]"},
    {&sl_op_mse, {0}, 2, {F32(7), F32(8)}, "t must be f32[7], got f32[8]"},
    {&sl_op_adamw, {0}, 2, {F32(7), F32(8)}, "attrs.user must point to an sl_optimizer"},
    {&sl_op_sumsq, {0}, 2, {F32(7), F32(8)}, "gradient part must be f32[7], got f32[8]"},
    {&sl_op_fill, {0}, 0, {F32(0)}, "attrs.user must point to the type to fill"},
};
/* clang-format on */

int main(void) {
  for (size_t i = 0; i < sizeof misfits / sizeof *misfits; i++) {
    const struct misfit *m = &misfits[i];
    sl_type out[MAX_OUT];
    sl_status status = m->op->infer(&m->attrs, m->nin, m->in, out);
    CHECK(status == SL_E_SHAPE, "%s takes a misfit %zu: status %d", m->op->name, i, status);
    CHECK(!strcmp(sl_detail(), m->text), "%s says \"%s\", should say \"%s\"", m->op->name,
          sl_detail(), m->text);
  }
  return 0;
}
