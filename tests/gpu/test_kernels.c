/* SPDX-License-Identifier: Apache-2.0 */
/* Every op with a GPU kernel gives the result of its CPU kernel within the precision of its types,
 * the same bits every time, and writes nothing outside of its outputs. Cases: odd and even shapes,
 * absent outputs, outputs over inputs where allowed, accumulation, pieces, f32 and bf16 tensors.
 *
 *   test_kernels [SEED [small|large [ROW]]]
 *
 * `small` skips the large shapes; the name of an op selects its claims. Built with tests/emulated,
 * the same claims are checked without a GPU, on the smaller shapes, with two orders of the threads
 * of a block. */
#include <unistd.h>

#include <sluice/attention.h>

#include "kernels/cuda/math.h"
#include "kernels/cuda/program.h"
#include "kernels/cuda/ops.h"
#include "ops/ops.h"
#include "ops/splice.h"
#include "tests/gpu/device_call.h"
#include "tests/support/claims.h"
#include "tests/support/seeds.h"

#ifdef SLUICE_EMULATED
extern int emulated_backwards;
enum { IS_EMULATED = 1 };
#else
static int emulated_backwards; /* order of emulated threads; unused on a GPU */
enum { IS_EMULATED = 0 };
#endif
/* In a sanitizer's daily run, half of the claims are checked, each in one type, f32 and bf16 in
 * turn. */
static bool is_left_out(size_t i, int bf16) {
  return test_many(1, 4, 1) > 1 && i % 4 != (bf16 ? 1 : 2);
}

#define F32(...) SL_TYPE(SL_F32, __VA_ARGS__)
#define BF16(...) SL_TYPE(SL_BF16, __VA_ARGS__)
#define I32(...) SL_TYPE(SL_I32, __VA_ARGS__)

typedef struct claim {
  const sl_op *op;
  sl_attrs attrs;
  int nin;
  sl_type in[5];
  int below; /* ids are in [0, below) */
} claim;

static const sl_part middle = {1, 1, {2}, {3}};
static const sl_lengths lengths = {2, (const int64_t[]){2, 5}};
static const sl_reshaping heads = {F32(2, 7, 12), F32(2, 7, 3, 4)};

/* Rows 2 .. 4 and columns 3 .. 5 and 8 .. 9 of 20 x 10. */
static const sl_region region = {.ndim = 2,
                                 .sequence = 1,
                                 .whole = {20, 10},
                                 .parts = {{0, 1, {2}, {3}}, {1, 2, {3, 8}, {3, 2}}}};

static float numbers_of_squares[20 * 10]; /* i * i, once main has started */
static const sl_values squares = {F32(20, 10), numbers_of_squares};

/* Forward ops; their gradient ops follow from the rules. */
/* Stretched frequencies, which also enlarge the scale of attention. */
static const sl_rope stretched = {
    .kind = SL_ROPE_YARN, .factor = 4, .original = 16, .low = 1, .high = 4, .scale = 1.25};
static const sl_rope in_part = {.part = 0.4},
                     stretched_in_part = {.kind = SL_ROPE_LINEAR, .factor = 2, .part = 0.75};

