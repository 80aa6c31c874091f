/* The model graph: how a user writes a model in C.
 *
 * A graph describes what happens to one microbatch. Ops are applied to tensors
 * one after another; shapes are inferred at once. Errors are sticky: the first
 * one is recorded with the op, the shapes and the source line, calls after it
 * return NULL, and calls given a NULL tensor do nothing, so a model needs no
 * checks of its own. Tensors and graph live in one arena and die together.
 *
 *     sl_block(g, "mlp");
 *     sl_tensor *h = sl_gelu(g, sl_linear(g, x, w1, b1));
 *     sl_tensor *y = sl_linear(g, h, w2, b2);
 *     sl_train(g, sl_mse(g, y, target), &(sl_optimizer){.lr = 1e-3f});
 *
 * Threads: one thread per graph. */
#ifndef SLUICE_GRAPH_H
#define SLUICE_GRAPH_H

#include <sluice/batch.h>
#include <sluice/op.h>
#include <sluice/ops.h>
#include <sluice/optimizer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_graph sl_graph;
typedef struct sl_tensor sl_tensor;

/* Where in the user's source a call stands. */
typedef struct sl_here {
  const char *file;
  int line;
} sl_here;
#ifdef SL_MODEL_BUILTIN /* lines of a model that is shipped are not the user's */
#define SL_HERE (SL_RECORD(sl_here){NULL, 0})
#else
#define SL_HERE (SL_RECORD(sl_here){__FILE__, __LINE__})
#endif

/* ---- graph ---------------------------------------------------------------- */

/* How sequences are cut in pieces: in equal lengths (the first are one longer
 * where that does not come out even), or so that each takes the same time
 * forward, by the ops' costs. */
typedef enum sl_cut { SL_CUT_EVEN, SL_CUT_BALANCED } sl_cut;

/* What whoever runs a model says of its training, as actorrun's options do, instead of what the
 * model says or beyond it. Texts outlive the graph; docs/training.md says how they read. */
typedef struct sl_training {
  const char *optimizer;     /* "lion", "sgd:momentum=0.9,nesterov"; NULL: the model's */
  const char *schedule;      /* "wsd:warmup=100,decay-steps=2000"; NULL: the model's */
  int ngroups, nfrozen;
  const char *const *groups; /* "h.*.ln*:lr=1e-4,decay=0": as sl_group() */
  const char *const *frozen; /* patterns: as sl_freeze() */
  int nlora;
  const char *const *lora;   /* "h.*.attn=8,alpha=16": as sl_lora() */
  int64_t steps;             /* of the run, by which rates decay that do not say by how many; 0: not known */
} sl_training;

/* A graph that is served: one row of positions of any sequences (batch.h), whose source is asked for
 * tokens and batch of each tick. */
typedef struct sl_serving {
  int64_t rows;      /* of a tick, at most */
  int sequences;     /* in a tick, and tokens that it gives, at most */
  int groups;        /* ticks under way at once */
  int64_t context;   /* positions of a sequence: filled in by sl_tokens, where it is the model's */
  int64_t pages;     /* of keys and values, in every stage; read by sl_lower */
  sl_dtype kv;       /* how these lie in memory: SL_F32 or SL_BF16 */
  sl_rest (*rest)(void *ctx, const char *param); /* how a weight is wanted to lie, where its readers know
                        that; NULL: all as f32 */
  void (*fill)(void *ctx, const sl_tick *tick, int32_t *tokens, sl_batch *batch);
  uint64_t (*await)(void *ctx, const sl_tick *tick); /* on devices that hold no values: sl_source.await */
  void *ctx;
} sl_serving;

typedef struct sl_graph_options {
  int microbatches; /* M: a step is M microbatches [1] */
  int pieces;       /* K: pieces the sequences of a microbatch are cut into [1].
                       The model is built on whole sequences all the same */
  sl_cut cut;
  const int64_t *lengths; /* [pieces] positions of each, instead of `cut`; or NULL. Copied */
  int stages;       /* stages the run will have, for models that ask [1] */
  /* Inference: only what sl_output() asks for is kept, sl_train is ignored,
   * a microbatch is one row, and tokens come from feed_tokens instead of a
   * file: fill tokens[rows*context] of the tick. */
  bool infer;
  void (*feed_tokens)(void *ctx, const sl_tick *tick, int32_t *tokens, int64_t count);
  void *feed_ctx;
  sl_serving *serve; /* with `infer`: the graph is served, its only output is "sampled", an sl_sampled
                        for each pick of the batch. Outlives the graph; NULL: it is not */
  uint64_t shuffle; /* sl_tokens: the seed of the order of sequences, another order each time that
                       all have been read; 0: as they lie in the files */
  /* Evaluation: after every eval_every-th step (0: never) the loss on held-out data, and what
   * sl_metric() names, while training goes on: of these files, named as sl_tokens takes them and
   * read by it, and of other sources what they hold out (sl_source.held_out). */
  const char *eval;
  int64_t eval_every;
  int64_t eval_rows; /* the first so many of the held-out rows; 0: all there are */
  const char *tokenizer; /* sl_tokens: a tokenizer.json that makes tokens of text files; NULL: the
                       bytes of a text are its tokens. Used while the graph is built */
  const sl_training *training; /* may be NULL */
  bool no_data;     /* nothing is computed, only planned or timed: files need not be given */
} sl_graph_options;

