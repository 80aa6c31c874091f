/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that combine and split tensors. */
#include "graph/build/build.h"

sl_tensor *sl_concat_at(sl_here at, sl_graph *g, int dim, int count, sl_tensor *const *tensors) {
  const sl_attrs attrs = {
      .along.axes = sli_graph_dim(g, at, "sl_concat", count > 0 ? tensors[0] : NULL, dim)};
  sl_tensor *out = NULL;
  sl_apply_at(at, g, &sl_op_concat, &attrs, count, tensors, 0, &out);
  return out;
}

/* ---- shapes ---------------------------------------------------------------------- */

/* Fills in the length that is -1, if there is one. */
static void fill_rest(const sl_type *x, sl_type *y) {
  int64_t known = 1, *rest = NULL;
  for (int d = 0; d < y->ndim; d++)
    if (y->dim[d] == -1 && !rest) rest = &y->dim[d];
    else known *= y->dim[d];
  if (rest && known > 0) *rest = sl_type_elements(x) / known;
}

static bool is_shape(const sl_type *y) {
  for (int d = 0; d < y->ndim; d++)
    if (y->dim[d] < 1) return false;
  return true;
}

sl_tensor *sl_reshape_at(sl_here at, sl_graph *g, sl_tensor *x, sl_type shape) {
  if (!x || g->status) return sl_op1_at(at, g, &sl_op_reshape, NULL, x);
  sl_reshaping *r = sl_graph_alloc(g, sizeof *r);
  r->from = x->type;
  r->to = shape;
  r->to.dtype = x->type.dtype;
  fill_rest(&r->from, &r->to);
  if (shape.ndim <= SL_MAX_DIMS && is_shape(&r->to))
    return sl_op1_at(at, g, &sl_op_reshape, &(sl_attrs){.user = r}, x);
  sli_graph_fail_at(
      g, at, SL_E_SHAPE,
      "sl_reshape: %s cannot take this shape of %d dims: at most %d dims, each at least 1, one "
      "of which may be -1",
      sli_graph_describe(g, 1, &x), shape.ndim, SL_MAX_DIMS);
  return NULL;
}

static int from_end(const sl_tensor *x, int64_t dim) {
  return (int)(x && dim < 0 ? dim + x->type.ndim : dim);
}

sl_tensor *sl_permute_at(sl_here at, sl_graph *g, sl_tensor *x, sl_type order) {
  sl_attrs attrs = {.shape.ndims = order.ndim};
  for (int d = 0; d < SLI_MIN(order.ndim, SL_MAX_DIMS); d++)
    attrs.shape.dims[d] = from_end(x, order.dim[d]);
  return sl_op1_at(at, g, &sl_op_permute, &attrs, x);
}

sl_tensor *sl_transpose_at(sl_here at, sl_graph *g, sl_tensor *x, int a, int b) {
  sl_attrs attrs = {.shape.ndims = x ? x->type.ndim : 0};
  for (int d = 0; d < attrs.shape.ndims; d++)
    attrs.shape.dims[d] = d == from_end(x, a)   ? from_end(x, b)
                          : d == from_end(x, b) ? from_end(x, a)
                                                : d;
  bool there = from_end(x, a) >= 0 && from_end(x, a) < attrs.shape.ndims && from_end(x, b) >= 0 &&
               from_end(x, b) < attrs.shape.ndims;
  if (!there) attrs.shape.ndims = -1; /* so that the shape rule reports the error */
  return sl_op1_at(at, g, &sl_op_permute, &attrs, x);
}

/* Expands x. Dims that x already has are set to 0, since they are shorter in a device's part. */
sl_tensor *sl_expand_at(sl_here at, sl_graph *g, sl_tensor *x, sl_type shape) {
  sl_attrs attrs = {.shape.ndims = shape.ndim};
  for (int d = 0; x && d < SLI_MIN(shape.ndim, SL_MAX_DIMS); d++) {
    int own = d - (shape.ndim - x->type.ndim);
    bool same = own >= 0 && shape.dim[d] == x->type.dim[own];
    attrs.shape.dims[d] = same || shape.dim[d] == -1 ? 0 : shape.dim[d];
  }
  return sl_op1_at(at, g, &sl_op_expand, &attrs, x);
}

sl_tensor *sl_expand_like_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *like) {
  return sl_op2_at(at, g, &sl_op_expand, NULL, x, like);
}

/* ---- parts ----------------------------------------------------------------------- */

sl_tensor *sl_slice_at(sl_here at, sl_graph *g, sl_tensor *x, int dim, int64_t begin,
                       int64_t count) {
  sl_part *part = sl_graph_alloc(g, sizeof *part);
  sli_graph_dim(g, at, "sl_slice", x, dim);
  *part = (sl_part){.axis = from_end(x, dim), .nranges = 1, .begin = {begin}, .count = {count}};
  return sl_op1_at(at, g, &sl_op_slice, &(sl_attrs){.user = part}, x);
}

void sl_split_at(sl_here at, sl_graph *g, sl_tensor *x, int dim, int count, const int64_t *lengths,
                 sl_tensor **outs) {
  int64_t *of = sl_graph_alloc(g, (size_t)SLI_MAX(count, 1) * sizeof *of);
  sl_lengths *record = sl_graph_alloc(g, sizeof *record);
  *record = (sl_lengths){count, of};
  for (int i = 0; i < count; i++) of[i] = lengths ? lengths[i] : sl_dim(x, dim) / count;
  const sl_attrs attrs = {.along.axes = sli_graph_dim(g, at, "sl_split", x, dim), .user = record};
  sl_apply_at(at, g, &sl_op_split, &attrs, 1, &x, 0, outs);
}

sl_tensor *sl_add_all_at(sl_here at, sl_graph *g, int count, sl_tensor *const *tensors) {
  sl_tensor *out = NULL;
  sl_apply_at(at, g, &sl_op_sum, NULL, count, tensors, 0, &out);
  return out;
}