/* clang-format off */
static const claim claims[] = {
    {&sl_op_linear, {0}, 3, {F32(7, 33), F32(5, 33), F32(5)}, 0},
    {&sl_op_linear, {0}, 3, {F32(2, 3, 16), F32(24, 16), NOTHING}, 0},
    {&sl_op_linear, {.product.transposed = true}, 3, {F32(7, 33), F32(33, 5), F32(5)}, 0},
    {&sl_op_linear, {.product.transposed = true}, 2, {F32(1, 7), F32(7, 64)}, 0},
    {&sl_op_embedding, {0}, 2, {I32(3, 7), F32(5, 33)}, 7},
    {&sl_op_embedding, {0}, 2, {I32(300), F32(6, 72)}, 5},
    {&sl_op_embedding, {.place.first = 3, .place.partial = true}, 2, {I32(3, 7), F32(5, 33)}, 11},
    {&sl_op_embedding, {.place.first = 40, .place.partial = true}, 2, {I32(300), F32(6, 72)}, 50},
    {&sl_op_position, {0}, 2, {F32(2, 7, 33), F32(9, 33)}, 0},
    {&sl_op_position, {.place.first = 2}, 2, {F32(2, 7, 64), F32(9, 64)}, 0},
    {&sl_op_position, {0}, 2, {F32(3, 4, 64), F32(4, 64)}, 0},
    {&sl_op_position, {.place.first = 1, .place.run = 3, .place.skip = 2}, 2, {F32(2, 7, 33), F32(11, 33)}, 0},
    {&sl_op_add, {0}, 2, {F32(7, 33), F32(7, 33)}, 0},
    {&sl_op_copy, {0}, 1, {F32(7, 33)}, 0},
    {&sl_op_mul, {0}, 2, {F32(7, 33), F32(7, 33)}, 0},
    {&sl_op_gelu, {0}, 1, {F32(71, 33)}, 0},
    {&sl_op_relu, {0}, 1, {F32(7, 33)}, 0},
    {&sl_op_tanh, {0}, 1, {F32(7, 33)}, 0},
    {&sl_op_swiglu, {0}, 2, {F32(7, 33), F32(7, 33)}, 0},
    {&sl_op_layernorm, {0}, 3, {F32(7, 33), F32(33), F32(33)}, 0},
    {&sl_op_layernorm, {.norm.eps = 0.1f}, 3, {F32(17, 2, 1160), F32(1160), F32(1160)}, 0},
    {&sl_op_rmsnorm, {0}, 2, {F32(7, 33), F32(33)}, 0},
    {&sl_op_rmsnorm, {.norm.eps = 0.1f}, 2, {F32(2, 37, 136), F32(136)}, 0},
    {&sl_op_rotary, {.rotary.heads = 3}, 1, {F32(2, 7, 30)}, 0},
    {&sl_op_rotary, {.rotary.heads = 2, .rotary.theta = 500}, 1, {F32(1, 5, 64)}, 0},
    {&sl_op_rotary, {.rotary.heads = 3, .place.first = 9}, 1, {F32(2, 7, 30)}, 0},
    {&sl_op_rotary, {.rotary.heads = 3, .place.first = 1, .place.run = 3, .place.skip = 9}, 1, {F32(2, 7, 30)}, 0},
    {&sl_op_rotary, {.rotary.heads = 2, .user = &stretched}, 1, {F32(2, 9, 32)}, 0},
    {&sl_op_rotary, {.rotary.heads = 3, .user = &in_part}, 1, {F32(2, 7, 45)}, 0},
    {&sl_op_rotary, {.rotary.heads = 2, .user = &stretched_in_part}, 1, {F32(2, 9, 64)}, 0},
    {&sl_op_attention, {.attention.heads = 1}, 3, {F32(1, 1, 1), F32(1, 1, 1), F32(1, 1, 1)}, 0},
    {&sl_op_attention, {.attention.heads = 2}, 3, {F32(1, 7, 14), F32(1, 7, 14), F32(1, 7, 14)}, 0},
    {&sl_op_attention, {.attention.heads = 2, .attention.kv_heads = 1}, 3,
     {F32(1, 66, 32), F32(1, 66, 16), F32(1, 66, 16)}, 0},
    {&sl_op_attention, {.attention.heads = 1}, 3, {F32(1, 17, 72), F32(1, 17, 72), F32(1, 17, 72)}, 0},
    {&sl_op_attention, {.attention.heads = 1}, 3, {F32(1, 35, 200), F32(1, 35, 200), F32(1, 35, 200)}, 0},
    {&sl_op_attention, {.attention.heads = 1}, 3, {F32(1, 150, 64), F32(1, 150, 64), F32(1, 150, 64)}, 0},
    {&sl_op_attention, {.attention.heads = 1}, 3, {F32(1, 140, 72), F32(1, 140, 72), F32(1, 140, 72)}, 0},
    {&sl_op_attention, {.attention.heads = 1}, 3, {F32(1, 70, 128), F32(1, 70, 128), F32(1, 70, 128)}, 0},
    {&sl_op_attention, {.attention.heads = 2, .attention.kv_heads = 1, .attention.window = 90}, 3,
     {F32(1, 131, 128), F32(1, 131, 64), F32(1, 131, 64)}, 0},
    {&sl_op_attention_packed, {.attention.heads = 2}, 1, {F32(2, 7, 42)}, 0},
    {&sl_op_attention_packed, {.attention.heads = 2, .attention.kv_heads = 1}, 1, {F32(1, 19, 256)}, 0},
    {&sl_op_attention, {.attention.heads = 1, .attention.full = true}, 3,
     {F32(1, 150, 64), F32(1, 150, 64), F32(1, 150, 64)}, 0},
    {&sl_op_attention, {.attention.heads = 1, .attention.full = true, .attention.scale = 0.1f}, 3,
     {F32(1, 35, 200), F32(1, 35, 200), F32(1, 35, 200)}, 0},
    {&sl_op_attention_packed, {.attention.heads = 2, .attention.full = true}, 1, {F32(2, 66, 48)}, 0},
    {&sl_op_documents, {.tokens.end = 2}, 1, {I32(3, 71)}, 9},
    {&sl_op_attention_packed, {.attention.heads = 2, .attention.kv_heads = 1, .attention.window = 40}, 1, {F32(1, 150, 32)}, 0},
    {&sl_op_attention_packed, {.attention.heads = 2, .attention.full = true}, 2, {F32(2, 37, 48), I32(2, 37)}, 2},
    {&sl_op_cross_entropy, {0}, 2, {F32(7, 33), I32(7)}, 33},
    {&sl_op_cross_entropy, {0}, 2, {F32(3, 3, 1031), I32(3, 3)}, 1031},
    {&sl_op_cross_entropy, {0}, 2, {F32(2, 3, 1), I32(2, 3)}, 1},
    {&sl_op_cross_entropy, {0}, 2, {F32(2, 8205), I32(2)}, 8205},
    {&sl_op_cross_entropy, {.place.first = 11, .place.partial = true}, 2, {F32(7, 33), I32(7)}, 50},
    {&sl_op_cross_entropy_part, {.place.first = 11, .place.partial = true}, 2, {F32(7, 33), I32(7)}, 50},
    {&sl_op_cross_entropy_part, {.place.first = 1031}, 2, {F32(3, 3, 1031), I32(3, 3)}, 2062},
    {&sl_op_log_probability, {0}, 2, {F32(7, 33), I32(7)}, 33},
    {&sl_op_log_probability, {0}, 2, {F32(3, 3, 1031), I32(3, 3)}, 1031},
    {&sl_op_log_probability, {.place.first = 11, .place.partial = true}, 2, {F32(7, 33), I32(7)}, 50},
    {&sl_op_log_probability_part, {.place.first = 11, .place.partial = true}, 2, {F32(7, 33), I32(7)}, 50},
    {&sl_op_log_probability_part, {.place.first = 1031, .place.whole = 2062}, 2, {F32(3, 3, 1031), I32(3, 3)}, 2062},
    {&sl_op_softmax_part, {0}, 1, {F32(7, 33)}, 0},
    {&sl_op_softmax_part, {0}, 1, {F32(3, 3, 1031)}, 0},
    {&sl_op_softmax_rescale, {0}, 5, {F32(3, 3, 33), F32(3, 3, 33), F32(3, 3), F32(3, 3), SL_SCALAR(SL_F32)}, 0},
    {&sl_op_weighted_cross_entropy_part, {.loss.ignore = 3, .place.first = 11, .place.partial = true}, 4,
     {F32(7, 33), I32(7), SL_SCALAR(SL_F64), NOTHING}, 50},
    {&sl_op_weighted_cross_entropy_part,
     {.loss.smoothing = 0.25f, .loss.spread = 0.25f / 2062, .place.first = 1031, .place.partial = true}, 4,
     {F32(3, 3, 1031), I32(3, 3), SL_SCALAR(SL_F64), F32(2062)}, 2062},
    {&sl_op_weighted_cross_entropy, {.loss.smoothing = 0.25f, .loss.spread = 0.25f / 8205}, 4,
     {F32(2, 8205), I32(2), SL_SCALAR(SL_F64), F32(8205)}, 8205},
    {&sl_op_reshape, {.user = &heads}, 1, {F32(2, 7, 12)}, 0},
    {&sl_op_permute, {.shape.ndims = 3, .shape.dims = {2, 0, 1}}, 1, {F32(3, 5, 70)}, 0},
    {&sl_op_slice, {.user = &middle}, 1, {F32(3, 7, 33)}, 0},
    {&sl_op_split, {.along.axes = 2, .user = &lengths}, 1, {F32(3, 7, 33)}, 0},
    {&sl_op_dropout, {.distribution.dropped = 0.25f, .random.key = 5, .random.seed = 7}, 1, {F32(71, 33)}, 0},
    {&sl_op_dropout, {.distribution.dropped = 0.25f, .region = &region}, 1, {F32(3, 5)}, 0},
    {&sl_op_uniform, {.distribution.low = -1, .distribution.high = 2, .random.seed = 1, .region = &region}, 1, {F32(3, 5)}, 0},
    {&sl_op_normal, {.distribution.mean = -1, .distribution.deviation = 2, .random.key = 3}, 1, {F32(71, 33)}, 0},
    {&sl_op_concat, {.along.axes = 1 << 1}, 3, {F32(3, 5, 7), F32(3, 1, 7), F32(3, 4, 7)}, 0},
    {&sl_op_concat, {.along.axes = 1 << 0}, 2, {F32(3, 5), F32(7, 5)}, 0},
    {&sl_op_gather, {.along.axes = 1}, 2, {F32(7, 33), I32(9, 1)}, 9},
    {&sl_op_gather, {.place.first = 3, .place.partial = true}, 2, {F32(6, 9), I32(6, 4)}, 20},
    {&sl_op_scatter_add, {.along.axes = 1, .place.whole = 5}, 2, {F32(9, 40), I32(9, 1)}, 6},
    {&sl_op_scatter_add, {.along.axes = 2, .place.first = 2, .place.partial = true}, 3,
     {F32(3, 7, 4), I32(3, 7, 1), F32(3, 5, 4)}, 9},
    {&sl_op_scatter_add, {.along.axes = 1, .place.first = 2, .place.partial = true, .place.whole = 5}, 2,
     {F32(300, 40), I32(300, 1)}, 9},
    {&sl_op_one_hot, {.one_hot.classes = 5}, 1, {I32(3, 7)}, 7},
    {&sl_op_embedding_bag, {.user = &padded}, 2, {I32(9, 4), F32(7, 33)}, 9},
    {&sl_op_embedding_bag, {.user = &padded, .place.first = 3, .place.partial = true}, 3,
     {I32(9, 4), F32(7, 33), F32(9, 4)}, 12},
    {&sl_op_grouped_linear, {.place.first = 2, .place.whole = 6, .place.partial = true}, 3,
     {F32(9, 40), I32(9, 3), F32(3, 136, 40)}, 6},
    {&sl_op_grouped_linear, {0}, 3, {F32(150, 2, 16), I32(150, 2), F32(2, 24, 16)}, 2},
    {&sl_op_combine, {0}, 2, {F32(2, 7, 3, 40), F32(2, 7, 3)}, 0},
    {&sl_op_expert_limit, {.experts.factor = 1.25f, .experts.count = 4}, 2, {I32(2, 40, 2), F32(2, 40, 2)}, 4},
    {&sl_op_expert_limit, {.experts.factor = 0.5f, .experts.count = 3}, 2, {I32(30, 1), F32(30, 1)}, 4},
    {&sl_op_plane_values, {.planes.base = 2, .planes.width = 4}, 1, {F32(3, 5, 300)}, 0},
    {&sl_op_plane_values, {.planes.base = 3, .planes.width = 3}, 1, {F32(7, 3)}, 0},
    {&sl_op_bit_choice, {0}, 2, {F32(2, 20, 2, 3), I32(2, 20, 2)}, 4},
    {&sl_op_bit_choice, {.experts.count = 3, .experts.ncapacities = 3, .experts.capacity = {200000, 300000, 500000}}, 2, {F32(2, 170, 2, 3), I32(2, 170, 2)}, 4},
    {&sl_op_constant, {.user = &squares, .region = &region}, 1, {F32(3, 5)}, 0},
    {&sl_op_arange, {.along.axes = 1, .region = &region}, 1, {F32(3, 5)}, 0},
    {&sl_op_mse, {0}, 2, {F32(7, 33), F32(7, 33)}, 0},
    {&sl_op_mse, {0}, 2, {F32(131, 257), F32(131, 257)}, 0},
};
/* clang-format on */

