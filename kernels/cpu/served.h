/* What the rows of served graphs share: the batch is their last input. */
#ifndef SLUICE_CPU_SERVED_H
#define SLUICE_CPU_SERVED_H

#include <sluice/batch.h>

#include "kernels/cpu/chunk.h"
#include "kernels/kernels.h"

static inline const sl_batch *sli_batch_of(const sl_call *call) { return call->in[call->nin - 1]; }

/* It is input `at`. */
static inline sl_status sli_want_batch(int nin, const sl_type *in, int at) {
  if (nin == at + 1) return sli_want_array("batch", &in[at], SL_I32, 1);
  return sl_fail(SL_E_SHAPE, "it has no batch to read");
}

/* A product, whose columns are cut evenly into pieces of whole SLI_SERVED_COLUMNS. A column's sums do not depend on
 * the piece that it is in, so pieces are as many as suit the team. */
enum { SLI_SERVED_COLUMNS = 16 };
typedef struct sli_served_product {
  const sl_call *call;
  int pieces;
} sli_served_product;

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

/* Attention of a tick over pages: [pages][kv_heads][K^T: dim * SL_PAGE, V: SL_PAGE * dim]. */
typedef struct sli_served_attention {
  const sl_batch *batch;
  int64_t heads, kv_heads, dim;
  int64_t behind;               /* how far a query sees */
  float scale;
  const float *q, *k, *v;       /* of row 0, */
  int64_t q_row, kv_row, o_row; /* and from row to row */
  float *out, *pages;
  const sli_run *runs;
} sli_served_attention;

static inline int64_t sli_page_floats(int64_t dim) { return 2 * SL_PAGE * dim; }

#endif