sl_graph *sl_graph_create(const sl_graph_options *options);
void sl_graph_destroy(sl_graph *g);
/* The first error, or SL_OK; the text is in sl_detail(). */
sl_status sl_graph_status(const sl_graph *g);
/* Records an error of the model's own (a bad option, say); the first one wins. */
sl_status sl_graph_fail(sl_graph *g, sl_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int sl_graph_microbatches(const sl_graph *g);
/* Of a graph that was lowered: held-out rows of an evaluation; or microbatches, where they have no rows. *word: which.
 * 0: nothing is evaluated. */
int64_t sl_graph_evaluated(const sl_graph *g, const char **word);
int sl_graph_stages(const sl_graph *g);
bool sl_graph_infer(const sl_graph *g);
/* Does the model need something to learn? */
bool sl_graph_reads_data(const sl_graph *g);
/* Pieces the sequences are cut into, and *lengths[pieces], NULL before the graph
 * is lowered and where sequences are not cut. */
int sl_graph_pieces(const sl_graph *g, const int64_t **lengths);
/* Zeroed memory that lives as long as the graph: for a model's own records. */
void *sl_graph_alloc(sl_graph *g, size_t bytes);
/* Rows of one microbatch when a step has `batch` rows: batch / M, or an error
 * if that is not whole. 1 for inference. */
int64_t sl_microbatch_rows(sl_graph *g, int64_t batch);
/* What speed is counted in: the items the first data source gives in a step
 * (the elements of its first output if they are integers, its rows if not; 0
 * without a source). *word: "tokens" or "rows". */
int64_t sl_graph_items(const sl_graph *g, const char **word);

/* Starts a new block ("h.3"): ops that stay together. A pipeline is cut only
 * between blocks. Ops before the first call form a block of their own ("main").
 * A source of data stands in the block that reads it first. A name given again
 * gets a number. */
void sl_block(sl_graph *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Puts this block and those after it on pipeline stage `stage` instead of
 * leaving the cut to the balancer; stages must not decrease. The next blocks
 * follow it there until the next call. */
void sl_block_stage(sl_graph *g, int stage);

/* ---- tensors ---------------------------------------------------------------- */

/* How a parameter starts: normal(0, scale), constant `scale`, or
 * uniform(-scale, scale). Values depend on the seed and the name only. */
typedef enum sl_init_kind { SL_INIT_NORMAL, SL_INIT_CONSTANT, SL_INIT_UNIFORM } sl_init_kind;
typedef struct sl_init {
  sl_init_kind kind;
  float scale;
} sl_init;
#define SL_NORMAL(std) (SL_RECORD(sl_init){SL_INIT_NORMAL, (std)})
#define SL_CONSTANT(value) (SL_RECORD(sl_init){SL_INIT_CONSTANT, (value)})
#define SL_UNIFORM(bound) (SL_RECORD(sl_init){SL_INIT_UNIFORM, (bound)})

/* A trained f32 array. `name` is its name in weight files; unique per graph
 * (the same tensor may be used many times: tied weights). `name` is copied. */
#define sl_param(g, type, init, ...) sl_param_at(SL_HERE, g, type, init, __VA_ARGS__)
sl_tensor *sl_param_at(sl_here at, sl_graph *g, sl_type type, sl_init init,
                       const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Data made by a callback, once per microbatch, in order. The record and what
 * it points to must outlive every run. outs[source->nout] is filled. */
#define sl_data(g, source, outs) sl_data_at(SL_HERE, g, source, outs)
void sl_data_at(sl_here at, sl_graph *g, const struct sl_source *source, sl_tensor **outs);

/* Rows of `context` tokens, i32 [rows, context], and the same shifted by one
 * as *targets. `paths` names what is read, one after another, a line each: a
 * file, FILE:TYPE, or a folder (docs/data.md). Text is read byte by byte.
 * Sequence i of the run (step * batch + row) starts at token (i mod n) *
 * context, n = whole sequences there are, unless they are shuffled. Tokens >=
 * vocab are an error that names file and position. */
#define sl_tokens(g, paths, rows, context, vocab, targets)                     \
  sl_tokens_at(SL_HERE, g, paths, rows, context, vocab, targets)
sl_tensor *sl_tokens_at(sl_here at, sl_graph *g, const char *paths, int64_t rows,
                        int64_t context, int64_t vocab, sl_tensor **targets);

/* Files that sl_tokens reads, in order, and what they hold: their size, and a hash (FNV-1a) of
 * the whole, or of parts from all over it where it is large. Fills in the first `most`; returns
 * how many there are. Paths are the graph's. */
typedef struct sl_graph_file {
  const char *path;
  uint64_t bytes, hash;
} sl_graph_file;
int sl_graph_files(const sl_graph *g, int most, sl_graph_file *out);
/* Do these files, and those of evaluations, still hold what they held when the graph was made? SL_E_INPUT names one that was
 * written to since. Any thread. */
sl_status sl_graph_check_files(const sl_graph *g);

const sl_type *sl_tensor_type(const sl_tensor *t);
const char *sl_tensor_name(const sl_tensor *t);
int64_t sl_dim(const sl_tensor *t, int i); /* i < 0 counts from the end; 0 for NULL */

/* ---- ops -------------------------------------------------------------------- */

/* Applies a row of the table, or a user's own. Fills outs[op->nout]. Absent
 * optional inputs are NULL with bit i of `absent` set (so that a NULL from an
 * earlier error is not taken for one). */
#define sl_apply(g, op, attrs, nin, ins, absent, outs)                         \
  sl_apply_at(SL_HERE, g, op, attrs, nin, ins, absent, outs)
void sl_apply_at(sl_here at, sl_graph *g, const sl_op *op, const sl_attrs *attrs, int nin,
                 sl_tensor *const *ins, uint32_t absent, sl_tensor **outs);

/* The shipped ops as calls; see ops.h for shapes and formulas. b may be NULL
 * where a bias is optional. Each returns the op's first output. */
#define sl_linear(g, x, w, b) sl_linear_at(SL_HERE, g, x, w, b, false)
/* The weight is [in, out], as GPT-2's files have it. */
#define sl_linear_transposed(g, x, w, b) sl_linear_at(SL_HERE, g, x, w, b, true)
#define sl_embedding(g, ids, table) sl_op2_at(SL_HERE, g, &sl_op_embedding, NULL, ids, table)
#define sl_position(g, x, table) sl_op2_at(SL_HERE, g, &sl_op_position, NULL, x, table)
/* These broadcast by NumPy's rules; two f64 scalars, as losses are, go together as well. */
#define sl_add(g, a, b) sl_add_at(SL_HERE, g, a, b)
#define sl_mul(g, a, b) sl_mul_at(SL_HERE, g, a, b)
#define sl_sub(g, a, b) sl_op2_at(SL_HERE, g, &sl_op_sub, NULL, a, b)
#define sl_div(g, a, b) sl_op2_at(SL_HERE, g, &sl_op_div, NULL, a, b)
#define sl_maximum(g, a, b) sl_op2_at(SL_HERE, g, &sl_op_maximum, NULL, a, b)
#define sl_minimum(g, a, b) sl_op2_at(SL_HERE, g, &sl_op_minimum, NULL, a, b)
/* Masks, i32 of 0 and 1, which sl_where takes. */
#define sl_lt(g, a, b) sl_op2_at(SL_HERE, g, &sl_op_lt, NULL, a, b)
#define sl_le(g, a, b) sl_op2_at(SL_HERE, g, &sl_op_le, NULL, a, b)
#define sl_gt(g, a, b) sl_op2_at(SL_HERE, g, &sl_op_gt, NULL, a, b)
#define sl_ge(g, a, b) sl_op2_at(SL_HERE, g, &sl_op_ge, NULL, a, b)
#define sl_eq(g, a, b) sl_op2_at(SL_HERE, g, &sl_op_eq, NULL, a, b)
#define sl_ne(g, a, b) sl_op2_at(SL_HERE, g, &sl_op_ne, NULL, a, b)
#define sl_where(g, mask, a, b) sl_op3_at(SL_HERE, g, &sl_op_where, NULL, mask, a, b)
/* Over the dims whose bits `axes` has, SL_DIM(1) | SL_DIM(2), or 0: all of them. With `keep` they
 * stay, of length 1. What has no dim left is an f64 scalar, which sl_train takes. */
#define SL_DIM(d) (1u << (d))
#define sl_sum(g, x, axes, keep) sl_sum_at(SL_HERE, g, x, axes, keep)
#define sl_mean(g, x, axes, keep) sl_mean_at(SL_HERE, g, x, axes, keep)
#define sl_max(g, x, axes, keep) sl_max_at(SL_HERE, g, x, axes, keep)
/* Which along that dim is the largest, i32; dims below 0 count from the end. */
#define sl_argmax(g, x, dim) sl_argmax_at(SL_HERE, g, x, dim)
/* a [..., M, K] with b [..., K, N]; either may be the other way round. */
#define sl_matmul(g, a, b, a_transposed, b_transposed)                         \
  sl_matmul_at(SL_HERE, g, a, b, a_transposed, b_transposed)
#define sl_softmax(g, x, dim) sl_softmax_at(SL_HERE, g, x, dim, false)
#define sl_log_softmax(g, x, dim) sl_softmax_at(SL_HERE, g, x, dim, true)
#define sl_gelu(g, x) sl_op1_at(SL_HERE, g, &sl_op_gelu, NULL, x)
#define sl_relu(g, x) sl_op1_at(SL_HERE, g, &sl_op_relu, NULL, x)
#define sl_tanh(g, x) sl_op1_at(SL_HERE, g, &sl_op_tanh, NULL, x)
#define sl_silu(g, x) sl_op1_at(SL_HERE, g, &sl_op_silu, NULL, x)
#define sl_sigmoid(g, x) sl_op1_at(SL_HERE, g, &sl_op_sigmoid, NULL, x)
#define sl_exp(g, x) sl_op1_at(SL_HERE, g, &sl_op_exp, NULL, x)
#define sl_log(g, x) sl_op1_at(SL_HERE, g, &sl_op_log, NULL, x)
#define sl_sqrt(g, x) sl_op1_at(SL_HERE, g, &sl_op_sqrt, NULL, x)
#define sl_rsqrt(g, x) sl_op1_at(SL_HERE, g, &sl_op_rsqrt, NULL, x)
#define sl_abs(g, x) sl_op1_at(SL_HERE, g, &sl_op_abs, NULL, x)
#define sl_neg(g, x) sl_op1_at(SL_HERE, g, &sl_op_neg, NULL, x)
#define sl_clamp(g, x, low, high) sl_clamp_at(SL_HERE, g, x, low, high)
#define sl_scale(g, x, by) sl_scale_at(SL_HERE, g, x, by)
#define sl_add_constant(g, x, constant) sl_add_constant_at(SL_HERE, g, x, constant)
#define sl_swiglu(g, gate, up) sl_op2_at(SL_HERE, g, &sl_op_swiglu, NULL, gate, up)
#define sl_layernorm(g, x, gain, bias, eps) sl_layernorm_at(SL_HERE, g, x, gain, bias, eps)
#define sl_rmsnorm(g, x, gain, eps) sl_rmsnorm_at(SL_HERE, g, x, gain, eps)
#define sl_rotary(g, x, heads, theta) sl_rotary_at(SL_HERE, g, x, heads, theta, NULL)
/* The same with stretched angles; the record is copied, NULL stretches nothing. */
#define sl_rotary_stretched(g, x, heads, theta, rope)                          \
  sl_rotary_at(SL_HERE, g, x, heads, theta, rope)
#define sl_attention(g, q, k, v, heads, kv_heads)                              \
  sl_attention_at(SL_HERE, g, q, k, v, heads, kv_heads)
#define sl_attention_packed(g, qkv, heads, kv_heads)                           \
  sl_attention_packed_at(SL_HERE, g, qkv, heads, kv_heads)
/* The same as an sl_attrs says: heads, kv_heads, full, window, scale. */
#define sl_attend(g, q, k, v, ...) sl_attend_at(SL_HERE, g, q, k, v, __VA_ARGS__)
#define sl_attend_packed(g, qkv, ...) sl_attend_packed_at(SL_HERE, g, qkv, __VA_ARGS__)
/* The same among positions of one id, i32 [B, T]: documents in a row see nothing of each other, and
 * a position with a negative id (padding) sees nothing and is not seen. ids may be NULL: all are of
 * one document. */
#define sl_attend_within(g, q, k, v, ids, ...)                                 \
  sl_attend_within_at(SL_HERE, g, q, k, v, ids, __VA_ARGS__)
#define sl_attend_packed_within(g, qkv, ids, ...)                              \
  sl_attend_packed_within_at(SL_HERE, g, qkv, ids, __VA_ARGS__)
/* ids of the documents in rows of tokens [B, T], which the token `end` ends: 0, 1, ... from the
 * beginning of the row; and where each token stands in its document, if `positions` is not NULL. */
#define sl_documents(g, tokens, end, positions)                                \
  sl_documents_at(SL_HERE, g, tokens, end, positions)
/* x as it is in inference, and where p is 0. */
#define sl_dropout(g, x, p) sl_dropout_at(SL_HERE, g, x, p)
/* Numbers drawn anew for each microbatch, as many as `like` has, of which only the shape counts. */
#define sl_uniform(g, like, low, high) sl_uniform_at(SL_HERE, g, like, low, high)
#define sl_normal(g, like, mean, deviation) sl_normal_at(SL_HERE, g, like, mean, deviation)
/* The same elements as another shape: sl_reshape(g, x, B, T, -1); one length may be -1, what is
 * left. Of the functions' types only the dims count. sl_permute(g, x, 0, 2, 1): the dims of x in this order. Negative dims count from the
 * end here and below. */
#define sl_reshape(g, x, ...) sl_reshape_at(SL_HERE, g, x, SL_TYPE(SL_F32, __VA_ARGS__))
#define sl_permute(g, x, ...) sl_permute_at(SL_HERE, g, x, SL_TYPE(SL_I32, __VA_ARGS__))
#define sl_transpose(g, x, a, b) sl_transpose_at(SL_HERE, g, x, a, b)
/* Positions begin .. begin + count of a dim. */
#define sl_slice(g, x, dim, begin, count) sl_slice_at(SL_HERE, g, x, dim, begin, count)
/* Parts of these lengths along a dim: outs[count]. lengths NULL: all of one length. */
#define sl_split(g, x, dim, count, lengths, outs)                              \
  sl_split_at(SL_HERE, g, x, dim, count, lengths, outs)
/* The sum of tensors of one type; of losses, too. */
#define sl_add_all(g, count, tensors) sl_add_all_at(SL_HERE, g, count, tensors)
/* count tensors, one behind the other along a dim; dim < 0 counts from the end. */
#define sl_concat(g, dim, count, tensors) sl_concat_at(SL_HERE, g, dim, count, tensors)
/* x as long as these lengths say, where it has length 1 or no dim; -1: as it is. Or as `like`, which
 * pieces of sequences follow. */
#define sl_expand(g, x, ...) sl_expand_at(SL_HERE, g, x, SL_TYPE(SL_F32, __VA_ARGS__))
#define sl_expand_like(g, x, like) sl_expand_like_at(SL_HERE, g, x, like)
/* Elements of x by their positions along a dim; index i32 as x, but of any length along dim, and of
 * length 1 in dims along which it is the same. */
#define sl_gather(g, x, dim, index) sl_gather_at(SL_HERE, g, x, dim, index)
/* x with src added at those positions, src as gather's output; and sums at `count` positions. */
#define sl_scatter_add(g, x, dim, index, src) sl_scatter_add_at(SL_HERE, g, x, dim, index, src)
#define sl_scatter_sum(g, src, dim, index, count)                              \
  sl_scatter_sum_at(SL_HERE, g, src, dim, index, count)
/* The k largest along a dim, and i32, their positions. */
#define sl_top_k(g, x, dim, k, positions) sl_top_k_at(SL_HERE, g, x, dim, k, positions)
#define sl_cumsum(g, x, dim, reverse, exclusive)                               \
  sl_cumsum_at(SL_HERE, g, x, dim, reverse, exclusive)
/* i32 [...] -> f32 [..., count]. */
#define sl_one_hot(g, ids, count) sl_one_hot_at(SL_HERE, g, ids, count)
/* As SL_F32 or SL_I32; x itself if it is that. */
#define sl_cast(g, x, dtype) sl_cast_at(SL_HERE, g, x, dtype)
/* Values that the model knows, f32 or i32, which are copied; like NULL, or a tensor of the same shape
 * whose parts and pieces they follow. What depends on rows of data needs one. */
#define sl_constant(g, type, values, like) sl_constant_at(SL_HERE, g, type, values, like)
#define sl_filled(g, type, value, like) sl_filled_at(SL_HERE, g, type, value, like)
/* i32, shaped as `like`: positions along a dim. */
#define sl_arange(g, like, dim) sl_arange_at(SL_HERE, g, like, dim)
#define sl_group_norm(g, x, groups, gain, bias, eps)                           \
  sl_group_norm_at(SL_HERE, g, x, groups, gain, bias, eps)
/* ids [..., L] -> [..., C]; weights may be NULL; last an sl_bag, which is copied, or NULL. */
#define sl_embedding_bag(g, ids, table, weights, ...)                          \
  sl_embedding_bag_at(SL_HERE, g, ids, table, weights, __VA_ARGS__)
/* Images [N, C, H, W] or sequences [N, C, W]; last an sl_window, which is copied, or NULL. */
#define sl_conv(g, x, w, b, ...) sl_conv_at(SL_HERE, g, x, w, b, __VA_ARGS__)
#define sl_max_pool(g, x, ...) sl_max_pool_at(SL_HERE, g, x, __VA_ARGS__)
#define sl_mean_pool(g, x, ...) sl_mean_pool_at(SL_HERE, g, x, __VA_ARGS__)
/* Mixtures of experts (<sluice/experts.h>): of logits [..., E] the k largest probabilities, and whose they
 * are; `normed`: divided by their sum. */
typedef struct sl_routing {
  sl_tensor *probabilities; /* [..., E] */
  sl_tensor *weights;       /* [..., k] */
  sl_tensor *ids;           /* i32 [..., k] */
} sl_routing;
#define sl_route(g, logits, k, normed) sl_route_at(SL_HERE, g, logits, k, normed)
#define sl_grouped_linear(g, x, ids, w) sl_grouped_linear_at(SL_HERE, g, x, ids, w)
#define sl_combine(g, y, weights) sl_op2_at(SL_HERE, g, &sl_op_combine, NULL, y, weights)
/* ids without those that are more than `factor` times an expert's even share. */
#define sl_expert_limit(g, routing, factor) sl_expert_limit_at(SL_HERE, g, routing, factor)
/* [E]: how many of ids are each expert's. */
#define sl_expert_load(g, ids, experts) sl_expert_load_at(SL_HERE, g, ids, experts)
/* E sum_e f_e P_e, with f_e the share of ids that are expert e's and P_e its mean probability: 1 where all
 * is even (Fedus et al., arXiv 2101.03961); and the mean of log(sum exp logits)^2 (Zoph et al., arXiv
 * 2202.08906). */
#define sl_balance_loss(g, routing) sl_balance_loss_at(SL_HERE, g, routing)
#define sl_z_loss(g, logits) sl_z_loss_at(SL_HERE, g, logits)
#define sl_cross_entropy(g, logits, targets)                                   \
  sl_op2_at(SL_HERE, g, &sl_op_cross_entropy, NULL, logits, targets)
/* The same, but some targets do not count, or count more than others: last an sl_loss, which is
 * copied, or NULL. The mean is over the rows of a microbatch that count, by their weights, however
 * they lie on devices or in pieces; where none does, loss and gradients are 0. */
#define sl_cross_entropy_with(g, logits, targets, ...)                         \
  sl_cross_entropy_with_at(SL_HERE, g, logits, targets, __VA_ARGS__)
/* For each row 1 if the largest of its logits is its target's, else 0: f32, shaped as targets. */
#define sl_accuracy(g, logits, targets) sl_accuracy_at(SL_HERE, g, logits, targets)
#define sl_mse(g, y, target) sl_op2_at(SL_HERE, g, &sl_op_mse, NULL, y, target)

sl_tensor *sl_linear_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *w, sl_tensor *b,
                        bool transposed);
sl_tensor *sl_rotary_at(sl_here at, sl_graph *g, sl_tensor *x, int heads, float theta,
                        const struct sl_rope *rope);
sl_tensor *sl_layernorm_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *gain, sl_tensor *bias,
                           float eps);
sl_tensor *sl_rmsnorm_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *gain, float eps);
sl_tensor *sl_attention_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *k, sl_tensor *v,
                           int heads, int kv_heads);
