/* The table of ops: what a kernel is, one row each.
 *
 * An op is a const row: its shape rule, its cost, its functions per device and
 * its gradient rules. The graph layer builds models out of rows, derives the
 * backward pass from the gradient rules (which are data, not code) and lowers
 * calls into programs; a device runs programs. Users add ops by defining rows
 * of their own and passing them to sl_apply(). Rows are never copied or freed.
 *
 * Threads: every function of a row may be called by several threads at once
 * on different calls. */
#ifndef SLUICE_OP_H
#define SLUICE_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- types -------------------------------------------------------------- */

#define SL_DTYPE_TABLE(X)                                                      \
  X(F32, "f32", 4)                                                             \
  X(BF16, "bf16", 2)                                                           \
  X(F64, "f64", 8)                                                             \
  X(I32, "i32", 4)

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

/* The same as SL_TYPE from an array of dims. A type with more than SL_MAX_DIMS of them, or fewer
 * than none, is impossible and refused where it is used. */
sl_type sl_type_make(sl_dtype dtype, int ndim, const int64_t *dims);

/* A record written on the spot, in C and in C++: SL_RECORD(sl_init){SL_INIT_NORMAL, 1}. */
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
#define SL_TYPE(dtype_, ...)                                                   \
  ((sl_type){(dtype_), sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), {__VA_ARGS__}})
#endif
#define SL_SCALAR(dtype_) (SL_RECORD(sl_type){(dtype_), 0, {0}})

const char *sl_dtype_name(sl_dtype dtype);
size_t sl_dtype_bytes(sl_dtype dtype);
int64_t sl_type_elements(const sl_type *type);  /* product of the dims; 1 for a scalar */
size_t sl_type_bytes(const sl_type *type);
int64_t sl_type_last(const sl_type *type);      /* last dim; 1 for a scalar */
int64_t sl_type_rows(const sl_type *type);      /* elements / last dim */
bool sl_type_equal(const sl_type *a, const sl_type *b);
/* "f32[8, 256, 384]"; returns `out`, at least SL_TYPE_TEXT bytes. */
enum { SL_TYPE_TEXT = 256 };
char *sl_type_format(char *out, const sl_type *type);

/* ---- parts -------------------------------------------------------------- */

/* Part of an array: along one dim, up to three ranges of positions one behind the other
 * (the queries, keys and values of some heads are three ranges of a packed tensor). axis
 * SL_PART_ALL: all of it. SL_PART_FLAT: ranges of its elements in row-major order; such a
 * part is an array of one dim. */
enum { SL_PART_RANGES = 3, SL_PART_ALL = -1, SL_PART_FLAT = -2 };
typedef struct sl_part {
  int axis, nranges;
  int64_t begin[SL_PART_RANGES], count[SL_PART_RANGES];
} sl_part;

/* A part of a part of an array that nobody need hold as a whole: what one device has of a
 * parameter. */
enum { SL_SHARD_PARTS = 3 };
typedef struct sl_shard {
  sl_type whole;
  sl_part parts[SL_SHARD_PARTS]; /* the first of the whole, each other of the one before it */
} sl_shard;
#define SL_ALL_PARTS {{.axis = SL_PART_ALL}, {.axis = SL_PART_ALL}, {.axis = SL_PART_ALL}}

sl_type sl_part_type(const sl_type *whole, const sl_part *part);
/* Copy a part out of a whole array, and into it. Arrays are dense; any thread. */
void sl_part_take(const sl_type *whole, const sl_part *part, const void *from, void *to);
void sl_part_put(const sl_type *whole, const sl_part *part, const void *from, void *to);
/* The same for shards; `whole` is the whole array. */
sl_type sl_shard_type(const sl_shard *shard);
void sl_shard_take(const sl_shard *shard, const void *whole, void *to);
void sl_shard_put(const sl_shard *shard, const void *from, void *whole);

/* Which part of a whole an array is: of dim d the ranges that of[d] says, all of it where that
 * has none. Positions of dim `sequence` - 1 are counted from
 * where the tick's piece begins (sl_tick.row); 0: of no dim. */
typedef struct sl_region {
  int ndim, sequence;
  int64_t whole[SL_MAX_DIMS];
  sl_part of[SL_MAX_DIMS];
} sl_region;

/* ---- classes ------------------------------------------------------------ */

