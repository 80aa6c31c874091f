/* SPDX-License-Identifier: Apache-2.0 */
/* Types and helpers for the kernels of served graphs. Their last input is the batch. */
#ifndef SLUICE_KERNELS_CPU_SERVED_H
#define SLUICE_KERNELS_CPU_SERVED_H

#include "kernels/cpu/chunk.h"
#include "ops/batch.h"
#include "ops/storage.h"

/* SLI_STORAGE_BLOCK numbers of a row as 24-bit integers with one scale, a power of two. Number i is
 * scale * (low[i] + 2^8 upper[i]), accurate to half a scale; low[i] has 8 bits and upper[i] 16. The
 * layout is that of the level's products, with four numbers per quad. upper[i] is either middle[i]
 * + 2^8 high[i], or stored in pairs of 16 bits: the quad's first and third number, then its second
 * and fourth. Weights are integers minus a centre, so the sums of products begin at begin[], or,
 * for weights with scales of half blocks, at the begin of quads 2 * half + SLI_LOW and + SLI_UPPER.
 * If any number is not finite, all digits are 0 and the scale is NaN. */
enum { SLI_LOW, SLI_UPPER, SLI_SUMS };
enum { SLI_DIGITS = 3, SLI_QUADS = SLI_STORAGE_BLOCK / 4 };
typedef struct sli_digits {
  int32_t begin[SLI_SUMS];
  float sum, scale; /* sum of the integers */
  union {
    struct {
      int8_t digits[SLI_DIGITS][4]; /* low, middle, high */
      int32_t begin;                /* of half a block; unused in other quads */
    };
    int16_t pairs[SLI_SUMS][2][2];
  } quads[SLI_QUADS];
} sli_digits;

/* Digit blocks that a piece has room for. With few rows, computing them costs less than reading
 * them from another core. */
enum { SLI_OWN_DIGITS = 128 };

/* A product, whose columns are cut evenly into pieces of whole SLI_SERVED_COLUMNS. A column's sums
 * do not depend on its piece, so the number of pieces may follow the team. */
enum { SLI_SERVED_COLUMNS = SLI_STORAGE_GROUP };
typedef struct sli_served_product {
  const sl_call *call;
  int pieces;
  /* for block formats: [k / SLI_STORAGE_BLOCK, rows]; NULL: each piece computes its own */
  sli_digits *x;
} sli_served_product;

/* Runs several linear_served calls. */
void sli_linear_served_joined(const sl_call *calls, int n);

/* Scratch of a call whose weights are in blocks. */
static inline size_t sli_served_digits_bytes(const sl_type *x) {
  return (size_t)(sl_type_elements(x) / SLI_STORAGE_BLOCK) * sizeof(sli_digits);
}

static inline sli_range sli_served_columns(int64_t n, int pieces, int i) {
  int64_t all = sli_chunk_count(n, SLI_SERVED_COLUMNS);
  int64_t begin = all * i / pieces * SLI_SERVED_COLUMNS,
          end = all * (i + 1) / pieces * SLI_SERVED_COLUMNS;
  return (sli_range){begin, end < n ? end : n};
}

/* Rows of one sequence that attend together. */
enum { SLI_SERVED_RUN = 8 };
typedef struct sli_run {
  int32_t row, rows;
} sli_run;

/* Chunks of prompts whose queries attend to chosen pages. A chunk is found by its first row. */
typedef struct sli_served_chunks {
  int64_t positions; /* of a chunk, a multiple of SL_PAGE; 0: no query chooses */
  float share;       /* fraction of the pages that are chosen */
  int count;
  const int32_t *row; /* [count] first rows */
  int64_t words;      /* words of a mask, a bit for each page of a sequence */
  uint64_t *masks;    /* [count][heads][positions / SL_PAGE][words] */
  float *room;        /* [count][heads][SLI_CHOICE_ARRAYS][words * 64] */
  float *recall; /* [count][heads] softmax mass of the last queries in their pages, a fraction */
} sli_served_chunks;

/* Arrays of a head's choice: mass by page and by distance in pages, estimates, and a heap. */
enum { SLI_CHOICE_ARRAYS = 4 };

/* Attention of a tick over pages [pages][kv_heads][K^T: dim * SL_PAGE, V: SL_PAGE * dim], in f32,
 * bf16 or Q8_0 (ops/pages.h). */
typedef struct sli_served_attention {
  const sl_batch *batch;
  int64_t heads, kv_heads, dim;
  int64_t behind;   /* keys before the query inside its mask */
  int64_t shown;    /* first keys, inside the masks of all later queries */
  float scale, cap; /* scale of the scores, and their cap; cap 0: none */
  /* positions per chunk (attention_dual), and the forms of q for keys of the previous chunk and of
   * the chunks before it; chunk 0: q is for all keys */
  struct {
    int64_t chunk;
    const float *q[2];
  } dual;
  const float *q, *k, *v;       /* row 0 of each */
  int64_t q_row, kv_row, o_row; /* row strides */
  float *out, *lse;             /* lse [rows, heads], or NULL */
  void *pages;
  sl_storage storage;
  const sli_run *runs;
  sli_served_chunks chunks;
  /* number of parts of a KV head's query heads; a chunk is one part for one run */
  int parts;
} sli_served_attention;

#endif
