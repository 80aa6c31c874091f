/* SPDX-License-Identifier: Apache-2.0 */
/* The shipped ops: one const row each.
 *
 * Notation: `...` is any number of leading dims, together R rows; f32 unless said otherwise; [x] is
 * an optional input. An output without consumers may be NULL. Gradients are f32. "acc" marks
 * outputs that honour call->accumulate; other outputs are overwritten. An op named *_b computes
 * gradients of inputs (class B), *_w gradients of weights (class W). "x: type only" means that the
 * op reads only the type of x. */
#ifndef SLUICE_OPS_H
#define SLUICE_OPS_H

#include <sluice/experts.h>
#include <sluice/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- products ------------------------------------------------------------ */

/* linear(x [..., K], w [N, K], [bias [N]], [packed]) -> y [..., N] = x w^T + bias.
 * attrs.product.transposed: w is [K, N] and y = x w + bias (GPT-2's Conv1D).
 * linear_b(dy [..., N], w, [packed]) -> dx [..., K] = dy w.
 * linear_w(x, dy) -> dw (acc) = dy^T x, shaped as w.
 * bias_w(dy [..., N]) -> db [N] (acc) = sum of dy's rows. */
extern const sl_op sl_op_linear, sl_op_linear_b, sl_op_linear_w, sl_op_bias_w;

/* pack(w) -> the input `packed` of linear and linear_b: the weight rounded to bf16 in the machine's
 * preferred order, as a sufficiently large bf16 array. attrs.product.transposed is that of the
 * linear map, attrs.product.rows = R the rows of its x.
 *
 * Products in bf16: operands are rounded to bf16 (to nearest, ties to even), products are summed in
 * f32. A linear map and its input gradient compute in bf16 if they get `packed`, and then read only
 * the type of w; linear_w and attention compute in bf16 with attrs.numbers.bf16. */
extern const sl_op sl_op_pack;

/* Returns the implementation of bf16 products on this machine's CPU: "amx-bf16", "avx512-bf16",
 * "bfmmla" (ARM64), "emulated", or NULL if there is none. "emulated" is slow and meant for tests;
 * the environment variable SLUICE_CPU_BF16 selects it: =1 needs AVX-512; =tiles emulates AMX in
 * portable code. */
const char *sl_cpu_bf16(void);
/* Returns the matrix product implementation on this machine's CPU, in bf16 or f32: "tiles",
 * "vectors" (built-in kernels), "oneDNN 2.6.0", or several. Summation orders differ between them,
 * so their results differ in bits. */
const char *sl_cpu_products(bool bf16);

/* matmul(a [..., M, K], b [..., K, N]) -> [..., M, N]: one product for each position of the leading
 * dims, which broadcast by NumPy's rules. attrs.product.left_transposed: a is [..., K, M];
 * attrs.product.transposed: b is [..., N, K]. matmul_left_b(a, b, dy) -> da (acc), a: type only;
 * matmul_right_b(a, b, dy) -> db (acc), b: type only. */
extern const sl_op sl_op_matmul, sl_op_matmul_left_b, sl_op_matmul_right_b;

/* ---- tables -------------------------------------------------------------- */

/* embedding(ids i32 [...], table [V, C]) -> [..., C]: row ids[r] of the table. An id outside [0, V)
 * gives a row of NaN, so that the loss shows it. With attrs.place.partial the table is the rows of
 * a larger table from attrs.place.first on; ids outside it give zeros. embedding_w(ids, dy [...,
 * C], table) -> dtable [V, C] (acc); table: type only. */
extern const sl_op sl_op_embedding, sl_op_embedding_w;

/* position(x [B, T, C], table [P, C]), P >= T -> x[b, t] + table[t]; for a piece, t counts from
 * call->tick.row.
 * position_w(dy [B, T, C], table) -> dtable [P, C] (acc): sum over b; zero for rows from T on;
 * table: type only. */
extern const sl_op sl_op_position, sl_op_position_w;

/* embedding_bag(ids i32 [..., L], table [V, C], [weights [..., L]]), attrs.user = sl_bag or NULL ->
 * [..., C]: the sum of the table rows of each bag of L ids, each times its weight; or their mean,
 * without weights. 0 if all ids are padding. attrs.place.first and attrs.place.partial as above.
 * embedding_bag_w(ids, dy, table, [weights]) -> dtable (acc); table: type only.
 * embedding_bag_b(ids, dy, table) -> dweights. */
typedef struct sl_bag {
  bool mean;
  bool pads; /* `padding` is the id of padding: it adds nothing and does not count in a mean */
  int32_t padding;
} sl_bag;
extern const sl_op sl_op_embedding_bag, sl_op_embedding_bag_w, sl_op_embedding_bag_b;

/* ---- indexed -------------------------------------------------------------- */

/* Indexing along the dim d whose bit is set in attrs.along.axes (none: the last). index is i32,
 * with as many dims as x. In dims other than d it has x's length, or length 1, which applies it to
 * all positions.
 *
 * gather(x, index) -> y: y[.., i, ..] = x[.., index[.., i, ..], ..], as PyTorch's gather and
 * index_select. x is f32 or i32. gather_b(index, dy, x) -> dx (acc), zeros at positions not
 * indexed; x: type only.
 * scatter_add(src, index, [x]) -> y = x, or zeros of length attrs.place.whole along d; then y[..,
 * index[.., i, ..], ..] += src[.., i, ..], in order of i.
 *
 * An index outside [0, length) ends a run on CPUs; on GPUs it gives a NaN (for i32: -1), so that
 * the loss shows it. With attrs.place.partial the indexed array is the part from attrs.place.first
 * on of a larger array of length attrs.place.whole; indices outside it give zeros and add nothing.
 */
extern const sl_op sl_op_gather, sl_op_gather_b, sl_op_scatter_add;

/* one_hot(ids i32 [...]), attrs.one_hot.classes = n -> f32 [..., n]: 1 at the id, 0 elsewhere. An
 * invalid id is treated like an invalid index above. */
extern const sl_op sl_op_one_hot;

/* ---- constants ------------------------------------------------------------ */