sl_tensor *sl_attention_packed_at(sl_here at, sl_graph *g, sl_tensor *qkv, int heads, int kv_heads);
sl_tensor *sl_attend_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *k, sl_tensor *v,
                        const sl_attrs *attrs);
sl_tensor *sl_attend_packed_at(sl_here at, sl_graph *g, sl_tensor *qkv, const sl_attrs *attrs);
sl_tensor *sl_attend_within_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *k, sl_tensor *v,
                               sl_tensor *ids, const sl_attrs *attrs);
sl_tensor *sl_attend_packed_within_at(sl_here at, sl_graph *g, sl_tensor *qkv, sl_tensor *ids,
                                      const sl_attrs *attrs);
sl_tensor *sl_documents_at(sl_here at, sl_graph *g, sl_tensor *tokens, int32_t end,
                           sl_tensor **positions);
sl_tensor *sl_dropout_at(sl_here at, sl_graph *g, sl_tensor *x, float p);
sl_tensor *sl_uniform_at(sl_here at, sl_graph *g, sl_tensor *like, float low, float high);
sl_tensor *sl_normal_at(sl_here at, sl_graph *g, sl_tensor *like, float mean, float deviation);
sl_tensor *sl_reshape_at(sl_here at, sl_graph *g, sl_tensor *x, sl_type shape);
sl_tensor *sl_permute_at(sl_here at, sl_graph *g, sl_tensor *x, sl_type order);
sl_tensor *sl_transpose_at(sl_here at, sl_graph *g, sl_tensor *x, int a, int b);
sl_tensor *sl_slice_at(sl_here at, sl_graph *g, sl_tensor *x, int dim, int64_t begin,
                       int64_t count);
