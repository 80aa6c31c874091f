/* SPDX-License-Identifier: Apache-2.0 */
/* The table of ops: one const record (row) per kernel.
 *
 * A row holds an op's shape rule, its cost, its functions per device and its gradient rules. The
 * graph layer builds models out of ops, derives the backward pass from the gradient rules (which
 * are data, not code) and lowers calls into programs; a device runs programs. Users add ops by
 * defining rows of their own and passing them to sl_apply(). Rows are never copied or freed.
 *
 * Threads: every function of an op may be called by several threads at once on different calls. */
#ifndef SLUICE_OP_H
#define SLUICE_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/renamed.h>
#include <sluice/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- types -------------------------------------------------------------- */

/* clang-format off */
#define SL_DTYPE_TABLE(X)                                                      \
  X(F32, "f32", 4)                                                             \
  X(BF16, "bf16", 2)                                                           \
  X(F64, "f64", 8)                                                             \
  X(I32, "i32", 4)
/* clang-format on */

typedef enum sl_dtype {
#define X(name, text, bytes) SL_##name,
  SL_DTYPE_TABLE(X)
#undef X
      SL_DTYPE_COUNT
} sl_dtype;

enum { SL_MAX_DIMS = 8 };

/* A dense row-major array: dim[0] varies slowest. ndim 0 is a scalar. */
typedef struct sl_type {
  sl_dtype dtype;
  int ndim;
  int64_t dim[SL_MAX_DIMS];
} sl_type;

/* Makes a type as SL_TYPE does, from an array of dims. A negative ndim, or one above SL_MAX_DIMS,
 * is refused when the type is used. */
sl_type sl_type_make(sl_dtype dtype, int ndim, const int64_t *dims);

/* Makes a record in an expression, in C and in C++: SL_RECORD(sl_init){SL_INIT_NORMAL, 1}. */
#ifdef __cplusplus
#define SL_RECORD(type) type
#define SL_TYPE(dtype_, ...) (sl_type_of((dtype_), __VA_ARGS__))
extern "C++" {
template <class... Dims> inline sl_type sl_type_of(sl_dtype dtype, Dims... dims) {
  return sl_type{dtype, static_cast<int>(sizeof...(dims)), {static_cast<int64_t>(dims)...}};
}
}
#else
#define SL_RECORD(type) (type)
#define SL_TYPE(dtype_, ...) \
  ((sl_type){(dtype_), sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), {__VA_ARGS__}})
#endif
#define SL_SCALAR(dtype_) (SL_RECORD(sl_type){(dtype_), 0, {0}})

const char *sl_dtype_name(sl_dtype dtype);
size_t sl_dtype_bytes(sl_dtype dtype);
int64_t sl_type_elements(const sl_type *type); /* product of the dims; 1 for a scalar */
size_t sl_type_bytes(const sl_type *type);
int64_t sl_type_last(const sl_type *type); /* last dim; 1 for a scalar */
int64_t sl_type_rows(const sl_type *type); /* elements / last dim */
bool sl_type_equal(const sl_type *a, const sl_type *b);
/* Formats a type, "f32[8, 256, 384]"; returns `out`, which has at least SL_TYPE_TEXT bytes. */
enum { SL_TYPE_TEXT = 256 };
char *sl_type_format(char *out, const sl_type *type);

/* ---- parts -------------------------------------------------------------- */

/* Part of an array: up to three ranges of positions along one dim, one after another (the queries,
 * keys and values of some heads are three ranges of a packed tensor). axis SL_PART_ALL: the whole
 * array. SL_PART_FLAT: ranges of elements in row-major order; the part then has one dim. */
enum { SL_PART_RANGES = 3, SL_PART_ALL = -1, SL_PART_FLAT = -2 };
typedef struct sl_part {
  int axis, nranges;
  int64_t begin[SL_PART_RANGES], count[SL_PART_RANGES];
} sl_part;

/* Shard of a parameter on one device: a part of a part of an array. No device needs to hold the
 * whole. */
enum { SL_SHARD_PARTS = 3 };
typedef struct sl_shard {
  sl_type whole;
  sl_part parts[SL_SHARD_PARTS]; /* the first is a part of the whole, each other of the one
                                    before it */
} sl_shard;
#define SL_ALL_PARTS                                                      \
  {                                                                       \
    {.axis = SL_PART_ALL}, {.axis = SL_PART_ALL}, { .axis = SL_PART_ALL } \
  }

