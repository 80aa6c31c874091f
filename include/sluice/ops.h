/* The shipped ops: one const row each.
 *
 * Notation: `...` is any number of leading dims, together R rows; f32 unless
 * said otherwise; [x] is an optional input. An output that nobody reads may be
 * NULL. Gradients are f32. "acc" marks outputs that honour call->accumulate;
 * what does not accumulate is overwritten. A row named *_b gives gradients of
 * inputs (class B), *_w gradients of weights (class W). */
#ifndef SLUICE_OPS_H
#define SLUICE_OPS_H

#include <sluice/experts.h>
#include <sluice/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- products ------------------------------------------------------------ */

/* linear(x [..., K], w [N, K], [bias [N]], [packed]) -> y [..., N] = x w^T + bias.
 * attrs.transposed: w is [K, N] and y = x w + bias (GPT-2's Conv1D).
 * linear_b(dy [..., N], w, [packed]) -> dx [..., K] = dy w.
 * linear_w(x, dy) -> dw (acc) = dy^T x, shaped as w.
 * bias_w(dy [..., N]) -> db [N] (acc) = sum of dy's rows. */
extern const sl_op sl_op_linear, sl_op_linear_b, sl_op_linear_w, sl_op_bias_w;

/* Products in bf16: operands are rounded to bf16 (to nearest, ties to even),
 * products are summed in f32. With `packed` a linear map and its input gradient
 * do so, and read w for its type only; linear_w and attention do so with attrs.bf16.
 * pack(w) with the attrs.transposed of the linear map and attrs.rows = R, the
 * rows of its x -> what linear takes as packed, what linear_b does: the rounded
 * weight in the machine's favourite order, as bf16 arrays large enough for it. */
extern const sl_op sl_op_pack;

/* How this machine's CPU multiplies bf16: "amx-bf16", "avx512-bf16", "emulated"
 * (slow, for tests: asked for by the environment variable SLUICE_CPU_BF16=1 where there is
 * AVX-512, and =tiles, which does in plain code what AMX does, anywhere), or NULL if it does not. */
const char *sl_cpu_bf16(void);
/* What multiplies matrices on this machine's CPU, in bf16 or f32: "tiles", "OpenBLAS 0.3.21", "oneDNN 2.6.0", or several.
 * Each adds up in an order of its own, so what one has computed another does not give bit by bit. */
const char *sl_cpu_products(bool bf16);

/* matmul(a [..., M, K], b [..., K, N]) -> [..., M, N]: a product for each position of the dims
 * before, which broadcast by NumPy's rules. attrs.left_transposed: a is [..., K, M];
 * attrs.transposed: b is [..., N, K]. matmul_left_b(a, b, dy) -> da (acc), a for its type only;
 * matmul_right_b(a, b, dy) -> db (acc), b for its type only. */
extern const sl_op sl_op_matmul, sl_op_matmul_left_b, sl_op_matmul_right_b;

/* ---- tables -------------------------------------------------------------- */

/* embedding(ids i32 [...], table [V, C]) -> [..., C]: row ids[r] of the table.
 * An id outside [0, V) gives a row of NaN, so that the loss shows it. With attrs.partial
 * the table is rows attrs.first .. of a larger one: other ids give zeros.
 * embedding_w(ids, dy [..., C], table) -> dtable [V, C] (acc). The table is
 * read for its type only. */
extern const sl_op sl_op_embedding, sl_op_embedding_w;

/* position(x [B, T, C], table [P, C]), P >= T -> x[b, t] + table[t]; of a piece,
 * t counts from call->tick.row on.
 * position_w(dy [B, T, C], table) -> dtable [P, C] (acc): sum over b; zero for
 * rows from T on. The table is read for its type only. */
extern const sl_op sl_op_position, sl_op_position_w;

/* embedding_bag(ids i32 [..., L], table [V, C], [weights [..., L]]), attrs.user = sl_bag or NULL ->
 * [..., C]: the sum of the rows that each bag of L ids names, each times its weight, or their mean,
 * for which there are no weights; 0 where none counts. attrs.first and attrs.partial as above.
 * embedding_bag_w(ids, dy, table, [weights]) -> dtable (acc); the table is read for its type only.
 * embedding_bag_b(ids, dy, table) -> dweights. */