void sl_split_at(sl_here at, sl_graph *g, sl_tensor *x, int dim, int count, const int64_t *lengths,
                 sl_tensor **outs);
sl_tensor *sl_add_all_at(sl_here at, sl_graph *g, int count, sl_tensor *const *tensors);
sl_tensor *sl_concat_at(sl_here at, sl_graph *g, int dim, int count, sl_tensor *const *tensors);
sl_tensor *sl_add_at(sl_here at, sl_graph *g, sl_tensor *a, sl_tensor *b);
sl_tensor *sl_mul_at(sl_here at, sl_graph *g, sl_tensor *a, sl_tensor *b);
sl_tensor *sl_sum_at(sl_here at, sl_graph *g, sl_tensor *x, uint32_t axes, bool keep);
sl_tensor *sl_mean_at(sl_here at, sl_graph *g, sl_tensor *x, uint32_t axes, bool keep);
sl_tensor *sl_max_at(sl_here at, sl_graph *g, sl_tensor *x, uint32_t axes, bool keep);
sl_tensor *sl_argmax_at(sl_here at, sl_graph *g, sl_tensor *x, int dim);
sl_tensor *sl_accuracy_at(sl_here at, sl_graph *g, sl_tensor *logits, sl_tensor *targets);
sl_tensor *sl_matmul_at(sl_here at, sl_graph *g, sl_tensor *a, sl_tensor *b, bool a_transposed,
                        bool b_transposed);
