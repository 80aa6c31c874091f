/* SPDX-License-Identifier: Apache-2.0 */
/* The table of ops: one const record (row) per kernel.
 *
 * A row holds an op's shape rule, cost, functions per device and gradient rules. The graph layer
 * builds models from ops, derives the backward pass from the gradient rules (which are data, not
 * code) and lowers calls into programs, which devices run. Users add ops by defining rows and
 * passing them to sl_apply(). Rows are never copied or freed.
 *
 * Threads: several threads may call any function of an op concurrently, on different calls. */
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
 * is rejected when the type is used. */
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
/* Formats a type, "f32[8, 256, 384]", and returns `out`, which must have at least SL_TYPE_TEXT
 * bytes. */
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
 * whole array. */
enum { SL_SHARD_PARTS = 3 };
typedef struct sl_shard {
  sl_type whole;
  sl_part parts[SL_SHARD_PARTS]; /* the first is a part of the whole, each later one a part of the
                                    previous */
} sl_shard;
#define SL_ALL_PARTS                                                      \
  {                                                                       \
    {.axis = SL_PART_ALL}, {.axis = SL_PART_ALL}, { .axis = SL_PART_ALL } \
  }

sl_type sl_part_type(const sl_type *whole, const sl_part *part);
/* Copy a part out of, and into, a whole array. Arrays are dense; any thread. */
void sl_part_take(const sl_type *whole, const sl_part *part, const void *from, void *to);
void sl_part_put(const sl_type *whole, const sl_part *part, const void *from, void *to);
/* Type of a shard, and copies of a shard out of, and into, the whole array. */
sl_type sl_shard_type(const sl_shard *shard);
void sl_shard_take(const sl_shard *shard, const void *whole, void *to);
void sl_shard_put(const sl_shard *shard, const void *from, void *whole);

/* Position of an array in a whole: along dim d the ranges parts[d], or the whole dim if that has no
 * ranges. Positions along dim `sequence` - 1 count from the beginning of the tick's piece
 * (sl_tick.row); 0 if there is no sequence dim. */
typedef struct sl_region {
  int ndim, sequence;
  int64_t whole[SL_MAX_DIMS];
  sl_part parts[SL_MAX_DIMS];
} sl_region;

/* ---- classes ------------------------------------------------------------ */

/* Kind of pass that an actor belongs to. The class determines priority and colours. Traces store
 * the numbers, so numbers are never reused; 3 is retired. X(letter, number, name) */
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

/* Types of attributes. */
#define SL_ATTRS_TYPE_TABLE(X) X(bool) X(int) X(int32_t) X(int64_t) X(uint32_t) X(uint64_t) X(float)
typedef enum sl_attrs_type {
#define X(type) SL_ATTRS_##type,
  SL_ATTRS_TYPE_TABLE(X)
#undef X
} sl_attrs_type;

/* The structs of attributes, sl_attention_attrs and so on, with the fields that attrs.def lists. */
#define KIND(kind, text) typedef struct sl_##kind##_attrs {
#define GROUP KIND
#define FIELD(kind, type, name, length, none, text) type name length;
#define END(kind) \
  }               \
  sl_##kind##_attrs;
#include <sluice/attrs.def>
#undef KIND
#undef FIELD
#undef END

/* Attributes of one call of an op in a graph. A field that is 0 is not set, and means the default
 * that attrs.def states. */
