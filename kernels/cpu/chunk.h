/* SPDX-License-Identifier: Apache-2.0 */
/* Chunking of CPU kernels, and the table of vectorised chunk functions.
 *
 * A kernel is cut into chunks by its shapes alone, never by the size of the team, and the results
 * of chunks are combined in chunk order. Results therefore do not depend on the number of threads.
 * A chunk function takes the sl_call and the chunk's number.
 *
 * The chunk functions are in vector/, which is compiled once per CPU level. level0.c is the
 * architecture's baseline. It does not fuse products and sums, so it has the same bits on x86-64
 * and ARM64. The other levels are in the folder of the architecture (x86/, arm64/, other/).
 * sli_cpu() is the table for this machine. */
#ifndef SLUICE_KERNELS_CPU_CHUNK_H
#define SLUICE_KERNELS_CPU_CHUNK_H

#include <sluice/op.h>

#include "kernels/walks/walks.h"
#include "ops/mask.h"
#include "ops/space.h"

typedef void sli_chunk_fn(void *call, int i);

/* Computes y[n] from a, b and d, n numbers each. */
typedef void sli_row_fn(const float *a, const float *b, const float *d, float *y, int64_t n);

/* clang-format off */
#define SLI_CHUNK_TABLE(X)                                                     \
  X(add) X(mul) X(mul_b)                                                       \
  X(gelu) X(gelu_b) X(relu) X(relu_b) X(tanh) X(tanh_b) X(swiglu) X(swiglu_b)  \
  X(sum) X(bias_w) X(add_partials)                                             \
  X(embedding) X(embedding_w) X(position) X(position_w)                        \
  X(layernorm) X(layernorm_b) X(layernorm_w) X(rmsnorm) X(rmsnorm_b) X(rmsnorm_w) \
  X(spikes) X(quantize)                                                        \
  X(rotary) X(rotary_b)                                                        \
  X(attention) X(attention_sweep) X(attention_b) X(choose_blocks) X(linear_attention)           \
  X(cross_entropy) X(cross_entropy_b) X(cross_entropy_part) X(mse) X(mse_b)    \
  X(lse) X(log_probability) X(log_probability_b) X(log_probability_part)       \
  X(softmax_part) X(softmax_rescale)                                           \
  X(weighted_cross_entropy) X(weighted_cross_entropy_b) X(weighted_cross_entropy_part) \
  X(sumsq) X(adamw) X(adam) X(sgd) X(lion)                                     \
  X(fold) X(total) X(softmax) X(softmax_b)  \
  X(batch_norm) X(batch_norm_b) X(batch_norm_w) X(largest_positions) \
  X(winograd_tiles) X(winograd_sums) X(winograd_spread) X(winograd_kernels) X(winograd_kernels_b) \
  X(linear_served) X(served_digits) X(embedding_served) X(unpack_stored) X(embedding_stored) X(rotary_served) X(position_served) X(served_keys) X(served_choice) X(served_attention) \
  X(turn) X(gemm) X(round_bf16) X(turn_bf16) X(pack_bf16) X(tile_product) X(split_product)
/* clang-format on */

/* Indices of the functions of unary.def. */
enum {
#define UNARY(name, ...) SLI_UNARY_##name,
#include "ops/unary.def"
#undef UNARY
  SLI_UNARIES
};

/* Indices of the functions of binary.def. Each has rows for y, da and db, or for numbers and
 * integers. */
enum {
#define BINARY(name, ...) SLI_BINARY_##name,
#define COMPARE(name, y) SLI_BINARY_##name,
#include "ops/binary.def"
#undef BINARY
#undef COMPARE
  SLI_BINARIES
};

typedef struct sli_cpu_chunks {
#define X(name) sli_chunk_fn *name;
  SLI_CHUNK_TABLE(X)
#undef X
  sli_chunk_fn *const *unary, *const *unary_b; /* [SLI_UNARIES] */
  sli_row_fn *const (*binary)[3];              /* [SLI_BINARIES] */
  sli_row_fn *const *where;                    /* y, da, db */
  bool multiplies;  /* Sluice's f32 products are faster than oneDNN's at this level */
  const char *bf16; /* unit that computes tile_product; NULL: plain vectors */
  bool splits;      /* split_product is faster than the libraries */
} sli_cpu_chunks;

extern const sli_cpu_chunks sli_cpu_level0, sli_cpu_level1, sli_cpu_level2, sli_cpu_level3,
    sli_cpu_level4;