typedef struct sl_bag {
  bool mean;
  bool pads;       /* `padding` is an id that stands for nothing: no row, and none in a mean */
  int32_t padding;
} sl_bag;
extern const sl_op sl_op_embedding_bag, sl_op_embedding_bag_w, sl_op_embedding_bag_b;

/* ---- indexed -------------------------------------------------------------- */

/* Along the dim d whose bit attrs.axes has (none: the last). index is i32, with as many dims as x,
 * and in each but d as long as x, or 1: then it holds for all positions.
 *
 * gather(x, index) -> y: y[.., i, ..] = x[.., index[.., i, ..], ..], as PyTorch's gather and
 * index_select. x of f32 or i32. gather_b(index, dy, x) -> dx (acc), zeros where nothing comes
 * back; x is read for its type only.
 * scatter_add(src, index, [x]) -> y = x, or zeros, attrs.count of them along d; then
 * y[.., index[.., i, ..], ..] += src[.., i, ..] for one i after the other.
 *
 * An index that is not in [0, length) ends a run on CPUs; on GPUs it gives a NaN (of i32: -1), so
 * that the loss shows it. With attrs.partial what is indexed are positions attrs.first .. of a
 * larger array, of which attrs.count says how long it is: others give zeros and add nothing. */
extern const sl_op sl_op_gather, sl_op_gather_b, sl_op_scatter_add;

/* one_hot(ids i32 [...]), attrs.count = n -> f32 [..., n]: 1 at the id, 0 elsewhere. What is no id
 * is as above. */
extern const sl_op sl_op_one_hot;

/* ---- constants ------------------------------------------------------------ */

/* constant([like]), attrs.user = sl_values -> its values, or attrs.value everywhere. A device that
 * has a part of `like`, of which only the shape counts, has that part of the values; so has a
 * piece. Without `like` pieces have all of it.
 * arange(like) -> i32, of the shape of `like`: each element's position along the dim whose bit
 * attrs.axes has (none: the last), in the whole. */
typedef struct sl_values {
  sl_type type;   /* f32 or i32 */
  const void *of; /* all of them, row-major; NULL: attrs.value */
} sl_values;
extern const sl_op sl_op_constant, sl_op_arange;

/* cast(x) -> f32 of i32; or i32 of f32, towards 0, the nearest there is where x is too large, 0
 * where x is no number. No gradient goes through. */
extern const sl_op sl_op_cast;

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

/* Functions of one number, of f32 of any shape or of an f64 scalar (a loss):
 * silu(x) -> x s(x), with s the sigmoid: Elfwing et al., arXiv 1702.03118. silu_b(x, dy) -> dx.
 * sigmoid(x) -> s(x); sigmoid_b(y, dy) -> dx = dy y (1 - y).
 * exp(x) -> e^x; exp_b(y, dy) -> dx = dy y. log(x) -> ln x; log_b(x, dy) -> dx = dy / x.
 * sqrt(x); sqrt_b(y, dy) -> dx = dy / (2 y). rsqrt(x) -> 1 / sqrt(x); rsqrt_b(y, dy) -> dx =
 * -dy y^3 / 2. abs(x); abs_b(x, dy) -> dx = dy sign(x), 0 at 0.
 * clamp(x) -> x, but at least attrs.value and at most attrs.upper; clamp_b(x, dy) -> dx = dy
 * where x is within the bounds, else 0.
 * neg(x) -> -x, scale(x) -> x attrs.value, which are their own gradients;
 * add_constant(x) -> x + attrs.value. */
extern const sl_op sl_op_silu, sl_op_silu_b, sl_op_sigmoid, sl_op_sigmoid_b, sl_op_exp, sl_op_exp_b,
    sl_op_log, sl_op_log_b, sl_op_sqrt, sl_op_sqrt_b, sl_op_rsqrt, sl_op_rsqrt_b, sl_op_abs,
    sl_op_abs_b, sl_op_clamp, sl_op_clamp_b, sl_op_neg, sl_op_scale, sl_op_add_constant;