typedef struct sl_attrs {
  /* For an op that says so: a record of its own, which must outlive the run. Attributes of a user's
   * op stand here. */
  const void *user;

  /* For an op: only the kinds that its row lists (sl_op.attrs). */
  sl_attention_attrs attention;
  sl_rotary_attrs rotary;
  sl_norm_attrs norm;
  sl_product_attrs product;
  sl_function_attrs function;
  sl_cast_attrs cast;
  sl_along_attrs along;
  sl_one_hot_attrs one_hot;
  sl_shape_attrs shape;
  sl_fill_attrs fill;
  sl_distribution_attrs distribution;
  sl_loss_attrs loss;
  sl_tokens_attrs tokens;
  sl_experts_attrs experts;
  sl_planes_attrs planes;
  sl_spikes_attrs spikes;
  sl_running_attrs running;
  sl_members_attrs members;
  sl_states_attrs states;
  sl_sampling_attrs sampling;
  sl_source_attrs source;

  /* For any op, set by the graph. */
  sl_place_attrs place;
  const sl_region *region; /* `located` ops: position of output 0 (in the backward pass, of the
                              forward call's output 0) in the whole microbatch's array; NULL: all of
                              it */
  sl_random_attrs random;
  sl_numbers_attrs numbers;
  sl_pages_attrs pages;
  sl_weight_attrs weight;
} sl_attrs;

struct sl_op;
/* The fields of a kind or group, as data; ends at a field without a name. */
typedef struct sl_attrs_field {
  const char *name;
  sl_attrs_type type;
  int length;              /* of an array; else 1 */
  size_t offset;           /* in sl_attrs */
  const char *none, *text; /* default; sentence */
} sl_attrs_field;
typedef struct sl_attrs_kind {
  const char *name, *text;
  const sl_attrs_field *fields;
} sl_attrs_kind;
#define KIND(kind, text) extern const sl_attrs_kind sl_attrs_##kind;
#define FIELD(kind, type, name, length, none, text)
#define END(kind)
#include <sluice/attrs.def>
#undef KIND
#undef GROUP
#undef FIELD
#undef END
/* The kinds, for ops, and the groups, for all calls; NULL-terminated. */
extern const sl_attrs_kind *const sl_attrs_kinds[], *const sl_attrs_groups[];
/* Formats the fields that a call of an op sets, " heads=4 window=64", cut to `bytes`, and returns
 * `out`. */
char *sl_attrs_format(char *out, size_t bytes, const struct sl_op *op, const sl_attrs *attrs);

/* Position of a call in the stream of ticks. */
typedef struct sl_tick {
  int64_t number; /* (step*M + microbatch)*K + piece */
  int64_t step;
  int32_t microbatch; /* 0..M-1; in an evaluation, counted from 0 */
  int32_t piece;      /* 0..K-1 */
  int64_t row, rows;  /* when a program runs: first position and length of the piece in its
                         sequence; 0 and 0 if sequences are not cut */
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
  int32_t *out_rows;      /* [nout] see sl_call_fill; NULL: valid lengths are not needed */
} sl_call;

/* Returns the valid length of input i: only the first rows of an array may hold data. `all`: rows
 * of a full array. For ops with sl_op_rows.looks. */
static inline int64_t sl_call_rows(const sl_call *call, int i, int64_t all) {
  return call->in_rows && call->in_rows[i] >= 0 ? call->in_rows[i] : all;
}
/* Reports that the first `rows` rows of output o are valid, for ops with sl_op_rows.fills. Outputs
 * without a report are full. */
static inline void sl_call_fill(const sl_call *call, int o, int64_t rows) {
  if (call->out_rows) call->out_rows[o] = (int32_t)rows;
}

/* Returns the index, within the step, of element `element` of output 0 of a `located` op (in the
 * backward pass, of an array of that shape). The index numbers the elements of whole microbatches,
 * one microbatch after another, each in row-major order, regardless of sharding and cuts. *run:
 * number of elements from there on whose indices are consecutive. */
int64_t sl_call_where(const sl_call *call, int64_t element, int64_t *run);

/* Boundaries of the pieces of sequences: each piece's first position, then the end of the last
 * piece. */
typedef struct sl_call_cut {
  int32_t pieces;
  const int64_t *starts; /* [pieces + 1] */
} sl_call_cut;