/* clang-format off */
static const claim large_claims[] = {
    {&sl_op_linear, {0}, 3, {F32(2048, 768), F32(3072, 768), F32(3072)}, 0},
    {&sl_op_embedding, {0}, 2, {I32(8, 1024), F32(50257, 768)}, 50257},
    {&sl_op_layernorm, {0}, 3, {F32(4096, 768), F32(768), F32(768)}, 0},
    {&sl_op_rmsnorm, {0}, 2, {F32(4096, 4096), F32(4096)}, 0},
    {&sl_op_attention_packed, {.attention.heads = 12}, 1, {F32(2, 1024, 3 * 768)}, 0},
    {&sl_op_attention, {.attention.heads = 8, .attention.kv_heads = 2}, 3,
     {F32(2, 700, 1024), F32(2, 700, 256), F32(2, 700, 256)}, 0},
    {&sl_op_attention, {.attention.heads = 2}, 3,
     {F32(1, 500, 512), F32(1, 500, 512), F32(1, 500, 512)}, 0},
    {&sl_op_cross_entropy, {0}, 2, {F32(1024, 50257), I32(1024)}, 50257},
    {&sl_op_gelu, {0}, 1, {F32(4096, 3072)}, 0},
};
/* clang-format on */

/* ---- bf16 tensors ----------------------------------------------------------------------
 *
 * Data may be bf16; statistics and weights of norms and tables stay f32. Bits tell which inputs and
 * outputs are data where this differs from the op's declaration. */
static const struct {
  const sl_op *op;
  uint32_t in, out;
} data_of[] = {
    {&sl_op_linear, 3, 1},
    {&sl_op_linear_w, 3, 0},
    {&sl_op_layernorm, 1, 1},
    {&sl_op_layernorm_b, 17, 1},
    {&sl_op_layernorm_w, 9, 0},
    {&sl_op_rmsnorm, 1, 1},
    {&sl_op_rmsnorm_b, 9, 1},
    {&sl_op_rmsnorm_w, 5, 0},
    {&sl_op_concat_b, 1, 255},
    {&sl_op_slice_b, 1, 1},
    {&sl_op_reshape_b, 1, 1},
    {&sl_op_uniform, 0, 0},
    {&sl_op_normal, 0, 0},
    {&sl_op_bias_w, 1, 0},
    {&sl_op_embedding, 0, 1},
    {&sl_op_embedding_w, 2, 0},
    {&sl_op_position, 1, 1},
    {&sl_op_position_w, 1, 0},
    {&sl_op_attention, 7, 1},
    {&sl_op_attention_b, 47, 7},
    {&sl_op_attention_packed, 1, 1},
    {&sl_op_attention_packed_b, 11, 1},
    {&sl_op_attention_piece, 7, 5},
    {&sl_op_attention_piece_b, 23, 15},
    {&sl_op_attention_packed_piece, 1, 13},
    {&sl_op_attention_packed_piece_b, 23, 3},
    {&sl_op_attention_piece_again, 31, 5},
    {&sl_op_attention_packed_piece_again, 7, 13},
    {&sl_op_cross_entropy, 1, 0},
    {&sl_op_cross_entropy_b, 1, 1},
    {&sl_op_cross_entropy_part, 1, 0},
    {&sl_op_log_probability, 1, 0},
    {&sl_op_log_probability_b, 1, 1},
    {&sl_op_log_probability_part, 1, 0},
    {&sl_op_softmax_part, 1, 1},
    {&sl_op_softmax_rescale, 0, 0},
    {&sl_op_weighted_cross_entropy, 1, 0},
    {&sl_op_weighted_cross_entropy_b, 1, 1},
    {&sl_op_weighted_cross_entropy_part, 1, 0},
    {&sl_op_target_weight, 0, 0},
    {&sl_op_share, 0, 0},
    {&sl_op_conv, 1, 1},
    {&sl_op_conv_b, 5, 1},
    {&sl_op_conv_w, 3, 0},
    {&sl_op_channel_sum, 1, 0},
    {&sl_op_mse, 3, 0},
    {&sl_op_mse_b, 3, 1},
    {&sl_op_sumsq, 255, 0},
    {&sl_op_clip, 0, 0},
    {&sl_op_adamw, 0, 0},
    {&sl_op_pack, 0, 0},
};

static void find_data(const sl_op *op, uint32_t *in, uint32_t *out) {
  *in = sli_op_narrow(op)->in;
  *out = sli_op_narrow(op)->out;
  for (size_t i = 0; i < sizeof data_of / sizeof *data_of; i++)
    if (data_of[i].op == op) *in = data_of[i].in, *out = data_of[i].out;
}

/* Returns a copy of x, an array of type *type, rounded to bf16; changes *type accordingly. */
static void *to_bf16(const void *x, sl_type *type) {
  int64_t n = sl_type_elements(type);
  type->dtype = SL_BF16;
  uint16_t *to = array_create(type);
  for (int64_t i = 0; i < n; i++) to[i] = sli_bf16_from_float(((const float *)x)[i]);
  return to;
}

static void round_array(void *x, const sl_type *type) {
  for (int64_t i = 0; x && type->dtype == SL_F32 && i < sl_type_elements(type); i++)
    ((float *)x)[i] = sli_bf16_to_float(sli_bf16_from_float(((float *)x)[i]));
}

static double element(const void *x, const sl_type *type, int64_t i) {
  if (type->dtype == SL_BF16) return (double)sli_bf16_to_float(((const uint16_t *)x)[i]);
  return array_get(x, type, i);
}

/* ---- one call on CPU and GPU ------------------------------------------------- */

static void check_close(const kernel *k, int o, const void *got, const sl_type *type,
                        double tolerance) {
  char text[SL_TYPE_TEXT];
  for (int64_t i = 0; i < sl_type_elements(type); i++) {
    double g = element(got, type, i), want = element(k->out[o], &k->out_type[o], i);
    CHECK(fabs(g - want) <= tolerance * (1 + fabs(want)) || (isnan(g) && isnan(want)),
          "%s(%s...) on %s: output %d, element %lld is %.9g, on the CPU %.9g", k->op->name,
          sl_type_format(text, &k->in_type[0]), sl_dtype_name(type->dtype), o, (long long)i, g,
          want);
  }
}

static bool is_complete(const kernel *k) {
  for (int o = 0; o < k->nout; o++)
    if (!k->out[o]) return false;
  return true;
}