sl_type sl_part_type(const sl_type *whole, const sl_part *part);
/* Copy a part out of a whole array, and into it. Arrays are dense; any thread. */
void sl_part_take(const sl_type *whole, const sl_part *part, const void *from, void *to);
void sl_part_put(const sl_type *whole, const sl_part *part, const void *from, void *to);
/* Shard versions of the above; `whole` is the whole array. */
sl_type sl_shard_type(const sl_shard *shard);
void sl_shard_take(const sl_shard *shard, const void *whole, void *to);
void sl_shard_put(const sl_shard *shard, const void *from, void *whole);

/* Position of an array in a whole: along dim d the ranges of[d], or all of it if that has no
 * ranges. Positions along dim `sequence` - 1 count from the beginning of the tick's piece
 * (sl_tick.row); `sequence` 0: no such dim. */
typedef struct sl_region {
  int ndim, sequence;
  int64_t whole[SL_MAX_DIMS];
  sl_part of[SL_MAX_DIMS];
} sl_region;

/* ---- classes ------------------------------------------------------------ */

/* Kind of pass that an actor belongs to. Priority and colours follow the class. Traces store the
 * numbers, so none is reused: 3 is retired. X(letter, number, name) */
/* clang-format off */
#define SL_CLASS_TABLE(X)                                                      \
  X(F, 0, "forward")                                                           \
  X(B, 1, "input gradient")                                                    \
  X(W, 2, "weight gradient")                                                   \
  X(U, 4, "update")                                                            \
  X(C, 5, "communicate")                                                       \
  X(L, 6, "load/store")
/* clang-format on */

typedef enum sl_class {
#define X(letter, number, name) SL_CLASS_##letter = number,
  SL_CLASS_TABLE(X)
#undef X
      SL_CLASS_COUNT /* number of class numbers */
} sl_class;

const char *sl_class_name(sl_class cls); /* "forward"; "?" for an unknown number */
char sl_class_letter(sl_class cls);      /* 'F' ...; '?' for an unknown number */

/* ---- attributes and calls ------------------------------------------------ */

/* Settings of an op at one place of a graph. All ops share this flat record; each op documents the
 * fields it reads. Zero means the op's default. */
