/* How kernels cut their work, and the table of vectorised chunk functions.
 *
 * A kernel is cut into chunks by its shapes alone, never by the team's size,
 * and what chunks leave behind is combined in chunk order: so results do not
 * depend on the number of threads. A chunk function gets the sl_call as its
 * argument and the chunk's number.
 *
 * The chunk functions live in vector/, which is compiled once per CPU level
 * (level0.c: what every machine of the architecture has, level1.c: AVX2 and
 * FMA, level2.c: AVX-512, level3.c: AVX-512 with products of bf16, level4.c: AMX's tiles of such numbers);
 * sli_cpu() is the table for this machine. */
#ifndef SLUICE_CHUNK_H
#define SLUICE_CHUNK_H

#include <sluice/op.h>

#include "ops/sight.h"
#include "ops/space.h"

typedef void sli_chunk_fn(void *call, int i);

/* y[n] of a, b and d, of n numbers each. */
typedef void sli_row_fn(const float *a, const float *b, const float *d, float *y, int64_t n);

#define SLI_CHUNK_TABLE(X)                                                     \
  X(add) X(mul) X(mul_b)                                                       \
  X(gelu) X(gelu_b) X(relu) X(relu_b) X(tanh) X(tanh_b) X(swiglu) X(swiglu_b)  \
  X(sum) X(bias_w) X(add_partials)                                             \
  X(embedding) X(embedding_w) X(position) X(position_w)                        \
  X(layernorm) X(layernorm_b) X(layernorm_w) X(rmsnorm) X(rmsnorm_b) X(rmsnorm_w) \
  X(rotary) X(rotary_b)                                                        \
  X(attention) X(attention_sweep) X(attention_b)                               \
  X(cross_entropy) X(cross_entropy_b) X(cross_entropy_part) X(mse) X(mse_b)    \
  X(softmax_part) X(softmax_rescale)                                           \
  X(weighted_cross_entropy) X(weighted_cross_entropy_b) X(weighted_cross_entropy_part) \
  X(sumsq) X(adamw) X(adam) X(sgd) X(lion)                                     \
  X(fold) X(total) X(softmax) X(softmax_b)  \
  X(linear_served) X(served_digits) X(embedding_served) X(rotary_served) X(position_served) X(served_keys) X(served_attention) \
  X(turn) X(round_bf16) X(turn_bf16) X(pack_bf16) X(tile_product) X(split_product)

/* The functions of unary.def, counted. */
enum {
#define UNARY(name, ...) SLI_UNARY_##name,
#include "ops/unary.def"
#undef UNARY
  SLI_UNARIES
};

/* Those of binary.def: rows are of y, da and db, or of numbers and of integers. */
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
  bool openblas;                               /* its products in f32 are faster than oneDNN's */
  bool tiles;                                  /* tile_product has a machine for it */
} sli_cpu_chunks;

extern const sli_cpu_chunks sli_cpu_level0, sli_cpu_level1, sli_cpu_level2, sli_cpu_level3, sli_cpu_level4;

/* The table of the best level this machine has. The environment variable
 * SLUICE_CPU_LEVEL (0 to 4) lowers it. */
const sli_cpu_chunks *sli_cpu(void);
int sli_cpu_level(void);

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
  SLI_CHUNK_ELEMENTS = 16384, /* at least, of an element-wise kernel: 64 KiB per array */
  SLI_ELEMENT_CHUNKS = 32,
  SLI_CHUNK_COLUMNS = 64,     /* of a kernel that goes by columns */
  SLI_PARTIALS = 16           /* partial results of a sum over rows, at most */
};

/* Rows of `width` elements that make up a chunk. */
static inline int64_t sli_chunk_rows(int64_t width) {
  return width >= SLI_CHUNK_ELEMENTS ? 1 : SLI_CHUNK_ELEMENTS / width;
}

/* Elements of a chunk, where there are so many in all. Processors read longer stretches faster than short ones, so
 * chunks of what comes from memory are up to sixteen times as long; but there are enough of them for all threads. */
static inline int64_t sli_element_chunk(int64_t total) {
  int64_t times = total / (SLI_ELEMENT_CHUNKS * SLI_CHUNK_ELEMENTS);
  return SLI_CHUNK_ELEMENTS * (times < 1 ? 1 : times > 16 ? 16 : times);
}