/* Functions of two numbers, of f32 arrays that broadcast by NumPy's rules (dims are those from the
 * last on, and of two lengths one may be 1), or of two f64 scalars, as losses are:
 * add_broadcast(a, b) -> a + b, sub(a, b) -> a - b, mul_broadcast(a, b) -> a b, div(a, b) -> a / b,
 * maximum(a, b), minimum(a, b). NAME_b(a, b, dy) -> da (acc), db (acc): summed over the dims that
 * a, or b, repeats; where both are equal, maximum and minimum give each of them half. Of sums and
 * differences a and b are read for their types only.
 * lt, le, gt, ge, eq, ne (a, b) -> i32, 1 where a < b and so on, else 0; of f32 or of i32, and no
 * gradient goes through. where(c i32, a, b) -> a where c is not 0, else b; where_b(c, a, b, dy) ->
 * da (acc), db (acc). */
extern const sl_op sl_op_add_broadcast, sl_op_add_broadcast_b, sl_op_sub, sl_op_sub_b,
    sl_op_mul_broadcast, sl_op_mul_broadcast_b, sl_op_div, sl_op_div_b, sl_op_maximum,
    sl_op_maximum_b, sl_op_minimum, sl_op_minimum_b;
extern const sl_op sl_op_lt, sl_op_le, sl_op_gt, sl_op_ge, sl_op_eq, sl_op_ne, sl_op_where, sl_op_where_b;

/* ---- along dims ----------------------------------------------------------- */

/* reduce_sum(x) -> the sum over the dims whose bits attrs.axes has (none: all), times attrs.value
 * (0: 1); with attrs.keep they stay, of length 1. Sums are made in f64. If no dim is left, it is an
 * f64 scalar, as losses are. reduce_sum_b(x, dy) -> dx; x is read for its type only.
 * reduce_max(x) -> the largest over those dims, and i32, which it is, counted along them; of several
 * alike the first. reduce_max_b(x, places, dy) -> dx: to that one alone; x is read for its type
 * only.
 * mean(x) -> f64 scalar, over all of x: a loss. mean_b(x, dloss) -> dx; x for its type only. */
extern const sl_op sl_op_reduce_sum, sl_op_reduce_sum_b, sl_op_reduce_max, sl_op_reduce_max_b,
    sl_op_mean, sl_op_mean_b;

/* softmax(x) -> e^x / sum e^x along the dim whose bit attrs.axes has (none: the last);
 * softmax_b(y, dy) -> dx = y (dy - sum y dy). log_softmax(x) -> x - log sum e^x;
 * log_softmax_b(y, dy) -> dx = dy - e^y sum dy. */
extern const sl_op sl_op_softmax, sl_op_softmax_b, sl_op_log_softmax, sl_op_log_softmax_b;

/* top_k(x), attrs.count = k -> the k largest along the dim whose bit attrs.axes has (none: the
 * last), in falling order, and i32, their positions; of several alike the first comes first. The
 * gradient is gather_b's.
 * cumsum(x) -> the sum up to each position of such a dim, with it; attrs.exclusive: without it;
 * attrs.reverse: of all from it on. Of f32, summed in f64, or of i32. cumsum_b(dy) -> dx. */
extern const sl_op sl_op_top_k, sl_op_cumsum, sl_op_cumsum_b;

/* copy(x) -> x (acc). */
extern const sl_op sl_op_copy;

/* ---- parts and sums ------------------------------------------------------- */

/* slice(x), attrs.user = sl_part -> that part of x, which may not be empty. Any dtype.
 * slice_b(dy, x) -> dx: dy in its place, zeros around it. x is read for its type only. */
extern const sl_op sl_op_slice, sl_op_slice_b;

/* join(p0, p1, ...), attrs.user = sl_joint -> the whole they are parts of. Any dtype. The
 * parts may come in any order and have ranges anywhere, but all along one dim (or all
 * SL_PART_FLAT), and each position is in just one of them. Where the inputs are shorter than
 * `type` along another dim, so is the whole: pieces of sequences. */
typedef struct sl_joint {
  sl_type type;         /* of the whole */
  const sl_part *parts; /* [nin] */
} sl_joint;
extern const sl_op sl_op_join;