/* The levels of this architecture, from its baseline up to a row without chunks. A machine has a
 * level if it has all levels below it and is_here() is true. */
typedef struct sli_cpu_level_row {
  const sli_cpu_chunks *chunks;
  bool (*is_here)(void); /* called only if the level below is present; NULL for the baseline */
} sli_cpu_level_row;
extern const sli_cpu_level_row sli_cpu_levels[];

/* Returns the table of the best level that this machine supports. The environment variable
 * SLUICE_CPU_LEVEL (0 to the best) lowers it. */
const sli_cpu_chunks *sli_cpu(void);
int sli_cpu_level(void);
/* Returns true if the environment variable has this value. */
bool sli_cpu_is_set(const char *variable, const char *value);

/* ---- ranges ---------------------------------------------------------------- */

typedef struct sli_range {
  int64_t begin, end;
} sli_range;

static inline int sli_chunk_count(int64_t total, int64_t chunk) {
  return (int)((total + chunk - 1) / chunk);
}

static inline sli_range sli_chunk_range(int64_t total, int64_t chunk, int i) {
  int64_t begin = i * chunk, end = begin + chunk;
  return (sli_range){begin, end < total ? end : total};
}

enum {
  SLI_CHUNK_ELEMENTS = 16384, /* minimum for an element-wise kernel: 64 KiB per array */
  SLI_ELEMENT_CHUNKS = 32,
  SLI_CHUNK_COLUMNS = 64, /* for kernels that are cut by columns */
  SLI_PARTIALS = 16       /* maximum partial results of a sum over rows */
};

/* Rows of `width` elements per chunk. */
static inline int64_t sli_chunk_rows(int64_t width) {
  return width >= SLI_CHUNK_ELEMENTS ? 1 : SLI_CHUNK_ELEMENTS / width;
}

/* Returns the elements per chunk for an array of `total`. Long stretches of memory are read faster
 * than short ones, so chunks of large arrays are up to sixteen times the usual length, provided
 * that enough remain for all threads. */
static inline int64_t sli_element_chunk(int64_t total) {
  int64_t times = total / (SLI_ELEMENT_CHUNKS * SLI_CHUNK_ELEMENTS);
  return SLI_CHUNK_ELEMENTS * (times < 1 ? 1 : times > 16 ? 16 : times);
}

/* Run `fn` over all elements, rows or columns of `type`, chunk by chunk. */
void sli_for_elements(const sl_call *call, const sl_type *type, sli_chunk_fn *fn);
void sli_for_rows(const sl_call *call, const sl_type *type, sli_chunk_fn *fn);
void sli_for_columns(const sl_call *call, const sl_type *type, sli_chunk_fn *fn);

/* Return the range of chunk i in each of these loops. */
static inline sli_range sli_elements(const sl_type *type, int i) {
  int64_t total = sl_type_elements(type);
  return sli_chunk_range(total, sli_element_chunk(total), i);
}
static inline int sli_element_chunks(const sl_type *type) {
  int64_t total = sl_type_elements(type);
  return sli_chunk_count(total, sli_element_chunk(total));
}
static inline sli_range sli_rows(const sl_type *type, int i) {
  return sli_chunk_range(sl_type_rows(type), sli_chunk_rows(sl_type_last(type)), i);
}
static inline sli_range sli_columns(const sl_type *type, int i) {
  return sli_chunk_range(sl_type_last(type), SLI_CHUNK_COLUMNS, i);
}

/* Sums over rows: each chunk of rows stores its sums [nout, width] in the scratch; these sums are
 * then added in chunk order. */
static inline int64_t sli_partial_rows(int64_t rows) {
  int64_t even = (rows + SLI_PARTIALS - 1) / SLI_PARTIALS;
  return even > 32 ? even : 32;
}
static inline int sli_partials(int64_t rows) {
  return sli_chunk_count(rows, sli_partial_rows(rows));
}
size_t sli_partials_scratch(const sl_call *call, int threads);
void sli_sum_rows(const sl_call *call, sli_chunk_fn *fn);

/* ---- arguments --------------------------------------------------------------- */

static inline bool sli_accumulates(const sl_call *call, int output) {
  return call->accumulate >> output & 1;
}

/* Returns the sequence position of row t of the call. */
static inline int64_t sli_position(const sl_call *call, int64_t t) {
  const sl_attrs *a = call->attrs;
  return call->tick.row + a->place.first + t + (t >= a->place.run ? a->place.skip : 0);
}