/* Runs `fn` over all elements, rows or columns of `type`, chunk by chunk. */
void sli_for_elements(const sl_call *call, const sl_type *type, sli_chunk_fn *fn);
void sli_for_rows(const sl_call *call, const sl_type *type, sli_chunk_fn *fn);
void sli_for_columns(const sl_call *call, const sl_type *type, sli_chunk_fn *fn);

/* Chunk i of each of these. */
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

/* Sums over rows: each chunk of rows leaves its sums [nout, width] in the
 * scratch, then the chunks' sums are added in order. */
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

/* Where row t of the call's rows of a sequence stands. */
static inline int64_t sli_position(const sl_call *call, int64_t t) {
  const sl_attrs *a = call->attrs;
  return call->tick.row + a->first + t + (a->ndims == 2 && t >= a->dims[0] ? a->dims[1] : 0);
}

/* ---- attention, shared by its rows and its chunks ---------------------------- */

/* One attention on strided arrays. Query row i of a sequence stands at position q0 + i and attends
 * to the key rows that it sees. A row of q, o, dq and do_
 * holds heads*dim floats (head h from h*dim on), a row of k, v, dk and dv
 * kv_heads*dim; strides are in floats. Absent gradients are NULL. */
typedef struct sli_attention {
  int64_t batch, queries, q0, keys, heads, kv_heads, dim;
  const float *q, *k, *v, *o, *do_;
  float *out, *lse, *dq, *dk, *dv;
  int64_t q_row, q_batch, dq_row, dq_batch; /* strides of q and of dq */
  int64_t kv_row, kv_batch;                 /* strides of k and v */
  int64_t o_row, o_batch;                   /* strides of o, out and do_ */
  sli_sight sight;
  struct {
    int64_t lse_row;                        /* from head to head; 0: queries */
    int64_t dkv_batch;                      /* stride of dk and dv, whose rows are as k's and v's */
    sli_range has;                          /* keys that k and v have: row 0 is the first of them. dk
                                               and dv have all from 0 on */
    bool adds_dkv;                          /* to what is in dk and dv */
    int64_t tiles;                          /* of queries, of a chunk (sli_attention_cut) */
  } part;
  bool resumes;                             /* go on from out and lse; add to dq */
  bool bf16;                                /* operands of products are rounded */
  float scale;                              /* of scores */
} sli_attention;

/* The same where keys come some at a time. What a query has seen so far is in `out`, not yet divided,
 * and in `seen`: [batch, heads, 2, queries], the largest score and the sum. Tiles of keys are those
 * of the whole sequence, whoever brings their parts: keys that have come, of a tile that is not whole
 * yet, wait in `tail` [batch, SLI_KEY_TILE and more, ...]. */
typedef struct sli_sweep {
  sli_attention a;
  bool begins, ends;
  float *seen;
  const float *tail;  /* of k, and as far behind it as v is behind k, of v */
  int64_t tail_batch;
} sli_sweep;

enum { SLI_QUERY_TILE = 32 };
enum { SLI_CHUNKS_EACH = 16 }; /* of attention, for each thread, at least where there are tiles enough */

static inline int64_t sli_query_tiles(const sli_attention *a) {
  return (a->queries + SLI_QUERY_TILE - 1) / SLI_QUERY_TILE;
}
/* A chunk is some tiles of one head's queries: all of them where there are many heads. */
static inline int sli_chunks_of_head(const sli_attention *a) {
  return sli_chunk_count(sli_query_tiles(a), a->part.tiles);
}
/* Cuts it into chunks for a team; returns how many. No number depends on the cut. */
static inline int sli_attention_cut(sli_attention *a, const struct sl_team *team) {
  int64_t tiles = sli_query_tiles(a), parts = SLI_CHUNKS_EACH * sl_team_size(team) / (a->batch * a->heads);
  a->part.tiles = parts > 1 ? (tiles + parts - 1) / parts : tiles;
  return (int)(a->batch * a->heads) * sli_chunks_of_head(a);
}

/* ---- arrays that broadcast ----------------------------------------------------- */

/* A function of the inputs, summed over the dims that the output has not, times `factor`. */
typedef struct sli_fold {
  sli_row_fn *fn;                    /* NULL: the first input as it is */
  sli_space space;
  const float *in[SLI_SPACE_INPUTS]; /* NULL: there is none, or it is not read */
  float *out;
  bool add; /* to what is there */
  float factor;
  int64_t block; /* elements of the output in a chunk */
} sli_fold;

