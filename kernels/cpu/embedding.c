/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of ops that read tables: token and position embeddings. */
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/served.h"
#include "ops/leaves.h"
#include "ops/ops.h"

static void embedding_cpu(const sl_call *call) {
  sli_for_rows(call, &call->out_type[0], sli_cpu()->embedding);
}

static void zero_chunk(void *arg, int i) {
  const sl_call *call = arg;
  sli_range range = sli_elements(&call->out_type[0], i);
  size_t bytes = sl_dtype_bytes(call->out_type[0].dtype);
  memset((char *)call->out[0] + (size_t)range.begin * bytes, 0,
         (size_t)(range.end - range.begin) * bytes);
}

/* Writes zeros in memory order, which is much faster than column by column, then adds the sums by
 * columns. */
static void sum_into_table(const sl_call *call, sli_chunk_fn *add) {
  if (!sli_accumulates(call, 0)) sli_for_elements(call, &call->out_type[0], zero_chunk);
  sli_for_columns(call, &call->out_type[0], add);
}

/* Adds some columns of a row, number `row` of dy, to a table row in f64, exactly. The rows of dy
 * may be exact sums themselves. */
static void add_exactly(double *to, const sl_type *type, const void *dy, int64_t row,
                        sli_range columns) {
  int64_t at = row * sl_type_last(type);
  bool sums = type->dtype == SL_F64;
  for (int64_t c = columns.begin; c < columns.end; c++)
    to[c] += sums ? ((const double *)dy)[at + c] : sli_leaf_round(((const float *)dy)[at + c]);
}

static void embedding_w_exact_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const int32_t *ids = call->in[0];
  int64_t vocab = call->out_type[0].dim[0], width = call->out_type[0].dim[1];
  sli_range columns = sli_columns(&call->out_type[0], i);
  for (int64_t r = 0; r < sl_type_elements(&call->in_type[0]); r++) {
    int64_t id = ids[r] - call->attrs->place.first;
    if (id >= 0 && id < vocab)
      add_exactly((double *)call->out[0] + id * width, &call->in_type[1], call->in[1], r, columns);
  }
}

static void position_w_exact_chunk(void *arg, int i) {
  const sl_call *call = arg;
  int64_t length = call->in_type[0].dim[1], width = call->in_type[0].dim[2];
  sli_range columns = sli_columns(&call->out_type[0], i);
  for (int64_t r = 0; r < sl_type_rows(&call->in_type[0]); r++)
    add_exactly((double *)call->out[0] + sli_position(call, r % length) * width, &call->in_type[0],
                call->in[0], r, columns);
}

static bool is_exact_sum(const sl_call *call) { return call->out_type[0].dtype == SL_F64; }

static void embedding_w_cpu(const sl_call *call) {
  sum_into_table(call, is_exact_sum(call) ? embedding_w_exact_chunk : sli_cpu()->embedding_w);
}

static void position_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], sli_cpu()->position);
}

static void position_w_cpu(const sl_call *call) {
  sum_into_table(call, is_exact_sum(call) ? position_w_exact_chunk : sli_cpu()->position_w);
}

const sl_kernel sli_cpu_embedding = {.backend = "cpu", .run = embedding_cpu};

const sl_kernel sli_cpu_embedding_w = {.backend = "cpu", .run = embedding_w_cpu};

const sl_kernel sli_cpu_position = {.backend = "cpu", .run = position_cpu};

const sl_kernel sli_cpu_position_w = {.backend = "cpu", .run = position_w_cpu};

/* ---- serving: positions of any sequences ------------------------------------------------ */

static void position_served_cpu(const sl_call *call) {
  sl_team_for(call->team, sli_batch_of(call)->rows, sli_cpu()->position_served, (void *)call);
}

const sl_kernel sli_cpu_position_served = {.backend = "cpu", .run = position_served_cpu};