/* constant([like]), attrs.user = sl_values -> its values, or attrs.fill.value everywhere. Only the
 * shape of `like` matters: a device or piece that has a part of it gets that part of the values.
 * Without `like`, every piece has all values. arange(like) -> i32, in the shape of `like`: each
 * element's position in the whole, along the dim whose bit is set in attrs.along.axes (none: the
 * last). */
typedef struct sl_values {
  sl_type type;       /* f32 or i32 */
  const void *values; /* all values, row-major; NULL: attrs.fill.value */
} sl_values;
extern const sl_op sl_op_constant, sl_op_arange;

/* cast(x) -> f32 from i32; or i32 from f32, rounded towards 0, clamped to i32's range, 0 for NaN.
 * No gradient.
 * to_f32(x f64) -> f32 of the same shape, to_f64(x f32 scalar) -> f64 scalar, with gradients: for a
 * mean used as a factor, or a product used as a loss. */
extern const sl_op sl_op_cast, sl_op_to_f32, sl_op_to_f64;

/* ---- element by element -------------------------------------------------- */

/* add(a, b) -> a + b, mul(a, b) -> a * b; equal shapes.
 * mul_b(a, b, dy) -> da = b dy, db = a dy. */
extern const sl_op sl_op_add, sl_op_mul, sl_op_mul_b;

/* gelu(x) -> x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): the tanh form of
 * Hendrycks & Gimpel, arXiv 1606.08415. gelu_b(x, dy) -> dx. */
extern const sl_op sl_op_gelu, sl_op_gelu_b;

/* relu(x) -> max(x, 0); relu_b(y, dy) -> dx, zero where y is zero.
 * tanh(x) -> y; tanh_b(y, dy) -> dx = dy (1 - y^2). */
extern const sl_op sl_op_relu, sl_op_relu_b, sl_op_tanh, sl_op_tanh_b;

/* swiglu(gate, up) -> gate sigmoid(gate) up: Shazeer, arXiv 2002.05202, as in
 * LLaMA. swiglu_b(gate, up, dy) -> dgate, dup. */
extern const sl_op sl_op_swiglu, sl_op_swiglu_b;

/* Functions of one number, for f32 of any shape or an f64 scalar (a loss):
 *   silu(x) -> x s(x), with s the sigmoid: Elfwing et al., arXiv 1702.03118. silu_b(x, dy) -> dx.
 *   sigmoid(x) -> s(x); sigmoid_b(y, dy) -> dx = dy y (1 - y).
 *   exp(x) -> e^x; exp_b(y, dy) -> dx = dy y. log(x) -> ln x; log_b(x, dy) -> dx = dy / x.
 *   sqrt(x); sqrt_b(y, dy) -> dx = dy / (2 y). rsqrt(x) -> 1 / sqrt(x); rsqrt_b(y, dy) -> dx =
 *     -dy y^3 / 2. abs(x); abs_b(x, dy) -> dx = dy sign(x), 0 at 0.
 *   clamp(x) -> x, limited to [attrs.function.c, attrs.function.u]; clamp_b(x, dy) -> dx = dy
 *     where x is within the bounds, else 0.
 *   softcap(x) -> c tanh(x / c), with c = attrs.function.c above 0: the soft cap on logits and
 * attention scores (Gemma Team, "Gemma 2", arXiv 2408.00118); softcap_b(y, dy) -> dx = dy (1 - (y /
 * c)^2). gelu_erf(x) -> x P(x), with P(x) = (1 + erf(x / sqrt 2)) / 2: the exact form, PyTorch's
 *     default. gelu_erf_b(x, dy) -> dx = dy (P(x) + x e^(-x^2/2) / sqrt(2 pi)).
 *   erf(x) -> 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x; erf_b(x, dy) -> dx =
 *     dy 2 / sqrt(pi) e^(-x^2).
 *   sin(x), cos(x); sin_b(x, dy) -> dx = dy cos x; cos_b(x, dy) -> dx = -dy sin x.
 *   softplus(x) -> ln(1 + e^x), and x above 20, as in PyTorch; softplus_b(x, dy) -> dx = dy s(x).
 *   floor(x) -> the largest integer not above x; detach(x) -> x. Both stop the gradient.
 *   neg(x) -> -x, scale(x) -> x attrs.function.c: each is its own gradient; add_constant(x) -> x +
 *     attrs.function.c. */
extern const sl_op sl_op_silu, sl_op_silu_b, sl_op_sigmoid, sl_op_sigmoid_b, sl_op_exp, sl_op_exp_b,
    sl_op_log, sl_op_log_b, sl_op_sqrt, sl_op_sqrt_b, sl_op_rsqrt, sl_op_rsqrt_b, sl_op_abs,
    sl_op_abs_b, sl_op_clamp, sl_op_clamp_b, sl_op_softcap, sl_op_softcap_b, sl_op_neg, sl_op_scale,
    sl_op_add_constant, sl_op_gelu_erf, sl_op_gelu_erf_b, sl_op_erf, sl_op_erf_b, sl_op_sin,
    sl_op_sin_b, sl_op_cos, sl_op_cos_b, sl_op_softplus, sl_op_softplus_b, sl_op_floor,
    sl_op_detach;

/* Functions of two numbers, for f32 arrays that broadcast by NumPy's rules, or for two f64
 * scalars (losses). Broadcasting matches dims from the last one on; of two lengths one may be 1.
 *   add_broadcast(a, b) -> a + b, sub(a, b) -> a - b, mul_broadcast(a, b) -> a b,
 *   div(a, b) -> a / b, maximum(a, b), minimum(a, b).
 *   NAME_b(a, b, dy) -> da (acc), db (acc): summed over the dims in
 *     which a, or b, is repeated. Where both are equal, maximum and minimum give each half.
 *     add_broadcast_b, sub_b: a and b type only.
 *   lt, le, gt, ge, eq, ne (a, b) -> i32, 1 if a < b and so on, else 0; for f32 or i32; no
 *     gradient.
 *   where(c i32, a, b) -> a where c is not 0, else b;
 *   where_b(c, a, b, dy) -> da (acc), db (acc). */