/* ---- attention, shared by its kernels and chunks ----------------------------- */

/* One attention on strided arrays. Query row i of a sequence is at position q0 + i and attends to
 * the key rows inside its mask. A row of q, o, dq and do_ holds heads*dim floats (head h starts at
 * h*dim); a row of k, v, dk and dv holds kv_heads*dim. Strides are in floats. Absent gradients are
 * NULL. */
typedef struct sli_attention {
  int64_t batch, queries, q0, keys, heads, kv_heads, dim;
  const float *q, *k, *v, *o, *do_;
  float *out, *lse, *dq, *dk, *dv;
  int64_t q_row, q_batch, dq_row, dq_batch; /* strides of q and of dq */
  int64_t kv_row, kv_batch;                 /* strides of k and v */
  int64_t o_row, o_batch;                   /* strides of o, out and do_ */
  sli_mask mask;
  struct {
    int64_t lse_row; /* stride between heads; 0: queries */
    /* batch stride of dk and dv; their row stride is that of k and v */
    int64_t dkv_batch;
    /* keys present in k and v; row 0 is key has.begin. dk and dv cover all keys from 0 on */
    sli_range has;
    bool adds_dkv; /* add to dk and dv instead of overwriting them */
    int64_t tiles; /* query tiles per chunk (sli_attention_cut) */
  } part;
  /* blocks of keys that each block of queries attends to, [batch, heads, blocks, width]; of NULL:
   * all */
  struct {
    const int32_t *of;
    int64_t blocks, width;
  } chosen;
  /* positions per chunk (attention_dual), and the forms of q and dq for keys of the previous chunk
   * and of the chunks before it; chunk 0: q is for all keys */
  struct {
    int64_t chunk;
    const float *q[2];
    float *dq[2];
  } dual;
  bool resumes; /* continue from out and lse; add to dq */
  bool bf16;    /* round the operands of products to bf16 */
  float scale;  /* scale of the scores */
} sli_attention;

/* Attention whose keys arrive in portions. The state of a query is in `out`, not yet divided, and
 * in `seen` [batch, heads, 2, queries]: the largest score and the sum. Key tiles are those of the
 * whole sequence, wherever their parts come from. The last keys of an incomplete tile wait in
 * `tail` [batch, rows, ...], in the order of their places in the tile. */
typedef struct sli_sweep {
  sli_attention a;
  bool begins, ends;
  float *seen;
  const float *tail; /* waiting rows of k; their v rows are at the distance from k to v */
  int64_t tail_batch, tail_place; /* place in the tile of the first waiting row */
} sli_sweep;

/* Selection of the blocks of keys that attention is limited to (ops/attention_blocks.c). */
typedef struct sli_block_choice {
  const sl_attrs *attrs; /* the budget */
  sli_attention a;       /* attention of the last queries */
  const float *q;        /* all queries */
  int64_t blocks, width; /* sizes of the lists */
  int32_t *chosen;       /* [batch, heads, blocks, width], or NULL */
  float *recall;         /* [batch, heads], or NULL */
  float *room;           /* sli_block_room() numbers for each head of a sequence */
} sli_block_choice;

static inline int64_t sli_block_room(int64_t length, int64_t blocks, int64_t dim) {
  return (length + 64 + blocks * (5 + dim) + dim + 15) / 16 * 16;
}

/* ---- linear attention and the delta rule ---- */

enum { SLI_WALK_LANES = 32 }; /* lanes per chunk */

static inline int sli_walk_chunks(const sli_walk *w) {
  return (int)(w->batch * w->groups * ((w->lanes + SLI_WALK_LANES - 1) / SLI_WALK_LANES));
}

enum { SLI_QUERY_TILE = 32 };
/* minimum number of attention chunks per thread, if there are enough tiles */
enum { SLI_CHUNKS_EACH = 16 };

static inline int64_t sli_query_tiles(const sli_attention *a) {
  return (a->queries + SLI_QUERY_TILE - 1) / SLI_QUERY_TILE;
}
/* Returns the chunks per head. A chunk is some query tiles of one head, or all of them if there are
 * many heads. */
static inline int sli_chunks_of_head(const sli_attention *a) {
  return sli_chunk_count(sli_query_tiles(a), a->part.tiles);
}
/* Cuts the attention into chunks for a team and returns their number. Results do not depend on the
 * cut. */