/* sum(x0, x1, ...) -> (x0 + x1) + ... in this order (acc: the sum is added to what is there);
 * f32 or f64, all of one type. The gradient of each is dy. */
extern const sl_op sl_op_sum;

/* sum_part(x0, x1, ...), attrs.user = sl_part -> that part of their sum (acc), for CPUs: what
 * slices and a sum of them give, where all arrays can be read. At most 64. */
extern const sl_op sl_op_sum_part;

/* split(x), attrs.axes = 1 << d, attrs.user = sl_lengths -> so many parts along dim d, one behind
 * the other, as long as said. The gradient is concat's. Any dtype. */
typedef struct sl_lengths {
  int count;
  const int64_t *of; /* [count] */
} sl_lengths;
extern const sl_op sl_op_split;

/* reshape(x), attrs.user = sl_reshaping -> the same elements in the same order as another shape.
 * A share or a piece of x has fewer positions along a dim that others of its group follow:
 * shapes are compared group by group, as few dims of both as have the same product. Any dtype.
 * reshape_b(dy, x) -> dx, shaped as x, which is read for its type only. */
typedef struct sl_reshaping {
  sl_type from, to; /* of the whole; dtypes do not count */
} sl_reshaping;
extern const sl_op sl_op_reshape, sl_op_reshape_b;

/* permute(x), attrs.ndims, attrs.dims: y's dim d is x's dim dims[d]. Any dtype.
 * permute_b(dy) -> dx: back. */
extern const sl_op sl_op_permute, sl_op_permute_b;

/* expand(x, [like]), attrs.ndims, attrs.dims -> x repeated by NumPy's rules: y has so many dims, and
 * where x has length 1, or no dim, that of `like`, or dims[d] (0: 1). f32 or i32. Where x is longer,
 * dims[d] is 0 or x's length.
 * expand_b(dy, x) -> dx (acc), sums; x is read for its type only. */
extern const sl_op sl_op_expand, sl_op_expand_b;

/* concat(x0, x1, ...), attrs.axes = 1 << d -> one behind the other along dim d; equal in all
 * other dims. Any dtype, but f64.
 * concat_b(dy, x0, x1, ...) -> dx0, dx1, ...: as many as there are x, which are read for their
 * types only. */
extern const sl_op sl_op_concat, sl_op_concat_b;

/* ---- random numbers -------------------------------------------------------- */

/* What is drawn for an element depends on the run's seed, attrs.key, the step and where the
 * element stands in the step's whole (sl_call_where) alone: it is the same however rows, columns
 * and sequences are shared out, on the way back, and where a run goes on. Philox 4x32-10.
 *
 * dropout(x), attrs.value = p in [0, 1) -> x / (1 - p), or 0 with probability p: Srivastava et
 * al., JMLR 15, 2014. The gradient is the same of dy.
 * uniform(like) -> f32 of the shape of `like`, which may have any dtype and is not read: in
 * [attrs.value, attrs.upper), in steps of 2^-24 of that range.
 * normal(like) -> the same of mean attrs.value and deviation attrs.upper: Box and Muller, 1958. */
extern const sl_op sl_op_dropout, sl_op_uniform, sl_op_normal;

/* ---- norms --------------------------------------------------------------- */

/* layernorm(x [..., C], g [C], b [C]) -> y [..., C], mean [...], rstd [...]:
 * Ba et al., arXiv 1607.06450; variance over C (biased), attrs.eps inside the
 * root. layernorm_b(x, g, mean, rstd, dy) -> dx. layernorm_w(x, mean, rstd, dy)
 * -> dg [C] (acc), db [C] (acc). */
extern const sl_op sl_op_layernorm, sl_op_layernorm_b, sl_op_layernorm_w;

/* rmsnorm(x [..., C], g [C]) -> y [..., C], rstd [...]: Zhang & Sennrich, arXiv
 * 1910.07467; y = x g / sqrt(mean(x^2) + attrs.eps).
 * rmsnorm_b(x, g, rstd, dy) -> dx. rmsnorm_w(x, rstd, dy) -> dg [C] (acc). */
extern const sl_op sl_op_rmsnorm, sl_op_rmsnorm_b, sl_op_rmsnorm_w;

