/* SPDX-License-Identifier: Apache-2.0 */
/* Calls for ops that index, and for constants. */
#include "graph/build/build.h"

#include <string.h>

/* ---- indexed ---------------------------------------------------------------------- */

sl_tensor *sl_gather_at(sl_here at, sl_graph *g, sl_tensor *x, int dim, sl_tensor *index) {
  const sl_attrs attrs = {.along.axes = sli_graph_dim(g, at, "sl_gather", x, dim),
                          .place.whole = sl_dim(x, dim)};
  return sl_op2_at(at, g, &sl_op_gather, &attrs, x, index);
}

sl_tensor *sl_scatter_add_at(sl_here at, sl_graph *g, sl_tensor *x, int dim, sl_tensor *index,
                             sl_tensor *src) {
  const sl_attrs attrs = {.along.axes = sli_graph_dim(g, at, "sl_scatter_add", x, dim),
                          .place.whole = sl_dim(x, dim)};
  return sl_op3_at(at, g, &sl_op_scatter_add, &attrs, src, index, x);
}

sl_tensor *sl_scatter_sum_at(sl_here at, sl_graph *g, sl_tensor *src, int dim, sl_tensor *index,
                             int64_t count) {
  const sl_attrs attrs = {.along.axes = sli_graph_dim(g, at, "sl_scatter_sum", src, dim),
                          .place.whole = count};
  return sl_op2_at(at, g, &sl_op_scatter_add, &attrs, src, index);
}

sl_tensor *sl_top_k_at(sl_here at, sl_graph *g, sl_tensor *x, int dim, int64_t k,
                       sl_tensor **positions) {
  const sl_attrs attrs = {.along.axes = sli_graph_dim(g, at, "sl_top_k", x, dim), .along.k = k};
  sl_tensor *out[2] = {NULL, NULL};
  sl_apply_at(at, g, &sl_op_top_k, &attrs, 1, &x, 0, out);
  if (positions) *positions = out[1];
  return out[0];
}

sl_tensor *sl_cumsum_at(sl_here at, sl_graph *g, sl_tensor *x, int dim, bool reverse,
                        bool exclusive) {
  const sl_attrs attrs = {.along.axes = sli_graph_dim(g, at, "sl_cumsum", x, dim),
                          .along.reverse = reverse,
                          .along.exclusive = exclusive};
  return sl_op1_at(at, g, &sl_op_cumsum, &attrs, x);
}

sl_tensor *sl_embedding_bag_at(sl_here at, sl_graph *g, sl_tensor *ids, sl_tensor *table,
                               sl_tensor *weights, const sl_bag *bag) {
  sl_attrs attrs = {.place.whole = sl_dim(table, 0)};
  if (bag) attrs.user = memcpy(sl_graph_alloc(g, sizeof *bag), bag, sizeof *bag);
  return weights ? sl_op3_at(at, g, &sl_op_embedding_bag, &attrs, ids, table, weights)
                 : sl_op2_at(at, g, &sl_op_embedding_bag, &attrs, ids, table);
}

sl_tensor *sl_one_hot_at(sl_here at, sl_graph *g, sl_tensor *ids, int64_t count) {
  return sl_op1_at(at, g, &sl_op_one_hot, &(sl_attrs){.one_hot.classes = count}, ids);
}

sl_tensor *sl_cast_at(sl_here at, sl_graph *g, sl_tensor *x, sl_dtype dtype) {
  if (x && x->type.dtype == dtype) return x;
  const sl_op *op = dtype == SL_F64                                   ? &sl_op_to_f64
                    : dtype == SL_F32 && x && x->type.dtype == SL_F64 ? &sl_op_to_f32
                    : dtype == SL_F32 || dtype == SL_I32              ? &sl_op_cast
                                                                      : NULL;
  if (op) return sl_op1_at(at, g, op, NULL, x);
  if (!g->status)
    sli_graph_fail_at(g, at, SL_E_USAGE, "sl_cast: must be to f32, i32 or f64, not %s",
                      sl_dtype_name(dtype));
  return NULL;
}

/* ---- constants -------------------------------------------------------------------- */

static bool same_shape(const sl_type *a, const sl_type *b) {
  sl_type like = *b;
  like.dtype = a->dtype;
  return sl_type_equal(a, &like);
}

static sl_tensor *constant(sl_here at, sl_graph *g, sl_type type, const void *values, float value,
                           sl_tensor *like) {
  char text[SL_TYPE_TEXT];
  if (g->status) return NULL;
  if (!sli_type_possible(&type) || (like && !same_shape(&type, &like->type))) {
    sli_graph_fail_at(g, at, SL_E_SHAPE, "constant of type %s%s%s", sli_type_text(text, &type),
                      like ? " cannot be sharded like " : " is not possible",
                      like ? sli_graph_describe(g, 1, &like) : "");
    return NULL;
  }
  sl_values *record = sl_graph_alloc(g, sizeof *record);
  *record = (sl_values){.type = type};
  size_t bytes = sl_type_bytes(&type);
  if (values) record->values = memcpy(sl_graph_alloc(g, bytes), values, bytes);
  sl_tensor *out = NULL;
  sl_apply_at(at, g, &sl_op_constant, &(sl_attrs){.fill.value = value, .user = record},
              like != NULL, &like, 0, &out);
  return out;
}

sl_tensor *sl_constant_at(sl_here at, sl_graph *g, sl_type type, const void *values,
                          sl_tensor *like) {
  if (values) return constant(at, g, type, values, 0, like);
  if (!g->status) sli_graph_fail_at(g, at, SL_E_USAGE, "sl_constant: no values are given");
  return NULL;
}

sl_tensor *sl_filled_at(sl_here at, sl_graph *g, sl_type type, float value, sl_tensor *like) {
  return constant(at, g, type, NULL, value, like);
}

sl_tensor *sl_arange_at(sl_here at, sl_graph *g, sl_tensor *like, int dim) {
  const sl_attrs attrs = {.along.axes = sli_graph_dim(g, at, "sl_arange", like, dim)};
  return sl_op1_at(at, g, &sl_op_arange, &attrs, like);
}
