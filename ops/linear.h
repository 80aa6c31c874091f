/* SPDX-License-Identifier: Apache-2.0 */
/* Weight shapes of linear maps, for the rules of ops/linear.c and their kernels. */
#ifndef SLUICE_OPS_LINEAR_H
#define SLUICE_OPS_LINEAR_H

#include "ops/ops.h"

/* sl_op_memory.keeps of products. Layers repeat the same products, so calls of a device on equal
 * types share one library object. It takes a few kilobytes, regardless of the sequence length. */
size_t sli_keeps_product(const sl_call *call, uint64_t *which);

/* Returns the number of input features (which = 0) or output features (1) of a weight. */
static inline int64_t sli_linear_features(const sl_attrs *attrs, const sl_type *w, int which) {
  return w->dim[attrs->product.transposed ? which : 1 - which];
}

static inline bool sli_linear_has(int nin, const sl_type *in, int i) {
  return i < nin && in[i].ndim >= 0;
}

/* Returns the type of the array that packing fills for a k by n matrix. It fits the layout of any
 * library, with blocks of up to 64 in either dim. */
static inline sl_type sli_packed_type(int64_t k, int64_t n) {
  return SL_TYPE(SL_BF16, (k + 63) / 64 * 64, (n + 63) / 64 * 64);
}

#endif