/* What kind of pass a piece of work belongs to. Pass order and colours follow
 * the class. Traces hold the numbers, so none is used again: 3 was given up.
 * X(letter, number, name) */
#define SL_CLASS_TABLE(X)                                                      \
  X(F, 0, "forward")                                                           \
  X(B, 1, "input gradient")                                                    \
  X(W, 2, "weight gradient")                                                   \
  X(U, 4, "update")                                                            \
  X(C, 5, "communicate")                                                       \
  X(L, 6, "load/store")

typedef enum sl_class {
#define X(letter, number, name) SL_CLASS_##letter = number,
  SL_CLASS_TABLE(X)
#undef X
  SL_CLASS_COUNT /* of numbers */
} sl_class;

const char *sl_class_name(sl_class cls); /* "forward"; "?" likewise */
char sl_class_letter(sl_class cls); /* 'F' ...; '?' for a number that is none's */

/* ---- attributes and calls ------------------------------------------------ */

/* Settings of one op in one place of a graph. One flat record for all rows;
 * each row says which fields it reads. Zero means the row's default. */
typedef struct sl_attrs {
  int heads;       /* attention, rotary: query heads; group_norm: groups */
  int kv_heads;    /* attention: key/value heads (0: heads) */
  float eps;       /* norms (0: 1e-5) */
  float theta;     /* rotary base (0: 10000) */
  float value;     /* fill, constant, scale, add_constant: the constant; clamp, uniform: the low
                      bound; normal: the mean; dropout: how likely an element is dropped;
                      weighted_cross_entropy: what smoothing takes from the target */
  float upper;     /* clamp, uniform: the high bound; normal: the deviation;
                      weighted_cross_entropy: what smoothing gives each class */
  int32_t ignore;  /* target_weight, weighted_cross_entropy: the target that does not count, as
                      sl_loss says it */
  bool transposed; /* linear: weight is [in, out] (GPT-2's Conv1D) instead of [out, in]; matmul:
                      b is [..., n, k] */
  bool left_transposed; /* matmul: a is [..., k, m] */
  int64_t length;  /* tokens of a whole sequence where sequences are cut in pieces, set by
                      the graph; 0 where they are not cut */
  uint64_t key;    /* rows that are `located`: tells one stream of random numbers from others; 0:
                      of this place in the graph, which sets it */
  uint64_t seed;   /* the same: the run's, set by the graph */
  const sl_region *region; /* the same: which part of a microbatch's whole output 0 is (on the
                      way back: the forward call's); NULL: all of it. Set by the graph */
  uint32_t axes;   /* concat, split, gather, scatter_add, top_k, cumsum, arange: bit d: along dim d */
  int ndims;               /* permute: which dim of the input each dim of the output is; expand:
                              lengths of the output, 0: as long as the input's */
  int64_t dims[SL_MAX_DIMS]; /* and with ndims 2, position, position_w, rotary, rotary_b: from
                      position dims[0] of the part on, they are dims[1] further on */
  bool bf16;       /* set by the graph: rows that `rounds` do so to bf16, what served ones keep is bf16 */
  int64_t rows;    /* pack: rows of the products that will read the weight */
  int64_t first;   /* of a call on a part of the whole: where that part begins. embedding,
                      embedding_w, embedding_bag: the first row of this part of the table; gather,
                      scatter_add: the first position of the indexed dim; position,
                      position_w, rotary, rotary_b: the first position (besides the
                      tick's); losses and their _part and _b: the first column */
  int64_t columns; /* rows that are `padded`, on GPUs: columns of rows of logits that are longer,
                      whose gradient has zeros behind them; 0: as many as they are long */
  bool full;       /* attention: queries see the keys behind them, too; source: the whole
                      microbatch is asked for, whichever piece it is, set by the graph */
  int64_t window;  /* attention: a query sees the keys that are less than so far from it (0: all) */
  int32_t end;     /* documents: the token that ends one */
  float scale;     /* attention: what scores are multiplied by (0: 1/sqrt of a head's width) */
  bool keep;       /* reduce_sum, reduce_max: the dims stay, of length 1 */
  bool partial;    /* embedding, embedding_w, _b of losses, gather, scatter_add, embedding_bag: the
                      table, the logits or what is indexed are a part of the whole, and ids,
                      targets and indices may lie outside it */
  int64_t count;   /* top_k: how many; one_hot: classes; gather, scatter_add: positions of the
                      indexed dim, as a whole (0: as many as are there); embedding_bag: rows of
                      the table, likewise */
  bool reverse;    /* cumsum: from the last position on */
  bool exclusive;  /* cumsum: without the position's own number */
  const void *user; /* source, adamw, slice, join, rotary, conv, pools, constant, embedding_bag, user
                       rows: a record that outlives the run */
} sl_attrs;