typedef struct sl_attrs {
  int heads;       /* attention, rotary: query heads; group_norm: groups */
  int kv_heads;    /* attention: key/value heads (0: heads) */
  float eps;       /* norms (0: 1e-5) */
  float theta;     /* rotary base (0: 10000) */
  float value;     /* fill, constant, scale, add_constant: the constant; clamp, uniform: the low
                      bound; softcap: the cap; normal: the mean; dropout: the drop probability;
                      choose_blocks: the share of the blocks; weighted_cross_entropy:
                      weight that smoothing takes from the target;
                      running_part: the momentum; running: what is left of p */
  float upper;     /* clamp, uniform: the high bound; normal: the standard deviation;
                      weighted_cross_entropy: weight that smoothing gives each class */
  int32_t ignore;  /* target_weight, weighted_cross_entropy: target that does not count, as in
                      sl_loss */
  bool transposed; /* linear: weight is [in, out] (GPT-2's Conv1D) instead of [out, in]; matmul:
                      b is [..., n, k] */
  bool left_transposed; /* matmul: a is [..., k, m] */
  int64_t length;       /* tokens of a whole sequence if sequences are cut into pieces, set by the
                           graph; else 0 */
  uint64_t key;         /* `located` ops: distinguishes streams of random numbers; 0: the graph sets
                           one for this place */
  uint64_t seed;        /* `located` ops: the run's seed, set by the graph */
  const sl_region *region; /* `located` ops: position of output 0 in a microbatch's whole (in the
                              backward pass, of the forward call's); NULL: all of it. Set by the
                              graph */
  uint32_t axes; /* concat, split, gather, scatter_add, top_k, cumsum, arange: bit d selects
                    dim d */
  int ndims;     /* permute: the input dim of each output dim; expand: lengths of the
                    output, 0: the input's */
  int64_t dims[SL_MAX_DIMS]; /* position, position_w, rotary, rotary_b, with ndims 2: positions
                                from dims[0] of the part on are shifted by dims[1] */
  bool bf16;  /* set by the graph: ops with `rounds` round to bf16, served ops keep bf16 */
  bool exact; /* set by the graph: sums have one order, whatever the cut */
  /* attention_dual: positions of a chunk; exact products (linear, linear_b, matmul, grouped, conv),
   * cross_entropy: steps of k in a group, set by the graph (0: all of k); and the lengths of the
   * parts of a packed k as a whole, if there is more than one. A group has a share of each part,
   * and a device a whole number of groups. */
  int64_t chunk, part[SL_PART_RANGES];
  /* exact ops that sum a gradient over rows, set by the graph: bit i: input i is cut along dim 0
   * into leaves, which are summed one by one; bit i of `positions`: leaves also end after each
   * `leaf` positions of dim 1 */
  uint32_t leaves, positions;
  int64_t leaf;
  int64_t rows; /* pack: rows of the products that will read the weight */
  /* Beginning of the part in the whole, for a call on a part. embedding, embedding_w,
   * embedding_bag: first row of this part of the table; gather, scatter_add: first position of the
   * indexed dim; position, position_w, rotary, rotary_b: first position (added to the tick's);
   * losses and their _part and _b: first column */
  int64_t first;
  int64_t columns; /* `padded` ops on GPUs: number of columns that count, in rows of logits that
                      are longer; the gradient is zero after them. 0: all */
  bool full;       /* attention: no causal mask, queries see later keys too; source: always asked
                      for the whole microbatch, set by the graph */
  int64_t window;  /* attention: sliding window, a query sees keys less than this far from it (0:
                      all) */
  int64_t shown;   /* attention: so many first keys are seen by all later queries, whatever the
                      window */
  int32_t end;     /* documents: the end-of-document token */
  float scale;     /* attention: factor of the scores (0: 1/sqrt of a head's width) */
  bool keep;    /* reduce_sum, reduce_max: reduced dims stay, of length 1; batch_norm, batch_norm_b:
                   the given statistics count, not the microbatch's */
  bool partial; /* embedding, embedding_w, _b of losses, gather, scatter_add, embedding_bag:
                   the table, logits or indexed array is a part of the whole; ids, targets and
                   indices may lie outside it */
  int64_t count;    /* top_k: k; one_hot: classes; gather, scatter_add: length of the indexed dim
                       as a whole (0: the array's); embedding_bag: rows of the table as a whole
                        (0: the array's); _part of losses: classes as a whole (0: the logits');
                        running_part: microbatches of a step; choose_blocks: number of blocks */
  bool reverse;     /* cumsum: from the last position to the first */
  bool exclusive;   /* cumsum: leaves out the position's own number */
  const void *user; /* source, adamw, slice, join, rotary, conv, pools, constant, embedding_bag,
                       user ops: a record that must outlive the run */
} sl_attrs;

/* Position of a call in the stream of work. */
typedef struct sl_tick {
  int64_t number; /* (step*M + microbatch)*K + piece */
  int64_t step;
  int32_t microbatch; /* 0..M-1; in an evaluation, counted from 0 */
  int32_t piece;      /* 0..K-1 */
  int64_t row, rows;  /* first position and length of the piece in its sequence, when a program
                         runs; 0 and 0 if sequences are not cut */
} sl_tick;

struct sl_op;
struct sl_team;

/* One execution of an op. Pointers are valid during the call only. */
typedef struct sl_call {
  const struct sl_op *op;
  const sl_attrs *attrs;
  int nin, nout;
  const sl_type *in_type;  /* [nin] */
  const sl_type *out_type; /* [nout] */
  const void *const *in;   /* [nin], 64-byte aligned; NULL for an absent optional input */
  void *const *out;        /* [nout], 64-byte aligned; NULL for an output without consumers */
  uint32_t accumulate;     /* bit o: add to output o instead of overwriting it */
  void *state;             /* made by prepare(), shared by concurrent calls: read only */
  void *scratch;           /* scratch() bytes, 64-byte aligned, undefined contents */
  struct sl_team *team;    /* the device's threads; NULL: only the calling thread */
  sl_tick tick;
  const int32_t *in_rows; /* [nin] see sl_call_rows; NULL: all are full */
  int32_t *out_rows;      /* [nout] see sl_call_fill; NULL: valid lengths are not wanted */
} sl_call;

/* Returns the valid length of input i: an array may have room for more rows than are
 * valid, and only the first ones hold data. `all`: rows of a full array. For ops with
 * sl_op.looks. */
