/* SPDX-License-Identifier: Apache-2.0 */
/* Random graphs over all ops that a model can use. Each op has a case, which makes a new tensor
 * [rows, positions, C] from existing ones. If an op of ops.def that declares sharding or pieces
 * (sl_op_cut.pieces, signatures) has no case, every test that draws such graphs fails. */
#ifndef SLUICE_TESTS_SUPPORT_RANDOM_GRAPHS_H
#define SLUICE_TESTS_SUPPORT_RANDOM_GRAPHS_H

#include <stdio.h>
#include <sluice/frames.h>

#include <sluice/attention.h>
#include <sluice/functions.h>

#include "graph/passes/passes.h"
#include "ops/functions.h"
#include "ops/ops.h"
#include "tests/support/kernel_call.h"

enum { GRAPH_OPS = 12, GRAPH_TENSORS = 64, GRAPH_VOCAB = 11, GRAPH_MICROBATCHES = 2 };

typedef struct making {
  sl_graph *g;
  int64_t rows, positions;
  int nparams, count;
  sl_tensor *ids;                    /* i32 [rows, positions] */
  sl_tensor *tensors[GRAPH_TENSORS]; /* f32 [rows, positions, C], with any width C */
} making;

static inline int chance(int n) { return (int)(random_bits() % (uint64_t)n); }

static inline sl_tensor *param2(making *m, int64_t a, int64_t b) {
  return sl_param(m->g, SL_TYPE(SL_F32, a, b), SL_NORMAL(0.3f), "w%d", m->nparams++);
}
static inline sl_tensor *param1(making *m, int64_t n, float at) {
  return sl_param(m->g, SL_TYPE(SL_F32, n), SL_CONSTANT(at), "w%d", m->nparams++);
}

static inline sl_tensor *dense(making *m, sl_tensor *x, int64_t out) {
  int64_t in = sl_dim(x, -1);
  sl_tensor *bias = chance(2) ? param1(m, out, 0.1f) : NULL;
  return chance(2) ? sl_linear(m->g, x, param2(m, out, in), bias)
                   : sl_linear_transposed(m->g, x, param2(m, in, out), bias);
}

/* Makes another tensor, as wide as x. */
static inline sl_tensor *another(making *m, sl_tensor *x) {
  sl_tensor *y = m->tensors[chance(m->count)];
  return sl_dim(y, -1) == sl_dim(x, -1) ? y : dense(m, y, sl_dim(x, -1));
}

/* Makes positive values near 1. */
static inline sl_tensor *positive(making *m, sl_tensor *x) {
  return sl_add_constant(m->g, sl_scale(m->g, sl_tanh(m->g, x), 0.5f), 1);
}

static inline sl_tensor *apply1(making *m, const sl_op *op, sl_attrs attrs, sl_tensor *x) {
  return sl_op1_at(SL_HERE, m->g, op, &attrs, x);
}

static inline sl_tensor *heads_of(making *m, sl_tensor *x, int heads) {
  return sl_reshape(m->g, x, m->rows, m->positions, heads, -1);
}
static inline sl_tensor *flat_of(making *m, sl_tensor *x) {
  return sl_reshape(m->g, x, m->rows, m->positions, -1);
}
static inline sl_tensor *ids3_of(making *m) {
  return sl_reshape(m->g, m->ids, m->rows, m->positions, 1);
}

/* Makes i32 constants in [0, below), one for each of n positions of a dim. */
static inline sl_tensor *numbers(making *m, int64_t below, int64_t n, int dim) {
  sl_type type = SL_TYPE(SL_I32, 1, 1, 1);
  type.dim[dim] = n;
  int32_t values[GRAPH_TENSORS];
  for (int64_t i = 0; i < n; i++) values[i] = chance((int)below);
  return sl_constant(m->g, type, values, NULL);
}

/* Makes the mean square of all of x plus a constant, as an f64 scalar. */
static inline sl_tensor *by_square(making *m, sl_tensor *x) {
  return sl_add_constant(m->g, sl_mean(m->g, sl_mul(m->g, x, x), 0, false), 0.5f);
}

/* ---- cases ----------------------------------------------------------------------- */

/* Dims that a case mixes: graphs that are sharded or split along them do not use the case. */
enum { MIXES_POSITIONS = 1, MIXES_ROWS = 2 };

typedef sl_tensor *growing(making *m, sl_tensor *x);
typedef struct graph_case {
  const sl_op *op; /* the op that the case calls */
  int mixes;
  growing *grow;
} graph_case;