extern const sl_op sl_op_add_broadcast, sl_op_add_broadcast_b, sl_op_sub, sl_op_sub_b,
    sl_op_mul_broadcast, sl_op_mul_broadcast_b, sl_op_div, sl_op_div_b, sl_op_maximum,
    sl_op_maximum_b, sl_op_minimum, sl_op_minimum_b;
extern const sl_op sl_op_lt, sl_op_le, sl_op_gt, sl_op_ge, sl_op_eq, sl_op_ne, sl_op_where,
    sl_op_where_b;

/* ---- along dims ----------------------------------------------------------- */

/* Reductions over the dims whose bits are set in attrs.along.axes (none: all); with
 * attrs.along.keep the dims stay with length 1. reduce_sum(x) -> the sum, computed in f64, times
 * attrs.along.factor (0: 1). A result without dims is an f64 scalar, as losses are. reduce_sum_b(x,
 * dy) -> dx; x: type only. reduce_max(x) -> the largest element, and its index i32, counted along
 * those dims; the first on ties. reduce_max_b(x, places, dy) -> dx, nonzero at that element; x:
 * type only. mean(x) -> f64 scalar, over all of x: a loss. mean_b(x, dloss) -> dx; x: type only. */
extern const sl_op sl_op_reduce_sum, sl_op_reduce_sum_b, sl_op_reduce_max, sl_op_reduce_max_b,
    sl_op_mean, sl_op_mean_b;

/* softmax(x) -> e^x / sum e^x along the dim whose bit is set in attrs.along.axes (none: the last);
 * softmax_b(y, dy) -> dx = y (dy - sum y dy). log_softmax(x) -> x - log sum e^x;
 * log_softmax_b(y, dy) -> dx = dy - e^y sum dy. */
extern const sl_op sl_op_softmax, sl_op_softmax_b, sl_op_log_softmax, sl_op_log_softmax_b;

/* Ops along the dim whose bit is set in attrs.along.axes (none: the last).
 *   top_k(x), attrs.along.k = k -> the k largest in descending order, and their positions i32;
 *     ties are ordered by position. The gradient is gather_b's.
 *   cumsum(x) -> the sum up to and including each position; attrs.along.exclusive: excluding
 *     it; attrs.along.reverse: from each position to the end. For i32, or for f32 (summed in f64).
 *     cumsum_b(dy) -> dx. */
extern const sl_op sl_op_top_k, sl_op_cumsum, sl_op_cumsum_b;

/* copy(x) -> x (acc). */
extern const sl_op sl_op_copy;

/* ---- parts and sums ------------------------------------------------------- */

/* slice(x), attrs.user = sl_part -> that part of x, which may not be empty. Any dtype.
 * slice_b(dy, x) -> dx: dy at the slice's position, zeros elsewhere; x: type only. */
extern const sl_op sl_op_slice, sl_op_slice_b;

/* join(p0, p1, ...), attrs.user = sl_joint -> the whole, assembled from its parts. Any dtype. The
 * parts may come in any order and have any ranges, but all along one dim (or all SL_PART_FLAT), and
 * each position is in exactly one part. If the inputs are shorter than `type` along another dim
 * (pieces of sequences), so is the result. */
typedef struct sl_joint {
  sl_type type;         /* type of the whole */
  const sl_part *parts; /* [nin] */
} sl_joint;
extern const sl_op sl_op_join;

/* sum(x0, x1, ...) -> (x0 + x1) + ... in this order (acc: the sum is added to the old contents);
 * f32 or f64, all of one type. The gradient of each is dy. */
extern const sl_op sl_op_sum;

/* sum_part(x0, x1, ...), attrs.user = sl_part -> that part of their sum (acc), for CPUs. It equals
 * slices followed by a sum, and is used where the device can read all arrays. At most 64 inputs. */
extern const sl_op sl_op_sum_part;

/* split(x), attrs.along.axes = 1 << d, attrs.user = sl_lengths -> consecutive parts of these
 * lengths along dim d. The gradient is concat's. Any dtype. */
typedef struct sl_lengths {
  int count;
  const int64_t *lengths; /* [count] */
} sl_lengths;
extern const sl_op sl_op_split;

/* reshape(x), attrs.user = sl_reshaping -> the same elements in the same order in another shape.
 * The dims of both shapes form groups: the smallest runs of dims with equal products. A shard or
 * piece of x is shorter along the first dim of a group. Any dtype.
 * reshape_b(dy, x) -> dx, shaped as x; x: type only. */
typedef struct sl_reshaping {
  sl_type from, to; /* shapes of the whole; dtypes are ignored */
} sl_reshaping;
extern const sl_op sl_op_reshape, sl_op_reshape_b;

/* permute(x), attrs.shape.ndims, attrs.shape.dims: y's dim d is x's dim dims[d]. Any dtype.
 * permute_b(dy) -> dx: the inverse. */
extern const sl_op sl_op_permute, sl_op_permute_b;

/* expand(x, [like]), attrs.shape.ndims, attrs.shape.dims -> x broadcast by NumPy's rules to
 * attrs.shape.ndims dims. Where x has length 1, or no dim, y has the length of `like`, or else
 * dims[d] (0: 1). Where x is longer, dims[d] is 0 or x's length. f32 or i32. expand_b(dy, x) -> dx
 * (acc), sums; x: type only. */
extern const sl_op sl_op_expand, sl_op_expand_b;

/* concat(x0, x1, ...), attrs.along.axes = 1 << d -> the inputs one after another along dim d; equal
 * in all other dims. Any dtype but f64. concat_b(dy, x0, x1, ...) -> dx0, dx1, ...: one for each x;
 * x: types only. */
extern const sl_op sl_op_concat, sl_op_concat_b;

/* ---- random numbers -------------------------------------------------------- */

/* An element's random numbers (Philox 4x32-10) depend only on the run's seed, attrs.random.key, the
 * step and the element's index in the whole step (sl_call_where). They are the same for any
 * sharding of rows, columns and sequences, in the backward pass, and in a resumed run.
 *
 * dropout(x), attrs.distribution.dropped = p in [0, 1) -> x / (1 - p), or 0 with probability p:
 * Srivastava et al., JMLR 15, 2014. The gradient applies the same mask and factor to dy.
 * uniform(like) -> f32 in the shape of `like`, which may have any dtype and is not read: in
 * [attrs.distribution.low, attrs.distribution.high), in steps of 2^-24 of that range.
 * normal(like) -> f32 in the shape of `like`, with mean attrs.distribution.mean and standard
 * deviation attrs.distribution.deviation: Box and Muller, 1958. */
