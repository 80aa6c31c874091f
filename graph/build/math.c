/* SPDX-License-Identifier: Apache-2.0 */
/* Calls for arithmetic. */
#include "graph/build/build.h"

/* True if a and b have the same type, which has faster ops. */
static bool is_plain(const sl_tensor *a, const sl_tensor *b) {
  return !a || !b || (sl_type_equal(&a->type, &b->type) && a->type.dtype == SL_F32);
}

sl_tensor *sl_add_at(sl_here at, sl_graph *g, sl_tensor *a, sl_tensor *b) {
  return sl_op2_at(at, g, is_plain(a, b) ? &sl_op_add : &sl_op_add_broadcast, NULL, a, b);
}

sl_tensor *sl_mul_at(sl_here at, sl_graph *g, sl_tensor *a, sl_tensor *b) {
  return sl_op2_at(at, g, is_plain(a, b) ? &sl_op_mul : &sl_op_mul_broadcast, NULL, a, b);
}

sl_tensor *sl_sum_at(sl_here at, sl_graph *g, sl_tensor *x, uint32_t axes, bool keep) {
  return sl_op1_at(at, g, &sl_op_reduce_sum, &(sl_attrs){.along.axes = axes, .along.keep = keep},
                   x);
}

/* Computes a mean. A full mean is a loss op; a mean over some dims is a scaled sum, which devices
 * can compute in parts. */
sl_tensor *sl_mean_at(sl_here at, sl_graph *g, sl_tensor *x, uint32_t axes, bool keep) {
  int64_t n = 1;
  uint32_t all = x && x->type.ndim ? (1u << x->type.ndim) - 1 : 0;
  if (!axes) axes = all;
  if (axes == all && !keep) return sl_op1_at(at, g, &sl_op_mean, NULL, x);
  for (int d = 0; x && d < x->type.ndim; d++)
    if (axes >> d & 1) n *= x->type.dim[d];
  const sl_attrs attrs = {.along.axes = axes, .along.keep = keep, .along.factor = 1 / (float)n};
  return sl_op1_at(at, g, &sl_op_reduce_sum, &attrs, x);
}

static sl_tensor *largest(sl_here at, sl_graph *g, sl_tensor *x, uint32_t axes, bool keep,
                          int output) {
  sl_tensor *out[2] = {NULL, NULL};
  sl_apply_at(at, g, &sl_op_reduce_max, &(sl_attrs){.along.axes = axes, .along.keep = keep}, 1, &x,
              0, out);
  return out[output];
}

sl_tensor *sl_max_at(sl_here at, sl_graph *g, sl_tensor *x, uint32_t axes, bool keep) {
  return largest(at, g, x, axes, keep, 0);
}

/* Computes argmax along a dim; the shape rule reports a dim that does not exist. */
sl_tensor *sl_argmax_at(sl_here at, sl_graph *g, sl_tensor *x, int dim) {
  return largest(at, g, x, sli_graph_dim(g, at, "sl_argmax", x, dim), false, 1);
}

sl_tensor *sl_softmax_at(sl_here at, sl_graph *g, sl_tensor *x, int dim, bool is_log) {
  const char *call = is_log ? "sl_log_softmax" : "sl_softmax";
  const sl_attrs attrs = {.along.axes = sli_graph_dim(g, at, call, x, dim)};
  return sl_op1_at(at, g, is_log ? &sl_op_log_softmax : &sl_op_softmax, &attrs, x);
}

sl_tensor *sl_matmul_at(sl_here at, sl_graph *g, sl_tensor *a, sl_tensor *b, bool a_transposed,
                        bool b_transposed) {
  const sl_attrs attrs = {.product.transposed = b_transposed,
                          .product.left_transposed = a_transposed};
  return sl_op2_at(at, g, &sl_op_matmul, &attrs, a, b);
}