/* group_norm(x [N, C, ...], g [C], b [C]), attrs.heads = G groups of C/G channels -> y, mean [N, G],
 * rstd [N, G]: Wu & He, arXiv 1803.08494; y = (x - mean) rstd g + b with the (biased) variance of
 * an image's group, attrs.eps inside the root. With G = C it is instance norm.
 * group_norm_b(x, g, mean, rstd, dy) -> dx. group_norm_w(x, mean, rstd, dy) -> dg (acc), db (acc). */
extern const sl_op sl_op_group_norm, sl_op_group_norm_b, sl_op_group_norm_w;

/* ---- attention ----------------------------------------------------------- */

/* rotary(x [B, T, H*D]), attrs.heads = H, attrs.theta -> same shape: Su et al.,
 * arXiv 2104.09864, pairing dims j and j + D/2 of a head ("rotate half", the
 * convention of LLaMA weights in Hugging Face format); position t turns pair j
 * by t theta^(-2j/D). rotary_b(dy) -> dx turns back. For keys with fewer heads
 * set attrs.heads to the number of key heads of that call. Of a piece, t counts
 * from call->tick.row on. attrs.user, if not NULL, is an sl_rope. */
extern const sl_op sl_op_rotary, sl_op_rotary_b;

/* How the angles are stretched for contexts longer than a model was pretrained with (the formulas
 * are in ops/rope.c). Of the numbers a kind takes those that sl_rope_parse names. */
typedef enum sl_rope_kind { SL_ROPE_PLAIN, SL_ROPE_LINEAR, SL_ROPE_LLAMA3, SL_ROPE_YARN } sl_rope_kind;
typedef struct sl_rope {
  sl_rope_kind kind;
  double factor;    /* of the context's length */
  double original;  /* positions of the context before */
  double low, high; /* llama3: low_freq_factor, high_freq_factor; yarn: beta_slow, beta_fast */
  double scale;     /* yarn: attention_factor; 0: 0.1 ln(factor) + 1 */
} sl_rope;

/* Reads "none", "linear:factor=F", "llama3:factor=F,low_freq_factor=L,high_freq_factor=H,
 * original_max_position_embeddings=N" or "yarn:factor=F,original_max_position_embeddings=N"
 * [,beta_slow=S,beta_fast=F,attention_factor=A]; "" is none. SL_E_USAGE names what is wrong. */
sl_status sl_rope_parse(const char *text, sl_rope *out);

/* attention(q [B, T, Hq*D], k [B, T, Hkv*D], v [B, T, Hkv*D], [ids i32 [B, T]]) -> o [B, T, Hq*D],
 * lse [B, Hq, T]. Causal, but with attrs.full each query sees all keys; with attrs.window = w > 0
 * only those less than w positions from it (Beltagy et al., arXiv 2004.05150); with ids only those
 * with its own id, and none where that is negative: a query that sees no key gets zeros, lse 0
 * and no gradient. So one array of ids says of padding (-1) and of documents that lie in one row.
 * Tiles of keys that are out of sight cost nothing. Scores are scaled by
 * attrs.scale, 1/sqrt(D) where that is 0; attrs.heads = Hq,
 * attrs.kv_heads = Hkv (0: Hq) which divides Hq; query head h reads key head
 * h / (Hq/Hkv). D is at most 256. Tiled with a running softmax after Dao et al.,
 * arXiv 2205.14135; lse is the log of the softmax's sum.
 * attention_b(q, k, v, o, lse, do, [ids]) -> dq, dk, dv. */
extern const sl_op sl_op_attention, sl_op_attention_b;

/* The same on one tensor qkv [B, T, (Hq + 2 Hkv)*D], q then k then v along the
 * last dim (GPT-2's c_attn): attention_packed(qkv, [ids]) -> o, lse.
 * attention_packed_b(qkv, o, lse, do, [ids]) -> dqkv. */
extern const sl_op sl_op_attention_packed, sl_op_attention_packed_b;