/* clang-format off */
#define CASES(X)                                                                                  \
  X(linear, linear, 0, dense(m, x, 3 + chance(14)))                                               \
  X(layernorm, layernorm, 0, sl_layernorm(g, x, param1(m, C, 1), param1(m, C, 0), 1e-5f))         \
  X(rmsnorm, rmsnorm, 0, sl_rmsnorm(g, x, param1(m, C, 1), 1e-5f))                                \
  X(spikes, spikes, 0, sl_spikes(g, x, 1 + chance(4), NULL))                                       \
  X(quantize, quantize, 0, sl_linear(g, x, sl_quantize(g, param2(m, 3 + chance(9), C)), NULL))     \
  X(plane_values, plane_values, 0, sl_linear(g, x, apply1(m, &sl_op_plane_values, (sl_attrs){.planes.base = 2, .planes.width = 4}, param2(m, 3 + chance(9), C)), NULL)) \
  X(bit_choice, bit_choice, 0, choose_bits(m, x))                                                 \
  X(attention, attention, 0, attend(m, x, false))                                                 \
  X(attention_packed, attention_packed, 0, attend(m, x, true))                                    \
  X(linear_attention, linear_attention, 0, attend_linearly(m, x))                                 \
  X(attention_blocks, attention_blocks, MIXES_POSITIONS, attend_blocks(m, x))                     \
  X(attention_sinks, attention_sinks, 0, attend_sinks(m, x))                                      \
  X(attention_dual, attention_dual, MIXES_POSITIONS, attend_dual(m, x))                           \
  X(choose_blocks, choose_blocks, MIXES_POSITIONS, attend_blocks(m, x))                           \
  X(choose_tokens, choose_tokens, MIXES_POSITIONS, attend_tokens(m, x))                           \
  X(attention_chosen, attention_chosen, MIXES_POSITIONS, attend_tokens(m, x))                     \
  X(index_loss, index_loss, MIXES_POSITIONS, attend_tokens(m, x))                                 \
  X(delta_rule, delta_rule, 0, follow_deltas(m, x))                                               \
  X(causal_conv, causal_conv, 0, convolve_causally(m, x))                                         \
  X(documents, documents, 0, by_document(m, x))                                                   \
  X(rotary, rotary, 0, sl_rotary(g, dense(m, x, 8), 2, 10000))                                    \
  X(position, position, 0, sl_position(g, x, param2(m, m->positions + chance(3), C)))             \
  X(splice, splice, MIXES_POSITIONS, spliced(m, x)) X(marks, marks, MIXES_POSITIONS, spliced(m, x)) \
  X(embedding, embedding, 0, sl_mul(g, x, sl_embedding(g, m->ids, param2(m, GRAPH_VOCAB, C))))    \
  X(swiglu, swiglu, 0, sl_swiglu(g, x, dense(m, x, C)))                                           \
  X(gelu, gelu, 0, sl_gelu(g, x)) X(relu, relu, 0, sl_relu(g, x)) X(tanh, tanh, 0, sl_tanh(g, x)) \
  X(silu, silu, 0, sl_silu(g, x)) X(sigmoid, sigmoid, 0, sl_sigmoid(g, x))                        \
  X(exp, exp, 0, sl_exp(g, sl_tanh(g, x))) X(log, log, 0, sl_log(g, positive(m, x)))              \
  X(sqrt, sqrt, 0, sl_sqrt(g, positive(m, x))) X(rsqrt, rsqrt, 0, sl_rsqrt(g, positive(m, x)))    \
  X(abs, abs, 0, sl_abs(g, x)) X(clamp, clamp, 0, sl_clamp(g, x, -0.4f, 0.7f)) X(neg, neg, 0, sl_neg(g, x)) \
  X(softcap, softcap, 0, sl_softcap(g, x, 1.5f))                                                  \
  X(gelu_erf, gelu_erf, 0, sl_gelu_erf(g, x)) X(erf, erf, 0, sl_erf(g, x))                        \
  X(sin, sin, 0, sl_sin(g, x)) X(cos, cos, 0, sl_cos(g, sl_scale(g, x, 3)))                       \
  X(softplus, softplus, 0, sl_softplus(g, x))                                                     \
  X(function, function, 0, apply1(m, &sl_op_function, (sl_attrs){.function.number = SLI_FUNCTION_asinh}, x)) \
  X(function2, function2, 0, by_angle(m, x))                                                      \
  X(whole, whole, 0, sl_add(g, x, as_integers(m, false)))                                         \
  X(whole_reduce, whole_reduce, MIXES_POSITIONS, sl_add(g, x, as_integers(m, true)))              \
  X(floor, floor, 0, sl_add(g, x, sl_scale(g, sl_floor(g, sl_scale(g, x, 4)), 0.25f)))            \
  X(detach, detach, 0, sl_mul(g, x, sl_detach(g, sl_tanh(g, x))))                                 \
  X(to_f32, to_f32, MIXES_POSITIONS | MIXES_ROWS, sl_div(g, x, sl_cast(g, by_square(m, x), SL_F32)))           \
  X(to_f64, to_f64, MIXES_POSITIONS | MIXES_ROWS, sl_mul(g, x, sl_cast(g, sl_cast(g, sl_cast(g, by_square(m, x), SL_F32), SL_F64), SL_F32))) \
  X(scale, scale, 0, sl_scale(g, x, 0.7f)) X(add_constant, add_constant, 0, sl_add_constant(g, x, -0.3f)) \
  X(copy, copy, 0, apply1(m, &sl_op_copy, (sl_attrs){0}, x))                                      \
  X(add, add, 0, sl_add(g, x, another(m, x))) X(mul, mul, 0, sl_mul(g, x, another(m, x)))         \
  X(sum, sum, 0, sl_add_all(g, 3, ((sl_tensor *[]){x, another(m, x), sl_tanh(g, x)})))            \
  X(add_broadcast, add_broadcast, 0, sl_add(g, x, param1(m, C, 0.5f)))                            \
  X(mul_broadcast, mul_broadcast, 0, by_mean(m, x))                                               \
  X(sub, sub, 0, sl_sub(g, x, sl_mean(g, x, SL_DIM(2), true)))                                    \
  X(div, div, 0, sl_div(g, x, positive(m, another(m, x))))                                        \
  X(maximum, maximum, 0, sl_maximum(g, x, another(m, x)))                                         \
  X(minimum, minimum, 0, sl_minimum(g, x, param1(m, 1, 0.2f)))                                    \
  X(lt, lt, 0, pick(m, x, &sl_op_lt)) X(le, le, 0, pick(m, x, &sl_op_le))                         \
  X(gt, gt, 0, pick(m, x, &sl_op_gt)) X(ge, ge, 0, pick(m, x, &sl_op_ge))                         \
  X(eq, eq, 0, pick(m, x, &sl_op_eq)) X(ne, ne, 0, pick(m, x, &sl_op_ne))                         \
  X(where, where, 0, sl_where(g, sl_eq(g, ids3_of(m), sl_filled(g, SL_TYPE(SL_I32, 1), 3, NULL)), x, \
                       sl_scale(g, x, -0.5f)))                                                    \
  X(reduce_sum, reduce_sum, 0, sl_add(g, x, sl_sum(g, another(m, x), SL_DIM(2), true)))           \
  X(reduce_sum_2, reduce_sum, MIXES_POSITIONS, sl_add(g, x, sl_mean(g, x, SL_DIM(1), true)))      \
  X(reduce_max, reduce_max, 0, sl_sub(g, x, sl_max(g, x, SL_DIM(2), true)))                       \
  X(reduce_max_2, reduce_max, MIXES_POSITIONS, sl_sub(g, x, sl_max(g, x, SL_DIM(1), true)))       \
  X(softmax, softmax, 0, sl_softmax(g, x, -1)) X(log_softmax, log_softmax, 0, sl_log_softmax(g, x, -1)) \
  X(softmax_2, softmax, MIXES_POSITIONS, sl_softmax(g, x, 1))                                     \
  X(log_probability, log_probability, 0, sl_add(g, x, tell(m, x)))                                \
  X(matmul, matmul, 0, sl_matmul(g, x, param2(m, 5, C), false, true))                             \
  X(matmul_2, matmul, MIXES_POSITIONS, look_around(m, x))                                         \
  X(reshape, reshape, 0, flat_of(m, sl_tanh(g, heads_of(m, dense(m, x, 12), 4))))                 \
  X(permute, permute, 0, flat_of(m, sl_transpose(g, heads_of(m, dense(m, x, 12), 3), -1, -2)))    \
  X(slice, slice, 0, sl_slice(g, x, -1, C / 3, C - C / 3 - C / 4))                                \
  X(split, split, 0, halves(m, dense(m, x, 8)))                                                   \
  X(concat, concat, 0, sl_concat(g, -1, 2, ((sl_tensor *[]){x, m->tensors[chance(m->count)]})))   \
  X(dropout, dropout, 0, sl_dropout(g, x, 0.3f)) X(uniform, uniform, 0, sl_mul(g, x, sl_uniform(g, x, 0.5f, 1))) \
  X(normal, normal, 0, sl_add(g, x, sl_normal(g, x, 0, 0.3f)))                                    \
  X(expand, expand, 0, sl_add(g, x, sl_expand(g, sl_mean(g, x, SL_DIM(2), true), -1, -1, C)))     \
  X(expand_2, expand, 0, sl_mul(g, x, sl_expand_like(g, param1(m, C, 0.8f), x)))                  \
  X(gather, gather, 0, sl_gather(g, x, -1, numbers(m, C, 1 + chance(9), 2)))                      \
  X(gather_2, gather, 0, sl_gather(g, dense(m, x, GRAPH_VOCAB), -1, ids3_of(m)))                  \
  X(gather_3, gather, MIXES_POSITIONS, sl_gather(g, x, 1, numbers(m, m->positions, m->positions, 1))) \
  X(gather_4, gather, MIXES_ROWS, sl_gather(g, x, 0, numbers(m, m->rows, m->rows, 0)))            \
  X(scatter_add, scatter_add, 0, sl_scatter_sum(g, x, -1, numbers(m, 5, C, 2), 5))                \
  X(scatter_add_2, scatter_add, 0, sl_scatter_add(g, x, -1, numbers(m, C, 4, 2), dense(m, x, 4))) \
  X(scatter_add_3, scatter_add, MIXES_ROWS, sl_scatter_add(g, x, 0, numbers(m, m->rows, m->rows, 0), another(m, x))) \
  X(top_k, top_k, 0, sl_top_k(g, x, -1, 1 + chance((int)SLI_MIN(C, 3)), NULL))                    \
  X(top_k_2, top_k, 0, best(m, x))                                                                \
  X(cumsum, cumsum, 0, sl_cumsum(g, x, -1, chance(2), chance(2)))                                 \
  X(cumsum_2, cumsum, MIXES_POSITIONS, sl_cumsum(g, x, 1, chance(2), chance(2)))                  \
  X(one_hot, one_hot, 0, sl_mul(g, dense(m, x, GRAPH_VOCAB), sl_one_hot(g, m->ids, GRAPH_VOCAB))) \
  X(cast, cast, 0, sl_mul(g, x, sl_scale(g, sl_cast(g, ids3_of(m), SL_F32), 0.2f)))               \
  X(constant, constant, 0, known(m, x)) X(arange, arange, 0, by_position(m, x))                   \
  X(embedding_bag, embedding_bag, 0, bag(m, x, false)) X(embedding_bag_2, embedding_bag, 0, bag(m, x, true)) \
  X(grouped_linear, grouped_linear, 0, by_expert(m, x)) X(combine, combine, 0, by_expert(m, x))   \
  X(expert_limit, expert_limit, 0, by_expert(m, x))                                               \
  X(group_norm, group_norm, MIXES_POSITIONS, turned(m, x, &sl_op_group_norm))                     \
  X(batch_norm, batch_norm, MIXES_POSITIONS | MIXES_ROWS, turned(m, x, &sl_op_batch_norm))        \
  X(conv, conv, MIXES_POSITIONS, turned(m, x, &sl_op_conv))                                       \
  X(max_pool, max_pool, MIXES_POSITIONS, turned(m, x, &sl_op_max_pool))                           \
  X(mean_pool, mean_pool, MIXES_POSITIONS, turned(m, x, &sl_op_mean_pool))
