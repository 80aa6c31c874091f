/* SPDX-License-Identifier: Apache-2.0 */
/* Calls along dims: sums, means, softmax. */
#include <math.h>
#include <string.h>

#include "ops/functions.h"
#include "pytorch/emit.h"

/* Finds the first argument as f32. Numbers that the call converts to integers first lose their
 * fractions. */
static sl_tensor *self_f32(sli_import *m, const sli_pt_node *n, int *ndim) {
  const sli_pt_value *x = sli_pt_first(n);
  sli_pt_dtype dtype = sli_pt_type_arg(n, "dtype");
  bool whole = x && dtype && sli_pt_floats(x->type.dtype) && !sli_pt_floats(dtype);
  *ndim = x ? x->type.ndim : 0;
  sl_tensor *t = sli_pt_f32(m, x);
  if (!whole) return t;
  if (dtype == SLI_PT_BOOL) {
    sli_pt_refuse(m, n, "sums of bool are not supported");
    return NULL;
  }
  return sl_cast_at(m->at, m->g, sl_cast_at(m->at, m->g, t, SL_I32), SL_F32);
}

/* Drops the given dims, which have length 1. */
static sl_tensor *without_axes(sli_import *m, sl_tensor *x, uint32_t axes) {
  uint32_t all = (1u << x->type.ndim) - 1;
  return ~axes & all ? sli_pt_drop_dims(m, x, axes) : sl_sum_at(m->at, m->g, x, 0, false);
}

/* Sums over dims. A sum over all dims that keeps none is an f64 scalar, as losses are. */
static sl_tensor *sum_of(sli_import *m, sl_tensor *x, uint32_t axes, bool keep) {
  if (!x || !x->type.ndim) return x;
  return sl_sum_at(m->at, m->g, x, axes, keep);
}

void sli_emit_sum(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  int ndim;
  sl_tensor *x = self_f32(m, n, &ndim);
  sli_pt_out(m, n, 0,
             sum_of(m, x, sli_pt_axes(m, n, "dim", ndim), sli_pt_flag(n, "keepdim", false)));
}

void sli_emit_mean(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  int ndim;
  sl_tensor *x = self_f32(m, n, &ndim);
  if (!x || !x->type.ndim) sli_pt_out(m, n, 0, x);
  else
    sli_pt_out(m, n, 0,
               sl_mean_at(m->at, m->g, x, sli_pt_axes(m, n, "dim", ndim),
                          sli_pt_flag(n, "keepdim", false)));
}

/* Divides the gradient of maxima among equal elements: adds 0, which has it. */
static sl_tensor *shared_by_ties(sli_import *m, sl_tensor *x, sl_tensor *most,
                                 const sl_attrs *attrs) {
  uint32_t axes = attrs->along.axes;
  sl_tensor *top = sl_op1_at(m->at, m->g, &sl_op_detach, NULL, most), *wide = top;
  if (!top) return NULL;
  if (!attrs->along.keep) {
    sl_type to = x->type;
    for (int d = 0; d < to.ndim; d++)
      if (axes >> d & 1) to.dim[d] = 1;
    wide = sli_pt_reshape(m, top, &to);
  }
  sl_tensor *is = sl_op2_at(m->at, m->g, &sl_op_eq, NULL, x, wide);
  sl_tensor *one = is ? sl_cast_at(m->at, m->g, is, SL_F32) : NULL;
  sl_tensor *count = sli_pt_narrow(m, sl_sum_at(m->at, m->g, one, axes, true));
  sl_tensor *share = sl_op2_at(m->at, m->g, &sl_op_div, NULL, one, count);
  sl_tensor *still = sl_op1_at(m->at, m->g, &sl_op_detach, NULL, x);
  sl_tensor *none = sl_op2_at(m->at, m->g, &sl_op_sub, NULL, x, still);
  none = sl_op3_at(m->at, m->g, &sl_op_where, NULL, is, none, sli_pt_filled_like(m, x, 0));
  none = sl_sum_at(m->at, m->g, sl_mul_at(m->at, m->g, none, share), axes, attrs->along.keep);
  return sl_add_at(m->at, m->g, top, sli_pt_narrow(m, none));
}

