/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and strides of arrays that are indexed along one dim. */
#include "ops/indexing.h"

#include "ops/ops.h"
#include "ops/space.h"

sli_lines sli_lines_of(const sl_attrs *attrs, const sl_type *x) {
  int axis = sli_one_axis(attrs, x);
  sli_lines l = {1, x->dim[axis], 1};
  for (int d = 0; d < axis; d++) l.outer *= x->dim[d];
  for (int d = axis + 1; d < x->ndim; d++) l.inner *= x->dim[d];
  return l;
}

sli_indexing sli_indexing_of(const sl_attrs *attrs, const sl_type *whole, const sl_type *index) {
  int axis = sli_one_axis(attrs, whole);
  sli_lines l = sli_lines_of(attrs, whole);
  sli_indexing x = {
      l.outer, l.n, index->dim[axis], l.inner, attrs->place.first, true, {.ndim = whole->ndim}};
  int64_t stride = 1;
  for (int d = whole->ndim - 1; d >= 0; stride *= index->dim[d--]) {
    x.index.dim[d] = d == axis ? x.m : whole->dim[d];
    x.index.stride[d] = index->dim[d] == 1 ? 0 : stride;
    x.rows &= d <= axis || !x.index.stride[d];
  }
  return x;
}

sl_status sli_indexing_check(const sl_attrs *attrs, const sl_type *whole, const sl_type *index,
                             sl_type *other) {
  int axis = sli_one_axis(attrs, whole);
  if (whole->ndim < 1 || (attrs->along.axes & (attrs->along.axes - 1)) || axis < 0 ||
      axis >= whole->ndim)
    return sli_misfit(
        whole,
        "attrs.along.axes must have exactly one bit, for a dim of the indexed tensor, not %#x",
        attrs->along.axes);
  bool fits = index->dtype == SL_I32 && index->ndim == whole->ndim;
  for (int d = 0; d < whole->ndim && fits; d++)
    fits =
        index->dim[d] >= 1 && (d == axis || index->dim[d] == 1 || index->dim[d] == whole->dim[d]);
  char text[SL_TYPE_TEXT];
  if (!fits)
    return sli_misfit(
        index, "index must be i32 of %d dims that, except for dim %d, equal those of %s or 1",
        whole->ndim, axis, sl_type_format(text, whole));
  *other = *whole;
  other->dim[axis] = index->dim[axis];
  return SL_OK;
}