/* clang-format on */

static inline sl_tensor *attend(making *m, sl_tensor *x, bool packed) {
  int kv = 2 + chance(3), heads = kv * (1 + chance(2));
  int64_t D = 2 * (1 + chance(3));
  if (packed) return sl_attention_packed(m->g, dense(m, x, (heads + 2 * kv) * D), heads, kv);
  sl_tensor *q = sl_rotary(m->g, dense(m, x, heads * D), heads, 10000);
  sl_tensor *k = sl_rotary(m->g, dense(m, x, kv * D), kv, 10000);
  return sl_attention(m->g, q, k, dense(m, x, kv * D), heads, kv);
}

/* Applies the map of the expert given by the token's id; no token is dropped. */
static inline sl_tensor *by_expert(making *m, sl_tensor *x) {
  const sl_attrs all = {.experts.count = GRAPH_VOCAB, .experts.factor = GRAPH_VOCAB};
  sl_tensor *weights = sl_sigmoid(m->g, dense(m, x, 1)); /* [B, T, 1] */
  sl_tensor *ids = sl_op2_at(SL_HERE, m->g, &sl_op_expert_limit, &all, ids3_of(m), weights);
  sl_tensor *w = sl_param(m->g, SL_TYPE(SL_F32, GRAPH_VOCAB, 5, sl_dim(x, -1)), SL_NORMAL(0.3f),
                          "w%d", m->nparams++);
  return sl_combine(m->g, sl_tanh(m->g, sl_grouped_linear(m->g, x, ids, w)), weights);
}

