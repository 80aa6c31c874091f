/* SPDX-License-Identifier: Apache-2.0 */
/* The model graph: how a user writes a model in C.
 *
 * A graph describes the computation of one microbatch. Each call applies an op to tensors and
 * infers the result's shape immediately. Errors are sticky: the graph records the first error with
 * its op, shapes and source line. Later calls return NULL, and calls given a NULL tensor do
 * nothing, so a model needs no error checks. Tensors and graph live in one arena and are freed
 * together.
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

/* Source position of a call in the user's program. */
typedef struct sl_here {
  const char *file;
  int line;
} sl_here;
#ifdef SL_MODEL_BUILTIN /* the user cannot edit the lines of a built-in model */
#define SL_HERE (SL_RECORD(sl_here){NULL, 0})
#else
#define SL_HERE (SL_RECORD(sl_here){__FILE__, __LINE__})
#endif

/* ---- graph ---------------------------------------------------------------- */

/* Method of cutting sequences into pieces. EVEN: equal lengths (the first pieces are one position
 * longer if the length does not divide). BALANCED: equal forward time, by the ops' costs. */
typedef enum sl_cut { SL_CUT_EVEN, SL_CUT_BALANCED } sl_cut;

/* Training settings from the program that runs a model, such as actorrun's options. They override
 * or extend the model's settings. The strings must outlive the graph; docs/training.md describes
 * their syntax. */
typedef struct sl_training {
  const char *optimizer; /* "lion", "sgd:momentum=0.9,nesterov"; NULL: the model's */
  const char *schedule;  /* "wsd:warmup=100,decay-steps=2000"; NULL: the model's */
  int ngroups, nfrozen;
  const char *const *groups; /* "h.*.ln*:lr=1e-4,decay=0": see sl_group() */
  const char *const *frozen; /* patterns: see sl_freeze() */
  int nlora;
  const char *const *lora; /* "h.*.attn=8,alpha=16": see sl_lora() */
  int64_t steps;           /* steps of the run, where the decay ends if a schedule does not say; 0:
                              unknown */
  /* Returns the storage format to keep a frozen parameter in, which applies if all its readers
   * support it. sl_lower calls it. NULL: all f32. */
  sl_storage (*storage)(void *ctx, const char *param);
  void *storage_ctx;
} sl_training;

/* Settings of a served graph. Each tick computes one row of positions, each of which may belong to
 * any sequence (batch.h); `fill` supplies the tokens and the batch of each tick. */
/* Experts of a served graph whose weights are on disk. */
typedef struct sl_expert_reads {
  uint64_t wanted;      /* parts that ticks wanted: an expert in a layer, or one of its planes */
  uint64_t read, bytes; /* of these, parts read from disk, and their bytes */
  /* parts that earlier layers guessed, and bytes read of them; those of them that their ticks
   * wanted, and their bytes */
  uint64_t guessed, guessed_bytes, right, right_bytes;
} sl_expert_reads;

/* Rows of tables that ticks read from disk, and the bytes of their pages. */
typedef struct sl_row_reads {
  uint64_t rows, bytes;
} sl_row_reads;

typedef struct sl_serving_experts {
  int32_t slots;       /* parts of experts that each layer holds; 0: half of them */
  bool ascending;      /* loads them by number instead of by rows, for comparisons */
  int32_t least, most; /* for experts in planes: bits that rows may have; 0: no limit */
  bool routed;         /* bit routers choose a row's bits, instead of its place among the token's */
  int32_t prefetch;    /* layers ahead at which the experts of a layer are guessed; 0: none */
  /* on modelled devices, fraction of the parts wanted that are in memory; 0: of all parts */
  double hits;
  sl_expert_reads *reads; /* counters, updated atomically while ticks run; NULL: not counted */
  /* Set by sl_lower: parts of a layer, and how many of them it holds; 0: all experts are in memory.
   * The bytes of a part. */
  int32_t parts, held;
  int64_t part_bytes;
} sl_serving_experts;

/* Attention of prompts to chosen pages of keys (ops/served_attention.c). */
typedef struct sl_prompt_blocks {
  float share;   /* fraction of the pages that a query attends to; 0: all */
  int64_t chunk; /* positions that choose together, a multiple of SL_PAGE; 0 if share is */
} sl_prompt_blocks;

typedef struct sl_serving {
  int64_t rows;    /* maximum rows of a tick */
  int sequences;   /* maximum sequences in a tick */
  int picks;       /* maximum tokens that a tick produces; sl_tokens replaces 0 by `sequences` */
  int groups;      /* ticks in flight */
  int64_t context; /* positions of a sequence; sl_tokens fills it in from the model */
  /* number of sink tokens that the model puts before each sequence, and the first one's id;
   * sl_tokens fills them in */
  int64_t sinks;
  int32_t sink;
  int64_t pages; /* pages of the KV cache in every stage; read by sl_lower */
  sl_storage kv; /* format of the KV cache (session.h) */
  bool exact;    /* attends in the order of training (docs/exact.md): keys and values of latents are
                    computed and stored */
  bool stateful; /* set by sl_lower: some op keeps states (sl_op_serve.slots) */
  int drafted;   /* maximum rows of a sequence that are drafted: with states, each sequence has so
                    many slots in addition to one */
  int kept;      /* state slots in addition to those of sequences, for cached prefixes; read by
                    sl_lower */
  /* maximum logit edits of a tick (sl_batch_edit), without the edits for a sequence's own tokens,
   * which sl_tokens adds, up to one per vocabulary entry; 0: no edits */
  int64_t edits;
  /* Returns the storage format of a weight, which applies if all its consumers support it. NULL:
   * all f32. */
  sl_storage (*storage)(void *ctx, const char *param);
  void (*fill)(void *ctx, const sl_tick *tick, int32_t *tokens, sl_batch *batch);
  uint64_t (*await)(void *ctx, const sl_tick *tick); /* see sl_source.await; for devices that
                                                        hold no values */
  /* Fills the rows of allowed tokens, [picks][words], for picks of constrained sequences: bit v %
   * 32 of word v / 32 stands for token v. It runs concurrently with the passes, once per tick, in
   * order. NULL: no sequence is constrained. */
  void (*allow)(void *ctx, const sl_batch *batch, uint32_t *rows);
  int64_t words; /* words of a row of allowed tokens */
  /* Number of places for adapters, and their maximum rank: each row of a tick may use a different
   * adapter. 0: none */
  int adapters, adapter_rank;
  /* Returns true if the linear map with this weight has places for adapters. */
  bool (*adapts)(void *ctx, const char *weight);
  /* Sets the place of each row's adapter, counted from 0; -1: none. Called after `fill`. */
  void (*choose_adapters)(void *ctx, int32_t *adapters);
  bool hidden; /* adds the output "hidden", the input of the logits' projection, for all rows of a
                  tick */
  sl_serving_experts experts;
  sl_row_reads *row_reads; /* counters, updated atomically while ticks run; NULL: not counted */
  sl_prompt_blocks prompt_blocks;
  sl_block_choices *choices; /* likewise */
  void *ctx;
} sl_serving;

