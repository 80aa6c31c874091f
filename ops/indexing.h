/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that are indexed along one dim, for CPU and CUDA. */
#ifndef SLUICE_OPS_INDEXING_H
#define SLUICE_OPS_INDEXING_H

#include "ops/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An array [outer, n, inner], indexed along its middle dim, and a second array [outer, m, inner].
 * For each element of the second array, `index` holds a position along n. */
typedef struct sli_indexing {
  int64_t outer, n, m, inner;
  int64_t first;         /* position of the first of the n in the whole array */
  bool rows;             /* all elements of a row of `inner` use the same position */
  sli_permutation index; /* maps an element of the second array to its entry in `index` */
} sli_indexing;

sli_indexing sli_indexing_of(const sl_attrs *attrs, const sl_type *whole, const sl_type *index);

/* Returns SL_OK if `index` can index `whole` along the dim of attrs.along.axes, and sets *other to
 * the type of the second array. */
sl_status sli_indexing_check(const sl_attrs *attrs, const sl_type *whole, const sl_type *index,
                             sl_type *other);

/* An array as lines of n elements, with stride `inner`, along the dim of attrs.along.axes. */
typedef struct sli_lines {
  int64_t outer, n, inner;
} sli_lines;
sli_lines sli_lines_of(const sl_attrs *attrs, const sl_type *x);

#ifdef __cplusplus
}
#endif
#endif