/* Attention of one piece [B, n] of sequences cut along T, attrs.length = T; the piece begins at position
 * r = call->tick.row, and pieces come in order. kv [B, T, 2 Hkv*D], updated in place, keeps k then v of
 * every position so far: the piece's rows are written, rows 0 .. r+n-1 read. So does all [B, T] with ids.
 * attention_piece(q, k, v, [ids]) -> o, lse, kv, and with ids all. attention_packed_piece(qkv, [ids])
 * -> o, lse, kv, q, and with ids all: q is for the way back. Backward the pieces come in reverse: dkv,
 * updated in place, keeps what the later pieces sent back to dk and dv of every position; the last piece
 * (r+n = T) begins it anew. attention_piece_b(q, kv, o, lse, do, [all]) -> dq, dk, dv, dkv.
 * attention_packed_piece_b(q, kv, o, lse, do, [all]) -> dqkv, dkv.
 * Made again on the way back, when the records have all positions:
 * attention_piece_again(q, k, v, [ids], kv, [all]) -> o, lse, absent, [absent]: k, v may be absent.
 * attention_packed_piece_again(qkv, [ids], kv, [all]) -> o, lse, absent, q, [absent]. */
extern const sl_op sl_op_attention_piece, sl_op_attention_piece_b, sl_op_attention_piece_again,
    sl_op_attention_packed_piece, sl_op_attention_packed_piece_b, sl_op_attention_packed_piece_again;

/* The same, called for a piece of queries and each piece of keys up to its own in turn (sl_call_cut):
 * attention_sweep(q, kv, [ids]) -> o, lse (of the last call), tail, seen (from call to call), and all.
 * attention_sweep_b(q, kv, o, lse, do, [all]) -> dq, dkv, record.
 * attention_parts(q, k, v), _packed_parts(qkv) -> q, kv: k then v [B, n, 2 Hkv*D]. */
extern const sl_op sl_op_attention_parts, sl_op_attention_parts_b, sl_op_attention_packed_parts,
    sl_op_attention_packed_parts_b, sl_op_attention_sweep, sl_op_attention_sweep_b;

/* documents(tokens i32 [B, T]) -> ids i32 [B, T], how many of the row's tokens before are attrs.end,
 * so that a document has one id and the token that ends it belongs to it; positions i32 [B, T],
 * counted from the document's first. No gradient goes through.
 * documents_piece(tokens [B, n]) -> ids, positions, record i32 [B, 2], updated in place: how many
 * documents have ended, and where the one that goes on began. */
extern const sl_op sl_op_documents, sl_op_documents_piece;

/* ---- images ---------------------------------------------------------------- */

/* How a window goes over images: along their height, then along their width. What is 0 is the
 * default. Of sequences, x [N, C, W], which count as images of height 1, the second of each pair
 * counts and the first is 0. */
typedef struct sl_window {
  int64_t size[2];     /* of a pool [the whole image]; a convolution's kernel says it */
  int64_t stride[2];   /* from one window to the next [1; of a pool its size] */
  int64_t pad[2];      /* positions added on both sides; of a pool at most half its size */
  int64_t dilation[2]; /* from one element of the kernel to the next [1]; pools have none */
  int64_t groups;      /* of channels, each a convolution of its own [1] */
} sl_window;

/* conv(x [N, C, H, W], w [O, C/groups, h, w], [bias [O]]), attrs.user = sl_window or NULL ->
 * y [N, O, H', W'], H' = (H + 2 pad - dilation (h - 1) - 1) / stride + 1, W' likewise:
 * y[n, o, i, j] = bias[o] + sum over c, k, l of w[o, c, k, l] x[n, c of o's group,
 * i stride - pad + k dilation, ...], x being 0 beyond its edges (a cross-correlation, as what
 * frameworks call convolution: LeCun et al., Gradient-based learning, 1998). Of sequences
 * x [N, C, W], w [O, C/groups, w].
 * conv_b(dy, w, x) -> dx; conv_w(x, dy, w) -> dw (acc); the last of them is read for its type only.
 * channel_sum(dy [N, O, ...]) -> db [O] (acc). */
extern const sl_op sl_op_conv, sl_op_conv_b, sl_op_conv_w, sl_op_channel_sum;

