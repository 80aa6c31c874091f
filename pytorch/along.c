/* SPDX-License-Identifier: Apache-2.0 */
/* Calls along dims: sums, means, softmax. */
#include <math.h>
#include <string.h>

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

/* amax, amin, and max or min along a dim with their positions. */
void sli_emit_max(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  int ndim;
  sl_tensor *x = self_f32(m, n, &ndim), *out[2] = {NULL, NULL};
  bool least = strstr(row->target, "min") != NULL;
  if (least) x = sl_op1_at(m->at, m->g, &sl_op_neg, NULL, x);
  const sl_attrs attrs = {.axes = sli_pt_axes(m, n, "dim", ndim),
                          .keep = sli_pt_flag(n, "keepdim", false)};
  sl_apply_at(m->at, m->g, &sl_op_reduce_max, &attrs, 1, &x, 0, out);
  if (least) out[0] = sl_op1_at(m->at, m->g, &sl_op_neg, NULL, out[0]);
  sli_pt_out(m, n, 0, out[0]);
  sli_pt_out(m, n, 1, out[1]);
}

void sli_emit_argmax(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  int ndim;
  sl_tensor *x = self_f32(m, n, &ndim), *out[2] = {NULL, NULL};
  if (strstr(row->target, "argmin")) x = sl_op1_at(m->at, m->g, &sl_op_neg, NULL, x);
  const sl_attrs attrs = {.axes = sli_pt_axes(m, n, "dim", ndim),
                          .keep = sli_pt_flag(n, "keepdim", false)};
  sl_apply_at(m->at, m->g, &sl_op_reduce_max, &attrs, 1, &x, 0, out);
  sli_pt_out(m, n, 0, out[1]);
}

/* Logarithm of the sum of e^x. The maximum is subtracted first. */
void sli_emit_logsumexp(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  int ndim;
  sl_tensor *x = self_f32(m, n, &ndim), *most[2] = {NULL, NULL};
  if (!x || !ndim) return;
  uint32_t axes = sli_pt_axes(m, n, "dim", ndim);
  bool keep = sli_pt_flag(n, "keepdim", false);
  const sl_attrs attrs = {.axes = axes, .keep = true};
  sl_apply_at(m->at, m->g, &sl_op_reduce_max, &attrs, 1, &x, 0, most);
  sl_tensor *top = sl_op1_at(m->at, m->g, &sl_op_detach, NULL, most[0]);
  sl_tensor *y = sl_op2_at(m->at, m->g, &sl_op_sub, NULL, x, top);
  y = sl_sum_at(m->at, m->g, sl_op1_at(m->at, m->g, &sl_op_exp, NULL, y), axes, true);
  y = sl_add_at(m->at, m->g, sl_op1_at(m->at, m->g, &sl_op_log, NULL, y), top);
  sli_pt_out(m, n, 0, y && !keep ? without_axes(m, y, axes) : y);
}

/* any, all, count_nonzero along dims. */
void sli_emit_any(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  int ndim;
  sl_tensor *x = self_f32(m, n, &ndim), *out[2] = {NULL, NULL};
  if (!x || !ndim) return;
  bool all = strstr(row->target, ".all.") != NULL;
  x = sl_op2_at(m->at, m->g, all ? &sl_op_eq : &sl_op_ne, NULL, x, sli_pt_filled_like(m, x, 0));
  x = x ? sl_cast_at(m->at, m->g, x, SL_F32) : NULL;
  const sl_attrs attrs = {.axes = sli_pt_axes(m, n, "dim", ndim),
                          .keep = sli_pt_flag(n, "keepdim", false)};
  sl_apply_at(m->at, m->g, &sl_op_reduce_max, &attrs, 1, &x, 0, out);
  sl_tensor *y = out[0];
  if (all) y = sl_add_constant_at(m->at, m->g, sl_op1_at(m->at, m->g, &sl_op_neg, NULL, y), 1);
  sli_pt_out(m, n, 0, y);
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
  if (strstr(row->target, "std")) y = sl_op1_at(m->at, m->g, &sl_op_sqrt, NULL, y);
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
  sli_pt_out(m, n, 0, sl_op1_at(m->at, m->g, &sl_op_sqrt, NULL, y));
}
