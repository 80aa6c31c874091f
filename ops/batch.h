/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes used in serving: the batch, which is the last input of served ops, and the pages of the KV
 * cache. */
#ifndef SLUICE_OPS_BATCH_H
#define SLUICE_OPS_BATCH_H

#include <sluice/batch.h>

#include "ops/ops.h"
#include "ops/pages.h"
#include "ops/storage.h"

static inline const sl_batch *sli_batch_of(const sl_call *call) { return call->in[call->nin - 1]; }

/* Returns SL_OK if input `at` is the batch. */
static inline sl_status sli_want_batch(int nin, const sl_type *in, int at) {
  if (nin == at + 1) return sli_want_array("batch", &in[at], SL_I32, 1);
  return sl_fail(SL_E_SHAPE, "it has no batch to read");
}

/* Numbers per page and KV head: K^T [dim, SL_PAGE] and V [SL_PAGE, dim]. */
static inline int64_t sli_page_numbers(int64_t dim) { return 2 * SL_PAGE * dim; }

/* Returns the type of attrs.pages.count pages of `heads` times `rows` keys or values of `dim`
 * numbers: those that the dims of `numbers` after the first count, or words of their bytes. */
static inline sl_type sli_pages_type(const sl_attrs *attrs, const sl_type *numbers, int64_t heads,
                                     int64_t rows, int64_t dim) {
  sl_storage storage = sli_pages_storage(attrs);
  sl_type pages = *numbers;
  pages.dtype = storage == SL_STORAGE_BF16 ? SL_BF16 : SL_F32;
  if (storage == SL_STORAGE_FP8) return sli_storage_type(storage, &pages);
  if (storage != SL_STORAGE_Q8_0) return pages;
  return SL_TYPE(SL_I32, attrs->pages.count, heads,
                 sli_page_bytes(rows, dim) / (int64_t)sizeof(int32_t));
}

#endif