sl_tensor *sl_softmax_at(sl_here at, sl_graph *g, sl_tensor *x, int dim, bool is_log);
sl_tensor *sl_conv_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *w, sl_tensor *b,
                      const struct sl_window *window);
sl_tensor *sl_max_pool_at(sl_here at, sl_graph *g, sl_tensor *x, const struct sl_window *window);
sl_tensor *sl_mean_pool_at(sl_here at, sl_graph *g, sl_tensor *x, const struct sl_window *window);
sl_tensor *sl_cross_entropy_with_at(sl_here at, sl_graph *g, sl_tensor *logits, sl_tensor *targets,
                                    const struct sl_loss *loss);
sl_tensor *sl_expand_at(sl_here at, sl_graph *g, sl_tensor *x, sl_type shape);
sl_tensor *sl_expand_like_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *like);
sl_tensor *sl_gather_at(sl_here at, sl_graph *g, sl_tensor *x, int dim, sl_tensor *index);
sl_tensor *sl_scatter_add_at(sl_here at, sl_graph *g, sl_tensor *x, int dim, sl_tensor *index,
                             sl_tensor *src);
sl_tensor *sl_scatter_sum_at(sl_here at, sl_graph *g, sl_tensor *src, int dim, sl_tensor *index,
                             int64_t count);