/* Keeps the number of each token that another number chooses. */
static inline sl_tensor *choose_bits(making *m, sl_tensor *x) {
  sl_tensor *p = sl_gather(m->g, x, -1, numbers(m, sl_dim(x, -1), 3, 2)), *chosen;
  p = sl_reshape(m->g, sl_detach(m->g, p), m->rows, m->positions, 1, 3);
  chosen = sl_op2_at(SL_HERE, m->g, &sl_op_bit_choice, NULL, p, ids3_of(m));
  return sl_mul(m->g, dense(m, x, 3), flat_of(m, chosen));
}

/* Takes a mean over any width, including 1. */
static inline sl_tensor *by_mean(making *m, sl_tensor *x) {
  sl_tensor *mean = sl_mean(m->g, x, SL_DIM(2), true);
  return sl_op2_at(SL_HERE, m->g, &sl_op_mul_broadcast, NULL, mean, another(m, x));
}

/* Puts the mean of each row into one of its positions. */
static inline sl_tensor *spliced(making *m, sl_tensor *x) {
  int32_t *tokens = sl_graph_alloc(m->g, (size_t)(m->rows * m->positions) * sizeof *tokens);
  for (int64_t r = 0; r < m->rows; r++) tokens[r * m->positions + chance((int)m->positions)] = 7;
  sl_tensor *at, *y, *mean = sl_mean(m->g, x, SL_DIM(1), false);
  at = sl_constant(m->g, SL_TYPE(SL_I32, m->rows, m->positions), tokens, m->ids);
  sl_apply(m->g, &sl_op_marks, &((sl_attrs){.tokens.each = 1, .tokens.marker = 7}), 1, &at, 0, &at);
  sl_apply(m->g, &sl_op_splice, &((sl_attrs){.tokens.each = 1}), 3, ((sl_tensor *[]){x, mean, at}),
           0, &y);
  return y;
}