/* Outputs placed over inputs give the same bits as in separate memory: `want`. */
static void check_over(const kernel *k, void *const *initial, void *const *want, const int *over) {
  void *got[MAX_OUT] = {0};
  device_call d;
  for (int o = 0; o < k->nout; o++) got[o] = array_create(&k->out_type[o]);
  device_call_create_over(&d, k, over);
  for (emulated_backwards = 0; emulated_backwards < 2; emulated_backwards++) {
    device_call_run(&d, k, initial, got);
    for (int o = 0; o < k->nout; o++)
      CHECK(!memcmp(got[o], want[o], sl_type_bytes(&k->out_type[o])),
            "%s on %s with outputs over inputs %d and %d: output %d differs", k->op->name,
            sl_dtype_name(k->in_type[0].dtype), over[0] - 1, over[1] - 1, o);
  }
  emulated_backwards = 0;
  device_call_destroy(&d);
  for (int o = 0; o < k->nout; o++) free(got[o]);
}

static bool may_lie(const kernel *k, int o, int over) {
  return !over || (o < k->nout && sli_op_memory(k->op)->in_place[o] >> (over - 1) & 1 &&
                   sl_type_equal(&k->out_type[o], &k->in_type[over - 1]));
}

static void check_every_over(const kernel *k, void *const *initial, void *const *want) {
  for (int a = 0; a <= k->nin; a++)
    for (int b = 0; b <= k->nin; b++)
      if ((a || b) && a != b && may_lie(k, 0, a) && may_lie(k, 1, b))
        check_over(k, initial, want, (const int[MAX_OUT]){a, b});
}

/* Runs the call on the device with these types, twice if no output is absent; k holds the CPU's
 * results. */
static void check_device(const kernel *k, const kernel *on_device, void *const *initial,
                         double tolerance) {
  void *once[MAX_OUT] = {0}, *again[MAX_OUT] = {0};
  device_call d;
  for (int o = 0; o < k->nout; o++) {
    once[o] = array_create(&on_device->out_type[o]);
    again[o] = array_create(&on_device->out_type[o]);
  }
  device_call_create(&d, on_device);
  device_call_run(&d, on_device, initial, once);
  emulated_backwards = 1;
  if (is_complete(k)) device_call_run(&d, on_device, initial, again);
  emulated_backwards = 0;
  device_call_destroy(&d);
  if (is_complete(k)) check_every_over(on_device, initial, once);
  for (int o = 0; o < k->nout; o++) {
    const sl_type *type = &on_device->out_type[o];
    if (k->out[o]) {
      check_close(k, o, once[o], type, tolerance);
      CHECK(!is_complete(k) || !memcmp(once[o], again[o], sl_type_bytes(type)),
            "%s gives other bits the second time", k->op->name);
    }
    free(once[o]);
    free(again[o]);
  }
}

/* The same call with its data in bf16. */
static void check_device_bf16(const kernel *k, void *const *initial) {
  kernel b = *k;
  void *start[MAX_OUT] = {0};
  uint32_t in, out;
  for (int i = 0; i < k->nin; i++)
    if (k->in_type[i].dtype == SL_F64 && !k->in_type[i].ndim && k->nin <= 2) return; /* a loss */
  find_data(k->op, &in, &out);
  for (int i = 0; i < k->nin; i++)
    if (k->in[i] && (in >> i & 1) && k->in_type[i].dtype == SL_F32)
      b.in[i] = to_bf16(k->in[i], &b.in_type[i]);
  for (int o = 0; o < k->nout; o++)
    if (k->out[o] && (out >> o & 1) && k->out_type[o].dtype == SL_F32)
      start[o] = to_bf16(initial[o], &b.out_type[o]);
    else start[o] = initial[o];
  check_device(k, &b, start, 0.03);
  for (int i = 0; i < k->nin; i++)
    if (b.in[i] != k->in[i]) free(b.in[i]);
  for (int o = 0; o < k->nout; o++)
    if (start[o] != initial[o]) free(start[o]);
}

/* Runs the call on the CPU, with the results in k, and compares. */
static void check_call(kernel *k, double tolerance, bool bf16) {
  void *initial[MAX_OUT] = {0};
  for (int o = 0; o < k->nout; o++) {
    if (!k->out[o]) continue;
    initial[o] = array_create(&k->out_type[o]);
    memcpy(initial[o], k->out[o], sl_type_bytes(&k->out_type[o]));
  }
  kernel_run(k, NULL);
  check_device(k, k, initial, tolerance);
  if (bf16) check_device_bf16(k, initial);
  for (int o = 0; o < k->nout; o++) free(initial[o]);
}

/* Returns the tolerance: 2e-5, and more for sums of more than 64 terms, whose rounding differences
 * grow like the sums of random numbers themselves. */
static double tolerance_of(const kernel *k) {
  static const sl_op *const along[] = {&sl_op_linear, &sl_op_linear_b}, *const across[] = {
                                                                            &sl_op_linear_w,
                                                                            &sl_op_bias_w,
                                                                            &sl_op_layernorm_w,
                                                                            &sl_op_rmsnorm_w};
  const sl_type *x = &k->in_type[0];
  int64_t n = 0;
  for (size_t i = 0; i < 2; i++)
    if (k->op == along[i]) n = x->dim[x->ndim - 1];
  for (size_t i = 0; i < 4; i++)
    if (k->op == across[i]) n = sl_type_elements(x) / x->dim[x->ndim - 1];
  return 2e-5 * (n > 64 ? sqrt((double)n / 64) : 1);
}

/* Checks each output alone, and each accumulating output on top of existing values. */
static void check_variants(kernel *k) {
  for (int o = 0; o < k->nout && k->nout > 1; o++) {
    kernel alone = *k;
    for (int p = 0; p < k->nout; p++)
      if (p != o) alone.out[p] = NULL;
    check_call(&alone, tolerance_of(k), false);
  }
  for (int o = 0; o < k->nout; o++) {
    if (!(k->op->accumulates >> o & 1)) continue;
    k->accumulate = 1u << o;
    for (int i = 0; i < k->nin; i++) round_array(k->in[i], &k->in_type[i]);
    check_call(k, tolerance_of(k), true);
    k->accumulate = 0;
  }
}

/* ---- gradient rules ------------------------------------------------ */

static void check_rule(const kernel *forward, const sl_grad_rule *rule, bool bf16) {
  for (int j = 0; j < sli_rule_gradients(rule, forward->nin); j++) {
    int i = sli_rule_of(rule, j);
    if (i >= forward->nin || !forward->in[i]) return;
  }
  kernel k = claim_rule(forward, rule);
  k.tick = forward->tick;
  for (int i = 0; bf16 && i < k.nin; i++) round_array(k.in[i], &k.in_type[i]);
  check_call(&k, tolerance_of(&k), bf16);
  if (!bf16) check_variants(&k);
  kernel_destroy(&k);
}

static double from; /* numbers are in [from - 1, from + 1) */

static void check_claim(const claim *c, bool bf16) {
  kernel k =
      kernel_create(c->op, c->attrs, c->nin, c->in, sli_op_outputs(c->op, &c->attrs, c->nin));
  for (int i = 0; i < k.nin; i++) {
    if (k.in[i]) array_random_from(k.in[i], &k.in_type[i], c->below, from);
    if (bf16) round_array(k.in[i], &k.in_type[i]);
  }
  check_call(&k, tolerance_of(&k), bf16);
  if (!bf16) check_variants(&k);
  for (const sl_grad_rule *rule = c->op->grad; rule->nwrt; rule++)
    if (rule->op) check_rule(&k, rule, bf16);
  kernel_destroy(&k);
}

