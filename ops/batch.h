/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes used in serving: the batch, which is the last input of served ops, and the pages of the KV
 * cache. */
#ifndef SLUICE_OPS_BATCH_H
#define SLUICE_OPS_BATCH_H

#include <sluice/batch.h>

#include "ops/ops.h"

static inline const sl_batch *sli_batch_of(const sl_call *call) { return call->in[call->nin - 1]; }

/* Returns SL_OK if input `at` is the batch. */
static inline sl_status sli_want_batch(int nin, const sl_type *in, int at) {
  if (nin == at + 1) return sli_want_array("batch", &in[at], SL_I32, 1);
  return sl_fail(SL_E_SHAPE, "it has no batch to read");
}

/* Numbers per page and KV head: K^T [dim, SL_PAGE] and V [SL_PAGE, dim]. */
static inline int64_t sli_page_numbers(int64_t dim) { return 2 * SL_PAGE * dim; }

#endif