/* Adds gated linear attention, with gates for channels or heads. */
static inline sl_tensor *attend_linearly(making *m, sl_tensor *x) {
  int kv = 2 * (1 + chance(2)), heads = kv * (1 + chance(2)), D = 2 + chance(3);
  sl_tensor *q = dense(m, x, heads * D), *k = dense(m, x, kv * D), *v = dense(m, x, kv * D);
  sl_tensor *gates = dense(m, x, chance(2) ? kv * D : kv);
  gates = sl_neg(m->g, sl_softplus(m->g, gates));
  return sl_linear_attention(m->g, q, k, v, gates,
                             &(sl_attention_attrs){.heads = heads, .kv_heads = kv});
}

/* Attends to chosen blocks, and scales by their recall. */
static inline sl_tensor *attend_blocks(making *m, sl_tensor *x) {
  int kv = 2 * (1 + chance(2)), heads = kv * (1 + chance(2)), D = 2 * (1 + chance(3));
  sl_tensor *q = dense(m, x, heads * D), *k = dense(m, x, kv * D), *v = dense(m, x, kv * D);
  return sl_attend_blocks(
      m->g, q, k, v,
      &((sl_attention_attrs){.heads = heads, .kv_heads = kv, .blocks = 2 + chance(2)}), NULL);
}

/* Attends to the tokens that an indexer chooses, and scales by the loss of the indexer. */
static inline sl_tensor *attend_tokens(making *m, sl_tensor *x) {
  int heads = 2 * (1 + chance(2)), D = 2 * (1 + chance(3));
  const sl_attention_attrs attrs = {.heads = heads};
  sl_tensor *index[] = {dense(m, x, 2 * D), dense(m, x, D), dense(m, x, 2)};
  sl_tensor *q = dense(m, x, heads * (D + 2)), *c = dense(m, x, 5), *k = dense(m, x, 2);
  sl_tensor *w = param2(m, heads * 2 * D, 5);
  sl_tensor *chosen = sl_choose_tokens(m->g, index[0], index[1], index[2], 2, 1 + chance(4));
  sl_tensor *loss = sl_index_loss(m->g, index, q, c, k, w, chance(3) ? chosen : NULL, &attrs);
  return sl_mul(m->g, sl_attend_chosen(m->g, q, c, k, w, chosen, &attrs),
                sl_add_constant(m->g, sl_reshape(m->g, loss, m->rows, m->positions, 1), 1));
}

/* Attends with sinks. */
static inline sl_tensor *attend_sinks(making *m, sl_tensor *x) {
  int kv = 2 * (1 + chance(2)), heads = kv * (1 + chance(2)), D = 2 * (1 + chance(3));
  sl_tensor *q = dense(m, x, heads * D), *k = dense(m, x, kv * D), *v = dense(m, x, kv * D);
  const sl_attention_attrs attrs = {.heads = heads, .kv_heads = kv, .window = chance(2) ? 3 : 0};
  return sl_attend_sinks(m->g, q, k, v, param1(m, heads, 0.3f), NULL, &attrs);
}

/* Attends by chunks. */
static inline sl_tensor *attend_dual(making *m, sl_tensor *x) {
  int kv = 2 * (1 + chance(2)), heads = kv * (1 + chance(2)), D = 2 * (1 + chance(3));
  sl_tensor *q = dense(m, x, heads * D), *k = dense(m, x, kv * D), *v = dense(m, x, kv * D);
  const sl_rope rope = {.kind = SL_ROPE_DUAL_CHUNK, .chunk = 80, .local = 16, .part = 1};
  const sl_attention_attrs attrs = {.heads = heads, .kv_heads = kv, .window = chance(2) ? 3 : 0};
  return sl_attend_dual(m->g, q, k, v, 100, &rope, &attrs);
}

/* Adds the gated delta rule. */
static inline sl_tensor *follow_deltas(making *m, sl_tensor *x) {
  int few = 2 * (1 + chance(2)), heads = few * (1 + chance(2)), D = 2 + chance(3);
  sl_tensor *q = dense(m, x, few * D), *k = dense(m, x, few * D), *v = dense(m, x, heads * D);
  int each = heads == few && chance(2) ? D : 1; /* gates of a head */
  sl_tensor *gates = sl_neg(m->g, sl_softplus(m->g, dense(m, x, heads * each)));
  k = sl_scale(m->g, sl_tanh(m->g, k), 0.5f);
  return sl_delta_rule(m->g, q, k, v, gates, sl_sigmoid(m->g, dense(m, x, heads)),
                       &(sl_attention_attrs){.heads = heads, .kv_heads = few});
}