/* Draws four random words (Philox 4x32-10) from the step, the call's attrs.random.key and the run's
 * seed. Element e, numbered by sl_call_where, uses word e % 4 of block e / 4. */
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
 * wrt[j]". A rule runs only if one of these gradients is needed; outputs that are not needed are
 * NULL. An argument that names an absent input of the forward op is NULL too. The call has the
 * forward op's attrs. op == NULL: pass-through, the gradient of input wrt[0] is DOUT(0) itself.
 *
 * `rest` is for ops with any number of inputs. Output nwrt is then the gradient of input wrt[nwrt -
 * 1]
 * + 1, output nwrt + 1 that of the next input, and so on. {.nwrt = 1, .wrt = {0}, .rest = true}
 * gives the gradients of all inputs.
 *
 * The class is SL_CLASS_B, SL_CLASS_W or SL_CLASS_F. A rule of class F runs in the forward pass if
 * the gradients it reads are known there. A loss's gradient is known: it is the weight of that loss
 * in the step. A loss can therefore keep its input's gradient instead of the input. If the
 * gradients are not known, the rule has class B. */
typedef struct sl_grad_rule {
  const struct sl_op *op;
  sl_class cls;
  sl_grad_arg in[SL_GRAD_ARGS]; /* ends at SL_ARG_NONE */
  int nwrt;                     /* length of wrt[]; 0 ends the list of rules */
  int wrt[SL_GRAD_OUTS];
  bool rest;
} sl_grad_rule;

/* ---- cuts and signatures -------------------------------------------------- */

/* Behaviour of an op when sequences are cut into pieces along one dim of the data. All values but
 * the first make two promises: a call on a piece computes that piece of the whole call's result,
 * and gradients that are sums over positions are the sums over pieces. The values differ in which
 * dim of an f32 input may be cut:
 *   REFUSED    no promise: a model with this op cannot be cut
 *   ELEMENTS   any dim
 *   ROWS       any but the last
 *   POSITIONS  dim 1 only, because the op reads call->tick.row
 *   STATE      dim 1 only; the op keeps a record of the sequence so far in outputs
 *              that it updates in place. attrs.place.length is the sequence's
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

/* Dims along which an op of SL_PIECES_SIGNATURES mixes positions: UNKNOWN; NOTHING (inputs
 * broadcast); AXIS, the dim of attrs.along.axes (if unset, the last dim that all inputs have); or
 * AXES, the dims of attrs.along.axes (if unset, all). A served graph may use the op if rows are not
 * along any of these dims. */
typedef enum sl_along { SL_ALONG_UNKNOWN, SL_ALONG_NOTHING, SL_ALONG_AXIS, SL_ALONG_AXES } sl_along;

/* Distribution of an array over R devices: each device has all of it (BROADCAST), a summand of it
 * (PARTIAL), or a part along one dim (SPLIT). This is OneFlow's SBP: Yuan et al., arXiv 2110.15032.
 * DISPATCHED: each device has the rows that an array of ids dispatches to it. Dims 0 to `dim` of
 * the whole count the rows; on a device dim 1 does, and their number depends on the data
 * (sl_op_rows.fills). */
typedef enum sl_sbp_kind { SL_BROADCAST, SL_PARTIAL, SL_SPLIT, SL_DISPATCHED } sl_sbp_kind;
typedef struct sl_sbp {
  sl_sbp_kind kind;
  int dim; /* SL_SPLIT: the split dim; SL_DISPATCHED: the last dim of rows; else 0 */
} sl_sbp;

/* One way for R devices to share a call: each runs it on its part of the inputs and gets its part
 * of the outputs, as `out` says. The signature must hold for the backward pass too: the gradient of
 * a broadcast array is partial, that of a partial array is broadcast, that of a split array is
 * split alike. Unset entries are broadcast. An absent optional input that is partial counts as
 * zero. Split dims of several arrays are split at the same places: by heads if the dim consists of
 * heads, and segment by segment if it consists of segments. The last entry of in[] and out[]
 * applies to all further arguments of the call. */