typedef struct sl_graph_options {
  int microbatches; /* M: a step is M microbatches [1] */
  int pieces;       /* K: pieces into which the sequences of a microbatch are cut [1]. The model
                       is still written for whole sequences */
  sl_cut cut;
  const int64_t *lengths; /* [pieces] positions of each piece, instead of `cut`; or NULL. Copied */
  int stages;             /* pipeline stages of the run, for sl_graph_stages() [1] */
  /* Inference: the graph keeps only what sl_output() names and ignores sl_train. A microbatch is
   * one row. feed_tokens supplies tokens[rows*context] of each tick instead of a file. */
  bool infer;
  void (*feed_tokens)(void *ctx, const sl_tick *tick, int32_t *tokens, int64_t count);
  void *feed_ctx;
  sl_serving *serve; /* with `infer`: builds a served graph, whose output "sampled" has one
                        sl_sampled per pick of the batch. Must outlive the graph; NULL: not
                        served */
  struct sl_generation *generate; /* with `infer`: builds a graph that generates frames by denoising
                                     (<sluice/generation.h>). Must outlive the graph; NULL: none */
  uint64_t shuffle; /* sl_tokens: seed of the order of sequences, which differs in every epoch; 0:
                       file order */
  /* Evaluation after every eval_every-th step (0: never), while training continues: the loss and
   * the metrics (sl_metric) on held-out data. sl_tokens reads that data from the files named in
   * `eval`, in the syntax of its `paths`; other sources supply it themselves
   * (sl_source.held_out). */
  const char *eval;
  int64_t eval_every;
  int64_t eval_rows;           /* evaluates only the first eval_rows held-out rows; 0: all */
  const char *tokenizer;       /* sl_tokens: a tokenizer.json for text files; NULL: each byte is a
                                  token. Read while the graph is built */
  const sl_training *training; /* may be NULL */
  /* sl_texts, for chats: name or file of the chat template (NULL: the one next to the tokenizer);
   * tokens that the loss covers, "answers" (NULL) or "all"; and the treatment of chats longer than
   * a row, "cut" (NULL), "drop" or "refuse" */
  const char *chat_template, *learn, *long_chats;
  bool no_data; /* the graph is only planned or timed, not computed: data files may be missing */
  const struct sl_objective *objective; /* replaces the model's data and loss
                                           (<sluice/objective.h>). Must outlive the graph; NULL:
                                           none */
} sl_graph_options;