/* Adds a short convolution whose width several devices can shard by heads. */
static inline sl_tensor *convolve_causally(making *m, sl_tensor *x) {
  int64_t C = 4 * (1 + chance(3));
  sl_tensor *bias =
      chance(2) ? sl_param(m->g, SL_TYPE(SL_F32, C), SL_NORMAL(0.3f), "w%d", m->nparams++) : NULL;
  return sl_causal_conv(m->g, dense(m, x, C), param2(m, C, 1 + chance(4)), bias);
}

/* Adds attention within documents, with or without a window, and positions within documents. */
static inline sl_tensor *by_document(making *m, sl_tensor *x) {
  sl_tensor *at, *ids = sl_documents(m->g, m->ids, 2, &at);
  const sl_attention_attrs attrs = {.heads = 2, .window = chance(4)};
  sl_tensor *y = chance(2) ? sl_attend_packed_within(m->g, dense(m, x, 24), ids, &attrs)
                           : sl_attend_within(m->g, dense(m, x, 8), dense(m, x, 8), dense(m, x, 8),
                                              ids, &attrs);
  at = sl_reshape(m->g, at, m->rows, m->positions, 1);
  return sl_add(m->g, y, sl_scale(m->g, sl_cast(m->g, at, SL_F32), 0.1f));
}

/* Computes log-probabilities of the tokens, [rows, positions, 1]. */
static inline sl_tensor *tell(making *m, sl_tensor *x) {
  sl_tensor *y = sl_log_probability(m->g, dense(m, x, GRAPH_VOCAB), m->ids);
  return sl_reshape(m->g, sl_scale(m->g, y, 0.2f), m->rows, m->positions, 1);
}

static inline sl_tensor *pick(making *m, sl_tensor *x, const sl_op *by) {
  sl_tensor *y = another(m, x);
  return sl_where(m->g, sl_op2_at(SL_HERE, m->g, by, NULL, x, y), y, sl_scale(m->g, x, 0.5f));
}

/* Adds attention to all positions, built from basic ops. */
static inline sl_tensor *look_around(making *m, sl_tensor *x) {
  sl_tensor *at[3];
  for (int i = 0; i < 3; i++) at[i] = sl_transpose(m->g, heads_of(m, dense(m, x, 8), 2), 1, 2);
  sl_tensor *scores = sl_matmul(m->g, at[0], at[1], false, true);
  sl_tensor *y = sl_matmul(m->g, sl_softmax(m->g, scores, -1), at[2], false, false);
  return flat_of(m, sl_transpose(m->g, y, 1, 2));
}

static inline sl_tensor *halves(making *m, sl_tensor *x) {
  sl_tensor *of[2];
  sl_split(m->g, x, -1, 2, NULL, of);
  return sl_mul(m->g, of[1], sl_sigmoid(m->g, of[0]));
}

/* Gathers the values of the wider of two tensors at the positions of the other's largest values. */
static inline sl_tensor *best(making *m, sl_tensor *x) {
  sl_tensor *places, *y = m->tensors[chance(m->count)];
  bool narrower = sl_dim(y, -1) < sl_dim(x, -1);
  sl_top_k(m->g, narrower ? y : x, -1, 1, &places);
  return sl_gather(m->g, narrower ? x : y, -1, places);
}

/* Takes the angle between two tensors, or between one and a number for each channel. */
static inline sl_tensor *by_angle(making *m, sl_tensor *x) {
  const sl_attrs attrs = {.function.number = SLI_FUNCTION2_atan2};
  sl_tensor *y = chance(2) ? another(m, x) : param1(m, sl_dim(x, -1), 0.5f);
  return sl_op2_at(SL_HERE, m->g, &sl_op_function2, &attrs, x, positive(m, y));
}

/* Computes small numbers from the tokens as integers, [rows, positions, 1], or from the largest
 * token of each row, [rows, 1, 1]. */
static inline sl_tensor *as_integers(making *m, bool largest) {
  const sl_attrs max = {
      .function.number = SLI_WHOLE_max, .along.axes = SL_DIM(1), .along.keep = true};
  const sl_attrs rest = {.function.number = SLI_WHOLE_remainder};
  sl_tensor *ids = ids3_of(m);
  if (largest) ids = apply1(m, &sl_op_whole_reduce, max, ids);
  sl_tensor *by = sl_filled(m->g, SL_TYPE(SL_I32, 1), 4, NULL);
  ids = sl_op2_at(SL_HERE, m->g, &sl_op_whole, &rest, ids, by);
  return sl_scale(m->g, sl_cast(m->g, ids, SL_F32), 0.2f);
}

static inline sl_tensor *known(making *m, sl_tensor *x) {
  float values[GRAPH_TENSORS];
  int64_t C = sl_dim(x, -1);
  for (int64_t c = 0; c < C && c < GRAPH_TENSORS; c++) values[c] = (float)(c % 5) / 3;
  if (chance(2) && C <= GRAPH_TENSORS)
    return sl_mul(m->g, x, sl_constant(m->g, SL_TYPE(SL_F32, C), values, NULL));
  float *all = sl_graph_alloc(m->g, (size_t)sl_type_elements(&x->type) * sizeof *all);
  for (int64_t i = 0; i < sl_type_elements(&x->type); i++) all[i] = (float)(i * i % 37) / 20;
  return sl_add(m->g, x, sl_constant(m->g, x->type, all, x));
}