static void check_math_claims(bool bf16, const sl_op *only) {
  for (size_t i = 0; i < SLI_COUNT(math_claims); i++) {
    const math_claim *m = &math_claims[i];
    if (!sli_cuda_op_find(m->op) || (only && m->op != only)) continue; /* CPU only */
    claim c = {m->op, m->attrs, m->nin, {{0}}, m->below};
    _Static_assert(sizeof c.in >= sizeof m->in, "all inputs of a claim");
    memcpy(c.in, m->in, sizeof m->in);
    from = m->from;
    check_claim(&c, bf16);
    from = 0;
  }
}

/* Checks logits that are masked, far apart or not finite, and their gradient. */
static void check_odd_logits(int64_t columns, float odd, bool bf16) {
  sl_type types[] = {F32(6, columns), I32(6)};
  kernel k = kernel_create(&sl_op_cross_entropy, (sl_attrs){0}, 2, types, 2);
  float *x = k.in[0];
  array_random(x, &types[0], 0);
  for (int64_t c = 0; c < columns; c++) {
    x[c] = c % 3 ? x[c] : -INFINITY;
    x[columns + c] = c == columns / 2 ? 1 : -INFINITY;
    x[2 * columns + c] = c < columns - 1 ? -INFINITY : -2;
    x[3 * columns + c] = (float)c;
    x[4 * columns + c] = -40 * (float)c;
  }
  x[5 * columns + columns / 2] = odd;
  memcpy(k.in[1], (int32_t[]){1, (int32_t)columns / 2, (int32_t)columns - 1, 5, 0, 3},
         sl_type_bytes(&types[1]));
  if (bf16) round_array(x, &types[0]);
  check_call(&k, 2e-5, bf16);
  check_rule(&k, &k.op->grad[0], bf16);
  kernel_destroy(&k);
}

/* Checks the gradient of a table, also with few distinct ids or few ids in range; f32 sums of fewer
 * than 128 places have the CPU's bits. */
static void check_embedding(int64_t places, int below, int64_t first, double tolerance) {
  sl_type types[] = {I32(places), F32(places, 24), F32(below, 24)};
  kernel k =
      kernel_create(&sl_op_embedding_w,
                    (sl_attrs){.place.first = first, .place.partial = first > 0}, 3, types, 1);
  array_random(k.in[0], &types[0], below + (int)first);
  array_random(k.in[1], &types[1], 0);
  check_call(&k, tolerance, false);
  k.accumulate = 1;
  check_call(&k, tolerance, false);
  round_array(k.in[1], &types[1]);
  check_call(&k, tolerance, true);
  kernel_destroy(&k);
}

static void check_embeddings(bool small) {
  check_embedding(127, 1, 0, 0);
  check_embedding(2500, 100, 300, 0);
  check_embedding(4097, 3, 0, 3e-4); /* rounding grows with the sums: one term is about 0.5 */
  check_embedding(2049, 1, 0, 3e-4);
  if (small) return;
  check_embedding(30000, 30000, 0, 0);
  check_embedding(30000, 7, 0, 1e-3);
  check_embedding(30000, 1, 0, 5e-3);
}

/* ---- sequences in pieces ------------------------------------------------ */

typedef struct cut {
  const sl_op *op;
  sl_attrs attrs;
  int64_t batch, widths[4];
  int nin;
  int npieces;
  int64_t rows[4];
  bool ids; /* documents, and invisible positions */
} cut;

static const cut cuts[] = {
    {&sl_op_attention_piece,
     {.attention.heads = 2, .attention.kv_heads = 1, .place.length = 73},
     1,
     {16, 8, 8},
     3,
     3,
     {5, 60, 8},
     false},
    {&sl_op_attention_piece,
     {.attention.heads = 1, .place.length = 20},
     1,
     {7, 7, 7},
     3,
     2,
     {9, 11},
     false},
    {&sl_op_attention_packed_piece,
     {.attention.heads = 2, .attention.kv_heads = 2, .place.length = 21},
     2,
     {96},
     1,
     2,
     {15, 6},
     false},
    {&sl_op_attention_piece,
     {.attention.heads = 2, .attention.kv_heads = 1, .place.length = 73, .attention.window = 20},
     1,
     {16, 8, 8},
     3,
     3,
     {5, 60, 8},
     true},
    {&sl_op_attention_packed_piece,
     {.attention.heads = 2, .place.length = 21},
     2,
     {96},
     1,
     2,
     {15, 6},
     true},
    {&sl_op_attention_sinks_piece,
     {.attention.heads = 2, .attention.kv_heads = 1, .place.length = 73, .attention.window = 20},
     2,
     {16, 8, 8, 2},
     4,
     3,
     {5, 60, 8},
     true},
    {&sl_op_attention_sinks_piece,
     {.attention.heads = 1, .place.length = 20},
     1,
     {7, 7, 7, 1},
     4,
     2,
     {9, 11},
     false},
};

static const cut large_cut = {&sl_op_attention_packed_piece,
                              {.attention.heads = 12, .place.length = 1024},
                              2,
                              {3 * 768},
                              1,
                              4,
                              {256, 256, 256, 256},
                              false};

static void carry(kernel *to, int o, const kernel *from, int p) {
  memcpy(to->out[o], from->out[p], sl_type_bytes(&to->out_type[o]));
}

static kernel forward_create(const cut *c, int p, int64_t row, bool bf16) {
  int nin = c->nin + c->ids;
  sl_type types[5];
  for (int i = 0; i < c->nin; i++) types[i] = F32(c->batch, c->rows[p], c->widths[i]);
  if (c->ids) types[c->nin] = I32(c->batch, c->rows[p]);
  kernel k = kernel_create(c->op, c->attrs, nin, types, sli_op_outputs(c->op, &c->attrs, nin));
  if (c->ids) array_random_from(k.in[c->nin], &types[c->nin], 3, -1);
  k.tick = (sl_tick){.piece = p, .row = row, .rows = c->rows[p]};
  for (int i = 0; i < c->nin; i++) {
    array_random(k.in[i], &types[i], 0);
    if (bf16) round_array(k.in[i], &types[i]);
  }
  return k;
}

/* Creates the backward call: q, kv, o and lse of the piece, a random gradient of o, sinks. */
static kernel backward_create(const sl_op *op, const kernel *forward, bool bf16) {
  bool packed = op == &sl_op_attention_packed_piece_b, ids = forward->nin > forward->op->min_in;
  bool sinks = op == &sl_op_attention_sinks_piece_b;
  const sl_type *out = forward->out_type;
  int last = forward->nout - 1, nin = 5 + sinks;
  sl_type types[7] = {
      packed ? out[3] : forward->in_type[0], out[2], out[0], out[1], out[0], forward->in_type[3]};
  types[nin] = out[last];
  const void *in[] = {packed ? forward->out[3] : forward->in[0], forward->out[2], forward->out[0],
                      forward->out[1]};
  kernel k = kernel_create(op, forward->attrs, nin + ids, types, op->nout);
  for (int i = 0; i < 4; i++) memcpy(k.in[i], in[i], sl_type_bytes(&types[i]));
  array_random(k.in[4], &types[4], 0);
  if (sinks) memcpy(k.in[5], forward->in[3], sl_type_bytes(&types[5]));
  if (ids) memcpy(k.in[nin], forward->out[last], sl_type_bytes(&types[nin]));
  for (int i = 0; bf16 && i < 5; i++)
    if (i != 3) round_array(k.in[i], &types[i]);
  k.tick = forward->tick;
  return k;
}