enum { SL_SIGNATURE_ARGS = 16, SL_SIGNATURES = 16 };
typedef struct sl_signature {
  sl_sbp in[SL_SIGNATURE_ARGS], out[SL_SIGNATURE_ARGS];
  bool heads; /* input 0's split dim divides attrs.attention.heads and kv_heads */
  int first;  /* 1 + the input whose split sets attrs.place.first (and attrs.place.partial); 0: none
               */
  /* A call in two parts. Op `local` runs on each device; its only output, split along the last dim,
   * is all-gathered; `joined` then computes the outputs on every device. NULL: a single call. The
   * backward pass is that of the op, with attrs.place.first and attrs.place.partial, and takes
   * `joined`'s outputs for the op's. Since every device computes the same `joined`, the gradients
   * of the outputs must be broadcast, not partial. */
  const struct sl_op *local, *joined;
} sl_signature;

/* A scalar over rows, in f64. The summands of a mean are the rows of input 0, or its elements. */
typedef enum sl_exact_total {
  SL_TOTAL_NONE,
  SL_TOTAL_SUM,
  SL_TOTAL_MEAN_ROWS,
  SL_TOTAL_MEAN_ELEMENTS
} sl_exact_total;

/* A kernel: how one kind of device runs an op. Backends have tables of kernels for shipped ops; a
 * user's op supplies its kernels. */