static inline sl_tensor *by_position(making *m, sl_tensor *x) {
  sl_tensor *mask = sl_lt(m->g, sl_arange(m->g, x, chance(3)), sl_arange(m->g, x, chance(3)));
  return sl_where(m->g, mask, x, sl_scale(m->g, x, 0.3f));
}

static inline sl_tensor *bag(making *m, sl_tensor *x, bool mean) {
  sl_tensor *ids = ids3_of(m), *two = sl_concat(m->g, -1, 2, ((sl_tensor *[]){ids, ids}));
  sl_tensor *table = param2(m, GRAPH_VOCAB, sl_dim(x, -1));
  const sl_bag of = {.mean = mean, .pads = chance(2), .padding = 2};
  sl_tensor *weights = mean ? NULL : sl_softmax(m->g, dense(m, x, 2), -1);
  return sl_add(m->g, x, sl_embedding_bag(m->g, two, table, weights, &of));
}

/* Treats the tensor as sequences of channels. */
static inline sl_tensor *turned(making *m, sl_tensor *x, const sl_op *op) {
  static const sl_window three = {.size = {0, 3}, .stride = {0, 1}, .pad = {0, 1}};
  static const sl_window padded = {.pad = {0, 1}};
  sl_tensor *y = sl_transpose(m->g, dense(m, x, 6), 1, 2);
  if (op == &sl_op_conv)
    y = sl_conv(m->g, y,
                sl_param(m->g, SL_TYPE(SL_F32, 4, 6, 3), SL_NORMAL(0.3f), "w%d", m->nparams++),
                param1(m, 4, 0.1f), &padded);
  else if (op == &sl_op_group_norm)
    y = sl_group_norm(m->g, y, 3, param1(m, 6, 1), param1(m, 6, 0), 0);
  else if (op == &sl_op_batch_norm)
    y = sl_batch_norm(m->g, y, param1(m, 6, 1), param1(m, 6, 0), param1(m, 6, 0), param1(m, 6, 1),
                      0.1f, 0);
  else y = op == &sl_op_max_pool ? sl_max_pool(m->g, y, &three) : sl_mean_pool(m->g, y, &three);
  return sl_transpose(m->g, y, 1, 2);
}

/* ---- drawing graphs ---------------------------------------------------------------- */

#define CASE(id, op, mixes, call)                               \
  static inline sl_tensor *grow_##id(making *m, sl_tensor *x) { \
    sl_graph *g = m->g;                                         \
    int64_t C = sl_dim(x, -1);                                  \
    (void)g, (void)C;                                           \
    return call;                                                \
  }
CASES(CASE)
#undef CASE

static const graph_case graph_cases[] = {
#define CASE(id, op, mixes, call) {&sl_op_##op, mixes, grow_##id},
    CASES(CASE)
#undef CASE
};

/* Losses that a graph may have. */
static const sl_op *const graph_losses[] = {&sl_op_cross_entropy, &sl_op_mse, &sl_op_mean,
                                            &sl_op_weighted_cross_entropy, &sl_op_target_weight};

static inline sl_tensor *graph_loss(making *m, sl_tensor *logits, sl_tensor *targets) {
  static const sl_loss uneven = {.ignore = 3, .smoothing = 0.1f};
  sl_tensor *small = sl_mean(m->g, sl_mul(m->g, logits, sl_tanh(m->g, logits)), 0, false);
  switch (chance(5)) {
  case 0: return sl_mse(m->g, logits, sl_one_hot(m->g, targets, GRAPH_VOCAB));
  case 1: return small;
  case 2: return sl_cross_entropy_with(m->g, logits, targets, &uneven);
  case 3:
    return sl_add(m->g, sl_cross_entropy_with(m->g, logits, targets, &uneven),
                  sl_scale(m->g, small, 0.1f));
  default: return sl_cross_entropy(m->g, logits, targets);
  }
}

/* Adds the next tensor, by a case that mixes nothing in `forbidden`. */
static inline void grow(making *m, int forbidden) {
  const graph_case *c;
  do c = &graph_cases[chance((int)SLI_COUNT(graph_cases))];
  while (c->mixes & forbidden);
  int from = m->g->nnodes;
  sl_tensor *t = c->grow(m, m->tensors[chance(m->count)]);
  bool there = false;
  for (int i = from; i < m->g->nnodes; i++) there |= m->g->nodes[i]->op == c->op;
  CHECK(t && there, "a case of %s makes no call of it: %s", c->op->name, sl_detail());
  m->tensors[m->count++] = t;
}