extern const sl_op sl_op_dropout, sl_op_uniform, sl_op_normal;

/* ---- norms --------------------------------------------------------------- */

/* layernorm(x [..., C], g [C], b [C]) -> y [..., C], mean [...], rstd [...]:
 * Ba et al., arXiv 1607.06450; variance over C (biased), attrs.norm.eps inside the
 * root. layernorm_b(x, g, mean, rstd, dy) -> dx. layernorm_w(x, mean, rstd, dy)
 * -> dg [C] (acc), db [C] (acc). */
extern const sl_op sl_op_layernorm, sl_op_layernorm_b, sl_op_layernorm_w;

/* rmsnorm(x [..., C], g [C]) -> y [..., C], rstd [...]: Zhang & Sennrich, arXiv
 * 1910.07467; y = x g / sqrt(mean(x^2) + attrs.norm.eps).
 * rmsnorm_b(x, g, rstd, dy) -> dx. rmsnorm_w(x, rstd, dy) -> dg [C] (acc). */
extern const sl_op sl_op_rmsnorm, sl_op_rmsnorm_b, sl_op_rmsnorm_w;

/* group_norm(x [N, C, ...], g [C], b [C]), attrs.norm.groups = G groups of C/G channels -> y, mean
 * [N, G], rstd [N, G]: Wu & He, arXiv 1803.08494; y = (x - mean) rstd g + b with the (biased)
 * variance of each image's group, attrs.norm.eps inside the root. With G = C it is instance norm.
 * group_norm_b(x, g, mean, rstd, dy) -> dx. group_norm_w(x, mean, rstd, dy) -> dg (acc), db
 * (acc). */
extern const sl_op sl_op_group_norm, sl_op_group_norm_b, sl_op_group_norm_w;

/* batch_norm(x [N, C, ...], g [C], b [C], mean [C], variance [C]) -> y, mean [C], rstd [C],
 * variance [C]: Ioffe & Szegedy, arXiv 1502.03167; y = (x - mean) rstd g + b with the mean and the
 * biased variance of a channel over all images, attrs.norm.eps inside the root. The last output is
 * the unbiased variance, which PyTorch keeps. With attrs.norm.given the op uses and returns the
 * given mean and variance; without it, they are not read. batch_norm_b(x, g, mean, rstd, dy) -> dx.
 * batch_norm_w(x, mean, rstd, dy) -> dg (acc), db (acc). */
extern const sl_op sl_op_batch_norm, sl_op_batch_norm_b, sl_op_batch_norm_w;

/* ---- spiking layers ------------------------------------------------------ */

/* Ops of a spiking linear layer (SpikingBrain: arXiv 2509.05276), y = V (s W8): integers s that a
 * train of spikes can carry, and a weight of int8.
 *
 * spikes(x [..., C]), attrs.spikes.k = k (0: 3) -> y [..., C], counts [..., 3]. Row by row
 *   V = clamp(mean|x| / k, 1e-5, 1e4)    s = round(x / V)    y = V s
 * with ties to even. counts: the number of zeros in s, the number of bits set in all |s| (of at
 * most 2^30), and C. The gradient is straight-through: dx = dy, since the derivative is 0 almost
 * everywhere.
 *
 * quantize(w [..., K]) -> w rounded to symmetric int8 in groups of 128 along K, the last group
 * possibly shorter: d round(w / d) with d = max|w| / 127 of the group. The gradient is
 * straight-through: dw is the gradient of the rounded weight.
 *
 * linear(spikes(x), quantize(w)) thus has the gradients dx = dy W8 and dw = dy^T (V s): a linear
 * map's own, at the rounded arguments. */
extern const sl_op sl_op_spikes, sl_op_quantize;

/* ---- attention ----------------------------------------------------------- */

/* rotary(x [B, T, H*D]), attrs.rotary.heads = H, attrs.rotary.theta -> same shape: Su et al., arXiv
 * 2104.09864, pairing dims j and j + D/2 of a head ("rotate half", the convention of LLaMA weights
 * in Hugging Face format). Position t rotates pair j by t theta^(-2j/D). rotary_b(dy) -> dx rotates
 * back. For keys with fewer heads set attrs.rotary.heads to the number of key heads. For a piece, t
 * counts from call->tick.row. attrs.user, if not NULL, is an sl_rope; only its `part` of a head is
 * rotated. */
extern const sl_op sl_op_rotary, sl_op_rotary_b;

/* Context extension: how rotary angles are scaled for contexts longer than a model was pretrained
 * with (formulas in ops/rope.c). sl_rope_parse lists the fields that each kind uses. */
typedef enum sl_rope_kind {
  SL_ROPE_PLAIN,
  SL_ROPE_LINEAR,
  SL_ROPE_LLAMA3,
  SL_ROPE_YARN,
  SL_ROPE_YARN_UNTRUNCATED, /* yarn with a blend whose ends are not rounded to whole pairs */
  SL_ROPE_LONGROPE,         /* a divisor per pair, by the context */
  SL_ROPE_PROPORTIONAL,     /* only the first pairs of a head turn */
  SL_ROPE_DUAL_CHUNK        /* positions in chunks, for sl_attend_dual */
} sl_rope_kind;
/* dual-chunk: rotation of keys (KEYS), and of queries for keys of the same chunk (OWN), of the
 * previous chunk (NEXT), and of all earlier chunks (FAR). */