/* max_pool(x [N, C, H, W] or [N, C, W]), attrs.user = sl_window or NULL -> y, the largest of
 * each window; what is padded does not count. H' as of conv, without dilation.
 * max_pool_b(x, dy) -> dx: to the first of the largest, in row-major order.
 * mean_pool(x) -> y, the mean of each window, where what is padded counts as 0.
 * mean_pool_b(dy, x) -> dx; x is read for its type only. */
extern const sl_op sl_op_max_pool, sl_op_max_pool_b, sl_op_mean_pool, sl_op_mean_pool_b;

/* ---- losses -------------------------------------------------------------- */

/* cross_entropy(logits [..., V], targets i32 [...]) -> loss f64 scalar, the mean
 * over rows of lse - logits[target]; lse [...]. A target outside [0, V) makes
 * the loss NaN.
 * cross_entropy_b(logits, targets, lse, dloss scalar) -> dlogits =
 * (softmax - onehot) dloss / R. */
extern const sl_op sl_op_cross_entropy, sl_op_cross_entropy_b;

/* Cross entropy where each device has some columns of the logits, attrs.first .. :
 * cross_entropy_part(logits [..., v], targets) -> part [..., 3]: the row's largest logit,
 * the sum of exp(x - largest), and the target's logit, 0 if it is not among the columns.
 * cross_entropy_join(parts [..., 3 R]) -> loss, lse as cross_entropy. A target that is in no
 * part is not noticed. cross_entropy_b with attrs.partial gives the columns' dlogits. */
extern const sl_op sl_op_cross_entropy_part, sl_op_cross_entropy_join;

/* What sl_cross_entropy_with() takes, each as in PyTorch's cross_entropy. What is 0 is the default. */
typedef struct sl_loss {
  int32_t ignore;       /* rows of this target do not count [-100]; one that may be 0 is written
                           SL_IGNORE(id) */
  float smoothing;      /* of each row so much is shared out among all classes [0] */
  const float *weights; /* [classes] what a row counts by its target, not negative [all 1]. Copied */
} sl_loss;
#define SL_IGNORE(id) ((id) ? (id) : INT32_MIN)

/* target_weight(targets i32 [...], [weights [V]]) -> f64 scalar: the sum over rows of
 * weights[target], or 1, and 0 where the target is attrs.ignore. It is that of the whole microbatch
 * on every device and for every piece: where rows are shared out or sequences cut, what the targets
 * are computed from is computed whole, too, so it may not depend on parameters.
 *
 * weighted_cross_entropy(logits [..., V], targets i32 [...], total f64 scalar, [weights [V]]), with
 * e = attrs.value, u = attrs.upper (e / V) and w the weights -> loss f64 scalar, the sum of
 *     (1 - e) w[target] (lse - logits[target]) + u sum_c w[c] (lse - logits[c])
 * over the rows whose target is not attrs.ignore, over total; lse [...]. Of other rows nothing is read,
 * and lse is 0. Where total is 0, no row counts, the loss is 0. A target outside [0, V) makes it NaN.
 * Label smoothing: Szegedy et al., arXiv 1512.00567.
 * weighted_cross_entropy_b(logits, targets, lse, total, dloss scalar, [weights]) -> dlogits, 0 in rows
 * that do not count. */
extern const sl_op sl_op_target_weight, sl_op_weighted_cross_entropy,
    sl_op_weighted_cross_entropy_b;

/* share(x f64 or f32 scalar), attrs.user = const double or NULL, what of a microbatch's rows the call
 * has -> x times that (NULL: x): makes of the mean over a part's rows the part's summand of the mean.
 * The graph puts it behind means that are not the loss itself. */
extern const sl_op sl_op_share;

/* Where each device has some columns of the logits, attrs.first .., and all weights:
 * weighted_cross_entropy_part(logits [..., v], targets, total, [weights]) -> part [..., 4]: the row's
 * largest logit, the sum of exp(x - largest), what lse counts by in the loss, and what is taken from
 * that for the columns' own logits; all 0 of a row that does not count.
 * weighted_cross_entropy_join(parts [..., 4 R]) -> loss, lse. */
extern const sl_op sl_op_weighted_cross_entropy_part, sl_op_weighted_cross_entropy_join;

/* mse(y, t) -> loss f64 scalar, the mean of (y - t)^2 over all elements.
 * mse_b(y, t, dloss scalar) -> dy. */
