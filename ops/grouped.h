/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers of grouped linear maps, for the rules of ops/grouped.c and their kernels. */
#ifndef SLUICE_OPS_GROUPED_H
#define SLUICE_OPS_GROUPED_H

#include "ops/ops.h"

/* Returns true if all ids of a token share one row of x, false if each id has its own. */
static inline bool sli_grouped_shared(const sl_type *x, const sl_type *ids) {
  return x->ndim == ids->ndim;
}

/* Returns the number of valid ids, if a valid length limits them; otherwise all. */
static inline int64_t sli_grouped_valid_ids(const sl_call *call) {
  const sl_type *ids = &call->in_type[1];
  int64_t rows = ids->dim[ids->ndim > 1 && ids->dim[0] == 1];
  return sl_type_elements(ids) / rows * sl_call_rows(call, 1, rows);
}

#endif