sl_graph *sl_graph_create(const sl_graph_options *options);
void sl_graph_destroy(sl_graph *g);
/* Returns the first error, or SL_OK; sl_detail() has the text. */
sl_status sl_graph_status(const sl_graph *g);
/* Records an error that the model detects, such as a bad option; the first error wins. */
sl_status sl_graph_fail(sl_graph *g, sl_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int sl_graph_microbatches(const sl_graph *g);
/* Returns the number of held-out rows in an evaluation of a lowered graph, or of microbatches if
 * the data has no rows. Sets *word to the unit. 0: no evaluation. */
int64_t sl_graph_evaluated(const sl_graph *g, const char **word);
int sl_graph_stages(const sl_graph *g);
bool sl_graph_infer(const sl_graph *g);
/* True if the model needs training data. */
bool sl_graph_reads_data(const sl_graph *g);
/* Returns the number of pieces and sets *lengths[pieces]. *lengths is NULL before the graph is
 * lowered and if sequences are not cut. */
int sl_graph_pieces(const sl_graph *g, const int64_t **lengths);
/* Allocates zeroed memory that lives as long as the graph, for a model's own records. */
void *sl_graph_alloc(sl_graph *g, size_t bytes);
/* Returns the rows of one microbatch if a step has `batch` rows: batch / M, or an error if M does
 * not divide it. 1 for inference. */
int64_t sl_microbatch_rows(sl_graph *g, int64_t batch);
/* Returns the number of items per step, for throughput: elements of the first data source's first
 * output if they are integers, else its rows; 0 without a source. Sets *word to "tokens" or
 * "rows". */
int64_t sl_graph_items(const sl_graph *g, const char **word);

/* Starts a new block ("h.3"): ops that stay on one stage. A pipeline is cut only between blocks.
 * Ops before the first call form the block "main". A data source belongs to the first block that
 * reads it. A repeated name gets a number appended. */
void sl_block(sl_graph *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Visits an earlier block again (a loop): the ops that follow run on that block's stage, after
 * those in between. Parameters with the names of the earlier visit are the same parameters, and
 * their shapes must be the same. The stage runs the block once per visit and microbatch; gradients
 * are summed in the order of the visits, as for parameters used several times in one block. The
 * visit is named as a repeated block ("h.3.2"). */
void sl_block_again(sl_graph *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Puts this block and the following ones on pipeline stage `stage`, instead of leaving the cut to
 * the balancer, until the next call. Stages must not decrease. */
void sl_block_stage(sl_graph *g, int stage);

/* ---- tensors ---------------------------------------------------------------- */

/* Initial values that the program supplies for a parameter, from memory or a file. `read` writes
 * `count` elements from `first` on, in row-major order; several threads may call it concurrently,
 * and repeatedly. `hash` covers all values and distinguishes runs. The record must outlive the
 * graph. */
typedef struct sl_given {
  void (*read)(void *ctx, int64_t first, int64_t count, float *out);
  void *ctx;
  uint64_t hash;
} sl_given;

/* Initial values of a parameter: normal(0, scale), constant `scale`, uniform(-scale, scale), or
 * values that the program supplies. Random values depend only on the seed and the parameter's
 * name. */
typedef enum sl_init_kind {
  SL_INIT_NORMAL,
  SL_INIT_CONSTANT,
  SL_INIT_UNIFORM,
  SL_INIT_GIVEN
} sl_init_kind;
typedef struct sl_init {
  sl_init_kind kind;
  float scale;
  const sl_given *given; /* SL_INIT_GIVEN */
} sl_init;
#define SL_NORMAL(std) (SL_RECORD(sl_init){SL_INIT_NORMAL, (std), NULL})
#define SL_CONSTANT(value) (SL_RECORD(sl_init){SL_INIT_CONSTANT, (value), NULL})
#define SL_UNIFORM(bound) (SL_RECORD(sl_init){SL_INIT_UNIFORM, (bound), NULL})
#define SL_GIVEN(values) (SL_RECORD(sl_init){SL_INIT_GIVEN, 0, (values)})

/* Declares a trained f32 array. `name` is its name in weight files, unique per graph, and is
 * copied. One tensor may be used many times (tied weights). */
#define sl_param(g, type, init, ...) sl_param_at(SL_HERE, g, type, init, __VA_ARGS__)
sl_tensor *sl_param_at(sl_here at, sl_graph *g, sl_type type, sl_init init, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Declares data filled by a callback, once per microbatch, in order. The source and everything it
 * points to must outlive every run. Fills outs[source->nout]. */
#define sl_data(g, source, outs) sl_data_at(SL_HERE, g, source, outs)
void sl_data_at(sl_here at, sl_graph *g, const struct sl_source *source, sl_tensor **outs);

/* Declares rows of `context` tokens, i32 [rows, context]; *targets holds the same tokens shifted by
 * one. `paths` lists the inputs in order, one per line: a file, FILE:TYPE, or a folder
 * (docs/data.md). Text is read byte by byte; use sl_texts for chats. Without shuffling, sequence i
 * of the run (step * batch + row) starts at token (i mod n) * context, where n is the number of
 * whole sequences. A token >= vocab is an error that names the file and the position. */
#define sl_tokens(g, paths, rows, context, vocab, targets) \
  sl_tokens_at(SL_HERE, g, paths, rows, context, vocab, targets)
sl_tensor *sl_tokens_at(sl_here at, sl_graph *g, const char *paths, int64_t rows, int64_t context,
                        int64_t vocab, sl_tensor **targets);

/* Rows of tokens of texts or chats (docs/data.md), each i32 [rows, context]. Texts give the same
 * rows as sl_tokens. Chats are packed, as many as fit in a row: `documents` holds the number of
 * each token's chat in the row, negative for padding (sl_attend_within), and `positions` counts
 * from the chat's beginning. Both are NULL for texts, and with `alone`, which puts one chat in each
 * row. */
typedef struct sl_texts {
  sl_tensor *tokens, *targets, *documents, *positions;
} sl_texts;
#define sl_texts(g, paths, rows, context, vocab, alone) \
  sl_texts_at(SL_HERE, g, paths, rows, context, vocab, alone)
sl_texts sl_texts_at(sl_here at, sl_graph *g, const char *paths, int64_t rows, int64_t context,
                     int64_t vocab, bool alone);
/* Prepends `count` sink tokens, with the ids vocab, vocab + 1, ..., to each sequence of later
 * sl_texts calls, whose tensors are then i32 [rows, count + context]. The loss does not cover them.
 * A server prepends them to each request. Chats and objectives are refused. */
void sl_sink_tokens(sl_graph *g, int64_t count);
/* Cross entropy of logits [rows, context, vocab]. For chats it is the mean over the tokens that
 * `learn` selects. */
#define sl_texts_loss(g, logits, texts) sl_texts_loss_at(SL_HERE, g, logits, texts)
sl_tensor *sl_texts_loss_at(sl_here at, sl_graph *g, sl_tensor *logits, const sl_texts *texts);

/* A file that sl_tokens or sl_texts reads: its size and a hash (FNV-1a) of its bytes, or of samples
 * spread over a large file. sl_graph_files() fills in the first `most` files, in order, and returns
 * the total number. The graph owns the paths. */
typedef struct sl_graph_file {
  const char *path;
  uint64_t bytes, hash;
} sl_graph_file;
int sl_graph_files(const sl_graph *g, int most, sl_graph_file *out);
/* Checks that the data files, held-out ones included, are unchanged since the graph was made.
 * SL_E_INPUT names a file that has been written since. Any thread. */
sl_status sl_graph_check_files(const sl_graph *g);

const sl_type *sl_tensor_type(const sl_tensor *t);
const char *sl_tensor_name(const sl_tensor *t);
int64_t sl_dim(const sl_tensor *t, int i); /* i < 0 counts from the end; 0 for NULL */

/* ---- ops -------------------------------------------------------------------- */

/* Applies an op from the table or a user-defined op. Fills outs[op->nout]. To omit optional input
 * i, pass NULL and set bit i of `absent`, which distinguishes it from a NULL caused by an earlier
 * error. */
#define sl_apply(g, op, attrs, nin, ins, absent, outs) \
  sl_apply_at(SL_HERE, g, op, attrs, nin, ins, absent, outs)
void sl_apply_at(sl_here at, sl_graph *g, const sl_op *op, const sl_attrs *attrs, int nin,
                 sl_tensor *const *ins, uint32_t absent, sl_tensor **outs);

/* The shipped ops as calls; see ops.h for shapes and formulas. b may be NULL if the bias is
 * optional. Each call returns the op's first output. */
#define sl_linear(g, x, w, b) sl_linear_at(SL_HERE, g, x, w, b, false)
/* Linear map with a weight of shape [in, out], as in GPT-2's files. */
#define sl_linear_transposed(g, x, w, b) sl_linear_at(SL_HERE, g, x, w, b, true)
#define sl_embedding(g, ids, table) sl_op2_at(SL_HERE, g, &sl_op_embedding, NULL, ids, table)
#define sl_position(g, x, table) sl_op2_at(SL_HERE, g, &sl_op_position, NULL, x, table)
/* Arithmetic with NumPy's broadcasting rules; two f64 scalars (losses) may be combined as well. */
#define sl_add(g, a, b) sl_add_at(SL_HERE, g, a, b)
#define sl_mul(g, a, b) sl_mul_at(SL_HERE, g, a, b)
#define sl_sub(g, a, b) sl_op2_at(SL_HERE, g, &sl_op_sub, NULL, a, b)
#define sl_div(g, a, b) sl_op2_at(SL_HERE, g, &sl_op_div, NULL, a, b)
#define sl_maximum(g, a, b) sl_op2_at(SL_HERE, g, &sl_op_maximum, NULL, a, b)
#define sl_minimum(g, a, b) sl_op2_at(SL_HERE, g, &sl_op_minimum, NULL, a, b)
/* Comparisons: i32 masks of 0 and 1 for sl_where. */
#define sl_lt(g, a, b) sl_op2_at(SL_HERE, g, &sl_op_lt, NULL, a, b)
#define sl_le(g, a, b) sl_op2_at(SL_HERE, g, &sl_op_le, NULL, a, b)
#define sl_gt(g, a, b) sl_op2_at(SL_HERE, g, &sl_op_gt, NULL, a, b)
#define sl_ge(g, a, b) sl_op2_at(SL_HERE, g, &sl_op_ge, NULL, a, b)
#define sl_eq(g, a, b) sl_op2_at(SL_HERE, g, &sl_op_eq, NULL, a, b)
#define sl_ne(g, a, b) sl_op2_at(SL_HERE, g, &sl_op_ne, NULL, a, b)
#define sl_where(g, mask, a, b) sl_op3_at(SL_HERE, g, &sl_op_where, NULL, mask, a, b)
/* Reductions over the dims whose bits are set in `axes`, SL_DIM(1) | SL_DIM(2); 0: all dims. With
 * `keep`, reduced dims stay with length 1. A result without dims is an f64 scalar, which sl_train
 * accepts. */
#define SL_DIM(d) (1u << (d))
#define sl_sum(g, x, axes, keep) sl_sum_at(SL_HERE, g, x, axes, keep)
#define sl_mean(g, x, axes, keep) sl_mean_at(SL_HERE, g, x, axes, keep)
#define sl_max(g, x, axes, keep) sl_max_at(SL_HERE, g, x, axes, keep)
/* Index of the largest element along a dim, i32; dims below 0 count from the end. */
#define sl_argmax(g, x, dim) sl_argmax_at(SL_HERE, g, x, dim)
/* Product of a [..., M, K] and b [..., K, N]; either may be transposed. */
#define sl_matmul(g, a, b, a_transposed, b_transposed) \
  sl_matmul_at(SL_HERE, g, a, b, a_transposed, b_transposed)
/* Rounds each row to spikes; *counts: see ops.h, or NULL. k 0: 3. */
#define sl_spikes(g, x, k, counts) sl_spikes_at(SL_HERE, g, x, k, counts)
/* Rounds a weight to int8 in groups of 128 along the last dim. */
#define sl_quantize(g, w) sl_op1_at(SL_HERE, g, &sl_op_quantize, NULL, w)
#define sl_softmax(g, x, dim) sl_softmax_at(SL_HERE, g, x, dim, false)
#define sl_log_softmax(g, x, dim) sl_softmax_at(SL_HERE, g, x, dim, true)
#define sl_gelu(g, x) sl_op1_at(SL_HERE, g, &sl_op_gelu, NULL, x)
/* Exact GELU, with the error function; sl_gelu is the tanh approximation. */
#define sl_gelu_erf(g, x) sl_op1_at(SL_HERE, g, &sl_op_gelu_erf, NULL, x)
#define sl_relu(g, x) sl_op1_at(SL_HERE, g, &sl_op_relu, NULL, x)
#define sl_tanh(g, x) sl_op1_at(SL_HERE, g, &sl_op_tanh, NULL, x)
#define sl_silu(g, x) sl_op1_at(SL_HERE, g, &sl_op_silu, NULL, x)
#define sl_sigmoid(g, x) sl_op1_at(SL_HERE, g, &sl_op_sigmoid, NULL, x)
#define sl_exp(g, x) sl_op1_at(SL_HERE, g, &sl_op_exp, NULL, x)
#define sl_log(g, x) sl_op1_at(SL_HERE, g, &sl_op_log, NULL, x)
#define sl_sqrt(g, x) sl_op1_at(SL_HERE, g, &sl_op_sqrt, NULL, x)
#define sl_rsqrt(g, x) sl_op1_at(SL_HERE, g, &sl_op_rsqrt, NULL, x)
#define sl_abs(g, x) sl_op1_at(SL_HERE, g, &sl_op_abs, NULL, x)
#define sl_erf(g, x) sl_op1_at(SL_HERE, g, &sl_op_erf, NULL, x)
#define sl_sin(g, x) sl_op1_at(SL_HERE, g, &sl_op_sin, NULL, x)
#define sl_cos(g, x) sl_op1_at(SL_HERE, g, &sl_op_cos, NULL, x)
#define sl_softplus(g, x) sl_op1_at(SL_HERE, g, &sl_op_softplus, NULL, x)
/* No gradient passes through these two. */
#define sl_floor(g, x) sl_op1_at(SL_HERE, g, &sl_op_floor, NULL, x)
#define sl_detach(g, x) sl_op1_at(SL_HERE, g, &sl_op_detach, NULL, x)
#define sl_neg(g, x) sl_op1_at(SL_HERE, g, &sl_op_neg, NULL, x)
#define sl_clamp(g, x, low, high) sl_clamp_at(SL_HERE, g, x, low, high)
#define sl_softcap(g, x, cap) sl_softcap_at(SL_HERE, g, x, cap)
#define sl_scale(g, x, by) sl_scale_at(SL_HERE, g, x, by)
#define sl_add_constant(g, x, constant) sl_add_constant_at(SL_HERE, g, x, constant)
#define sl_swiglu(g, gate, up) sl_op2_at(SL_HERE, g, &sl_op_swiglu, NULL, gate, up)
#define sl_layernorm(g, x, gain, bias, eps) sl_layernorm_at(SL_HERE, g, x, gain, bias, eps)
#define sl_rmsnorm(g, x, gain, eps) sl_rmsnorm_at(SL_HERE, g, x, gain, eps)
#define sl_rotary(g, x, heads, theta) sl_rotary_at(SL_HERE, g, x, heads, theta, NULL)
/* Rotary embedding with context extension (sl_rope); the record is copied. NULL: none. */
#define sl_rotary_stretched(g, x, heads, theta, rope) \
  sl_rotary_at(SL_HERE, g, x, heads, theta, rope)
#define sl_attention(g, q, k, v, heads, kv_heads) \
  sl_attention_at(SL_HERE, g, q, k, v, heads, kv_heads)
#define sl_attention_packed(g, qkv, heads, kv_heads) \
  sl_attention_packed_at(SL_HERE, g, qkv, heads, kv_heads)
/* Gated linear attention (sl_op_linear_attention). The last argument has the attributes: heads,
 * kv_heads, scale. q [B, T, heads dk], k [B, T, kv_heads dk], v [B, T, kv_heads dv], and the
 * logarithms of the gates, [B, T, kv_heads dk] or [B, T, kv_heads] -> [B, T, heads dv]. */
#define sl_linear_attention(g, q, k, v, gates, ...) \
  sl_linear_attention_at(SL_HERE, g, q, k, v, gates, __VA_ARGS__)
/* Short causal convolution, channel by channel (sl_op_causal_conv): x [B, T, C], w [C, W] or [C, 1,
 * W], bias [C] or NULL -> [B, T, C]. */
#define sl_causal_conv(g, x, w, bias) sl_causal_conv_at(SL_HERE, g, x, w, bias)
/* Causal convolution within documents: positions [B, T] of tokens in their documents
 * (sl_documents), or NULL. */
#define sl_causal_conv_within(g, x, w, bias, positions) \
  sl_causal_conv_within_at(SL_HERE, g, x, w, bias, positions)
/* The gated delta rule (sl_op_delta_rule). The last argument has the attributes: heads, kv_heads,
 * scale. q and k [B, T, kv_heads dk], v [B, T, heads dv], the logarithms of the gates [B, T, heads]
 * or, with kv_heads = heads, [B, T, heads dk], the correction rates (`parts`) [B, T, heads]
 * -> [B, T, heads dv]. */
#define sl_delta_rule(g, q, k, v, gates, parts, ...) \
  sl_delta_rule_at(SL_HERE, g, q, k, v, gates, parts, __VA_ARGS__)
/* Attention. The last argument has the attributes: heads, kv_heads, full, window, scale. */
#define sl_attend(g, q, k, v, ...) sl_attend_at(SL_HERE, g, q, k, v, __VA_ARGS__)
#define sl_attend_packed(g, qkv, ...) sl_attend_packed_at(SL_HERE, g, qkv, __VA_ARGS__)
/* Causal block-sparse attention: each query block attends to selected blocks of 64 keys
 * (sl_op_choose_blocks), attrs.attention.blocks of them or a fraction attrs.attention.share.
 * *recall, if not NULL, becomes the fraction of the last 64 queries' softmax mass that their blocks
 * hold, [B, heads]. */
#define sl_attend_blocks(g, q, k, v, attrs, recall) \
  sl_attend_blocks_at(SL_HERE, g, q, k, v, attrs, recall)
/* Attention among positions with the same id, i32 [B, T]: documents packed in a row do not attend
 * to each other. A position with a negative id (padding) is masked out as query and as key. ids may
 * be NULL if a row is one document. */
#define sl_attend_within(g, q, k, v, ids, ...) \
  sl_attend_within_at(SL_HERE, g, q, k, v, ids, __VA_ARGS__)
#define sl_attend_packed_within(g, qkv, ids, ...) \
  sl_attend_packed_within_at(SL_HERE, g, qkv, ids, __VA_ARGS__)
/* Returns document ids of tokens [B, T]: 0, 1, ... from the beginning of the row; the token `end`
 * ends a document. *positions, if not NULL: each token's position in its document. */
#define sl_documents(g, tokens, end, positions) sl_documents_at(SL_HERE, g, tokens, end, positions)
/* Dropout; the identity in inference and if p is 0. */
#define sl_dropout(g, x, p) sl_dropout_at(SL_HERE, g, x, p)
/* Random numbers, new for each microbatch, in the shape of `like`, whose values are not read. */
#define sl_uniform(g, like, low, high) sl_uniform_at(SL_HERE, g, like, low, high)
#define sl_normal(g, like, mean, deviation) sl_normal_at(SL_HERE, g, like, mean, deviation)
/* sl_reshape(g, x, B, T, -1): the same elements in another shape; one length may be -1 and is
 * inferred. sl_permute(g, x, 0, 2, 1): the dims of x in this order. Negative dims count from the
 * end, here and below. The functions ignore the dtype of their sl_type argument. */
#define sl_reshape(g, x, ...) sl_reshape_at(SL_HERE, g, x, SL_TYPE(SL_F32, __VA_ARGS__))
#define sl_permute(g, x, ...) sl_permute_at(SL_HERE, g, x, SL_TYPE(SL_I32, __VA_ARGS__))
#define sl_transpose(g, x, a, b) sl_transpose_at(SL_HERE, g, x, a, b)
/* Takes `count` positions of a dim, from `begin` on. */
#define sl_slice(g, x, dim, begin, count) sl_slice_at(SL_HERE, g, x, dim, begin, count)
/* Splits along a dim into outs[count] of these lengths. lengths NULL: all equal. */
#define sl_split(g, x, dim, count, lengths, outs) \
  sl_split_at(SL_HERE, g, x, dim, count, lengths, outs)
/* Adds tensors of one type, losses included. */
#define sl_add_all(g, count, tensors) sl_add_all_at(SL_HERE, g, count, tensors)
/* Concatenates tensors along a dim; dim < 0 counts from the end. */
#define sl_concat(g, dim, count, tensors) sl_concat_at(SL_HERE, g, dim, count, tensors)
/* Expands x to these lengths in dims where it has length 1 or no dim; -1: unchanged. sl_expand_like
 * takes the lengths of `like`, which are also right for pieces of sequences. */
#define sl_expand(g, x, ...) sl_expand_at(SL_HERE, g, x, SL_TYPE(SL_F32, __VA_ARGS__))
#define sl_expand_like(g, x, like) sl_expand_like_at(SL_HERE, g, x, like)
/* Elements of x at index i32 along a dim. index has as many dims as x and any length along `dim`; a
 * length of 1 in another dim applies to all positions there. */
#define sl_gather(g, x, dim, index) sl_gather_at(SL_HERE, g, x, dim, index)
/* scatter_add: x with src added at the indexed positions; src has the shape of gather's output.
 * scatter_sum: the same on zeros, `count` positions long. */
#define sl_scatter_add(g, x, dim, index, src) sl_scatter_add_at(SL_HERE, g, x, dim, index, src)
#define sl_scatter_sum(g, src, dim, index, count) \
  sl_scatter_sum_at(SL_HERE, g, src, dim, index, count)
/* The k largest elements along a dim; *positions: their indices, i32. */
#define sl_top_k(g, x, dim, k, positions) sl_top_k_at(SL_HERE, g, x, dim, k, positions)
#define sl_cumsum(g, x, dim, reverse, exclusive) \
  sl_cumsum_at(SL_HERE, g, x, dim, reverse, exclusive)
/* One-hot encoding: i32 [...] -> f32 [..., count]. */
#define sl_one_hot(g, ids, count) sl_one_hot_at(SL_HERE, g, ids, count)
/* Converts between f32 and SL_I32, without a gradient. Also converts an f64 scalar (a loss, a full
 * sum) to SL_F32 and an f32 scalar to SL_F64, with a gradient. Returns x itself if it already has
 * that type. */
#define sl_cast(g, x, dtype) sl_cast_at(SL_HERE, g, x, dtype)
/* Constant f32 or i32 values, copied. `like` is NULL, or a tensor of the same shape: the constant
 * is then sharded and cut into pieces as that tensor is. A constant that varies with the rows of
 * data needs `like`. */
#define sl_constant(g, type, values, like) sl_constant_at(SL_HERE, g, type, values, like)
#define sl_filled(g, type, value, like) sl_filled_at(SL_HERE, g, type, value, like)
/* Positions along a dim, i32, shaped as `like`. */
#define sl_arange(g, like, dim) sl_arange_at(SL_HERE, g, like, dim)
#define sl_group_norm(g, x, groups, gain, bias, eps) \
  sl_group_norm_at(SL_HERE, g, x, groups, gain, bias, eps)
/* Makes a parameter a running average of a value of the same shape instead of training it: each
 * microbatch, in order, sets it to (1 - momentum) param + momentum value; with momentum 0 it is a
 * running sum, param + value. Gradient norm, clipping and learning rate do not apply to it. Readers
 * see its value after the previous step. Inference does not change it. */
#define sl_running(g, param, value, momentum) sl_running_at(SL_HERE, g, param, value, momentum)
/* Batch norm of x [N, C, ...]; gain, bias, mean and variance are [C]. Training normalises by each
 * microbatch's statistics and keeps their running averages in the parameters mean and variance
 * (sl_running). Inference and evaluation use those averages; so does training if momentum is
 * SL_OFF. eps 0: 1e-5. */
#define sl_batch_norm(g, x, gain, bias, mean, variance, momentum, eps) \
  sl_batch_norm_at(SL_HERE, g, x, gain, bias, mean, variance, momentum, eps)
/* ids [..., L] -> [..., C]; weights may be NULL. The last argument is an sl_bag, copied, or
 * NULL. */
#define sl_embedding_bag(g, ids, table, weights, ...) \
  sl_embedding_bag_at(SL_HERE, g, ids, table, weights, __VA_ARGS__)
/* Images [N, C, H, W] or sequences [N, C, W]. The last argument is an sl_window, copied, or
 * NULL. */
#define sl_conv(g, x, w, b, ...) sl_conv_at(SL_HERE, g, x, w, b, __VA_ARGS__)
#define sl_max_pool(g, x, ...) sl_max_pool_at(SL_HERE, g, x, __VA_ARGS__)
#define sl_mean_pool(g, x, ...) sl_mean_pool_at(SL_HERE, g, x, __VA_ARGS__)
/* Routing of a mixture of experts (<sluice/experts.h>): the k largest probabilities of logits [...,
 * E] and the ids of their experts. `normed`: divides the weights by their sum. */
typedef struct sl_routing {
  sl_tensor *probabilities; /* [..., E] */
  sl_tensor *weights;       /* [..., k] */
  sl_tensor *ids;           /* i32 [..., k] */
} sl_routing;
#define sl_route(g, logits, k, normed) sl_route_at(SL_HERE, g, logits, k, normed)
#define sl_grouped_linear(g, x, ids, w) sl_grouped_linear_at(SL_HERE, g, x, ids, w)
#define sl_combine(g, y, weights) sl_op2_at(SL_HERE, g, &sl_op_combine, NULL, y, weights)
/* Expert capacity: drops ids beyond `factor` times an expert's even share. */
#define sl_expert_limit(g, routing, factor) sl_expert_limit_at(SL_HERE, g, routing, factor)
/* Number of ids per expert, [E]. */
#define sl_expert_load(g, ids, experts) sl_expert_load_at(SL_HERE, g, ids, experts)
/* Auxiliary losses. Balance: E sum_e f_e P_e, with f_e the fraction of ids routed to expert e and
 * P_e its mean probability; 1 if perfectly even (Fedus et al., arXiv 2101.03961). Z-loss: the mean
 * of log(sum exp logits)^2 (Zoph et al., arXiv 2202.08906). */
#define sl_balance_loss(g, routing) sl_balance_loss_at(SL_HERE, g, routing)
#define sl_z_loss(g, logits) sl_z_loss_at(SL_HERE, g, logits)
#define sl_cross_entropy(g, logits, targets) sl_cross_entropy_at(SL_HERE, g, logits, targets)
/* Cross entropy that ignores or reweights some targets. The last argument is an sl_loss, copied, or
 * NULL. The result is the weighted mean over all rows of a microbatch that are not ignored, however
 * they are sharded or cut. If all are ignored, loss and gradients are 0. */
#define sl_cross_entropy_with(g, logits, targets, ...) \
  sl_cross_entropy_with_at(SL_HERE, g, logits, targets, __VA_ARGS__)
/* Log-probability of each row's target, f32, shaped as targets. */
#define sl_log_probability(g, logits, targets) \
  sl_op2_at(SL_HERE, g, &sl_op_log_probability, NULL, logits, targets)
/* For each row 1 if the target has the largest logit, else 0; f32, shaped as targets. */
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
                        const sl_attention_attrs *attrs);
sl_tensor *sl_linear_attention_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *k, sl_tensor *v,
                                  sl_tensor *gates, const sl_attention_attrs *attrs);
sl_tensor *sl_causal_conv_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *w, sl_tensor *bias);
sl_tensor *sl_causal_conv_within_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *w,
                                    sl_tensor *bias, sl_tensor *positions);