sl_tensor *sl_top_k_at(sl_here at, sl_graph *g, sl_tensor *x, int dim, int64_t k,
                       sl_tensor **positions);
sl_tensor *sl_cumsum_at(sl_here at, sl_graph *g, sl_tensor *x, int dim, bool reverse,
                        bool exclusive);
sl_tensor *sl_one_hot_at(sl_here at, sl_graph *g, sl_tensor *ids, int64_t count);
sl_tensor *sl_cast_at(sl_here at, sl_graph *g, sl_tensor *x, sl_dtype dtype);
sl_tensor *sl_constant_at(sl_here at, sl_graph *g, sl_type type, const void *values,
                          sl_tensor *like);
sl_tensor *sl_filled_at(sl_here at, sl_graph *g, sl_type type, float value, sl_tensor *like);
sl_tensor *sl_arange_at(sl_here at, sl_graph *g, sl_tensor *like, int dim);
sl_tensor *sl_group_norm_at(sl_here at, sl_graph *g, sl_tensor *x, int groups, sl_tensor *gain,
                            sl_tensor *bias, float eps);
sl_tensor *sl_embedding_bag_at(sl_here at, sl_graph *g, sl_tensor *ids, sl_tensor *table,
                               sl_tensor *weights, const struct sl_bag *bag);