typedef struct sl_kernel {
  const char *backend; /* "cpu" or "cuda"; NULL ends a list */

  /* run() computes a call, for "cpu"; launch() enqueues a call on a stream, for "cuda". They must
   * not block, allocate or fail; results must not depend on the team's size. */
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

/* ---- facets ---------------------------------------------------------------
 *
 * An op of a few numbers per position needs a name, its numbers of arguments, infer(), kernels and
 * gradient rules. Each facet below says how the op takes part in one more thing that graphs do. A
 * facet that is NULL promises nothing: the op is refused by name where the promise is needed. Bit i
 * of a mask is input or output i; bit 31 of masks of arguments stands for 31 and up. */

/* How calls are cut along dims of the data: pieces of sequences and rows on several devices. */
typedef struct sl_op_cut {
  sl_pieces pieces;
  sl_along along;
  uint32_t whole; /* bit i: input i may not be cut: a weight, a table */
  /* Bit o: output o belongs to its device's part of the call and is only read on that device. */
  uint32_t own;
  /* Op that replaces this one when sequences are cut. It has the same inputs and first outputs, and
   * may have further outputs. NULL: the op itself. */
  const struct sl_op *pieced;
  /* Ops that replace this one when a piece attends to earlier pieces one at a time. `parts`
   * computes from the op's inputs the inputs of `swept`, apart from ids. `swept` has the op's first
   * outputs; for each piece it is called with every piece up to that one, in order. Bit i of its
   * `sweeps`: input i belongs to the earlier piece; all other inputs belong to the current piece.
   * Outputs that `swept` updates persist for a microbatch. attrs.user, an sl_call_cut, holds the
   * pieces' boundaries. `shared` replaces this one, and reads the same parts, if devices share the
   * positions of a piece and gather its keys and values. */
  const struct sl_op *parts, *swept, *shared;
  uint32_t sweeps;
} sl_op_cut;

/* Ops whose calls may be cut along any dim of f32 inputs, or along any but the last. */
extern const sl_op_cut sl_cut_elements, sl_cut_rows;

/* How an op reads a weight: it multiplies rows by a matrix (PRODUCT), picks rows of a table by ids
 * (TABLE), or multiplies rows by the matrix of their group (EXPERTS). */
typedef enum sl_weight {
  SL_WEIGHT_NONE,
  SL_WEIGHT_PRODUCT,
  SL_WEIGHT_TABLE,
  SL_WEIGHT_EXPERTS
} sl_weight;

/* How a call gets what it needs of other positions, if each device has a share of them: keys and
 * values go around (RING) or are gathered (GATHER), rows of the neighbours are copied (NEAR), or
 * states are exchanged (STATES). */
typedef enum sl_sequence_share {
  SL_SEQUENCE_NONE,
  SL_SEQUENCE_RING,
  SL_SEQUENCE_GATHER,
  SL_SEQUENCE_NEAR,
  SL_SEQUENCE_STATES
} sl_sequence_share;

/* Where attention has its queries, keys and values: inputs 0, 1 and 2 (SEPARATE), all three in
 * input 0 (PACKED), or the queries in input 0 and keys followed by values in input 1 (JOINED). */
typedef enum sl_heads {
  SL_HEADS_NONE,
  SL_HEADS_SEPARATE,
  SL_HEADS_PACKED,
  SL_HEADS_JOINED
} sl_heads;

/* How several devices share a call. */
typedef struct sl_op_shard {
  /* Fills out[SL_SIGNATURES] with ways to share a call, besides full replication and those implied
   * by `cut` (a split along a dim that may be cut). Returns their number. Forward ops only; the
   * backward pass follows from them. */
  int (*signatures)(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out);
  sl_weight weight;
  sl_sequence_share sequence;
  sl_heads heads;
  bool joins;  /* attention's output 1 is keys followed by values */
  bool behind; /* a gradient of an op that exchanges rows NEAR reads rows after its own */
  bool before; /* or rows before its own */
} sl_op_shard;

/* Number of leading outputs that sl_op_memory.in_place covers. */
enum { SL_IN_PLACE_OUTPUTS = 2 };

/* How calls use the memory of their arguments, and memory of their own. */
typedef struct sl_op_memory {
  /* Bit o: output o is updated in place (its old contents are read). */
  uint32_t updates;
  /* Bit o: output o, one of `updates` without other consumers, starts as 0 and persists across
   * microbatches and steps. Checkpoints do not contain it. Other updated outputs persist for a
   * microbatch. */
  uint32_t lasts;
  /* Bit o: output o, one of `lasts`, is in the memory of the device that serves, for readers there,
   * though the op runs beside it on the host. */
  uint32_t near;
  /* Bit i of in_place[o]: output o may be computed in place of input i if both have the same dtype
   * and size. No thread reads an element of that input after any thread has written its place,
   * whatever other aliases that the op allows are in use. */
  uint32_t in_place[SL_IN_PLACE_OUTPUTS];
  /* Bit i: only the type of input i is read, and a call may pass NULL for it. */
  uint32_t unread;
  /* Returns the bytes of a state that is large enough to plan for, such as a table, and sets *which
   * to a number that identifies it. Calls on one device with the same prepare(), keeps() and number
   * share one state. Depends only on types and attrs, like a kernel's prepare(). May be NULL. */
  size_t (*keeps)(const sl_call *call, uint64_t *which);
} sl_op_memory;

/* How calls treat arrays of which only the first rows hold data (their valid length). An op without
 * this facet may read partly filled arrays if its `cut` promises elements, rows or a sum. Its calls
 * then see arrays of the valid length, and are skipped if that is 0. Their row outputs have the
 * same valid length, and sums over no rows are 0. Any other op is rejected with an error that names
 * it. */
typedef struct sl_op_rows {
  /* Bit o: a call reports the number of rows of output o that it has filled (sl_call_fill). The
   * rows are the first dim, or, with `second`, the second dim, the first being 1. */
  uint32_t fills, second;
  uint32_t looks;   /* bit i: the op reads the valid length of input i (sl_call_rows) */
  uint32_t follows; /* bit o: output o has the valid length of the first input that is not full */
  /* Returns the number of rows of output o, of this type, that a call fills in a tick of a step;
   * for modelled devices, which hold no values. NULL: all rows. */
  int64_t (*expects)(const sl_attrs *attrs, int o, const sl_type *type, int32_t tick);
  bool fixed; /* kernels prepare for the call's types and cannot run on fewer rows */
} sl_op_rows;

/* Which arguments may be bf16 instead of f32 on devices that compute on bf16 tensors: activations
 * and their gradients, but not weights, statistics or sums over a step. CPU kernels get f32. */
typedef struct sl_op_narrow {
  uint32_t in, out; /* bit i: input or output i; in one call all have the same type, unless mixed */
  bool mixed;
  bool rounds; /* rounds its products' operands to bf16 if attrs.numbers.bf16 is set */
} sl_op_narrow;

/* How an op takes part in a served graph, where positions belong to any sequences. Without it the
 * op stays as it is, if its `cut` promises rows or elements. */
typedef struct sl_op_serve {
  /* Op that replaces this one. Its inputs are all inputs this op may have, then the batch
   * (batch.h). It has the same first outputs and may have further outputs, which it updates and
   * which last from tick to tick. Dim 0 of these counts attrs.pages.count pages of the KV cache, so
   * with attrs.pages.count 1 their bytes are those of one page. */
  const struct sl_op *op;
  /* attrs.pages.count counts slots instead, each with the state of a sequence, so sequences cannot
   * begin after pages filled by other sequences. The replacing op has this record as well. */
  bool slots;
  uint32_t stored; /* bit i: weight i may be in a storage format, unless attrs.product.transposed */
  bool chooses;    /* the replacing op attends to chosen pages, by attrs.pages.prompt_chunk and
                      attrs.pages.prompt_share */
} sl_op_serve;

/* How exact calls (attrs.numbers.exact) order their sums. A row's results depend on that row alone,
 * as `cut` promises; this record declares the sums over rows and the sums that devices share. A
 * plan with any other sum over rows is refused (docs/exact.md). */
typedef struct sl_op_exact {
  bool groups;   /* sums along the last dim of input 0, in the groups of attrs.numbers.chunk */
  bool scatters; /* adds rows of an input to rows of output 0: rounds each row and adds in f64. The
                    gradient among its inputs may be such a sum itself, in f64 */
  bool moves;    /* a backward op that moves numbers of a gradient, or adds some of them: takes and
                    gives sums over rows, in f64 */
  bool by_leaf;  /* cuts its rows into leaves (attrs.numbers.leaves) itself */
  bool reorders; /* a server sums in another order than training, so exact calls are refused */
  sl_exact_total total; /* output 0: rounds the summand of each row and adds in f64; the gradient of
                           a mean divides by attrs.numbers.summands */
} sl_op_exact;

/* Traits of an op that no facet needs more than a bit for. */
enum {
  SL_OP_DETACHED = 1 << 0, /* stops gradients: its outputs need none */
  SL_OP_CHEAP = 1 << 1,    /* a forward op that costs little more than reading and writing its
                              arguments */
  SL_OP_LOCATED =
      1 << 2,            /* calls get attrs.random.key, seed and region, in the backward pass too */
  SL_OP_PADDED = 1 << 3, /* can ignore padding of input 0's rows, after attrs.place.columns */
  SL_OP_COUNTED = 1 << 4,   /* reads a mean over rows. attrs.user, a double set by the graph, is the
                               fraction of a microbatch's rows that the mean covers, in the backward
                               pass too; NULL: all */
  SL_OP_BATCH = 1 << 5,     /* works on whole microbatches: every call reads whole inputs, which
                               depend on data only */
  SL_OP_PART = 1 << 6,      /* reads only the part of each input given by attrs.user, an sl_part */
  SL_OP_SOURCE = 1 << 7,    /* supplies data; attrs.user is an sl_source */
  SL_OP_COPY = 1 << 8,      /* output 0 is input 0 */
  SL_OP_RESHAPE = 1 << 9,   /* output 0 has the elements of input 0 in their order */
  SL_OP_RANDOM = 1 << 10,   /* draws random numbers */
  SL_OP_SKIPPED = 1 << 11,  /* evaluations pass input 0 on in place of output 0 */
  SL_OP_AVERAGES = 1 << 12, /* evaluations read running statistics (attrs.norm.given) */
  SL_OP_REPEATS =
      1 << 13,          /* an actor of its own, which fires attrs.experts.firings times in a tick */
  SL_OP_LOADS = 1 << 14 /* runs on the disk's queue, and reads parameters where they are */
};

/* ---- the row ------------------------------------------------------------- */

enum { SL_OP_KINDS = 2 };

typedef struct sl_op {
  const char *name;   /* "linear"; unique in the table */
  int min_in, max_in; /* max_in -1: any number */
  int nout;           /* -1: the number outputs() returns */
  /* Returns the number of outputs of a call with nin inputs; below 0 if attrs do not determine
   * it. */
  int (*outputs)(const sl_attrs *attrs, int nin);

  /* Checks the inputs and fills out[nout]. An absent optional input has ndim -1. On a mismatch
   * returns sl_fail(SL_E_SHAPE, text) with a text that says what was expected ("weight must be
   * f32[384, n], got ..."); the caller adds op, tensor names and source line. Any thread; no side
   * effects. */
  sl_status (*infer)(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out);

  /* Sets the floating point operations and bytes moved by one call. NULL: no flops, and the bytes
   * of all arguments. */
  void (*cost)(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out, double *flops,
               double *bytes);

  /* Kernels of a user's op, one per supported backend, terminated by an entry without a backend.
   * NULL for shipped ops, whose kernels backends find by name. */
  const sl_kernel *kernels;

  /* Bit o: the kernel honours call->accumulate for output o. */
  uint32_t accumulates;
  uint32_t traits; /* SL_OP_... */

  /* Kinds of attributes that calls may set. Other kinds are refused by name. A backward op has its
   * forward op's. */
  const sl_attrs_kind *attrs[SL_OP_KINDS];

  /* Checks input values that types cannot constrain, such as indices out of range, before a call. A
   * failure, described by sl_fail(), ends the run with an error that names the op. Runs on CPUs,
   * and for GPUs with numbers.check_finite, on copies of the inputs in host memory. Any thread.
   * Kernels must still tolerate bad values. May be NULL. */
  sl_status (*check)(const sl_call *call);

  /* Extends a hash by everything in the record attrs.user that results depend on. It becomes part
   * of the plan's hash, which the processes of a job compare to check that they run the same plan.
   * NULL: the record is private to the process. */
  uint64_t (*hash)(uint64_t hash, const sl_attrs *attrs, int nin);

  const sl_op_cut *cut;
  const sl_op_shard *shard;
  const sl_op_memory *memory;
  const sl_op_rows *rows;
  const sl_op_narrow *narrow; /* NULL: all arguments are f32 on every device */
  const sl_op_serve *serve;
  const sl_op_exact *exact;
  const struct sl_update *update; /* not NULL: the op is an optimizer; see optimizer.h */

  /* Op that replaces this one, if it updates outputs, when a call is recomputed in the backward
   * pass. The final contents of the updated outputs are extra inputs at the end, and these outputs
   * are absent; `unread` inputs are absent too. It recomputes all other outputs, bit for bit. NULL:
   * an op that updates outputs is not recomputed. */
  const struct sl_op *rematerialized;
  sl_grad_rule grad[SL_GRAD_RULES];
} sl_op;

/* The shipped ops (ops/table.c), NULL-terminated, and lookup by name. */
extern const sl_op *const sl_ops[];
const sl_op *sl_op_find(const char *name);

/* ---- teams --------------------------------------------------------------- */

/* Runs fn(arg, i) for i in [0, n) on the team's threads and returns when all are done. Any thread
 * may run any i. To stay independent of the team's size, a kernel cuts its work into chunks that
 * depend only on shapes, and combines partial results in chunk order. team NULL: a plain loop. Not
 * reentrant. */
void sl_team_for(struct sl_team *team, int n, void (*fn)(void *arg, int i), void *arg);
int sl_team_size(const struct sl_team *team); /* 1 for NULL */

#ifdef __cplusplus
}
#endif
#endif