sl_tensor *sl_delta_rule_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *k, sl_tensor *v,
                            sl_tensor *gates, sl_tensor *parts, const sl_attention_attrs *attrs);
sl_tensor *sl_attend_packed_at(sl_here at, sl_graph *g, sl_tensor *qkv,
                               const sl_attention_attrs *attrs);
sl_tensor *sl_attend_blocks_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *k, sl_tensor *v,
                               const sl_attention_attrs *attrs, sl_tensor **recall);
sl_tensor *sl_attend_within_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *k, sl_tensor *v,
                               sl_tensor *ids, const sl_attention_attrs *attrs);
sl_tensor *sl_attend_packed_within_at(sl_here at, sl_graph *g, sl_tensor *qkv, sl_tensor *ids,
                                      const sl_attention_attrs *attrs);
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
sl_tensor *sl_cross_entropy_at(sl_here at, sl_graph *g, sl_tensor *logits, sl_tensor *targets);
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
void sl_running_at(sl_here at, sl_graph *g, sl_tensor *param, sl_tensor *value, float momentum);
sl_tensor *sl_batch_norm_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *gain, sl_tensor *bias,
                            sl_tensor *mean, sl_tensor *variance, float momentum, float eps);
sl_tensor *sl_embedding_bag_at(sl_here at, sl_graph *g, sl_tensor *ids, sl_tensor *table,
                               sl_tensor *weights, const struct sl_bag *bag);