static inline int64_t sl_call_rows(const sl_call *call, int i, int64_t all) {
  return call->in_rows && call->in_rows[i] >= 0 ? call->in_rows[i] : all;
}
/* Reports that the first `rows` rows of output o are valid, for ops with sl_op.fills. Outputs
 * without a report are full. */
static inline void sl_call_fill(const sl_call *call, int o, int64_t rows) {
  if (call->out_rows) call->out_rows[o] = (int32_t)rows;
}

/* Index in the step of element `element` of output 0 of a `located` op (in the backward pass, of an
 * array of that shape). The index counts whole microbatches one after another, each row-major,
 * however they are sharded or cut. *run: number of elements from there on that are also consecutive
 * in the step. */
int64_t sl_call_where(const sl_call *call, int64_t element, int64_t *run);

/* Boundaries of the pieces of sequences: the first positions, and the end of the last piece. */
typedef struct sl_call_cut {
  int32_t pieces;
  const int64_t *starts; /* [pieces + 1] */
} sl_call_cut;

/* Draws four random words (Philox 4x32-10) from the step, the call's attrs.key and the run's seed.
 * Element e, numbered by sl_call_where, uses word e % 4 of block e / 4. */
void sl_call_random(const sl_call *call, int64_t block, uint32_t words[4]);

/* ---- gradient rules ------------------------------------------------------ */

/* Arguments of a backward op, named from the forward op's point of view. */
typedef enum sl_grad_arg_kind {
  SL_ARG_NONE,
  SL_ARG_IN,
  SL_ARG_OUT,
  SL_ARG_DOUT,
  SL_ARG_INS,
  SL_ARG_OUTS,
  SL_ARG_DOUTS
} sl_grad_arg_kind;
typedef struct sl_grad_arg {
  sl_grad_arg_kind kind;
  int index;
} sl_grad_arg;
#define SL_IN(i) \
  { SL_ARG_IN, (i) } /* forward input i */
#define SL_OUT(i) \
  { SL_ARG_OUT, (i) } /* forward output i */
#define SL_DOUT(i) \
  { SL_ARG_DOUT, (i) } /* gradient of forward output i */
#define SL_INS(i) \
  { SL_ARG_INS, (i) } /* all forward inputs from i on, as many as there are */
#define SL_OUTS(i) \
  { SL_ARG_OUTS, (i) } /* all forward outputs from i on */
#define SL_DOUTS(i) \
  { SL_ARG_DOUTS, (i) } /* gradients of all forward outputs from i on */

enum { SL_GRAD_ARGS = 16, SL_GRAD_OUTS = 8, SL_GRAD_RULES = 4 };

/* A rule: "call `op` with these inputs; its output j is the gradient of the forward op's input
 * of[j]". A rule runs only if one of those gradients is wanted; unwanted outputs are passed as
 * NULL. An argument that names an absent input of the forward op is NULL too. The attrs are the
 * forward op's. op == NULL: pass-through, the gradient of input of[0] is DOUT(0) itself.
 *
 * `rest` is for ops with any number of inputs. Output nof is then the gradient of input of[nof - 1]
 * + 1, output nof + 1 that of the next input, and so on. {.nof = 1, .of = {0}, .rest = true} gives
 * the gradients of all inputs.
 *
 * The class is SL_CLASS_B, SL_CLASS_W or SL_CLASS_F. F runs in the forward pass, if the gradients
 * the rule reads are known there. Gradients of a loss are: each is the loss's share of the step. A
 * loss can therefore pass on its input's gradient instead of keeping the input. If they are not
 * known, the rule is of class B. */
typedef struct sl_grad_rule {
  const struct sl_op *op;
  sl_class cls;
  sl_grad_arg in[SL_GRAD_ARGS]; /* ends at SL_ARG_NONE */
  int nof;                      /* length of of[]; 0 ends the list of rules */
  int of[SL_GRAD_OUTS];
  bool rest;
} sl_grad_rule;

/* ---- the row ------------------------------------------------------------- */