static inline int sli_attention_cut(sli_attention *a, const struct sl_team *team) {
  int64_t tiles = sli_query_tiles(a),
          parts = SLI_CHUNKS_EACH * sl_team_size(team) / (a->batch * a->heads);
  a->part.tiles = parts > 1 ? (tiles + parts - 1) / parts : tiles;
  return (int)(a->batch * a->heads) * sli_chunks_of_head(a);
}

/* ---- broadcasting -------------------------------------------------------------- */

/* A function of the inputs, summed over the dims that the output lacks, times `factor`. */
typedef struct sli_fold {
  sli_row_fn *fn; /* NULL: copies the first input */
  sli_space space;
  const float *in[SLI_SPACE_INPUTS]; /* NULL if absent or unread */
  float *out;
  bool add; /* add to the output */
  float factor;
  int64_t block; /* output elements per chunk */
} sli_fold;

static inline int64_t sli_fold_block(const sli_space *s) {
  int64_t block = SLI_CHUNK_ELEMENTS / s->summed;
  return block > 16 ? block : 16;
}

/* Runs a fold, whose block it chooses. */
void sli_fold_run(const sl_call *call, sli_fold *f);
/* Computes output o of a call whose arrays broadcast together. */
void sli_fold_output(const sl_call *call, int o, sli_row_fn *fn);

/* Lines of n numbers with stride `inner`; a chunk has `block` outer positions. */
typedef struct sli_softmax {
  int64_t outer, n, inner, block;
  bool is_log;
  const float *in[2];
  float *out;
} sli_softmax;

/* Sets lse to the logarithm of the sum of e^x over x[n], in the way that losses with these attrs
 * compute it. There is one chunk, 0. */
typedef struct sli_lse {
  const sl_attrs *attrs;
  const float *x;
  int64_t n;
  float lse;
} sli_lse;

/* ---- images -------------------------------------------------------------------- */

/* Batch norm of a call, `block` channels per chunk. A channel is a run of `inner` numbers in every
 * image; it has `size` numbers. */
typedef struct sli_channel_norm {
  const sl_call *call;
  int64_t images, count, inner, size, block;
} sli_channel_norm;

/* The largest number of each window of a row of outputs. The windows have `rows` rows of x. */
typedef struct sli_largest {
  const float *x; /* [rows, width] */
  int64_t rows, width;
  int64_t outputs, size, stride, pad; /* along the width */
  int32_t *at;                        /* [outputs] positions in x */
} sli_largest;

/* A block of rows of tiles of a Winograd convolution (vector/winograd.h), from row `first` of all
 * images on. Positions of a tile are planes: u [outputs, channels], v [channels, tiles] and
 * m [outputs, tiles]. A chunk is a channel or an output. */
typedef struct sli_winograd {
  int64_t channels, outputs, in[2], out[2], pad[2];
  int64_t down, across; /* tiles of an image */
  int64_t first, rows, tiles;
  const float *x, *w, *bias, *dy;
  float *y, *dw;
  float *u, *v, *m;
  int64_t u_plane, v_plane, m_plane; /* floats from plane to plane */
  bool turned; /* kernels are those of the gradient of x: w is [channels, outputs], from its end */
  bool adds;   /* add to dw */
} sli_winograd;

/* ---- transposition ------------------------------------------------------------ */

/* Transposes a matrix [k, n] to [n, k] with rows `to_row` floats apart. There is one chunk, 0. */
typedef struct sli_turn {
  const float *from;
  int64_t row, k, n;
  float *to;
  int64_t to_row;
} sli_turn;

/* ---- products -------------------------------------------------------------------- */

/* C[rows, columns] = A[rows, k] B[k, columns] + bias, or adds the completed sum to C. There is one
 * chunk, 0. A sum is taken in groups of `chunk` steps of k (vector/gemm.h). If k has parts, each is
 * divided evenly among the groups. */
typedef struct sli_gemm {
  int64_t rows, columns, k;
  const float *a, *b;
  int64_t a_row, b_row; /* floats from row to row */
  bool a_transposed;    /* a is [k, rows] */
  bool b_transposed;    /* b is [columns, k] */
  const float *bias;    /* or NULL */
  float *c;
  double *leaves; /* C if each group's sum is rounded and added in f64; NULL: c is used */
  int64_t c_row;
  bool add;
  int64_t chunk, part[SL_PART_RANGES]; /* lengths; all 0: one part */
} sli_gemm;