sl_routing sl_route_at(sl_here at, sl_graph *g, sl_tensor *logits, int k, bool normed);
sl_tensor *sl_grouped_linear_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *ids,
                                sl_tensor *w);
sl_tensor *sl_expert_limit_at(sl_here at, sl_graph *g, const sl_routing *routing, float factor);
sl_tensor *sl_expert_load_at(sl_here at, sl_graph *g, sl_tensor *ids, int64_t experts);
sl_tensor *sl_balance_loss_at(sl_here at, sl_graph *g, const sl_routing *routing);
sl_tensor *sl_z_loss_at(sl_here at, sl_graph *g, sl_tensor *logits);
sl_tensor *sl_spikes_at(sl_here at, sl_graph *g, sl_tensor *x, float k, sl_tensor **counts);
sl_tensor *sl_clamp_at(sl_here at, sl_graph *g, sl_tensor *x, float low, float high);
sl_tensor *sl_softcap_at(sl_here at, sl_graph *g, sl_tensor *x, float cap);
sl_tensor *sl_scale_at(sl_here at, sl_graph *g, sl_tensor *x, float by);
sl_tensor *sl_add_constant_at(sl_here at, sl_graph *g, sl_tensor *x, float constant);
sl_tensor *sl_op1_at(sl_here at, sl_graph *g, const sl_op *op, const sl_attrs *attrs, sl_tensor *a);
sl_tensor *sl_op2_at(sl_here at, sl_graph *g, const sl_op *op, const sl_attrs *attrs, sl_tensor *a,
                     sl_tensor *b);