/* amax, amin, and max or min along a dim with their positions. */
void sli_emit_max(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  int ndim;
  sl_tensor *x = self_f32(m, n, &ndim), *out[2] = {NULL, NULL};
  bool least = strstr(row->target, "min") != NULL;
  if (least) x = sl_op1_at(m->at, m->g, &sl_op_neg, NULL, x);
  const sl_attrs attrs = {.along.axes = sli_pt_axes(m, n, "dim", ndim),
                          .along.keep = sli_pt_flag(n, "keepdim", false)};
  sl_apply_at(m->at, m->g, &sl_op_reduce_max, &attrs, 1, &x, 0, out);
  bool shares = n->nouts == 1 && sli_made_of(m, sli_pt_first(n))->learned;
  if (shares && x && x->type.ndim) out[0] = shared_by_ties(m, x, out[0], &attrs);
  if (least) out[0] = sl_op1_at(m->at, m->g, &sl_op_neg, NULL, out[0]);
  sli_pt_out(m, n, 0, out[0]);
  sli_pt_out(m, n, 1, out[1]);
}

void sli_emit_argmax(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  int ndim;
  sl_tensor *x = self_f32(m, n, &ndim), *out[2] = {NULL, NULL};
  if (strstr(row->target, "argmin")) x = sl_op1_at(m->at, m->g, &sl_op_neg, NULL, x);
  const sl_attrs attrs = {.along.axes = sli_pt_axes(m, n, "dim", ndim),
                          .along.keep = sli_pt_flag(n, "keepdim", false)};
  sl_apply_at(m->at, m->g, &sl_op_reduce_max, &attrs, 1, &x, 0, out);
  sli_pt_out(m, n, 0, out[1]);
}

/* Replaces infinite numbers with 0. */
static sl_tensor *finite_or_zero(sli_import *m, sl_tensor *x) {
  if (!x) return NULL;
  sl_tensor *size = sl_op1_at(m->at, m->g, &sl_op_abs, NULL, x);
  sl_tensor *finite =
      sl_op2_at(m->at, m->g, &sl_op_lt, NULL, size, sli_pt_filled_like(m, x, INFINITY));
  return sl_op3_at(m->at, m->g, &sl_op_where, NULL, finite, x, sli_pt_filled_like(m, x, 0));
}

/* Logarithm of the sum of e^x. The maximum is subtracted first. */
void sli_emit_logsumexp(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  int ndim;
  sl_tensor *x = self_f32(m, n, &ndim), *most[2] = {NULL, NULL};
  if (!x || !ndim) return;
  uint32_t axes = sli_pt_axes(m, n, "dim", ndim);
  bool keep = sli_pt_flag(n, "keepdim", false);
  const sl_attrs attrs = {.along.axes = axes, .along.keep = true};
  sl_apply_at(m->at, m->g, &sl_op_reduce_max, &attrs, 1, &x, 0, most);
  sl_tensor *top = finite_or_zero(m, sl_op1_at(m->at, m->g, &sl_op_detach, NULL, most[0]));
  sl_tensor *y = sl_op2_at(m->at, m->g, &sl_op_sub, NULL, x, top);
  y = sl_sum_at(m->at, m->g, sl_op1_at(m->at, m->g, &sl_op_exp, NULL, y), axes, true);
  y = sl_add_at(m->at, m->g, sl_op1_at(m->at, m->g, &sl_op_log, NULL, y), top);
  sli_pt_out(m, n, 0, y && !keep ? without_axes(m, y, axes) : y);
}

void sli_emit_softmax(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  int ndim;
  sl_tensor *x = self_f32(m, n, &ndim);
  int dim = sli_pt_dim(m, n, "dim", ndim, -1);
  sli_pt_out(m, n, 0, sl_softmax_at(m->at, m->g, x, dim, row->op == &sl_op_log_softmax));
}

