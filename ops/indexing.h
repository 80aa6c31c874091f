/* Arrays that are indexed along one dim: shared by CPU and CUDA. */
#ifndef SLUICE_INDEXING_H
#define SLUICE_INDEXING_H

#include "ops/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An array [outer, n, inner] of which `index` names a position of the middle dim for each element
 * of another, [outer, m, inner]. */
typedef struct sli_indexing {
  int64_t outer, n, m, inner;
  int64_t first;         /* which position of the whole the first of the n is */
  bool rows;             /* the same position for all of a row of `inner` elements */
  sli_permutation index; /* from an element of the other array to its place in `index` */
} sli_indexing;

sli_indexing sli_indexing_of(const sl_attrs *attrs, const sl_type *whole, const sl_type *index);

/* SL_OK if `index` can index `whole` along the dim of attrs.axes; then *other is the type of the
 * other array. */
sl_status sli_indexing_check(const sl_attrs *attrs, const sl_type *whole, const sl_type *index,
                             sl_type *other);

/* An array as lines of n elements, `inner` apart, that lie along the dim of attrs.axes. */
typedef struct sli_lines {
  int64_t outer, n, inner;
} sli_lines;
sli_lines sli_lines_of(const sl_attrs *attrs, const sl_type *x);

#ifdef __cplusplus
}
#endif
#endif