typedef enum sl_rope_form { SL_ROPE_KEYS, SL_ROPE_OWN, SL_ROPE_NEXT, SL_ROPE_FAR } sl_rope_form;
enum { SL_ROPE_PAIRS = 256 }; /* most pairs of a head with divisors of their own */
typedef struct sl_rope {
  sl_rope_kind kind;
  double factor;    /* new context length / original */
  double original;  /* original context length, in positions */
  double low, high; /* llama3: low_freq_factor, high_freq_factor; yarn: beta_slow, beta_fast */
  double scale; /* attention_factor; 0: yarn: 0.1 ln(factor) + 1; longrope: sqrt(1 + ln(factor) /
                   ln(original)) */
  double part;  /* partial_rotary_factor: fraction of a head's D numbers, the first ones, that
                   is rotated as if it were the whole head; 0: all */
  double chunk, local; /* dual-chunk: chunk_size, local_size: a chunk has chunk - local positions */
  sl_rope_form form;   /* dual-chunk; not set by sl_rope_parse */
  double turning;      /* proportional: partial_rotary_factor: fraction of the pairs that turn */
  int pairs;           /* longrope: numbers in each of the lists, a divisor per pair */
  float shorter[SL_ROPE_PAIRS]; /* short_factor, for contexts up to the original */
  float longer[SL_ROPE_PAIRS];  /* long_factor, for longer ones */
  double context; /* longrope: positions that the model is made for; not set by sl_rope_parse */
} sl_rope;

/* Parses "none", "linear:factor=F", "llama3:factor=F,low_freq_factor=L,high_freq_factor=H,
 * original_max_position_embeddings=N" or "yarn:factor=F,original_max_position_embeddings=N"
 * [,beta_slow=S,beta_fast=F,attention_factor=A], or "yarn-untruncated:..." with the same settings,
 * or
 * "longrope:factor=F,original_max_position_embeddings=N,short_factor=A/B/...,long_factor=A/B/..."
 * [,attention_factor=A], or "proportional:" [factor=F,partial_rotary_factor=P],
 * or "dual-chunk:chunk_size=S,local_size=W" [,original_max_position_embeddings=N]; "" means "none".
 * All accept partial_rotary_factor=P. SL_E_USAGE says what is wrong. */
sl_status sl_rope_parse(const char *text, sl_rope *out);

/* attention(q [B, T, Hq*D], k [B, T, Hkv*D], v [B, T, Hkv*D], [ids i32 [B, T]]) -> o [B, T, Hq*D],
 * lse [B, Hq, T]. lse is the log of the softmax's sum.
 * attention_b(q, k, v, o, lse, do, [ids]) -> dq, dk, dv.
 *
 * Attention mask: causal, or none with attrs.attention.full. With attrs.attention.window = w > 0 a
 * query sees only keys less than w positions away (sliding window: Beltagy et al., arXiv
 * 2004.05150). With ids it sees only keys with the same id, and none if its id is negative. One
 * array of ids thus masks padding
 * (-1) and separates documents packed in a row. A query that sees no key gets zeros, lse 0 and no
 * gradient. Tiles of keys that are masked out entirely are skipped.
 *
 * attrs.attention.heads = Hq and attrs.attention.kv_heads = Hkv (0: Hq), which divides Hq; query
 * head h reads key head h / (Hq/Hkv). D is at most 512, and 256 in training on GPUs. Scores are
 * scaled by attrs.attention.scale (0: 1/sqrt(D)). Tiled with a running softmax after Dao et al.,
 * arXiv 2205.14135. */
extern const sl_op sl_op_attention, sl_op_attention_b;

/* Attention on one packed tensor qkv [B, T, (Hq + 2 Hkv)*D], q then k then v along the last dim
 * (GPT-2's c_attn): attention_packed(qkv, [ids]) -> o, lse.
 * attention_packed_b(qkv, o, lse, do, [ids]) -> dqkv. */
extern const sl_op sl_op_attention_packed, sl_op_attention_packed_b;

/* Causal block-sparse attention, over blocks of 64 keys: attention_blocks(q, k, v, blocks i32 [B,
 * Hq, N, n]) -> o, lse, N = T/64 rounded up. blocks[b, h, i] lists the blocks that queries 64 i ..
 * 64 i + 63 of head h attend to: the queries' block, then others in descending order, then -1. If
 * it lists all blocks, the result equals that of attention bit for bit. attrs as in attention,
 * without window and full. attention_blocks_b(q, k, v, blocks, o, lse, do) -> dq, dk, dv.
 *
 * choose_blocks(q, k) -> blocks i32 [B, Hq, N, n], recall [B, Hq]; no gradient. Query block i gets
 * min(attrs.attention.blocks, i + 1) blocks, or the fraction attrs.attention.share of its i + 1
 * blocks, rounded up, but at least two: the query block itself and the first block. Other blocks
 * are ranked by the scores of the last 64 queries, by column and by distance, and by the blocks'
 * means (ops/attention_blocks.c). recall: the fraction of the last 64 queries' softmax mass that
 * their blocks hold. */
extern const sl_op sl_op_attention_blocks, sl_op_attention_blocks_b, sl_op_choose_blocks;

/* Gated linear attention: a head keeps a state S [dk, dv] instead of the keys and values of all
 * positions (Katharopoulos et al., arXiv 2006.16236; Yang et al., arXiv 2312.06635).
 *
 *   S_t = diag(e^g_t) S_(t-1) + k_t^T v_t     o_t = scale q_t S_t
 *
 * linear_attention(q [B, T, heads dk], k [B, T, kv_heads dk], v [B, T, kv_heads dv], g) -> o [B, T,
 *   heads dv]. g, the logarithms of the gates, is [B, T, kv_heads dk], or [B, T, kv_heads]: one for
 *   all channels of a head. Or states share queries and keys (Mamba-2's groups: Dao and Gu, arXiv
 *   2405.21060): q and k [B, T, kv_heads dk], v [B, T, heads dv], g [B, T, heads].
 *   attrs.attention.heads, kv_heads; attrs.attention.scale (0: 1/sqrt(dk)). dk, dv <= 256.
 *   A row has the same bits in any batch and any piece.
 * linear_attention_b(q, k, v, g, o, do) -> dq, dk, dv, dg.
 * linear_attention_piece(q, k, v, g) -> o, before, state (updated): the states before and after the
 *   piece, [B, heads of v, dk dv].
 * linear_attention_piece_b(q, k, v, g, o, before, do) -> dq, dk, dv, dg, carry (updated): the
 *   gradients passed back to the previous piece, [B, heads dk dv + twice the gates of a position].
 * linear_attention_served(q, k, v, g, batch) -> o, states (updated) [attrs.pages.count, heads of v,
 * dk dv]: a sequence's state is in its slot (batch.h), and is zero before position 0. */