/* Creates the recomputed forward call, with the whole records. */
static kernel again_create(const cut *c, const kernel *forward) {
  int given = forward->nin, nin = given + 1 + c->ids, last = forward->nout - 1;
  sl_type types[7];
  for (int i = 0; i < given; i++) types[i] = forward->in_type[i];
  types[given] = forward->out_type[2];
  if (c->ids) types[given + 1] = forward->out_type[last];
  const sl_op *op = forward->op->rematerialized;
  kernel k = kernel_create(op, forward->attrs, nin, types, sli_op_outputs(op, &c->attrs, nin));
  for (int i = 0; i < given; i++) memcpy(k.in[i], forward->in[i], sl_type_bytes(&types[i]));
  memcpy(k.in[given], forward->out[2], sl_type_bytes(&types[given]));
  if (c->ids) memcpy(k.in[given + 1], forward->out[last], sl_type_bytes(&types[given + 1]));
  for (int o = 2; o <= last; o++) {
    if (!(sli_op_memory(forward->op)->updates >> o & 1)) continue;
    free(k.out[o]);
    k.out[o] = NULL;
  }
  k.tick = forward->tick;
  return k;
}

/* Copies what the pieces update in place. */
static void carry_records(kernel *to, const kernel *from) {
  for (int o = 0; o < to->nout; o++)
    if (sli_op_memory(to->op)->updates >> o & 1) carry(to, o, from, o);
}

/* Runs forward piece by piece with one record of keys and values, and backward in reverse with one
 * record of their gradients. The device starts each piece from the CPU's state. */
static void check_cut(const cut *c, bool bf16) {
  kernel forward[4], last = {0};
  const sl_grad_rule *rule = &c->op->grad[0];
  int record = rule->op->nout - 1;
  int64_t row = 0;
  for (int p = 0; p < c->npieces; row += c->rows[p++]) {
    forward[p] = forward_create(c, p, row, bf16);
    if (p) carry_records(&forward[p], &forward[p - 1]);
    check_call(&forward[p], 2e-5, bf16);
  }
  for (int p = c->npieces - 1; p >= 0; p--) {
    carry_records(&forward[p], &forward[c->npieces - 1]); /* the complete records */
    kernel again = again_create(c, &forward[p]);
    check_call(&again, 2e-5, bf16);
    kernel_destroy(&again);
    kernel k = backward_create(rule->op, &forward[p], bf16);
    if (last.op) carry(&k, record, &last, record);
    check_call(&k, 2e-5, bf16);
    if (last.op) kernel_destroy(&last);
    last = k;
  }
  kernel_destroy(&last);
  for (int p = 0; p < c->npieces; p++) kernel_destroy(&forward[p]);
}

/* Checks the documents in a piece of a row, with some ended before it. */
static void check_documents(int64_t row) {
  sl_type tokens = I32(3, 71);
  kernel k = kernel_create(&sl_op_documents_piece, (sl_attrs){.tokens.end = 2, .place.length = 100},
                           1, &tokens, 3);
  array_random(k.in[0], &tokens, 9);
  array_random(k.out[2], &k.out_type[2], 5);
  k.tick = (sl_tick){.piece = row > 0, .row = row, .rows = 71};
  check_call(&k, 0, false);
  kernel_destroy(&k);
}

/* Checks ops that depend on where a piece begins. */
static void check_positions(const sl_op *op, sl_attrs attrs, int nin, const sl_type *in) {
  kernel k = kernel_create(op, attrs, nin, in, op->nout);
  for (int i = 0; i < nin; i++) array_random(k.in[i], &in[i], 0);
  k.tick = (sl_tick){.piece = 1, .row = 4, .rows = in[0].dim[1]};
  check_call(&k, 2e-5, false);
  for (const sl_grad_rule *rule = op->grad; rule->nwrt; rule++)
    if (rule->op) check_rule(&k, rule, false);
  kernel_destroy(&k);
}

/* ---- products in bf16 of f32 tensors ------------------------------------------------ */

/* Runs the call on the device only and replaces the outputs. */
static void run_on_device(kernel *k) {
  device_call d;
  device_call_create(&d, k);
  device_call_run(&d, k, k->out, k->out);
  device_call_destroy(&d);
}

/* Computes x w^T, or dy w: on the device with the packed weight, on the CPU with rounded
 * numbers. */
static void check_packed_product(const sl_op *op, bool transposed, const kernel *pack,
                                 int packed_at) {
  bool backward = op == &sl_op_linear_b;
  sl_type types[] = {backward ? F32(9, 24) : F32(9, 40), pack->in_type[0]};
  kernel plain = kernel_create(op, (sl_attrs){.product.transposed = transposed}, 2, types, 1);
  array_random(plain.in[0], &types[0], 0);
  memcpy(plain.in[1], pack->in[0], sl_type_bytes(&types[1]));
  kernel packed = plain;
  packed.nin = packed_at + 1;
  packed.in[2] = NULL;
  packed.in_type[2] = NOTHING;
  packed.in_type[packed_at] = pack->out_type[backward];
  packed.in[packed_at] = pack->out[backward];
  packed.out[0] = array_create(&plain.out_type[0]);
  run_on_device(&packed);
  for (int i = 0; i < 2; i++) round_array(plain.in[i], &types[i]);
  kernel_run(&plain, NULL);
  check_close(&plain, 0, packed.out[0], &plain.out_type[0], 2e-6);
  free(packed.out[0]);
  kernel_destroy(&plain);
}

/* Returns the device's packed weight for products of 9 rows. */
static kernel packed_on_device(const sl_type *w, void *weight, bool transposed) {
  sl_type room = BF16(64, 64);
  kernel pack = {.op = &sl_op_pack,
                 .attrs = {.product.transposed = transposed, .product.rows = 9},
                 .nin = 1,
                 .nout = 2,
                 .in_type = {*w},
                 .out_type = {room, room},
                 .in = {weight}};
  for (int o = 0; o < 2; o++) pack.out[o] = array_create(&room);
  run_on_device(&pack);
  return pack;
}

/* The device's linear op with a packed weight gives the f32 product of the rounded numbers; the
 * CPU's kernels may not support bf16. */
static void check_packed(bool transposed) {
  sl_type w = transposed ? F32(40, 24) : F32(24, 40);
  void *weight = array_create(&w);
  array_random(weight, &w, 0);
  kernel pack = packed_on_device(&w, weight, transposed);
  check_packed_product(&sl_op_linear, transposed, &pack, 3);
  check_packed_product(&sl_op_linear_b, transposed, &pack, 2);
  free(pack.in[0]);
  for (int o = 0; o < 2; o++) free(pack.out[o]);
}

/* Returns f32 rows extended with zeros. */
static float *longer_rows(const float *x, int64_t rows, int64_t from, int64_t to) {
  float *y = calloc((size_t)(rows * to), sizeof *y);
  for (int64_t r = 0; r < rows; r++) memcpy(y + r * to, x + r * from, (size_t)from * sizeof *y);
  return y;
}

/* If rows of logits are longer than the weight has rows, the padding is zero; in their gradient it
 * is ignored. The weight comes packed, or is rounded in the call. */