sl_routing sl_route_at(sl_here at, sl_graph *g, sl_tensor *logits, int k, bool normed);
sl_tensor *sl_grouped_linear_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *ids, sl_tensor *w);
sl_tensor *sl_expert_limit_at(sl_here at, sl_graph *g, const sl_routing *routing, float factor);
sl_tensor *sl_expert_load_at(sl_here at, sl_graph *g, sl_tensor *ids, int64_t experts);
sl_tensor *sl_balance_loss_at(sl_here at, sl_graph *g, const sl_routing *routing);
sl_tensor *sl_z_loss_at(sl_here at, sl_graph *g, sl_tensor *logits);
sl_tensor *sl_clamp_at(sl_here at, sl_graph *g, sl_tensor *x, float low, float high);
sl_tensor *sl_scale_at(sl_here at, sl_graph *g, sl_tensor *x, float by);
sl_tensor *sl_add_constant_at(sl_here at, sl_graph *g, sl_tensor *x, float constant);
sl_tensor *sl_op1_at(sl_here at, sl_graph *g, const sl_op *op, const sl_attrs *attrs,
                     sl_tensor *a);
sl_tensor *sl_op2_at(sl_here at, sl_graph *g, const sl_op *op, const sl_attrs *attrs,
                     sl_tensor *a, sl_tensor *b);