/* Behaviour of an op when sequences are cut into pieces along one dim of the data. All values but
 * the first make two promises. A call on a piece computes that piece of the whole call's result.
 * Gradients summed over positions are the sums over pieces. The values differ in which dim of an
 * f32 input may be cut:
 *   REFUSED    no promise: a model with this op cannot be cut
 *   ELEMENTS   any dim
 *   ROWS       any but the last
 *   POSITIONS  dim 1 only, because the op reads call->tick.row
 *   STATE      dim 1 only; the op keeps a record of the sequence so far in outputs
 *              that it updates in place. attrs.length is the sequence's
 *   MEAN       any but the last; output 0 is a scalar, the mean over positions,
 *              so a piece is weighted by its share of them
 *   SUM        any but the last; output 0 is a scalar, the sum over positions
 *   SIGNATURES the split of one of the op's signatures, which may depend on attrs and shapes
 * For backward ops all values mean the same. */
typedef enum sl_pieces {
  SL_PIECES_REFUSED,
  SL_PIECES_ELEMENTS,
  SL_PIECES_ROWS,
  SL_PIECES_POSITIONS,
  SL_PIECES_STATE,
  SL_PIECES_MEAN,
  SL_PIECES_SUM,
  SL_PIECES_SIGNATURES
} sl_pieces;

/* Dims along which an op of SL_PIECES_SIGNATURES mixes positions: not known, none (inputs
 * broadcast), the dim of attrs.axes (none: the last that all inputs have), or its dims (none: all).
 * A served graph may use it where rows lie along none of these. */
typedef enum sl_along { SL_ALONG_UNKNOWN, SL_ALONG_NOTHING, SL_ALONG_AXIS, SL_ALONG_AXES } sl_along;

/* Distribution of an array over R devices: each has all of it, each has a summand of it, or each
 * has a part along one dim. OneFlow's SBP: Yuan et al., arXiv 2110.15032. ROUTED: each device has
 * the rows that an array of ids dispatches to it. The rows are counted by dims 0 to `dim` in the
 * whole, and by dim 1 on a device, where their number depends on the data (sl_op.fills). */
typedef enum sl_sbp_kind { SL_BROADCAST, SL_PARTIAL, SL_SPLIT, SL_DISPATCHED } sl_sbp_kind;
typedef struct sl_sbp {
  sl_sbp_kind kind;
  int dim; /* SL_SPLIT: the split dim; SL_DISPATCHED: the last dim of rows; else 0 */
} sl_sbp;

/* One way for R devices to share a call: each runs it on its part of the inputs and gets its part
 * of the outputs, as `out` says. The backward pass must hold too: the gradient of a broadcast array
 * is partial, that of a partial one broadcast, that of a split one split alike. Unset entries are
 * broadcast. An absent optional input that is partial counts as zero. Split dims of several arrays
 * are split at the same places: by heads if the dim consists of heads, and segment by segment if it
 * consists of segments. The last entry of in[] and out[] stands for all further arguments of the
 * call. */
enum { SL_SIGNATURE_ARGS = 16, SL_SIGNATURES = 16 };
typedef struct sl_signature {
  sl_sbp in[SL_SIGNATURE_ARGS], out[SL_SIGNATURE_ARGS];
  bool heads; /* input 0's split dim divides attrs.heads and kv_heads */
  int first;  /* 1 + the input whose split sets attrs.first (and attrs.partial); 0: none */
  /* A call in two parts. Op `local` runs on each device; its only output, split along its last dim,
   * is gathered everywhere; `joined` computes the outputs from it. NULL: one call. The backward
   * pass is the op's own, with attrs.first and attrs.partial, and uses `joined`'s outputs as the
   * op's. Every device computes `joined` from all parts, which counts once, so the gradients of the
   * outputs must be broadcast, not partial. */
  const struct sl_op *local, *joined;
} sl_signature;

/* Number of outputs that sl_op.in_place covers: the first ones. */
enum { SL_IN_PLACE_OUTPUTS = 2 };

/* A kernel: how one kind of device runs an op. Backends have tables of kernels for the shipped ops;
 * a user's op supplies its own. */
typedef struct sl_kernel {
  const char *backend; /* "cpu" or "cuda"; NULL ends a list */

  /* run() computes a call, for "cpu"; launch() enqueues one on a stream, for "cuda". May not block,
   * allocate or fail; results must not depend on the team's size. */
  void (*run)(const sl_call *call);
  void (*launch)(const sl_call *call, void *stream);

  /* Scratch bytes that a call needs, for a team of `threads`. NULL: none. */
  size_t (*scratch)(const sl_call *call, int threads);

  /* Makes call->state once, before the run, from types and attrs (in[]/out[] are not set);
   * release() destroys it. Both may be NULL. */
  sl_status (*prepare)(const sl_call *call, void **state);
  void (*release)(void *state);
} sl_kernel;