/* Fills a microbatch's data, which does not depend on the piece that is requested. */
static inline void graph_numbers(void *ctx, const sl_tick *tick, void *const *out) {
  const making *m = ctx;
  uint64_t keep = random_state;
  int64_t count = tick->rows ? tick->rows : m->positions;
  seed_random((uint64_t)(tick->step * GRAPH_MICROBATCHES + tick->microbatch) + 77);
  for (int64_t i = 0; i < m->rows * m->positions; i++) {
    int64_t t = i % m->positions - tick->row, at = i / m->positions * count + t;
    for (int o = 0; o < 2; o++) {
      int32_t number = (int32_t)(random_bits() % GRAPH_VOCAB);
      if (out[o] && t >= 0 && t < count) ((int32_t *)out[o])[at] = number;
    }
  }
  random_state = keep;
}

/* Makes a graph that depends only on the seed, not on the number of pieces. Unread outputs are
 * added to the input of the loss, so that every parameter is trained. */
static inline sl_graph *random_graph(uint64_t seed, int forbidden, int pieces, making *m) {
  seed_random(seed);
  *m = (making){.g = sl_graph_create(
                    &(sl_graph_options){.microbatches = GRAPH_MICROBATCHES, .pieces = pieces})};
  m->rows = 4 + chance(5);
  m->positions = 4 + chance(5);
  sl_type *types = sl_graph_alloc(m->g, 2 * sizeof *types);
  types[0] = types[1] = SL_TYPE(SL_I32, m->rows, m->positions);
  sl_source *source = sl_graph_alloc(m->g, sizeof *source);
  *source = (sl_source){.nout = 2, .types = types, .fill = graph_numbers, .ctx = m, .cut = 2};
  sl_tensor *data[2];
  sl_data(m->g, source, data);
  m->ids = data[0];
  sl_tensor *table = param2(m, GRAPH_VOCAB, 4 + chance(9));
  m->tensors[m->count++] = sl_embedding(m->g, data[0], table);
  for (int i = 3 + chance(GRAPH_OPS - 3); i > 0; i--) grow(m, forbidden);
  sl_block(m->g, "head");
  sl_tensor *sum = NULL;
  for (int i = 0; i < m->count; i++) {
    int64_t width = sl_dim(m->tensors[i], -1);
    sl_tensor *x = sl_linear(m->g, m->tensors[i], param2(m, sl_dim(table, -1), width), NULL);
    sum = sum ? sl_add(m->g, sum, x) : x;
  }
  bool tied = chance(2);
  sl_tensor *to = tied ? table : param2(m, GRAPH_VOCAB, sl_dim(table, -1));
  sl_train(m->g, graph_loss(m, sl_linear(m->g, sum, to, NULL), data[1]), NULL);
  CHECK(!sl_graph_status(m->g), "seed %llu: %s", (unsigned long long)seed, sl_detail());
  return m->g;
}

/* ---- all ops ----------------------------------------------------------------------- */

static inline bool is_of_gradients(const sl_op *op, const sl_op *of) {
  for (int r = 0; r < SL_GRAD_RULES && of->grad[r].nwrt; r++)
    if (of->grad[r].op == op && !op->grad[0].nwrt) return true;
  return false;
}

/* Returns whether lowering adds this op itself: for backward passes, pieces, shards or storage
 * formats. */
static inline bool comes_along(const sl_op *op) {
  static const sl_op *const shares[] = {&sl_op_share,
                                        &sl_op_join,
                                        &sl_op_sum_part,
                                        &sl_op_cross_entropy_part,
                                        &sl_op_cross_entropy_join,
                                        &sl_op_log_probability_part,
                                        &sl_op_log_probability_join,
                                        &sl_op_weighted_cross_entropy_part,
                                        &sl_op_weighted_cross_entropy_join,
                                        &sl_op_linear_stored,
                                        &sl_op_linear_b_stored,
                                        &sl_op_embedding_stored,
                                        &sl_op_softmax_part,
                                        &sl_op_softmax_rescale};
  for (size_t i = 0; i < SLI_COUNT(shares); i++)
    if (shares[i] == op) return true;
  for (int i = 0; sl_ops[i]; i++)
    if (is_of_gradients(op, sl_ops[i]) || sli_op_cut(sl_ops[i])->pieced == op ||
        sl_ops[i]->rematerialized == op || sli_op_cut(sl_ops[i])->parts == op ||
        sli_op_cut(sl_ops[i])->swept == op || sli_op_cut(sl_ops[i])->shared == op)
      return true;
  return false;
}

static inline void check_every_row_has_a_case(void) {
  for (int i = 0; sl_ops[i]; i++) {
    const sl_op *op = sl_ops[i];
    bool promises = sli_op_cut(op)->pieces != SL_PIECES_REFUSED || sli_op_shard(op)->signatures,
         has = false;
    if (!promises || comes_along(op)) continue;
    for (size_t c = 0; c < SLI_COUNT(graph_cases); c++) has |= graph_cases[c].op == op;
    for (size_t l = 0; l < SLI_COUNT(graph_losses); l++) has |= graph_losses[l] == op;
    CHECK(has, "%s promises something of parts, and no random graph has it", op->name);
  }
}

#endif