void sli_emit_cumsum(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *x = sli_pt_first(n);
  if (x && sli_made_of(m, x)->ids) { /* the end of each expert's rows */
    (void)sli_pt_dim(m, n, "dim", 1, 0);
    (void)sli_pt_type_arg(n, "dtype");
    sli_made_of(m, n->outs[0])->ids = sli_made_of(m, x)->ids;
    return;
  }
  bool floats = sli_pt_floats(n->outs[0]->type.dtype) || sli_pt_floats(x->type.dtype);
  sl_tensor *t = floats ? self_f32(m, n, &(int){0}) : sli_pt_tensor(m, x);
  (void)sli_pt_type_arg(n, "dtype");
  sli_pt_out(m, n, 0,
             sl_cumsum_at(m->at, m->g, t, sli_pt_dim(m, n, "dim", x->type.ndim, 0), false, false));
}

void sli_emit_topk(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  int ndim;
  sl_tensor *x = self_f32(m, n, &ndim), *positions = NULL;
  bool least = !sli_pt_flag(n, "largest", true);
  if (!x || !ndim) return;
  if (least) x = sl_op1_at(m->at, m->g, &sl_op_neg, NULL, x);
  int dim = sli_pt_dim(m, n, "dim", ndim, -1);
  sl_tensor *y = sl_top_k_at(m->at, m->g, x, dim, sli_pt_whole(m, n, "k", 1), &positions);
  if (least) y = sl_op1_at(m->at, m->g, &sl_op_neg, NULL, y);
  sli_pt_out(m, n, 0, y);
  sli_pt_out(m, n, 1, positions);
}

/* var and std; `correction` (or unbiased) is subtracted from the number of elements. */
void sli_emit_variance(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  int ndim;
  sl_tensor *x = self_f32(m, n, &ndim);
  if (!x) return;
  uint32_t axes = sli_pt_axes(m, n, "dim", ndim);
  double less = sli_pt_number(m, n, "correction", sli_pt_flag(n, "unbiased", true) ? 1 : 0);
  int64_t count = 1;
  for (int d = 0; d < ndim; d++)
    if (axes >> d & 1) count *= x->type.dim[d];
  sl_tensor *mean = sl_mean_at(m->at, m->g, x, axes, true);
  sl_tensor *off = sl_op2_at(m->at, m->g, &sl_op_sub, NULL, x, mean);
  sl_tensor *y = sl_sum_at(m->at, m->g, sl_mul_at(m->at, m->g, off, off), axes,
                           sli_pt_flag(n, "keepdim", false));
  y = sl_scale_at(m->at, m->g, y, (float)(1 / ((double)count - less)));
  if (strstr(row->target, "std")) y = sli_pt_function(m, SLI_FUNCTION_length, y);
  sli_pt_out(m, n, 0, y);
  bool keep = sli_pt_flag(n, "keepdim", false);
  if (n->nouts > 1 && mean) sli_pt_out(m, n, 1, keep ? mean : without_axes(m, mean, axes));
}

/* linalg_vector_norm of order 2, and norm. */
void sli_emit_norm2(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  int ndim;
  sl_tensor *x = self_f32(m, n, &ndim);
  double order = sli_pt_number(m, n, "ord", sli_pt_number(m, n, "p", 2));
  if (order == 1) {
    x = sl_op1_at(m->at, m->g, &sl_op_abs, NULL, x);
    sli_pt_out(m, n, 0,
               sum_of(m, x, sli_pt_axes(m, n, "dim", ndim), sli_pt_flag(n, "keepdim", false)));
    return;
  }
  if (order != 2) {
    sli_pt_refuse(m, n, "only norms of order 1 and 2 are supported");
    return;
  }
  sl_tensor *y = sum_of(m, sl_mul_at(m->at, m->g, x, x), sli_pt_axes(m, n, "dim", ndim),
                        sli_pt_flag(n, "keepdim", false));
  sli_pt_out(m, n, 0, sli_pt_function(m, SLI_FUNCTION_length, y));
}