extern const sl_op sl_op_linear_attention, sl_op_linear_attention_b, sl_op_linear_attention_piece,
    sl_op_linear_attention_piece_b, sl_op_linear_attention_served;

/* Short causal depthwise convolution, as in front of Mamba-2's states:
 *
 *   y_t = bias + sum over j < W of w_(W-1-j) x_(t-j)
 *
 * causal_conv(x [B, T, C], w [C, W] or [C, 1, W], [bias [C]], [near], [positions]) -> y [B, T, C].
 *   W is at most 16. x is 0 before the first position. A row has the same bits in any batch and any
 *   piece. With the positions i32 [B, T] of tokens in their documents, x is 0 before
 *   each document.
 * causal_conv_b(w, dy, [near], [positions], [near positions]) -> dx.
 * causal_conv_w(x, dy, w, [before], [positions]) -> dw (acc); w: type only. The bias's gradient is
 *   bias_w.
 * causal_conv_piece(x, w, [bias], [near], [positions]) -> y, before, rows (updated): the last W - 1
 *   rows before the piece, and the piece's last W - 1 rows, [B, W - 1, C].
 * causal_conv_piece_b(w, dy, [near], [positions], [near positions]) -> dx, behind (updated): the
 *   first W - 1 rows of dy after the piece, 0 where a document begins there.
 * causal_conv_piece_w(x, dy, w, before, [positions]) -> dw (acc).
 * causal_conv_served(x, w, [bias], absent, absent, batch) -> y, rows (updated) [attrs.pages.count,
 * W - 1, C], by slot. near [B, W - 1, C] holds the rows of a neighbouring device if devices share a
 * sequence: the rows before x, or after dy (attrs.place.first: first position of the device's part
 * in its piece). */
extern const sl_op sl_op_causal_conv, sl_op_causal_conv_b, sl_op_causal_conv_w,
    sl_op_causal_conv_piece, sl_op_causal_conv_piece_b, sl_op_causal_conv_piece_w,
    sl_op_causal_conv_served;

/* The gated delta rule (Yang et al., arXiv 2412.06464): a state that maps keys to values; each
 * position corrects the value for its key by a fraction b of the error.
 *
 *   S' = diag(e^g_t) S_(t-1)   e_t = v_t - k_t S'   S_t = S' + k_t^T (b_t e_t)   o_t = scale q_t
 * S_t
 *
 * delta_rule(q [B, T, kv_heads dk], k alike, v [B, T, heads dv], g [B, T, heads n], b [B, T,
 * heads])
 *   -> o [B, T, heads dv], e alike. attrs.attention.heads, kv_heads (0: heads), scale, and bits, as
 * above. n is 1 or, if kv_heads is heads, dk: a gate per channel (Kimi Team, arXiv 2510.26692).
 * delta_rule_b(q, k, v, g, b, o, e, do) -> dq, dk, dv, dg, db.
 * delta_rule_piece(q, k, v, g, b) -> o, e, before, state (updated): [B, heads, dk dv].
 * delta_rule_piece_b(q, k, v, g, b, o, e, before, do) -> dq, dk, dv, dg, db, carry (updated) [B,
 *   heads dk dv + 2 heads n].
 * delta_rule_served(q, k, v, g, b, batch) -> o, e, states (updated) [attrs.pages.count, heads, dk
 * dv]. */
extern const sl_op sl_op_delta_rule, sl_op_delta_rule_b, sl_op_delta_rule_piece,
    sl_op_delta_rule_piece_b, sl_op_delta_rule_served;

/* Attention of one piece [B, n] of sequences cut along T; attrs.place.length = T. The piece begins
 * at position r = call->tick.row, and pieces come in order. kv [B, T, 2 Hkv*D], updated in place,
 * holds k then v of all positions so far: the call writes the piece's rows and reads rows 0 ..
 * r+n-1. `all` [B, T] does the same for ids.
 * attention_piece(q, k, v, [ids]) -> o, lse, kv, and with ids `all`.
 * attention_packed_piece(qkv, [ids]) -> o, lse, kv, q, and with ids `all`; q is for the backward
 * pass.
 *
 * Backward, the pieces come in reverse order. dkv, updated in place, accumulates the gradients of k
 * and v of every position from later pieces; the last piece (r+n = T) resets it.
 * attention_piece_b(q, kv, o, lse, do, [all]) -> dq, dk, dv, dkv.
 * attention_packed_piece_b(q, kv, o, lse, do, [all]) -> dqkv, dkv.
 *
 * Recomputation in the backward pass, when kv and `all` are complete:
 * attention_piece_again(q, k, v, [ids], kv, [all]) -> o, lse, absent, [absent]: k, v may be absent.
 * attention_packed_piece_again(qkv, [ids], kv, [all]) -> o, lse, absent, q, [absent]. */
extern const sl_op sl_op_attention_piece, sl_op_attention_piece_b, sl_op_attention_piece_again,
    sl_op_attention_packed_piece, sl_op_attention_packed_piece_b,
    sl_op_attention_packed_piece_again;

/* Attention of a piece, called for each piece of keys up to the queries' piece, in order
 * (sl_call_cut): attention_sweep(q, kv, [ids]) -> o, lse (final after the last call), tail, seen
 * (carried from call to call), and `all`.
 * attention_sweep_b(q, kv, o, lse, do, [all]) -> dq, dkv, record.
 * attention_parts(q, k, v), _packed_parts(qkv) -> q, kv: k then v [B, n, 2 Hkv*D]. */
extern const sl_op sl_op_attention_parts, sl_op_attention_parts_b, sl_op_attention_packed_parts,
    sl_op_attention_packed_parts_b, sl_op_attention_sweep, sl_op_attention_sweep_b;

/* documents(tokens i32 [B, T]) -> ids i32 [B, T], the number of attrs.tokens.end tokens before each
 * token in its row; positions i32 [B, T], counted from the document's first token. All tokens of a
 * document, including its end token, have the same id. No gradient.
 * documents_piece(tokens [B, n]) -> ids, positions, record i32 [B, 2], updated in place: the number
 * of documents that have ended, and the start of the current one. */
