/* What the rows of served graphs share: the batch is their last input. */
#ifndef SLUICE_CPU_SERVED_H
#define SLUICE_CPU_SERVED_H

#include "kernels/cpu/chunk.h"
#include "ops/batch.h"
#include "ops/rest.h"

/* SLI_REST_BLOCK numbers of a row as integers of 24 bits with one scale, a power of two: number i is scale * (low[i] +
 * 2^8 upper[i]), to half a scale, where low[i] has 8 bits and upper[i] 16. They lie as the level multiplies them, four
 * numbers in a quad: with upper[i] as middle[i] + 2^8 high[i], or in pairs of 16 bits, the quad's first and third number
 * and its second and fourth. Weights that they multiply are integers less a centre: the sums of products begin at begin[]
 * for that. Numbers that are not all finite have digits 0 and a scale that is NaN. */
enum { SLI_LOW, SLI_UPPER, SLI_SUMS };
enum { SLI_DIGITS = 3, SLI_QUADS = SLI_REST_BLOCK / 4 };
typedef struct sli_digits {
  int32_t begin[SLI_SUMS];
  float sum, scale; /* sum: of the integers */
  union {
    int8_t digits[SLI_DIGITS + 1][4]; /* low, middle, high, of no meaning */
    int16_t pairs[SLI_SUMS][2][2];
  } quads[SLI_QUADS];
} sli_digits;

/* Digits that a piece has room for. For few rows it takes longer to read them from another core. */
enum { SLI_OWN_DIGITS = 128 };

/* A product, whose columns are cut evenly into pieces of whole SLI_SERVED_COLUMNS. A column's sums do not depend on
 * the piece that it is in, so pieces are as many as suit the team. */
enum { SLI_SERVED_COLUMNS = SLI_REST_GROUP };
typedef struct sli_served_product {
  const sl_call *call;
  int pieces;
  sli_digits *x; /* where weights lie in blocks: [k / SLI_REST_BLOCK, rows]; NULL: each piece makes them for itself */
} sli_served_product;

/* Several linear_served. */
void sli_linear_served_joined(const sl_call *calls, int n);

static inline sli_range sli_served_columns(int64_t n, int pieces, int i) {
  int64_t all = sli_chunk_count(n, SLI_SERVED_COLUMNS);
  int64_t begin = all * i / pieces * SLI_SERVED_COLUMNS, end = all * (i + 1) / pieces * SLI_SERVED_COLUMNS;
  return (sli_range){begin, end < n ? end : n};
}

/* Rows of one sequence that look back together. */
enum { SLI_SERVED_RUN = 8 };
typedef struct sli_run {
  int32_t row, rows;
} sli_run;

/* Attention of a tick over pages: [pages][kv_heads][K^T: dim * SL_PAGE, V: SL_PAGE * dim], in f32 or bf16. */
typedef struct sli_served_attention {
  const sl_batch *batch;
  int64_t heads, kv_heads, dim;
  int64_t behind;               /* how far a query sees */
  float scale;
  const float *q, *k, *v;       /* of row 0, */
  int64_t q_row, kv_row, o_row; /* and from row to row */
  float *out;
  void *pages;
  bool bf16;
  const sli_run *runs;
  int parts;                    /* of the heads that look at one head of keys; a chunk is one of them, for a run */
} sli_served_attention;

#endif