static void check_long_rows(const sl_op *op, bool packs) {
  enum { ROWS = 9, OWN = 27, LONG = 32, WIDTH = 40 };
  bool backward = op == &sl_op_linear_b;
  sl_type w = F32(OWN, WIDTH), wide = BF16(ROWS, LONG);
  sl_type types[] = {F32(ROWS, backward ? OWN : WIDTH), w};
  kernel plain = kernel_create(op, (sl_attrs){0}, 2, types, 1), longer = plain;
  for (int i = 0; i < 2; i++)
    array_random(plain.in[i], &types[i], 0), round_array(plain.in[i], &types[i]);
  kernel pack = packed_on_device(&w, plain.in[1], false);
  float *x = backward ? longer_rows(plain.in[0], ROWS, OWN, LONG) : plain.in[0];
  longer.in_type[0] = backward ? wide : BF16(ROWS, WIDTH);
  longer.in[0] = to_bf16(x, &(sl_type){SL_F32, 2, {ROWS, backward ? LONG : WIDTH}});
  longer.out_type[0] = backward ? BF16(ROWS, WIDTH) : wide;
  longer.out[0] = array_create(&longer.out_type[0]);
  int at = backward ? 2 : 3;
  longer.nin = packs ? at + 1 : 2;
  longer.in[2] = NULL, longer.in_type[2] = NOTHING;
  if (packs) longer.in[at] = pack.out[backward], longer.in_type[at] = pack.out_type[backward];
  run_on_device(&longer);
  kernel_run(&plain, NULL);
  for (int64_t r = 0; r < ROWS; r++)
    for (int64_t c = 0; c < sl_type_last(&longer.out_type[0]); c++) {
      bool own = backward || c < OWN;
      double got =
          element(longer.out[0], &longer.out_type[0], r * sl_type_last(&longer.out_type[0]) + c);
      double want =
          own ? element(plain.out[0], &plain.out_type[0], r * sl_type_last(&plain.out_type[0]) + c)
              : 0;
      CHECK(fabs(got - want) <= (own ? 0.01 * (1 + fabs(want)) : 0),
            "%s of long rows, %spacked: row %lld, column %lld is %g, not %g", op->name,
            packs ? "" : "not ", (long long)r, (long long)c, got, want);
    }
  if (backward) free(x);
  free(longer.in[0]);
  free(longer.out[0]);
  for (int o = 0; o < 2; o++) free(pack.out[o]);
  kernel_destroy(&plain);
}

/* linear_w with attrs.numbers.bf16 rounds its operands. */
static void check_rounded_gradient(bool transposed) {
  sl_type types[] = {F32(9, 40), F32(9, 24)};
  kernel k =
      kernel_create(&sl_op_linear_w, (sl_attrs){.product.transposed = transposed}, 2, types, 1);
  for (int i = 0; i < 2; i++) array_random(k.in[i], &types[i], 0);
  kernel rounding = k;
  rounding.attrs.numbers.bf16 = true;
  rounding.out[0] = array_create(&k.out_type[0]);
  run_on_device(&rounding);
  for (int i = 0; i < 2; i++) round_array(k.in[i], &types[i]);
  kernel_run(&k, NULL);
  check_close(&k, 0, rounding.out[0], &k.out_type[0], 2e-6);
  free(rounding.out[0]);
  kernel_destroy(&k);
}

/* ---- the update, constants ------------------------------------------------ */

/* Runs one step; the mean of squares must not be negative. */
static void check_optimizer(const sl_op *op, const sl_optimizer *o, const void *scale,
                            const kernel *squares, const sl_type *g) {
  sl_type types[] = {SL_SCALAR(SL_F32), *g, *g};
  kernel k = kernel_create(op, (sl_attrs){.user = o}, 3, types, op->nout);
  memcpy(k.in[0], scale, sizeof(float));
  for (int i = 0; i < 2; i++) memcpy(k.in[i + 1], squares->in[i], sl_type_bytes(g));
  for (int i = 0; i < op->nout; i++) array_random(k.out[i], g, 0);
  for (int64_t i = 0; i < sl_type_elements(g) && op->nout == 3; i++)
    ((float *)k.out[2])[i] = fabsf(((float *)k.out[2])[i]);
  k.tick.step = 5;
  check_call(&k, 2e-6, false);
  kernel_destroy(&k);
}

static void check_update(int64_t n) {
  sl_optimizer o = {.lr = 1e-2f,
                    .min_lr = 1e-3f,
                    .warmup = 3,
                    .decay_steps = 20,
                    .beta1 = 0.9f,
                    .beta2 = 0.95f,
                    .eps = 1e-8f,
                    .weight_decay = 0.1f,
                    .clip = 1,
                    .momentum = 0.9f,
                    .nesterov = n % 2};
  sl_attrs attrs = {.user = &o};
  sl_type g = n % 2 ? F32(n) : F32(2, n / 2), f64 = SL_SCALAR(SL_F64);
  kernel squares = kernel_create(&sl_op_sumsq, attrs, 2, (const sl_type[]){g, g}, 1);
  for (int i = 0; i < 2; i++) array_random(squares.in[i], &g, 0);
  check_call(&squares, 1e-9, false);
  kernel clip = kernel_create(&sl_op_clip, attrs, 3, (const sl_type[]){f64, f64, f64}, 2);
  for (int i = 0; i < 3; i++) *(double *)clip.in[i] = i + *(double *)squares.out[0];
  check_call(&clip, 1e-7, false);
  check_variants(&clip);
  for (int i = 0; sl_ops[i]; i++)
    if (sl_ops[i]->update && !sl_ops[i]->update->whole) /* these have no GPU kernel */
      check_optimizer(sl_ops[i], &o, clip.out[0], &squares, &g);
  kernel_destroy(&squares);
  kernel_destroy(&clip);
}

static void check_fill(sl_dtype dtype) {
  sl_type type = SL_TYPE(dtype, 7, 43);
  kernel k = kernel_create(&sl_op_fill, (sl_attrs){.user = &type, .fill.value = 3.25f}, 0, NULL, 1);
  check_call(&k, 0, false);
  kernel_destroy(&k);
}

/* Slices and rejoins two parts of x, the first of which has two ranges around the second. */
static void check_parts(sl_type x, int axis) {
  int64_t n = axis < 0 ? sl_type_elements(&x) : x.dim[axis], third = n / 3;
  const sl_part parts[] = {
      {axis, 2, {0, n - third - 1}, {third, third + 1}},
      {axis, 1, {third}, {n - 2 * third - 1}},
  };
  sl_joint joint = {x, parts};
  sl_type types[2];
  for (int p = 0; p < 2; p++) {
    kernel slice = kernel_create(&sl_op_slice, (sl_attrs){.user = &parts[p]}, 1, &x, 1);
    array_random(slice.in[0], &x, 1000);
    check_call(&slice, 0, false);
    types[p] = slice.out_type[0];
    kernel_destroy(&slice);
  }
  kernel join = kernel_create(&sl_op_join, (sl_attrs){.user = &joint}, 2, types, 1);
  for (int p = 0; p < 2; p++) array_random(join.in[p], &types[p], 1000);
  check_call(&join, 0, false);
  kernel_destroy(&join);
}

static void check_sum(sl_type x, int summands) {
  sl_type types[MAX_IN];
  for (int i = 0; i < summands; i++) types[i] = x;
  kernel k = kernel_create(&sl_op_sum, (sl_attrs){0}, summands, types, 1);
  for (int accumulate = 0; accumulate < 2; accumulate++) {
    for (int i = 0; i < summands; i++) array_random(k.in[i], &x, 0);
    k.accumulate = (uint32_t)accumulate;
    check_call(&k, 0, false);
  }
  kernel_destroy(&k);
}

/* Sums one part, of one range or two, of whole arrays. */
static void check_sum_part(sl_type x, int axis, int nranges) {
  int64_t n = axis < 0 ? sl_type_elements(&x) : x.dim[axis];
  sl_part part = {axis, nranges, {1, n - n / 3}, {n / 3, n / 3}};
  sl_type types[] = {x, x, x};
  kernel k = kernel_create(&sl_op_sum_part, (sl_attrs){.user = &part}, 3, types, 1);
  for (int accumulate = 0; accumulate < 2; accumulate++) {
    for (int i = 0; i < 3; i++) array_random(k.in[i], &x, 0);
    k.accumulate = (uint32_t)accumulate;
    check_call(&k, 0, false);
  }
  kernel_destroy(&k);
}