static inline int64_t sli_fold_block(const sli_space *s) {
  int64_t block = SLI_CHUNK_ELEMENTS / s->summed;
  return block > 16 ? block : 16;
}

/* Lines of n numbers, `inner` apart; a chunk has `block` outer positions. */
typedef struct sli_softmax {
  int64_t outer, n, inner, block;
  bool is_log;
  const float *in[2];
  float *out;
} sli_softmax;

/* ---- turning ------------------------------------------------------------------ */

/* A matrix [k, n] becomes one of [n, k], rows `to_row` floats apart. There is one chunk, 0. */
typedef struct sli_turn {
  const float *from;
  int64_t row, k, n;
  float *to;
  int64_t to_row;
} sli_turn;

/* ---- rounding to bf16 --------------------------------------------------------- */

/* Chunks of SLI_CHUNK_ELEMENTS; to nearest, ties to even. */
typedef struct sli_rounding {
  const float *from;
  uint16_t *to;
  int64_t count;
} sli_rounding;

/* A matrix [k, n] in f32 brought into another order on the way to bf16; zeros fill up what the order
 * has room for.
 *
 *   turn_bf16   [n, k], k up to a multiple of 32; or, in strips, [n / 32, k / 32, 32, 32], n up to such a
 *               multiple as well, where rows behind the last one are left as they are
 *   pack_bf16   [n / block, k / 2, block, 2], k up to a multiple of 32 and n to one of `block`,
 *               itself one of 16. `from` may have the matrix the other way round. */
typedef struct sli_turning {
  const float *from;
  int64_t row; /* floats from row to row of `from` */
  int64_t k, n, block;
  bool turned; /* `from` is [n, k] */
  bool strips;
  uint16_t *to;
} sli_turning;

/* Chunks are flat: memory is read along its rows, faster than any cache gives squares of it. */
enum { SLI_TURN_SHORT = 64, SLI_TURN_LONG = 1024 };

static inline int64_t sli_turned_row(int64_t k) {
  return (k + 31) / 32 * 32;
}
/* The rows of a chunk, and its columns: whole blocks. */
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

/* A strip is 32 rows of A, a panel 32 columns of B; a square of a strip and one of a panel are 32 steps of k. */
enum { SLI_STRIP = 32, SLI_SQUARE = SLI_STRIP * SLI_STRIP };

/* Some strips by some panels. There is one chunk, 0. */
typedef struct sli_tiles {
  const uint16_t *a;        /* [strip][k / 32][32][32] */
  const uint16_t *b;        /* [panel][k / 2][32][2] */
  int64_t a_strip, b_panel; /* numbers from one to the next */
  int64_t k;                /* a multiple of 32 */
  int64_t rows, columns;    /* of C */
  float *c;
  int64_t c_row;
  bool adds;         /* to what C has; otherwise */
  const float *bias; /* to a number for each column, or, if NULL, to 0 */
  bool streams;      /* C goes past the caches */
} sli_tiles;

/* In f32 a number is the sum of SLI_PARTS of bf16 (vector/split.h). Along k a product is done in stretches; of one, a
 * strip or a panel has up to SLI_STRETCH_NUMBERS: its squares one after another, of each all parts. */
enum { SLI_PARTS = 3, SLI_DEPTH = 128, SLI_STRETCH_NUMBERS = SLI_PARTS * SLI_STRIP * SLI_DEPTH };

static inline int64_t sli_strips(int64_t lines) { return sli_chunk_count(lines, SLI_STRIP); }

typedef struct sli_side {
  const float *from;
  int64_t row;    /* floats from row to row of `from` */
  int64_t lines;  /* rows of A, or columns of B */
  bool along_k;   /* what lies side by side in memory is of one line */
  uint16_t *room; /* for two strips, or for the panels of two stretches; 64-byte aligned */
} sli_side;

/* Some rows of A by some columns of B. There is one chunk, 0. */
typedef struct sli_split_product {
  sli_side a, b;
  int64_t k;
  float *c;
  int64_t c_row;
  bool adds;         /* to what C has; otherwise */
  const float *bias; /* to a number for each column, or, if NULL, to 0 */
  bool streams;      /* C goes past the caches */
  float *sums;       /* from stretch to stretch, of whole strips and panels; where there is but one it may be NULL */
} sli_split_product;

#endif