sl_tensor *sl_op3_at(sl_here at, sl_graph *g, const sl_op *op, const sl_attrs *attrs, sl_tensor *a,
                     sl_tensor *b, sl_tensor *c);

/* ---- what the graph is for ---------------------------------------------------- */

/* Minimises `loss`, a scalar, averaged over the step's microbatches. All microbatches have the same
 * weight, regardless of how many rows the loss covers. The settings are copied; NULL: all defaults.
 * Call it once per graph. */
#define sl_train(g, loss, ...) sl_train_at(SL_HERE, g, loss, __VA_ARGS__)
void sl_train_at(sl_here at, sl_graph *g, sl_tensor *loss, const sl_optimizer *optimizer);

/* Freezes the parameters that a pattern matches: they get no gradient and no optimizer state, and
 * the backward pass omits everything computed only for them.
 *
 * A pattern matches a run of a name's components (the parts between dots): * matches any text, ?
 * any character and [..] one of a set. "h.*.attn" matches "transformer.h.3.attn.c_attn.weight". A
 * pattern without a match is an error. */
#define sl_freeze(g, pattern) sl_freeze_at(SL_HERE, g, pattern)
void sl_freeze_at(sl_here at, sl_graph *g, const char *pattern);

/* Settings of a parameter group; 0 means the optimizer's setting, SL_OFF means 0. If several groups
 * set the same field for a parameter, the last one wins. */