static void check_parts_and_sums(void) {
  static const sl_dtype dtypes[] = {SL_F32, SL_F64, SL_I32};
  for (int t = 0; t < 3; t++)
    for (int axis = SL_PART_FLAT; axis < 3; axis++)
      if (axis != SL_PART_ALL) check_parts(SL_TYPE(dtypes[t], 5, 7, 12), axis);
  check_sum(SL_SCALAR(SL_F64), 4);
  check_sum(SL_TYPE(SL_F64, 1001), 3);
  check_sum(F32(5, 411), 1);
  check_sum(F32(16, 128), 8);
  for (int axis = SL_PART_FLAT; axis < 3; axis++) {
    if (axis == SL_PART_ALL) continue;
    check_sum_part(F32(5, 7, 12), axis, 1);
    check_sum_part(SL_TYPE(SL_F64, 5, 7, 12), axis, 2);
  }
}

/* Joins the column results of n devices to a loss or to log-probabilities. */
static void check_join_of_parts(const sl_op *join, int64_t rows, int n) {
  sl_type type = F32(rows, 3 * n);
  kernel k = kernel_create(join, (sl_attrs){0}, 1, &type, 2);
  float *parts = k.in[0];
  array_random(parts, &type, 0);
  for (int64_t p = 0; p < rows * n; p++) {
    parts[3 * p + 1] = 1 + fabsf(parts[3 * p + 1]); /* a sum includes its largest term: 1 */
    parts[3 * p + 2] = p % n ? 0 : parts[3 * p] - parts[3 * p + 1];
  }
  check_call(&k, 2e-6, false);
  check_variants(&k);
  kernel_destroy(&k);
}

/* Checks the weighted loss joined from parts; every third row has weight 0. */
static void check_weighted_loss_of_parts(int64_t rows, int n) {
  sl_type type = F32(rows, 4 * n);
  kernel k = kernel_create(&sl_op_weighted_cross_entropy_join, (sl_attrs){0}, 1, &type, 2);
  float *parts = k.in[0];
  array_random(parts, &type, 0);
  for (int64_t p = 0; p < rows * n; p++) {
    parts[4 * p + 1] = 1 + fabsf(parts[4 * p + 1]);
    parts[4 * p + 2] = parts[4 * (p - p % n) + 2];
    if (p / n % 3 == 0) memset(&parts[4 * p], 0, 4 * sizeof *parts);
  }
  check_call(&k, 2e-6, false);
  check_variants(&k);
  kernel_destroy(&k);
}

static void check_every_row_is_there(void) {
#define HOST(name, ...) CHECK(!sli_cuda_op_find(&sl_op_##name), #name " is for the CPU alone");
#define CUDA_OP(name, ...) CHECK(sli_cuda_op_find(&sl_op_##name), #name " has no CUDA row");
#define PRODUCT CUDA_OP
#include "kernels/cuda/ops.def"
}

/* Calls of a model that rotate by the same angles share one table. */
static void check_angles_are_shared(void) {
  const sl_op *const ops[] = {&sl_op_rotary, &sl_op_rotary_b, &sl_op_rotary};
  const sl_type x = F32(2, 5, 32);
  const int heads[] = {2, 2, 4};
  const sl_place place = {0, 0};
  sl_program_call calls[3] = {0};
  for (int i = 0; i < 3; i++)
    calls[i] = (sl_program_call){.op = ops[i],
                                 .attrs = {.rotary.heads = heads[i]},
                                 .nin = 1,
                                 .nout = 1,
                                 .in_type = &x,
                                 .out_type = &x,
                                 .in = &place,
                                 .out = &place};
  sl_program program = {.ncalls = 3, .calls = calls, .nbases = 1};
  CHECK(!sl_queue_cuda.prepare(&program, 0), "angles: %s", sl_detail());
  const sli_cuda_call *made[3];
  for (int i = 0; i < 3; i++) made[i] = calls[i].state;
  CHECK(made[0]->state == made[1]->state && made[0]->state != made[2]->state,
        "there is one table for the same angles");
  sl_queue_cuda.release(&program);
}

/* Checks attention as computed by GPUs without warpgroup instructions. */
static void check_older_attention(void) {
  setenv("SLUICE_EMULATED_MAJOR", "8", 1);
  for (size_t i = 0; i < sizeof claims / sizeof *claims; i++)
    if (claims[i].op == &sl_op_attention && sl_type_last(&claims[i].in[0]) % 64 == 0)
      check_claim(&claims[i], true);
  unsetenv("SLUICE_EMULATED_MAJOR");
}

static int check_row(const char *name) {
  const sl_op *op = sl_op_find(name);
  CHECK(op, "there is no row %s", name);
  for (int bf16 = 0; bf16 < 2; bf16++) {
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++)
      if (claims[i].op == op) check_claim(&claims[i], bf16);
    check_math_claims(bf16, op);
  }
  return 0;
}

int main(int argc, char **argv) {
  uint64_t seed = seed_of(argc, argv, 1);
  bool small = IS_EMULATED || (argc > 2 && !strcmp(argv[2], "small"));
  for (int i = 0; i < 200; i++) numbers_of_squares[i] = (float)(i * i);
  need_gpu();
  seed_random(seed);
  if (argc > 3) return check_row(argv[3]);
  RUN(check_every_row_is_there);
  for (int bf16 = 0; bf16 < 2; bf16++) {
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++)
      if (!is_left_out(i, bf16)) RUN(check_claim, &claims[i], bf16);
    if (is_left_out(2, bf16)) continue; /* the rest only in f32 */
    RUN(check_math_claims, bf16, NULL);
    for (size_t i = 0; i < sizeof large_claims / sizeof *large_claims && !small; i++)
      RUN(check_claim, &large_claims[i], bf16);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) RUN(check_cut, &cuts[i], bf16);
    for (int i = 0; i < 2 && !bf16; i++) RUN(check_documents, 5 * i);
    if (!small) RUN(check_cut, &large_cut, bf16);
    RUN(check_packed, bf16);
    RUN(check_long_rows, &sl_op_linear, bf16);
    RUN(check_long_rows, &sl_op_linear_b, bf16);
    RUN(check_rounded_gradient, bf16);
    for (int64_t columns = 33; columns < 42; columns++) RUN(check_odd_logits, columns, 1, bf16);
    RUN(check_odd_logits, 8205, -INFINITY, bf16);
    RUN(check_odd_logits, 40, NAN, bf16);
  }
  if (IS_EMULATED) RUN(check_older_attention);
  RUN(check_positions, &sl_op_position, (sl_attrs){.place.length = 12, .place.first = 3}, 2,
      (const sl_type[]){F32(2, 5, 33), F32(12, 33)});
  RUN(check_positions, &sl_op_rotary,
      (sl_attrs){.rotary.heads = 2, .place.length = 12, .place.first = 3}, 1,
      (const sl_type[]){F32(2, 5, 32)});
  RUN(check_angles_are_shared);
  RUN(check_embeddings, small);
  RUN(check_update, 16384 * 2 + 3);
  RUN(check_update, 70);
  RUN(check_parts_and_sums);
  RUN(check_join_of_parts, &sl_op_cross_entropy_join, 7, 1);
  RUN(check_join_of_parts, &sl_op_log_probability_join, 7, 1);
  RUN(check_weighted_loss_of_parts, 7, 1);
  RUN(check_join_of_parts, &sl_op_cross_entropy_join, 300, 3);
  RUN(check_join_of_parts, &sl_op_log_probability_join, 300, 3);
  RUN(check_weighted_loss_of_parts, 300, 3);
  for (int dtype = 0; dtype < SL_DTYPE_COUNT; dtype++) RUN(check_fill, (sl_dtype)dtype);
  return 0;
}