/* Where in the stream of work a call stands. */
typedef struct sl_tick {
  int64_t number;     /* (step*M + microbatch)*K + piece */
  int64_t step;
  int32_t microbatch; /* 0..M-1; of an evaluation, from 0 on */
  int32_t piece;      /* 0..K-1 */
  int64_t row, rows;  /* where the piece begins in its sequence and how long it is, for
                         what a program runs; 0 and 0 where sequences are not cut */
} sl_tick;

struct sl_op;
struct sl_team;

/* One execution of an op. Pointers are valid during the call only. */
typedef struct sl_call {
  const struct sl_op *op;
  const sl_attrs *attrs;
  int nin, nout;
  const sl_type *in_type;   /* [nin] */
  const sl_type *out_type;  /* [nout] */
  const void *const *in;    /* [nin], 64-byte aligned; NULL for an absent optional input */
  void *const *out;         /* [nout], 64-byte aligned; NULL for an output nobody reads */
  uint32_t accumulate;      /* bit o: add to output o instead of overwriting it */
  void *state;              /* made by prepare(), shared by concurrent calls: read only */
  void *scratch;            /* scratch() bytes, 64-byte aligned, undefined contents */
  struct sl_team *team;     /* the device's threads; NULL: the caller alone */
  sl_tick tick;
  const int32_t *in_rows;   /* [nin] see sl_call_rows; NULL: all is full */
  int32_t *out_rows;        /* [nout] see sl_call_fill; NULL: nobody asks */
} sl_call;

/* Extents: an array may have room for more rows than are valid, the first ones, and only these
 * hold anything. How many of input i are; `all`: how many there are where none is left out. For
 * rows that look (sl_op.looks). */
static inline int64_t sl_call_rows(const sl_call *call, int i, int64_t all) {
  return call->in_rows && call->in_rows[i] >= 0 ? call->in_rows[i] : all;
}
/* Says that `rows` of output o are valid, for rows that fill (sl_op.fills). What is not said is
 * full. */
static inline void sl_call_fill(const sl_call *call, int o, int64_t rows) {
  if (call->out_rows) call->out_rows[o] = (int32_t)rows;
}

/* Where element number `element` of output 0 of a row that is `located` (of an array of that
 * shape, on the way back) stands in the step: microbatches one behind the other, each row-major
 * as a whole, however it is shared out or cut. *run: how many elements from it on stand one
 * behind the other there, too. */
int64_t sl_call_where(const sl_call *call, int64_t element, int64_t *run);

/* Where the pieces of sequences begin, and the last one ends. */
typedef struct sl_call_cut {
  int32_t pieces;
  const int64_t *starts; /* [pieces + 1] */
} sl_call_cut;

/* Four random words (Philox 4x32-10) of the step, the call's attrs.key and the run's seed: word
 * e % 4 of block e / 4 is for element e by sl_call_where. */
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
#define SL_IN(i) {SL_ARG_IN, (i)}       /* forward input i */
#define SL_OUT(i) {SL_ARG_OUT, (i)}     /* forward output i */
#define SL_DOUT(i) {SL_ARG_DOUT, (i)}   /* gradient of forward output i */
#define SL_INS(i) {SL_ARG_INS, (i)}     /* all forward inputs from i on, as many as there are */
#define SL_OUTS(i) {SL_ARG_OUTS, (i)}   /* all forward outputs from i on */
#define SL_DOUTS(i) {SL_ARG_DOUTS, (i)} /* the gradients of those */

enum { SL_GRAD_ARGS = 16, SL_GRAD_OUTS = 8, SL_GRAD_RULES = 4 };