typedef struct sl_group_settings {
  float lr;           /* peak rate: scales the schedule's rates by lr / the optimizer's lr */
  float lr_scale;     /* scales the schedule's rates by this instead */
  float weight_decay; /* decay of every matched tensor, even with fewer than two dims */
  /* The optimizer's op, or the op for its other parameters (sl_update.others). NULL: chosen by the
   * optimizer. */
  const struct sl_op *rule;
} sl_group_settings;
#define sl_group(g, pattern, ...) sl_group_at(SL_HERE, g, pattern, __VA_ARGS__)
void sl_group_at(sl_here at, sl_graph *g, const char *pattern, const sl_group_settings *settings);

/* Adds adapters (LoRA: Hu et al., arXiv 2106.09685) to later linear maps whose weights the pattern
 * matches: y = W x + b + (alpha / rank) B A x. W is "MODULE.weight"; the new parameters are
 * "MODULE.lora_A.weight" [rank, in], initially random, and "MODULE.lora_B.weight" [out, rank],
 * initially 0. In a graph with adapters all other parameters are frozen. */
#define sl_lora(g, pattern, rank, alpha) sl_lora_at(SL_HERE, g, pattern, rank, alpha)
void sl_lora_at(sl_here at, sl_graph *g, const char *pattern, int rank, float alpha);
typedef struct sl_adapter {
  const char *module;
  int rank;
  float alpha;
  bool transposed; /* W is [in, out] */
  int places;      /* served graph: number of adapters stacked in dim 0 of one tensor; 0: a single
                      adapter */
} sl_adapter;