extern const sl_op sl_op_mse, sl_op_mse_b;

/* ---- ends of the graph --------------------------------------------------- */

/* fill() -> attrs.value everywhere, of the type attrs.user points to. */
extern const sl_op sl_op_fill;

/* What sl_op_source's attrs.user points to. fill() writes all of out[nout] (NULL where nobody reads)
 * for one tick; it may be called from any thread, and the same tick must always give the same data. */
typedef struct sl_source {
  int nout;
  const sl_type *types; /* [nout] of a whole microbatch */
  void (*fill)(void *ctx, const sl_tick *tick, void *const *out);
  void *ctx;
  /* 1 + the dim of all outputs that sequences lie along, if fill() can be asked for a piece of them: tick->rows
   * positions of that dim from tick->row on, where tick->rows is not 0. 0: whole microbatches only. */
  int cut;
  /* Evaluations: microbatch tick->microbatch of held-out data, and how many whole ones there are; and how many rows
   * there are behind these, of one more that is filled as the others are: what stands behind its rows does not
   * count. Rows lie along dim 0 of all outputs then. NULL, 0: none. */
  void (*fill_held_out)(void *ctx, const sl_tick *tick, void *const *out);
  int held_out, held_out_rest;
  /* Where devices hold no values, for fill(): 0: it has something; else when (sl_runtime_now) to ask again,
   * UINT64_MAX: once anything has happened. On the real clock it may block. NULL: it always has. */
  uint64_t (*await)(void *ctx, const sl_tick *tick);
  int behind; /* > 0, inference: fill() may block, and comes so many ticks behind what is delivered */
} sl_source;

/* source() -> sl_source.nout outputs. The row's nout is -1: ask the record. */
extern const sl_op sl_op_source;

/* What sl_op_report's attrs.user points to. The values are valid during the call only. */
typedef struct sl_sink {
  void (*take)(void *ctx, const sl_tick *tick, int n, const void *const *values);
  void *ctx;
  void (*passed)(void *ctx, const sl_tick *tick); /* where devices hold no values, in place of take(); or NULL */
} sl_sink;

/* report(values...) -> nothing. */
extern const sl_op sl_op_report;

/* ---- update -------------------------------------------------------------- */

/* sumsq(g0, g1, ...) -> f64 scalar: the sum of squares of g0 + g1 + ..., all of one shape (parts of one gradient). */
extern const sl_op sl_op_sumsq;

/* clip(s0 f64, s1 f64, ...), attrs.user = sl_optimizer -> scale scalar =
 * min(1, clip / (norm + 1e-6)), 1 when clip is 0; norm f64 scalar = the root of
 * the sum of all s, added in order of the arguments. */
extern const sl_op sl_op_clip;

/* Optimizers: rule(scale scalar, g0, g1, ...), attrs.user = sl_optimizer -> p and its states in
 * place, typed as g0. With g = scale (g0 + g1 + ...), t the step of the call's tick, from 1,
 * and d the decay of this tensor (optimizer.h):
 *
 * adamw -> p, m, v: m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
 *   p = p - lr d p - lr (m/(1-b1^t)) / (sqrt(v/(1-b2^t)) + eps)
 *   (Loshchilov & Hutter, arXiv 1711.05101, Algorithm 2, the schedule folded into lr)
 * adam -> p, m, v: the same with g + d p for g, and no other decay (arXiv 1412.6980)
 * sgd -> p, momentum: g = g + d p; u = b u + g; p = p - lr (nesterov ? g + b u : u)
 *   (as PyTorch's; Sutskever et al., ICML 2013). Without momentum, u = g is not kept.
 * lion -> p, m: p = p - lr (sign(b1 m + (1-b1) g) + d p); m = b2 m + (1-b2) g
 *   (Chen et al., arXiv 2302.06675, Algorithm 2) */
extern const sl_op sl_op_adamw, sl_op_adam, sl_op_sgd, sl_op_lion;

/* keep(), attrs.user = the sl_type of p -> p in place: as it is. What hands a frozen parameter
 * on to the next step. */
extern const sl_op sl_op_keep;

#ifdef __cplusplus
}
#endif
#endif
