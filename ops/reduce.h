/* SPDX-License-Identifier: Apache-2.0 */
/* Dims that a reduction runs along, for the rules of ops/reduce.c and their kernels. */
#ifndef SLUICE_OPS_REDUCE_H
#define SLUICE_OPS_REDUCE_H

#include "ops/ops.h"

static inline uint32_t sli_reduce_all_axes(const sl_type *type) { return (1u << type->ndim) - 1; }

/* Returns a bit for each reduced dim. attrs.along.axes 0 means all dims. */
static inline uint32_t sli_reduce_axes(const sl_attrs *attrs, const sl_type *type) {
  return attrs->along.axes ? attrs->along.axes : sli_reduce_all_axes(type);
}

#endif