/* Adds a metric to evaluations, besides the loss: the mean of an f32 tensor over its elements and
 * the held-out data, or a scalar that could be a loss: a mean, or a sum of such means. Training and
 * inference do not compute it. */
#define sl_metric(g, name, t) sl_metric_at(SL_HERE, g, name, t)
void sl_metric_at(sl_here at, sl_graph *g, const char *name, sl_tensor *t);
/* Adds a counter: f32 numbers [n] without a gradient, summed over a step's microbatches and
 * reported with the step's loss (sl_step_report). */
#define sl_counter(g, name, t) sl_counter_at(SL_HERE, g, name, t)
void sl_counter_at(sl_here at, sl_graph *g, const char *name, sl_tensor *t);
/* Adds a number that is logged with each training step's loss: the sum, mean or maximum of an f32
 * tensor's elements over the step. It has no gradient. */
typedef enum sl_over { SL_OVER_SUM, SL_OVER_MEAN, SL_OVER_MAX } sl_over;
#define sl_step_value(g, name, t, over) sl_step_value_at(SL_HERE, g, name, t, over)
void sl_step_value_at(sl_here at, sl_graph *g, const char *name, sl_tensor *t, sl_over over);
/* Returns the name of number i of a step, in order; NULL after the last. */
const char *sl_graph_step_value(const sl_graph *g, int i);
/* Returns the name of metric i, in order; NULL after the last. */
const char *sl_graph_metric(const sl_graph *g, int i);

/* Adds an output of inference under this name ("logits"). */
#define sl_output(g, name, t) sl_output_at(SL_HERE, g, name, t)
void sl_output_at(sl_here at, sl_graph *g, const char *name, sl_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