extern const sl_op sl_op_documents, sl_op_documents_piece;

/* ---- images ---------------------------------------------------------------- */

/* Sliding of a window over images: first along the height, then along the width. 0 means the
 * default. For sequences, x [N, C, W], which are treated as images of height 1, the second of each
 * pair applies and the first is 0. */
typedef struct sl_window {
  int64_t size[2];     /* size of a pool [the whole image]; a convolution's kernel gives its own */
  int64_t stride[2];   /* step between windows [1; for a pool its size] */
  int64_t pad[2];      /* positions added on both sides; for a pool at most half its size */
  int64_t dilation[2]; /* step between elements of the kernel [1]; not for pools */
  int64_t groups;      /* groups of channels, convolved independently [1] */
} sl_window;

/* conv(x [N, C, H, W], w [O, C/groups, h, w], [bias [O]]), attrs.user = sl_window or NULL -> y
 * [N, O, H', W'], with
 *   H' = (H + 2 pad - dilation (h - 1) - 1) / stride + 1, W' likewise,
 *   y[n, o, i, j] = bias[o] + sum over c, k, l of
 *       w[o, c, k, l] x[n, c of o's group, i stride - pad + k dilation, ...].
 * x is 0 beyond its edges. This is the cross-correlation that frameworks call convolution (LeCun et
 * al., Gradient-based learning, 1998). For sequences: x [N, C, W], w [O, C/groups, w].
 * conv_b(dy, w, x) -> dx, x: type only; conv_w(x, dy, w) -> dw (acc), w: type only.
 * channel_sum(dy [N, O, ...]) -> db [O] (acc). */
extern const sl_op sl_op_conv, sl_op_conv_b, sl_op_conv_w, sl_op_channel_sum;

/* max_pool(x [N, C, H, W] or [N, C, W]), attrs.user = sl_window or NULL -> y, the largest element
 * of each window, without the padding. H' as in conv, without dilation.
 * max_pool_b(x, dy) -> dx: the gradient goes to the first of equal maxima, in row-major order.
 * mean_pool(x) -> y, the mean of each window; padding counts as 0.
 * mean_pool_b(dy, x) -> dx; x: type only. */
extern const sl_op sl_op_max_pool, sl_op_max_pool_b, sl_op_mean_pool, sl_op_mean_pool_b;

/* ---- losses -------------------------------------------------------------- */

/* cross_entropy(logits [..., V], targets i32 [...]) -> loss f64 scalar, the mean
 * over rows of lse - logits[target]; lse [...]. A target outside [0, V) makes
 * the loss NaN.
 * cross_entropy_b(logits, targets, lse, dloss scalar) -> dlogits =
 * (softmax - onehot) dloss / R. */
extern const sl_op sl_op_cross_entropy, sl_op_cross_entropy_b;

/* Cross entropy on logits sharded by columns; a device's columns begin at attrs.place.first:
 * cross_entropy_part(logits [..., v], targets) -> part [..., 3]: the row's largest logit, the sum
 * of exp(x - largest), and the target's logit, or 0 if the target is not among the columns.
 * cross_entropy_join(parts [..., 3 R]) -> loss, lse as in cross_entropy. A target that is in no
 * part is not detected. cross_entropy_b with attrs.place.partial computes dlogits of the columns.
 */
extern const sl_op sl_op_cross_entropy_part, sl_op_cross_entropy_join;

/* log_probability(logits [..., V], targets i32 [...]) -> y [...] = logits[target] - lse, with the
 * lse of cross_entropy, bit for bit; lse [...]. NaN for a target outside [0, V).
 * log_probability_b(logits, targets, lse, dy [...]) -> dlogits = (onehot - softmax) dy.
 * On logits sharded by columns, log_probability_part(logits [..., v], targets) -> part [..., 3] as
 * cross_entropy_part's, but NaN as the logit of a target outside [0, attrs.place.whole);
 * log_probability_join(parts [..., 3 R]) -> y, lse. */
extern const sl_op sl_op_log_probability, sl_op_log_probability_b, sl_op_log_probability_part,
    sl_op_log_probability_join;

/* Settings of sl_cross_entropy_with(), each as in PyTorch's cross_entropy. 0 means the default. */
typedef struct sl_loss {
  int32_t ignore;       /* rows with this target are ignored [-100]; write SL_IGNORE(id) for an id
                           that may be 0 */
  float smoothing;      /* label smoothing: weight divided among all classes [0] */
  const float *weights; /* [classes] weight of a row with this target, not negative [all 1];
                           copied */
} sl_loss;
#define SL_IGNORE(id) ((id) ? (id) : INT32_MIN)

/* target_weight(targets i32 [...], [weights [V]]) -> f64 scalar: the sum over rows of
 * weights[target], or 1; 0 where the target is attrs.loss.ignore. Every device and piece gets the
 * sum over the whole microbatch. If rows are sharded or sequences cut, the computation of the
 * targets is replicated, so it must not depend on parameters.
 *
 * weighted_cross_entropy(logits [..., V], targets i32 [...], total f64 scalar, [weights [V]]), with
 * e = attrs.loss.smoothing, u = attrs.loss.spread (e / V) and w the weights -> loss f64 scalar, the
 * sum of (1 - e) w[target] (lse - logits[target]) + u sum_c w[c] (lse - logits[c]) over the rows
 * whose target is not attrs.loss.ignore, divided by total; lse [...]. Ignored rows are not read,
 * and their lse is 0. total = 0 means that all rows are ignored; the loss is then 0. A target
 * outside [0, V) gives NaN. Label smoothing: Szegedy et al., arXiv 1512.00567.
 * weighted_cross_entropy_b(logits, targets, lse, total, dloss scalar, [weights]) -> dlogits, 0 in
 * ignored rows. */
extern const sl_op sl_op_target_weight, sl_op_weighted_cross_entropy,
    sl_op_weighted_cross_entropy_b;

/* share(x f64 or f32 scalar), attrs.user = const double or NULL: the call's fraction of a
 * microbatch's rows -> x times that fraction (NULL: x). Turns the mean over a part's rows into the
 * part's contribution to the whole mean. The graph inserts it after means other than the loss. */
