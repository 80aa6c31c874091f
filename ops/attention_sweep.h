/* SPDX-License-Identifier: Apache-2.0 */
/* Head width of attention_sweep, for the rules of ops/attention_sweep.c and their kernels. */
#ifndef SLUICE_OPS_ATTENTION_SWEEP_H
#define SLUICE_OPS_ATTENTION_SWEEP_H

#include "ops/ops.h"

static inline int64_t sli_attention_sweep_dim(const sl_attrs *attrs, const sl_type *q) {
  return q->dim[2] / attrs->heads;
}

#endif
