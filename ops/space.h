/* SPDX-License-Identifier: Apache-2.0 */
/* Joint iteration over several arrays: common dims, with each array's stride along them. A
 * broadcast array has stride 0. */
#ifndef SLUICE_OPS_SPACE_H
#define SLUICE_OPS_SPACE_H

#include <sluice/op.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SLI_SPACE_INPUTS = 3, SLI_SPACE_OUT = SLI_SPACE_INPUTS, SLI_SPACE_ARRAYS };

typedef struct sli_space {
  int ndim, kept;        /* number of dims; the output has the first `kept` */
  int64_t total, summed; /* positions along the output's dims, and along the remaining dims */
  int64_t dim[SL_MAX_DIMS];
  int64_t step[SLI_SPACE_ARRAYS][SL_MAX_DIMS];
} sli_space;

/* Returns the joint type by NumPy's rules: dims are aligned at the last one, and of two lengths one
 * may be 1. On a mismatch, fails with SL_E_SHAPE and names the two types. */
sl_status sli_broadcast(int n, const sl_type *types, sl_type *out);

/* Builds the space of type[SLI_SPACE_ARRAYS], broadcast to `whole`; a NULL type means no array.
 * Dims that are contiguous in all arrays are merged. */
sli_space sli_space_make(const sl_type *whole, const sl_type *const *types);

/* Returns the type without the dims in `axes`, or with length 1 in them if `keep`. */
sl_type sli_reduced(const sl_type *type, uint32_t axes, bool keep);

/* Returns the dim whose bit is set in attrs.along.axes, or the last dim. */
int sli_one_axis(const sl_attrs *attrs, const sl_type *type);

#ifdef __cplusplus
}
#endif
#endif