extern const sl_op sl_op_share;

/* Weighted cross entropy on logits sharded by columns from attrs.place.first on; all devices have
 * all weights: weighted_cross_entropy_part(logits [..., v], targets, total, [weights]) -> part
 * [..., 4]: the row's largest logit, the sum of exp(x - largest), the factor of lse in the loss,
 * and the amount subtracted for the columns' logits; all 0 for an ignored row.
 * weighted_cross_entropy_join(parts [..., 4 R]) -> loss, lse. */
extern const sl_op sl_op_weighted_cross_entropy_part, sl_op_weighted_cross_entropy_join;

/* mse(y, t) -> loss f64 scalar, the mean of (y - t)^2 over all elements.
 * mse_b(y, t, dloss scalar) -> dy. */
extern const sl_op sl_op_mse, sl_op_mse_b;

/* ---- ends of the graph --------------------------------------------------- */

/* fill() -> attrs.fill.value everywhere, in the type that attrs.user points to. */
extern const sl_op sl_op_fill;

/* A data source: sl_op_source's attrs.user. fill() writes all of out[nout] (NULL for outputs
 * without consumers) for one tick. Any thread may call it, and it must always return the same data
 * for the same tick. */
typedef struct sl_source {
  int nout;
  const sl_type *types; /* [nout] types of a whole microbatch */
  void (*fill)(void *ctx, const sl_tick *tick, void *const *out);
  void *ctx;
  /* 1 + the sequence dim of all outputs, if fill() can supply pieces: if tick->rows is not 0,
   * tick->rows positions of that dim from tick->row on. 0: whole microbatches only. */
  int cut;
  /* Evaluation: fills microbatch tick->microbatch of held-out data. held_out: number of whole
   * microbatches. held_out_rest: valid rows of one more microbatch, which is filled completely; the
   * data after these rows is ignored. Rows must then be dim 0 of all outputs. NULL, 0: no held-out
   * data. */
  void (*fill_held_out)(void *ctx, const sl_tick *tick, void *const *out);
  int held_out, held_out_rest;
  /* Waits for data on devices that hold no values. Returns 0 if fill() has data, else the time
   * (sl_runtime_now) at which to call again; UINT64_MAX: after any event. May block on the real
   * clock. NULL: data is always available. */
  uint64_t (*await)(void *ctx, const sl_tick *tick);
  int behind; /* > 0, inference: fill() may block; it is called for a tick when the tick this many
                 before it has delivered its results */
} sl_source;

/* source() -> sl_source.nout outputs. The op's nout is -1, since the record determines the
 * number. */
extern const sl_op sl_op_source;

/* A sink: sl_op_report's attrs.user. The values are valid during the call only. */
typedef struct sl_sink {
  void (*take)(void *ctx, const sl_tick *tick, int n, const void *const *values);
  void *ctx;
  void (*passed)(void *ctx, const sl_tick *tick); /* called instead of take() on devices that hold
                                                     no values; may be NULL */
} sl_sink;

/* report(values...) -> nothing. */
extern const sl_op sl_op_report;

/* ---- update -------------------------------------------------------------- */

/* sumsq(g0, g1, ...) -> f64 scalar: the sum of squares of g0 + g1 + ..., all of one shape (parts of
 * one gradient). */
extern const sl_op sl_op_sumsq;

/* clip(s0 f64, s1 f64, ...), attrs.user = sl_optimizer -> scale scalar =
 * min(1, clip / (norm + 1e-6)), 1 when clip is 0; norm f64 scalar = the root of
 * the sum of all s, added in order of the arguments. */
extern const sl_op sl_op_clip;

/* Optimizers: rule(scale scalar, g0, g1, ...), attrs.user = sl_optimizer -> p and its states in
 * place, with the type of g0. Notation: g = scale (g0 + g1 + ...); t is the step of the call's
 * tick, counted from 1; d is the decay of this tensor (optimizer.h).
 *
 * adamw -> p, m, v: m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
 *   p = p - lr d p - lr (m/(1-b1^t)) / (sqrt(v/(1-b2^t)) + eps)
 *   (Loshchilov & Hutter, arXiv 1711.05101, Algorithm 2, the schedule folded into lr)
 * adam -> p, m, v: as adamw with g + d p for g, and no other decay (arXiv 1412.6980)
 * sgd -> p, momentum: g = g + d p; u = b u + g; p = p - lr (nesterov ? g + b u : u)
 *   (as PyTorch's; Sutskever et al., ICML 2013). Without momentum, u = g is not kept.
 * lion -> p, m: p = p - lr (sign(b1 m + (1-b1) g) + d p); m = b2 m + (1-b2) g
 *   (Chen et al., arXiv 2302.06675, Algorithm 2)
 * muon -> p, m, of two dims: m = b m + (1-b) g, u = (1-b) g + b m, with b the momentum;
 *   X = u / max(norm of u, 1e-7), transposed if it has more rows than columns; five times
 *   X = 3.4445 X - 4.775 (X X^T) X + 2.0315 (X X^T)^2 X;
 *   p = p - lr d p - lr sqrt(max(1, rows / columns)) X
 *   (Jordan et al., Muon, 2024; as PyTorch's, whose X is in bf16) */
extern const sl_op sl_op_adamw, sl_op_adam, sl_op_sgd, sl_op_lion, sl_op_muon;

/* keep(), attrs.user = the sl_type of p -> p in place, unchanged. Carries a frozen parameter over
 * to the next step. */
extern const sl_op sl_op_keep;

/* Running statistics. With momentum m, microbatches 0 .. M-1 in order move p towards their values
 * v, p = (1 - m) p + m v. That is p = (1 - m)^M p + sum of m (1 - m)^(M-1-i) v_i.
 *   running_part(v), attrs.running.momentum = m, attrs.running.microbatches = M -> microbatch i's
 * summand (acc); v itself if m is 0, for statistics that are sums. running(part, p),
 * attrs.running.factor = (1 - m)^M -> p attrs.running.factor + part. replace(x) -> p in place, set
 * to x. */
extern const sl_op sl_op_running_part, sl_op_running, sl_op_replace;

#ifdef __cplusplus
}
#endif
#endif