/* "Call `op` with these inputs; its output j is the gradient of the forward
 * op's input of[j]." A rule runs only when one of those gradients is wanted;
 * outputs nobody wants are passed as NULL. An argument that names an input the
 * forward op was not given ends up NULL too. The attrs are the forward op's.
 * op == NULL: pass-through, the gradient of input of[0] is DOUT(0) itself.
 * With `rest`, output nof is the gradient of input of[nof - 1] + 1, output nof + 1 that of the
 * one behind it, and so on, for an op that takes any number of inputs: {.nof = 1, .of = {0},
 * .rest = true} gives the gradients of all.
 *
 * The class is SL_CLASS_B or SL_CLASS_W, or SL_CLASS_F: made at once, on the way
 * forward, where the gradients it takes are known by then. Those of a loss are, for
 * they are its share of the step; so a loss can hand on the gradient of what it has
 * read in place of that. Where they are not known, the rule is of class B. */
typedef struct sl_grad_rule {
  const struct sl_op *op;
  sl_class cls;
  sl_grad_arg in[SL_GRAD_ARGS];      /* ends at SL_ARG_NONE */
  int nof;                           /* how many of of[] count; 0 ends the list of rules */
  int of[SL_GRAD_OUTS];
  bool rest;
} sl_grad_rule;

/* ---- the row ------------------------------------------------------------- */

/* What becomes of an op when sequences are cut in pieces along one dim of the
 * data. All but the first promise that a call on a piece gives that piece of
 * what the whole would give, and that gradients summed over positions come out
 * as sums over pieces. They differ in which dim of an f32 input may be cut:
 *   REFUSED    no promise: a model with it cannot be cut
 *   ELEMENTS   any dim
 *   ROWS       any but the last
 *   POSITIONS  dim 1 alone, for it looks at call->tick.row
 *   STATE      dim 1 alone; it keeps a record of the sequence so far in outputs
 *              that it updates in place. attrs.length is the sequence's
 *   MEAN       any but the last; output 0 is a scalar, the mean over positions,
 *              so a piece counts by its share of them
 *   SUM        any but the last; output 0 is a scalar, the sum over positions
 *   SIGNATURES as one of the row's signatures splits all that is cut: what depends on attrs or
 *              shapes is said there
 * For rows of backward ops they all mean the same. */
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

/* How an array lies along a row of R devices: each has all of it, each has a summand of it,
 * or each has a part along one dim. OneFlow's SBP: Yuan et al., arXiv 2110.15032. Or it is routed: each has
 * the rows that an array of ids leads to it, whosever they are. Dims 0 to `dim` count its rows then,
 * and on a device dim 1 does, of which only the data know how many there are (sl_op.fills). */
typedef enum sl_sbp_kind { SL_BROADCAST, SL_PARTIAL, SL_SPLIT, SL_ROUTED } sl_sbp_kind;
typedef struct sl_sbp {
  sl_sbp_kind kind;
  int dim; /* SL_SPLIT: which, SL_ROUTED: the last of rows, else 0 */
} sl_sbp;

/* One way in which R devices can share a call: each runs it on what it has of the inputs
 * and gets what `out` says of the outputs. That must hold of the way back too, where the
 * gradient of a broadcast array is partial, that of a partial one broadcast, that of a
 * split one split alike. What is not set is broadcast. An optional input that is partial is
 * zero where it is absent. Where dims of several arrays are split,
 * they are split at the same places: of heads, where the dim is made of heads, and segment by
 * segment, where it is a row of segments. The last of in[] and out[] stands for all behind it, of
 * a call that has more. */
enum { SL_SIGNATURE_ARGS = 16, SL_SIGNATURES = 16 };
typedef struct sl_signature {
  sl_sbp in[SL_SIGNATURE_ARGS], out[SL_SIGNATURE_ARGS];
  bool heads;      /* attrs.heads and kv_heads are shared out with input 0's split dim */
  int first;       /* 1 + the input whose split tells attrs.first (and attrs.partial); 0: none */
  /* A call in two parts: row `local` runs on each device, its only output, split along its
   * last dim, is joined everywhere, and `joined` makes the outputs of it. NULL: one call.
   * The way back is that of the op itself, with attrs.first and attrs.partial, and `joined`'s
   * outputs for its own; but what every device has made of all parts counts once, so the
   * gradients of the outputs must be broadcast, not partial. */
  const struct sl_op *local, *joined;
} sl_signature;