/* _weight_norm(v, g, dim): g v / |v|, where |v| is over all dims but one, or over all (-1). */
sl_tensor *sli_of_weight_norm(sli_import *m, const sli_pt_node *n) {
  sl_tensor *v = sli_pt_in(m, n, "v"), *g = sli_pt_in(m, n, "g");
  int64_t dim = sli_pt_whole(m, n, "dim", 0);
  if (!v || !g || dim >= v->type.ndim) return NULL;
  uint32_t all = (1u << v->type.ndim) - 1;
  sl_type one = {.dtype = SL_F32, .ndim = v->type.ndim};
  for (int d = 0; d < one.ndim; d++) one.dim[d] = d == dim ? v->type.dim[d] : 1;
  sl_tensor *length = sl_sum_at(m->at, m->g, sl_mul_at(m->at, m->g, v, v),
                                dim < 0 ? all : all & ~(1u << dim), true);
  length = sli_pt_function(m, SLI_FUNCTION_length, sli_pt_narrow(m, length));
  length = length ? sli_pt_reshape(m, length, &one) : NULL;
  sl_tensor *by = sl_op2_at(m->at, m->g, &sl_op_div, NULL, sli_pt_reshape(m, g, &one), length);
  return sl_mul_at(m->at, m->g, v, by);
}

/* ---- products ------------------------------------------------------------------------------ */

/* Multiplies along a dim, half by half, so that gradients hold at zeros. */
static sl_tensor *product_along(sli_import *m, sl_tensor *x, int dim) {
  while (x && sl_dim(x, dim) > 1) {
    int64_t n = sl_dim(x, dim), half = n / 2;
    sl_tensor *y = sl_mul_at(m->at, m->g, sl_slice_at(m->at, m->g, x, dim, 0, half),
                             sl_slice_at(m->at, m->g, x, dim, half, half));
    if (n % 2) {
      sl_tensor *parts[2] = {y, sl_slice_at(m->at, m->g, x, dim, n - 1, 1)};
      y = sl_concat_at(m->at, m->g, dim, 2, parts);
    }
    x = y;
  }
  return x;
}

void sli_emit_prod(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  int ndim;
  const sli_pt_value *v = sli_pt_first(n);
  sl_tensor *x = self_f32(m, n, &ndim);
  uint32_t axes = sli_pt_axes(m, n, "dim", ndim);
  bool keep = sli_pt_flag(n, "keepdim", false);
  for (int d = 0; x && d < ndim; d++) {
    if (!(axes >> d & 1)) continue;
    if (sl_dim(x, d) != v->type.dim[d]) {
      sli_pt_refuse(m, n,
                    "it multiplies the rows of a batch, which are those of a microbatch here");
      return;
    }
    x = product_along(m, x, d);
  }
  sli_pt_out(m, n, 0, x && ndim && !keep ? without_axes(m, x, axes) : x);
}

/* Multiplies each position by the one `by` before it, for by = 1, 2, 4, ... */
void sli_emit_cumprod(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  int ndim;
  const sli_pt_value *v = sli_pt_first(n);
  sl_tensor *x = self_f32(m, n, &ndim);
  int dim = sli_pt_dim(m, n, "dim", ndim, 0);
  if (!x || !ndim) return;
  if (sl_dim(x, dim) != v->type.dim[dim]) {
    sli_pt_refuse(m, n, "it multiplies the rows of a batch, which are those of a microbatch here");
    return;
  }
  for (int64_t by = 1, length = sl_dim(x, dim); x && by < length; by *= 2) {
    sl_tensor *early = sl_slice_at(m->at, m->g, x, dim, 0, by);
    sl_tensor *late = sl_mul_at(m->at, m->g, sl_slice_at(m->at, m->g, x, dim, by, length - by),
                                sl_slice_at(m->at, m->g, x, dim, 0, length - by));
    sl_tensor *parts[2] = {early, late};
    x = sl_concat_at(m->at, m->g, dim, 2, parts);
  }
  sli_pt_out(m, n, 0, x);
}
