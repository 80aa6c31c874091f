/* SPDX-License-Identifier: Apache-2.0 */
/* Axis of concatenation, for the rules of ops/views.c and their kernels. */
#ifndef SLUICE_OPS_VIEWS_H
#define SLUICE_OPS_VIEWS_H

#include "ops/ops.h"

static inline int sli_concat_axis(const sl_attrs *attrs) {
  return __builtin_ctz(attrs->along.axes);
}

#endif