/* ---- rounding to bf16 --------------------------------------------------------- */

/* Rounds to nearest, ties to even, in chunks of SLI_CHUNK_ELEMENTS. */
typedef struct sli_rounding {
  const float *from;
  uint16_t *to;
  int64_t count;
} sli_rounding;

/* Reorders a matrix [k, n] while rounding f32 to bf16; zeros fill the padding of the new order.
 *
 *   turn_bf16   [n, k], k rounded up to a multiple of 32; or, in strips, [n / 32, k / 32, 32, 32],
 *               with n rounded up as well; rows after the last one are left unchanged
 *   pack_bf16   [n / block, k / 2, block, 2], k rounded up to a multiple of 32 and n to a multiple
 *               of `block`, itself a multiple of 16. `from` may be transposed. */
typedef struct sli_turning {
  const float *from;
  int64_t row; /* floats between rows of `from` */
  int64_t k, n, block;
  bool turned; /* `from` is [n, k] */
  bool strips;
  uint16_t *to;
} sli_turning;

/* Chunk sizes. Chunks are wide and flat: reading memory along its rows is faster than reading
 * squares, in any cache. */
enum { SLI_TURN_SHORT = 64, SLI_TURN_LONG = 1024 };

static inline int64_t sli_turned_row(int64_t k) { return (k + 31) / 32 * 32; }
/* Return the rows and columns of a chunk, in whole blocks. */
static inline int64_t sli_turn_rows(const sli_turning *t) {
  return t->turned ? SLI_TURN_LONG : SLI_TURN_SHORT;
}
static inline int64_t sli_turn_columns(const sli_turning *t) {
  int64_t columns = t->turned ? SLI_TURN_SHORT : SLI_TURN_LONG;
  return columns > t->block ? columns / t->block * t->block : t->block;
}
static inline int sli_turn_chunks(const sli_turning *t) {
  return sli_chunk_count(t->k, sli_turn_rows(t)) * sli_chunk_count(t->n, sli_turn_columns(t));
}

/* ---- products on tiles ---------------------------------------------------------- */

/* A strip is 32 rows of A, a panel 32 columns of B. A square of each is 32 steps of k. */
enum { SLI_STRIP = 32, SLI_SQUARE = SLI_STRIP * SLI_STRIP };

/* Multiplies some strips by some panels. There is one chunk, 0. */
typedef struct sli_tiles {
  const uint16_t *a;        /* [strip][k / 32][32][32] */
  const uint16_t *b;        /* [panel][k / 2][32][2] */
  int64_t a_strip, b_panel; /* numbers from one strip or panel to the next */
  int64_t k;                /* a multiple of 32 */
  int64_t rows, columns;    /* size of C */
  float *c;
  int64_t c_row;
  bool adds;         /* add to C */
  const float *bias; /* otherwise sums start at the column's bias, or at 0 if NULL */
  bool streams;      /* write C with streaming stores, past the caches */
} sli_tiles;

/* An f32 number is the sum of SLI_PARTS bf16 numbers (vector/split.h). A product proceeds along k
 * in stretches. A strip or panel has up to SLI_STRETCH_NUMBERS numbers of a stretch: its squares
 * one after another, each with all parts. */
enum { SLI_PARTS = 3, SLI_DEPTH = 128, SLI_STRETCH_NUMBERS = SLI_PARTS * SLI_STRIP * SLI_DEPTH };

static inline int64_t sli_strips(int64_t lines) { return sli_chunk_count(lines, SLI_STRIP); }

typedef struct sli_side {
  const float *from;
  int64_t row;    /* floats between rows of `from` */
  int64_t lines;  /* rows of A, or columns of B */
  bool along_k;   /* a line is contiguous in memory */
  uint16_t *room; /* buffer for two strips, or for the panels of two stretches; 64-byte aligned */
} sli_side;

/* Multiplies some rows of A by some columns of B. There is one chunk, 0. */
typedef struct sli_split_product {
  sli_side a, b;
  int64_t k;
  float *c;
  int64_t c_row;
  bool adds;         /* add to C */
  const float *bias; /* otherwise sums start at the column's bias, or at 0 if NULL */
  bool streams;      /* write C with streaming stores, past the caches */
  /* sums between stretches, in whole strips and panels; may be NULL for a single stretch */
  float *sums;
} sli_split_product;

#endif