sl_tensor *sl_op3_at(sl_here at, sl_graph *g, const sl_op *op, const sl_attrs *attrs,
                     sl_tensor *a, sl_tensor *b, sl_tensor *c);

/* ---- what the graph is for ---------------------------------------------------- */

/* Minimise `loss` (a scalar, averaged over the step's microbatches, each of which counts alike,
 * however many of its rows do). The
 * settings are copied; NULL for all defaults. Once per graph. */
#define sl_train(g, loss, ...) sl_train_at(SL_HERE, g, loss, __VA_ARGS__)
void sl_train_at(sl_here at, sl_graph *g, sl_tensor *loss, const sl_optimizer *optimizer);

/* Parameters by pattern: a run of a name's components (what stands between dots), in which *
 * stands for any text, ? for any character and [..] for one of some. "h.*.attn" finds
 * "transformer.h.3.attn.c_attn.weight". A pattern that finds nothing is an error.
 *
 * Frozen parameters are not updated: they have no gradient and no optimizer's state, and
 * what only they would need of the way back is left out. */
#define sl_freeze(g, pattern) sl_freeze_at(SL_HERE, g, pattern)
void sl_freeze_at(sl_here at, sl_graph *g, const char *pattern);

/* Settings of a group of parameters; what is 0 is the optimizer's, SL_OFF is 0. Where several
 * groups say something of a parameter, the last one counts. */
typedef struct sl_group_settings {
  float lr;           /* peak rate: the schedule's rates are scaled by lr / the optimizer's lr */
  float lr_scale;     /* by this instead */
  float weight_decay; /* of all that the pattern finds, also of less than two dims */
} sl_group_settings;
#define sl_group(g, pattern, ...) sl_group_at(SL_HERE, g, pattern, __VA_ARGS__)
void sl_group_at(sl_here at, sl_graph *g, const char *pattern, const sl_group_settings *settings);

/* Adapters (LoRA: Hu et al., arXiv 2106.09685) beside the linear maps whose weights the pattern
 * finds, from here on: y = W x + b + (alpha / rank) B A x, with parameters "MODULE.lora_A.weight"
 * [rank, in], at random, and "MODULE.lora_B.weight" [out, rank], 0, where "MODULE.weight" is W's
 * name. Where there are adapters, all else is frozen. */
#define sl_lora(g, pattern, rank, alpha) sl_lora_at(SL_HERE, g, pattern, rank, alpha)
void sl_lora_at(sl_here at, sl_graph *g, const char *pattern, int rank, float alpha);
typedef struct sl_adapter {
  const char *module;
  int rank;
  float alpha;
  bool transposed; /* W is [in, out] */
} sl_adapter;

/* Names what evaluations find besides the loss: the mean of an f32 tensor over its elements and over
 * the held-out data, or a mean that is one already (sl_mean, sl_mse). Nothing of it is computed in
 * training or inference. */
#define sl_metric(g, name, t) sl_metric_at(SL_HERE, g, name, t)
void sl_metric_at(sl_here at, sl_graph *g, const char *name, sl_tensor *t);
/* Numbers [n], f32 without a gradient, that are added up over a step's microbatches and told with its
 * loss (sl_step_report): counts, mostly. */
#define sl_tally(g, name, t) sl_tally_at(SL_HERE, g, name, t)
void sl_tally_at(sl_here at, sl_graph *g, const char *name, sl_tensor *t);
/* The metrics' names, in order: NULL behind the last. */
const char *sl_graph_metric(const sl_graph *g, int i);

/* Names a tensor that inference delivers ("logits"). */
#define sl_output(g, name, t) sl_output_at(SL_HERE, g, name, t)
void sl_output_at(sl_here at, sl_graph *g, const char *name, sl_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
