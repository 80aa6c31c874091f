/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of ops that read tables: token and position embeddings. */
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/served.h"
#include "ops/ops.h"

static void embedding_cpu(const sl_call *call) {
  sli_for_rows(call, &call->out_type[0], sli_cpu()->embedding);
}

static void zero_chunk(void *arg, int i) {
  const sl_call *call = arg;
  sli_range range = sli_elements(&call->out_type[0], i);
  memset((float *)call->out[0] + range.begin, 0, (size_t)(range.end - range.begin) * sizeof(float));
}

/* Writes zeros in memory order, which is much faster than column by column, then adds the sums by
 * columns. */
static void sum_into_table(const sl_call *call, sli_chunk_fn *add) {
  if (!sli_accumulates(call, 0)) sli_for_elements(call, &call->out_type[0], zero_chunk);
  sli_for_columns(call, &call->out_type[0], add);
}

static void embedding_w_cpu(const sl_call *call) { sum_into_table(call, sli_cpu()->embedding_w); }

static void position_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], sli_cpu()->position);
}

static void position_w_cpu(const sl_call *call) { sum_into_table(call, sli_cpu()->position_w); }

const sl_kernel sli_cpu_embedding = {.backend = "cpu", .run = embedding_cpu};

const sl_kernel sli_cpu_embedding_w = {.backend = "cpu", .run = embedding_w_cpu};

const sl_kernel sli_cpu_position = {.backend = "cpu", .run = position_cpu};

const sl_kernel sli_cpu_position_w = {.backend = "cpu", .run = position_w_cpu};

/* ---- serving: positions of any sequences ------------------------------------------------ */

static void position_served_cpu(const sl_call *call) {
  sl_team_for(call->team, sli_batch_of(call)->rows, sli_cpu()->position_served, (void *)call);
}

const sl_kernel sli_cpu_position_served = {.backend = "cpu", .run = position_served_cpu};