/* Outputs that sl_op.over speaks of: the first ones. */
enum { SL_OVERS = 2 };

/* How one kind of device runs an op. Backends have tables of these for the shipped ops; a user's op
 * brings its own. */
typedef struct sl_kernel {
  const char *backend; /* "cpu" or "cuda"; NULL ends a list */

  /* Computes a call, for "cpu"; enqueues one on a stream, for "cuda". May not block, allocate or
   * fail; results must not depend on the team's size. */
  void (*run)(const sl_call *call);
  void (*launch)(const sl_call *call, void *stream);

  /* Scratch bytes a call needs, for a team of `threads`. NULL: none. */
  size_t (*scratch)(const sl_call *call, int threads);

  /* Makes call->state once, before the run, from types and attrs (in[]/out[]
   * are not set); destroyed by release(). Both may be NULL. */
  sl_status (*prepare)(const sl_call *call, void **state);
  void (*release)(void *state);
} sl_kernel;

/* For sl_op.kernels of an op with one function for CPUs. C only. */
#define SL_CPU_KERNEL(function) ((const sl_kernel[]){{.backend = "cpu", .run = (function)}, {0}})

typedef struct sl_op {
  const char *name;          /* "linear"; unique in the table */
  int min_in, max_in;        /* max_in -1: any number */
  int nout;                  /* -1: what outputs() says */
  /* How many outputs a call with so many inputs has; below 0: attrs do not say. */
  int (*outputs)(const sl_attrs *attrs, int nin);

  /* Checks the inputs and fills out[nout]. An absent optional input has
   * ndim -1. On a misfit returns sl_fail(SL_E_SHAPE, text) where the text says
   * what was expected ("weight must be f32[384, n], got ..."); the caller adds
   * op, tensor names and source line. Any thread; no side effects. */
  sl_status (*infer)(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out);

  /* Floating point operations and bytes moved by one call. NULL: no flops,
   * bytes of all arguments. */
  void (*cost)(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
               double *flops, double *bytes);

  /* Kernels of a user's op, one for each backend that can run it; the last has no backend. NULL
   * for shipped ops, whose kernels backends find by name. */
  const sl_kernel *kernels;

  /* NULL, or: how many bytes a state takes that are worth planning (a table), and a number that
   * tells it from others: calls of one device that have the same prepare() and keeps() and get
   * the same number share one state. From types and attrs, as a kernel's prepare(). */
  size_t (*keeps)(const sl_call *call, uint64_t *which);

  /* NULL, or: looks at what a call is about to read for what types cannot say (indices out of
   * range), and says by sl_fail() what is wrong, which ends the run with the op's name. On CPUs;
   * any thread. What is wrong must do no harm in the kernels all the same. */
  sl_status (*check)(const sl_call *call);

  /* Bit o of `accumulates`: the kernel honours call->accumulate for output o. */
  uint32_t accumulates;
  /* Bit i: output i is updated in place (its old contents are read). */
  uint32_t updates;
  /* Bit i: output i, one of those, which nobody else may read, is 0 at first and then stays as it is
   * from microbatch to microbatch and from step to step. Checkpoints do not have it. What is updated
   * lasts for a microbatch otherwise. */
  uint32_t lasts;
  /* Bit i of over[o]: output o may lie over input i, if they are of one dtype and size: nothing of
   * that input is read once the place has been written, whichever thread does it, and
   * whatever lies where of what the row allows. */
  uint32_t over[SL_OVERS];
  sl_pieces pieces;
  uint32_t whole; /* bit i: input i may not be cut: a weight, a table */
  uint32_t own;   /* bit i: output i goes with its device's share of the call, and is read as it lies */
  /* Extents: arrays of which only the first rows are valid. Bit o of `fills`: a call says how many
   * rows of output o it has filled (sl_call_fill); there is room for as many as its first dim is
   * long, or, by `second`, its second, the first being 1. Bit i of `looks`: it asks how many rows
   * of input i are valid (sl_call_rows). Bit o of `follows`: of output o as many are as of the first
   * input of which not all are. Bit 31 stands for all from there on. A row that does none of this
   * may read such arrays if it promises pieces (elements, rows, a sum) and is not `fixed`: its
   * calls see arrays that are as long as what is valid, and are not made where nothing is; what they
   * make of rows has as many, and sums over none are 0. All others are refused by name. */
  uint32_t fills, second, looks, follows;
  /* NULL, or: how many rows of output o, of this type, a call fills in a tick of a step, where there
   * are no values to tell: on modelled devices. NULL: all. */
  int64_t (*expects)(const sl_attrs *attrs, int o, const sl_type *type, int32_t tick);
  /* Bit i: input i is there for its type, a call may have NULL in its place. Bit 31 stands for
   * all from there on. */
  uint32_t unread;
  /* Bit i: input or output i may be bf16 in place of f32, for devices that compute on bf16
   * tensors: what flows through a model and its gradients; no weights, statistics or sums over
   * a step. Bit 31 stands for all from there on. In one call all of them are of one type, but
   * where `mixed`. For the CPU's kernels they are f32. */
  uint32_t narrow_in, narrow_out;
  bool mixed;
  bool fixed;     /* kernels prepare for the types of a call: it cannot run on fewer rows */
  bool cheap;     /* a forward row that costs little more than reading and writing its data */
  bool located;   /* calls are told attrs.key, seed and region, those of its way back too */
  bool padded;    /* it can leave the ends of input 0's rows alone, behind attrs.columns */
  bool counted;   /* it reads a mean, and attrs.user tells its calls, those of its way back too, what of
                     a microbatch's rows that is over: a double, set by the graph; NULL: all */
  bool batch;     /* it is about whole microbatches: every call reads all of its data, and data alone */
  bool rounds;    /* its products' operands are rounded to bf16 where attrs.bf16 says so */
  bool part;      /* of each input it reads only the part that attrs.user, an sl_part, says */
  /* The row that stands for this one where sequences are cut: the same inputs,
   * the same first outputs, more of them behind. NULL: the row itself does. */
  const struct sl_op *pieced;
  /* The rows that stand for it where pieces are cut and those before come one after another: `parts`
   * makes of its inputs what `swept` reads before any ids, and `swept` has the same first outputs. It is
   * called for each piece and each one up to that, in turn; bit i of its `sweeps`: input i is of the latter,
   * all others of the former, and what it updates lasts for a microbatch. attrs.user says where the
   * pieces begin, an sl_call_cut. */
  const struct sl_op *parts, *swept;
  uint32_t sweeps;
  /* The row that stands for this one, which updates outputs, where a call is made again on the way
   * back: those outputs are inputs behind the others then, as all calls have left them, and
   * absent as outputs; inputs that it has as `unread` are absent, too. It gives the other
   * outputs, bit for bit. NULL: a row that updates anything is not made again. */
  const struct sl_op *again;
  /* The row that stands for this one in a graph that is served, where positions are of any sequences:
   * the inputs it may have, and the batch (batch.h) behind them; the same first outputs, more of them
   * behind. NULL: the row itself, if it promises rows or elements. */
  const struct sl_op *served;
  /* Fills out[SL_SIGNATURES] with ways to share a call beyond those that follow from
   * `pieces` (a split along a dim that may be cut) and from having everything everywhere.
   * Returns how many. Forward rows only; the way back follows. NULL: none. */
  int (*signatures)(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out);
  /* Continues a hash with what results depend on in the record that attrs.user points to. The
   * plan's hash has it, by which processes of one job see that they run the same. NULL: the
   * record is the process's own. */
  uint64_t (*hash)(uint64_t hash, const sl_attrs *attrs, int nin);
  /* Not NULL: the row is an optimizer; see optimizer.h. */
  const struct sl_update *update;
  sl_grad_rule grad[SL_GRAD_RULES];
} sl_op;

/* The shipped rows (ops/table.c), NULL-terminated, and look-up by name. */
extern const sl_op *const sl_ops[];
const sl_op *sl_op_find(const char *name);

/* ---- teams --------------------------------------------------------------- */

/* Runs fn(arg, i) for i in [0, n) on the team's threads and returns when all
 * are done. Which thread runs which i is open, so a kernel stays independent
 * of the team's size by cutting work in chunks fixed by shape and combining
 * partial results in chunk order. team NULL: a plain loop. Not reentrant. */
void sl_team_for(struct sl_team *team, int n, void (*fn)(void *arg, int i), void *arg);
int sl_team_size(const struct sl_team *team); /* 1 for NULL */

#ifdef __cplusplus
}
#endif
#endif