/* Kernel list, for sl_op.kernels, of an op with one CPU function. C only. */
#define SL_CPU_KERNEL(function) ((const sl_kernel[]){{.backend = "cpu", .run = (function)}, {0}})

typedef struct sl_op {
  const char *name;   /* "linear"; unique in the table */
  int min_in, max_in; /* max_in -1: any number */
  int nout;           /* -1: the number outputs() returns */
  /* Number of outputs of a call with nin inputs; below 0 if attrs do not tell. */
  int (*outputs)(const sl_attrs *attrs, int nin);

  /* Checks the inputs and fills out[nout]. An absent optional input has ndim -1. On a mismatch
   * returns sl_fail(SL_E_SHAPE, text) with a text that says what was expected ("weight must be
   * f32[384, n], got ..."); the caller adds op, tensor names and source line. Any thread; no side
   * effects. */
  sl_status (*infer)(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out);

  /* Floating point operations and bytes moved by one call. NULL: no flops, bytes of all
   * arguments. */
  void (*cost)(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out, double *flops,
               double *bytes);

  /* Kernels of a user's op, one per backend that can run it, ended by one without a backend. NULL
   * for shipped ops, whose kernels backends find by name. */
  const sl_kernel *kernels;

  /* Bytes of a state that is large enough to plan for (a table), and a number that identifies it.
   * Calls of one device with the same prepare() and keeps() and the same number share one state.
   * Computed from types and attrs, as in a kernel's prepare(). May be NULL. */
  size_t (*keeps)(const sl_call *call, uint64_t *which);

  /* Checks input values that types cannot constrain, such as indices out of range, before a call. A
   * failure, described by sl_fail(), ends the run with the op's name. On CPUs, and on GPUs with
   * numbers.check_finite; its inputs are the host's. Any thread. Kernels must tolerate bad values
   * all the same. May be NULL. */
  sl_status (*check)(const sl_call *call);

  /* Bit o of `accumulates`: the kernel honours call->accumulate for output o. */
  uint32_t accumulates;
  /* Bit i: output i is updated in place (its old contents are read). */
  uint32_t updates;
  /* Bit i: output i, one of `updates` without other consumers, is 0 at first and then persists
   * across microbatches and steps. Checkpoints do not contain it. Other updated outputs last for a
   * microbatch. */
  uint32_t lasts;
  /* Aliasing. Bit i of in_place[o]: output o may be computed in place of input i, if they have one
   * dtype and size. Nothing of that input is read once its place has been written, whichever thread
   * does so, whatever else aliases as the op allows. */
  SL_RENAMED(uint32_t in_place[SL_IN_PLACE_OUTPUTS], uint32_t over[SL_IN_PLACE_OUTPUTS])
  sl_pieces pieces;
  sl_along along;
  uint32_t whole; /* bit i: input i may not be cut: a weight, a table */
  /* bit i: output i belongs to its device's share of the call and is read where it lies */
  uint32_t own;
  /* Valid lengths: only the first rows of an array hold data. Bit o of `fills`: a call
   * reports the rows of output o that it has filled (sl_call_fill). Room for rows is the first dim,
   * or, with `second`, the second dim, the first being 1. Bit i of `looks`: the op reads the valid
   * length of input i (sl_call_rows). Bit o of `follows`: output o has the valid length of the
   * first input that is not full. Bit 31 stands for all from there on. An op with none of these
   * bits may read such arrays if it promises pieces (elements, rows, a sum) and is not `fixed`. Its
   * calls then see arrays of the valid length and are skipped where it is 0. Their row outputs have
   * the same valid length, and sums over none are 0. All other ops are refused by name. */
  uint32_t fills, second, looks, follows;
  /* Rows of output o, of this type, that a call fills in a tick of a step, for modelled devices,
   * which have no values. NULL: all. */
  int64_t (*expects)(const sl_attrs *attrs, int o, const sl_type *type, int32_t tick);
  /* Bit i: only the type of input i is read, and a call may have NULL in its place. Bit 31 stands
   * for all from there on. */
  uint32_t unread;
  /* Bit i: input or output i may be bf16 instead of f32, on devices that compute on bf16 tensors:
   * activations and their gradients, but no weights, statistics or sums over a step. Bit 31 stands
   * for all from there on. In one call all of them have one type, unless `mixed`. CPU kernels get
   * f32. */
  uint32_t narrow_in, narrow_out;
  bool mixed;
  bool fixed;    /* kernels prepare for the call's types and cannot run on fewer rows */
  bool detached; /* passes no gradient on: its outputs need none */
  bool cheap;    /* a forward op that costs little more than reading and writing its data */
  bool located;  /* calls get attrs.key, seed and region, in the backward pass too */
  bool padded;   /* can leave out the ends of input 0's rows, after attrs.columns */
  bool counted;  /* reads a mean. attrs.user, a double set by the graph, is the fraction of a
                    microbatch's rows that the mean covers, in the backward pass too; NULL: all */
  bool batch;    /* works on whole microbatches: every call reads all of its data, and only data */
  bool rounds;   /* rounds its products' operands to bf16 if attrs.bf16 is set */
  bool part;     /* reads only the part of each input given by attrs.user, an sl_part */
  bool slots; /* a served op: attrs.count is the number of slots (batch.h), not of pages. Sequences
                 keep states in them, so none begins behind pages that others have filled */
  bool scatters; /* adds rows of an input to rows of output 0: exact calls round each and add in f64
                  */
  bool groups;   /* exact calls sum along the last dim of input 0 in the groups of attrs.chunk */
  bool by_leaf;  /* exact calls cut their rows into leaves (attrs.leaves) themselves */
  /* Op that replaces this one when sequences are cut: the same inputs, the same first outputs, more
   * outputs after them. NULL: the op itself. */
  const struct sl_op *pieced;
  /* Ops that replace this one when a piece attends to earlier pieces one after another. `parts`
   * computes from its inputs what `swept` reads before any ids; `swept` has the op's first outputs
   * and is called for each piece and each one up to it, in turn. Bit i of its `sweeps`: input i
   * belongs to the earlier piece, all others to the current one. Outputs that `swept` updates last
   * for a microbatch. attrs.user, an sl_call_cut, holds the pieces' boundaries. */
  const struct sl_op *parts, *swept;
  uint32_t sweeps;
  /* Op that replaces this one, which updates outputs, when a call is recomputed in the backward
   * pass. The updated outputs, as all calls have left them, are inputs after the others and absent
   * as outputs; its `unread` inputs are absent too. It computes the other outputs, bit for bit.
   * NULL: an op that updates anything is not recomputed. */
  SL_RENAMED(const struct sl_op *rematerialized, const struct sl_op *again)
  /* Op that replaces this one in a served graph, where positions belong to any sequences. Its
   * inputs are those this op may have, then the batch (batch.h); it has the same first outputs,
   * more after them. NULL: the op itself, if it promises rows or elements. */
  const struct sl_op *served;
  /* Fills out[SL_SIGNATURES] with ways to share a call, besides those implied by `pieces` (a split
   * along a dim that may be cut) and full replication. Returns their number. Forward ops only; the
   * backward pass follows. NULL: none. */
  int (*signatures)(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out);
  /* Continues a hash with everything in the record attrs.user that results depend on. It enters the
   * plan's hash, by which the processes of a job check that they run the same plan. NULL: the
   * record is private to the process. */
  uint64_t (*hash)(uint64_t hash, const sl_attrs *attrs, int nin);
  /* Not NULL: the op is an optimizer; see optimizer.h. */
  const struct sl_update *update;
  sl_grad_rule grad[SL_GRAD_RULES];
} sl_op;

/* The shipped ops (ops/table.c), NULL-terminated, and look-up by name. */
extern const sl_op *const sl_ops[];
const sl_op *sl_op_find(const char *name);

/* ---- teams --------------------------------------------------------------- */

/* Runs fn(arg, i) for i in [0, n) on the team's threads and returns when all are done. Any thread
 * may run any i, so a kernel stays independent of the team's size by cutting work in chunks fixed
 * by shape and combining partial results in chunk order. team NULL: a plain loop. Not reentrant. */
void sl_team_for(struct sl_team *team, int n, void (*fn)(void *arg, int i), void *arg);
int sl_team_size(const struct sl_team *team); /* 1 for NULL */

#ifdef __cplusplus
}
#endif
#endif
