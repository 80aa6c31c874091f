/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on constants, computed ahead of time: positions, masks, tables of angles. */
#include "pytorch/fold.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/functions.h"

/* ---- functions ----------------------------------------------------------------------------- */

double sli_fn_add(double a, double b) { return a + b; }
double sli_fn_sub(double a, double b) { return a - b; }
double sli_fn_rsub(double a, double b) { return b - a; }
double sli_fn_mul(double a, double b) { return a * b; }
double sli_fn_div(double a, double b) { return a / b; }
double sli_fn_min(double a, double b) { return a < b || isnan(a) ? a : b; }
double sli_fn_max(double a, double b) { return a > b || isnan(a) ? a : b; }
double sli_fn_lt(double a, double b) { return a < b; }
double sli_fn_le(double a, double b) { return a <= b; }
double sli_fn_gt(double a, double b) { return a > b; }
double sli_fn_ge(double a, double b) { return a >= b; }
double sli_fn_eq(double a, double b) { return a == b; }
double sli_fn_ne(double a, double b) { return a != b; }
double sli_fn_and(double a, double b) { return (double)(sli_pt_integer(a) & sli_pt_integer(b)); }
double sli_fn_or(double a, double b) { return (double)(sli_pt_integer(a) | sli_pt_integer(b)); }
double sli_fn_xor(double a, double b) { return (double)(sli_pt_integer(a) ^ sli_pt_integer(b)); }
double sli_fn_floor_divide(double a, double b) { return sli_floor_div(a, b); }
double sli_fn_remainder(double a, double b) { return sli_remainder(a, b); }
double sli_fn_both(double a, double b) { return a != 0 && b != 0; }
double sli_fn_either(double a, double b) { return a != 0 || b != 0; }
double sli_fn_differ(double a, double b) { return (a != 0) != (b != 0); }
double sli_fn_left(double a, double b) { return ldexp(a, (int)fmin(fmax(b, 0), 63)); }
double sli_fn_right(double a, double b) { return floor(ldexp(a, -(int)fmin(fmax(b, 0), 63))); }
double sli_fn_pow(double a, double b) { return pow(a, b); }
double sli_fn_neg(double a) { return -a; }
double sli_fn_not(double a) { return !a; }
double sli_fn_rsqrt(double a) { return 1 / sqrt(a); }
double sli_fn_sigmoid(double a) { return 1 / (1 + exp(-a)); }
double sli_fn_relu(double a) { return a > 0 ? a : 0; }
double sli_fn_silu(double a) { return a / (1 + exp(-a)); }
double sli_fn_reciprocal(double a) { return 1 / a; }
double sli_fn_sign(double a) { return (a > 0) - (a < 0); }
double sli_fn_softplus(double a) { return a > 20 ? a : log1p(exp(a)); }
double sli_fn_gelu(double a) { return a * 0.5 * erfc(-a * sqrt(0.5)); }
double sli_fn_square(double a) { return a * a; }
double sli_fn_isnan(double a) { return isnan(a) != 0; }
double sli_fn_isinf(double a) { return isinf(a) != 0; }
double sli_fn_isfinite(double a) { return isfinite(a) != 0; }

/* ---- arguments ----------------------------------------------------------------------------- */

/* Returns a symbolic size as a number, or NULL if it is not understood. */
static const sli_pt_array *size_arg(sli_import *m, const sli_pt_arg *arg) {
  double v;
  sli_pt_dtype dtype = arg->value->fraction ? SLI_PT_F64 : SLI_PT_I64;
  return sli_pt_scalar(m, arg, &v) ? sli_pt_array_number(&m->arena, dtype, v) : NULL;
}

static const sli_pt_array *constant_arg(sli_import *m, const sli_pt_node *n, const char *name) {
  const sli_pt_arg *arg = sli_pt_arg_find(n, name);
  if (!arg) return NULL;
  switch (arg->kind) {
  case SLI_PT_VALUE: return arg->value->symbol ? size_arg(m, arg) : sli_constant(m, arg->value);
  case SLI_PT_INT: return sli_pt_array_number(&m->arena, SLI_PT_I64, (double)arg->i);
  case SLI_PT_FLOAT: return sli_pt_array_number(&m->arena, SLI_PT_F64, arg->f);
  case SLI_PT_FLAG: return sli_pt_array_number(&m->arena, SLI_PT_BOOL, arg->flag);
  case SLI_PT_ABSENT:
  case SLI_PT_TEXT:
  case SLI_PT_DTYPE:
  case SLI_PT_OTHER:
  case SLI_PT_LIST: break;
  }
  return NULL;
}

static const sli_pt_type *out_type(const sli_pt_node *n) { return &n->outs[0]->type; }

static sli_pt_array *make_out(sli_import *m, const sli_pt_node *n) {
  sli_pt_array *a = sli_pt_array_make(&m->arena, out_type(n));
  sli_pt_out_array(m, n, 0, a);
  return a;
}

/* Makes the output of a call whose type follows from this one. Returns NULL if the program states
 * another type. */
static sli_pt_array *make_like(sli_import *m, const sli_pt_node *n, const sli_pt_type *type) {
  return sli_pt_same_dims(type, out_type(n)) ? make_out(m, n) : NULL;
}

/* Makes the output of a call whose arrays are broadcast. */
static sli_pt_array *make_beside(sli_import *m, const sli_pt_node *n, int count,
                                 const sli_pt_array *const *of) {
  sli_pt_type type = {0};
  for (int i = 0; i < count; i++)
    if (!of[i]) return NULL;
    else type.ndim = SLI_MAX(type.ndim, of[i]->type.ndim);
  for (int d = 0; d < type.ndim; d++) {
    type.dim[d] = 1;
    for (int i = 0; i < count; i++) {
      int shift = type.ndim - of[i]->type.ndim;
      if (d >= shift && of[i]->type.dim[d - shift] != 1) type.dim[d] = of[i]->type.dim[d - shift];
    }
  }
  for (int i = 0; i < count; i++)
    if (!sli_pt_fits(of[i], &type)) return NULL;
  return make_like(m, n, &type);
}

/* Sets an output that shares the elements of `a`, with the dims that the call determined. */
static void set_view(sli_import *m, const sli_pt_node *n, int i, sli_pt_array *a) {
  if (i >= n->nouts || !n->outs[i] || !sli_pt_same_dims(&a->type, &n->outs[i]->type)) return;
  a->type.dtype = n->outs[i]->type.dtype;
  a->type.trained = n->outs[i]->type.trained;
  if ((a->type.dtype == SLI_PT_BOOL) == (a->mask != NULL)) sli_pt_out_array(m, n, i, a);
}

/* ---- element by element -------------------------------------------------------------------- */

void sli_fold_one(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  const sli_pt_array *x = constant_arg(m, n, "self");
  sli_pt_array *y = row->one ? make_beside(m, n, 1, &x) : NULL;
  int64_t count = y ? sli_pt_elements(&y->type) : 0, index[SLI_PT_DIMS] = {0};
  for (int64_t i = 0; i < count; i++, sli_pt_step(&y->type, index))
    sli_pt_set(y, i, row->one(sli_pt_at(x, sli_pt_broadcast(x, y->type.ndim, index))));
}

/* Inverts the bits of integers, and masks. */
void sli_fold_bits_not(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *x = constant_arg(m, n, "self");
  sli_pt_array *y = make_beside(m, n, 1, &x);
  int64_t count = y ? sli_pt_elements(&y->type) : 0;
  for (int64_t i = 0; i < count; i++)
    sli_pt_set(y, i, x->mask ? sli_pt_get(x, i) == 0 : -sli_pt_get(x, i) - 1);
}

void sli_fold_two(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  const sli_pt_array *a = constant_arg(m, n, "self"), *b = constant_arg(m, n, "other");
  const sli_pt_array *const both[] = {a, b};
  double alpha = sli_pt_number(m, n, "alpha", 1);
  double left = row->two == sli_fn_rsub ? alpha : 1, right = left == 1 ? alpha : 1;
  const sli_pt_arg *mode = sli_pt_arg_find(n, "rounding_mode");
  bool rounds = mode && mode->kind == SLI_PT_TEXT, floors = rounds && !strcmp(mode->text, "floor");
  sli_pt_array *y = row->two ? make_beside(m, n, 2, both) : NULL;
  int64_t count = y ? sli_pt_elements(&y->type) : 0, index[SLI_PT_DIMS] = {0};
  for (int64_t i = 0; i < count; i++, sli_pt_step(&y->type, index)) {
    double v = row->two(left * sli_pt_at(a, sli_pt_broadcast(a, y->type.ndim, index)),
                        right * sli_pt_at(b, sli_pt_broadcast(b, y->type.ndim, index)));
    if (floors)
      v = sli_floor_div(sli_pt_at(a, sli_pt_broadcast(a, y->type.ndim, index)),
                        sli_pt_at(b, sli_pt_broadcast(b, y->type.ndim, index)));
    else if (rounds) v = trunc(v);
    sli_pt_set(y, i, v);
  }
}

void sli_fold_pow(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *a = constant_arg(m, n, "self"), *b = constant_arg(m, n, "exponent");
  sli_pt_array *y = make_beside(m, n, 2, (const sli_pt_array *const[]){a, b});
  int64_t count = y ? sli_pt_elements(&y->type) : 0, index[SLI_PT_DIMS] = {0};
  for (int64_t i = 0; i < count; i++, sli_pt_step(&y->type, index))
    sli_pt_set(y, i,
               pow(sli_pt_at(a, sli_pt_broadcast(a, y->type.ndim, index)),
                   sli_pt_at(b, sli_pt_broadcast(b, y->type.ndim, index))));
}

void sli_fold_clamp(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *x = constant_arg(m, n, "self");
  double low = sli_pt_number(m, n, "min", -INFINITY), high = sli_pt_number(m, n, "max", INFINITY);
  const sli_pt_arg *bound[] = {sli_pt_arg_find(n, "min"), sli_pt_arg_find(n, "max")};
  double v;
  for (int i = 0; i < 2; i++) /* a bound for each element */
    if (bound[i] && !sli_pt_scalar(m, bound[i], &v)) return;
  sli_pt_array *y = make_beside(m, n, 1, &x);
  int64_t count = y ? sli_pt_elements(&y->type) : 0;
  for (int64_t i = 0; i < count; i++) {
    v = sli_pt_get(x, i);
    sli_pt_set(y, i, isnan(v) ? v : fmin(fmax(v, low), high));
  }
}

/* where(condition, self, other) and masked_fill(self, mask, value). */
void sli_fold_where(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  bool fills = sli_pt_arg_find(n, "mask") != NULL;
  const sli_pt_array *c = constant_arg(m, n, fills ? "mask" : "condition");
  const sli_pt_array *a = constant_arg(m, n, fills ? "value" : "self");
  const sli_pt_array *b = constant_arg(m, n, fills ? "self" : "other");
  sli_pt_array *y = make_beside(m, n, 3, (const sli_pt_array *const[]){a, b, c});
  int64_t count = y ? sli_pt_elements(&y->type) : 0, index[SLI_PT_DIMS] = {0};
  for (int64_t i = 0; i < count; i++, sli_pt_step(&y->type, index)) {
    const sli_pt_array *from = sli_pt_at(c, sli_pt_broadcast(c, y->type.ndim, index)) != 0 ? a : b;
    sli_pt_set(y, i, sli_pt_at(from, sli_pt_broadcast(from, y->type.ndim, index)));
  }
}

/* ---- made from nothing --------------------------------------------------------------------- */

/* Returns the name of the argument that gives the elements. */
static const char *fill_argument(const sli_pt_node *n) {
  static const char *const names[] = {"fill_value", "value", "s"};
  int i = 0;
  while (i < 2 && !sli_pt_arg_peek(n, names[i])) i++;
  return names[i];
}

/* zeros, ones, full, and their _like variants, which ignore the other tensor's elements. */
void sli_fold_fill(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  double value = row->one ? row->one(0) : sli_pt_number(m, n, fill_argument(n), 0);
  sli_pt_type one = *out_type(n);
  for (int d = 0; d < one.ndim; d++) one.dim[d] = 1;
  sli_pt_array *a = sli_pt_array_make(&m->arena, &one);
  sli_pt_set(a, 0, value);
  memset(a->stride, 0, sizeof a->stride);
  a->type = *out_type(n);
  sli_pt_out_array(m, n, 0, a);
}

void sli_fold_arange(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  double start = sli_pt_number(m, n, "start", 0), step = sli_pt_number(m, n, "step", 1);
  sli_pt_array *y = out_type(n)->ndim == 1 ? make_out(m, n) : NULL;
  int64_t count = y ? sli_pt_elements(&y->type) : 0;
  for (int64_t i = 0; i < count; i++) sli_pt_set(y, i, start + (double)i * step);
}

/* linspace(start, end, steps): the second half counts down from the end, as in PyTorch. */
void sli_fold_linspace(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  double start = sli_pt_number(m, n, "start", 0), end = sli_pt_number(m, n, "end", 0);
  sli_pt_array *y = out_type(n)->ndim == 1 ? make_out(m, n) : NULL;
  int64_t count = y ? y->type.dim[0] : 0;
  double step = count > 1 ? (end - start) / (double)(count - 1) : 0;
  for (int64_t i = 0; i < count; i++)
    sli_pt_set(y, i,
               i < count / 2 ? start + (double)i * step : end - (double)(count - 1 - i) * step);
}

/* tril_indices, triu_indices(row, col, offset): rows and columns of a triangle, [2, count]. */
void sli_fold_triangle_indices(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  bool lower = strstr(row->target, "tril") != NULL;
  int64_t rows = sli_pt_whole(m, n, "row", 0), cols = sli_pt_whole(m, n, "col", 0);
  int64_t offset = sli_pt_whole(m, n, "offset", 0), k = 0;
  if (out_type(n)->ndim != 2 || out_type(n)->dim[0] != 2 || rows < 0 || cols < 0 ||
      rows > 1 << 15 || cols > 1 << 15)
    return;
  sli_pt_array *y = sli_pt_array_make(&m->arena, out_type(n));
  int64_t count = y ? y->type.dim[1] : 0;
  for (int64_t i = 0; y && i < rows; i++)
    for (int64_t j = 0; j < cols; j++) {
      if (lower ? j - i > offset : j - i < offset) continue;
      if (k == count) return;
      sli_pt_set(y, k, (double)i), sli_pt_set(y, count + k, (double)j);
      k++;
    }
  if (k == count) sli_pt_out_array(m, n, 0, y);
}

void sli_fold_eye(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sli_pt_array *y = out_type(n)->ndim == 2 ? make_out(m, n) : NULL;
  for (int64_t i = 0; y && i < SLI_MIN(y->type.dim[0], y->type.dim[1]); i++)
    sli_pt_set(y, i * y->type.dim[1] + i, 1);
}

/* ---- copies and views ---------------------------------------------------------------------- */

void sli_fold_same(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *x = n->nargs ? constant_arg(m, n, n->args[0].name) : NULL;
  if (x) set_view(m, n, 0, sli_pt_array_view(&m->arena, x));
}

void sli_fold_cast(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  const sli_pt_array *x = constant_arg(m, n, "self");
  if (!x) return;
  bool same = x->type.dtype == out_type(n)->dtype && x->type.ndim == out_type(n)->ndim;
  if (same) sli_fold_same(m, n, row);
  else if (sli_pt_same_dims(&x->type, out_type(n)))
    sli_pt_out_array(m, n, 0, sli_pt_array_cast(&m->arena, x, out_type(n)->dtype));
}

/* copy_(self, src): src in self's shape and type. */
void sli_fold_copy(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *x = constant_arg(m, n, "src");
  sli_pt_array *y = x && sli_pt_fits(x, out_type(n)) ? make_out(m, n) : NULL;
  int64_t count = y ? sli_pt_elements(&y->type) : 0, index[SLI_PT_DIMS] = {0};
  for (int64_t i = 0; i < count; i++, sli_pt_step(&y->type, index))
    sli_pt_set(y, i, sli_pt_at(x, sli_pt_broadcast(x, y->type.ndim, index)));
}

void sli_fold_view(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *x = constant_arg(m, n, "self");
  if (!x || sli_pt_elements(&x->type) != sli_pt_elements(out_type(n))) return;
  bool repeats = true; /* a constant array is constant in any shape */
  for (int d = 0; d < x->type.ndim; d++) repeats &= !x->stride[d];
  if (repeats) {
    sli_pt_array *a = sli_pt_array_view(&m->arena, x);
    memset(a->stride, 0, sizeof a->stride);
    a->type.ndim = out_type(n)->ndim;
    memcpy(a->type.dim, out_type(n)->dim, sizeof a->type.dim);
    set_view(m, n, 0, a);
    return;
  }
  sli_pt_array *dense = sli_pt_array_make(&m->arena, out_type(n));
  int64_t count = dense ? sli_pt_elements(&x->type) : 0, index[SLI_PT_DIMS] = {0};
  for (int64_t i = 0; i < count; i++, sli_pt_step(&x->type, index)) {
    int64_t at = x->offset;
    for (int d = 0; d < x->type.ndim; d++) at += index[d] * x->stride[d];
    sli_pt_set(dense, i, sli_pt_at(x, at));
  }
  sli_pt_out_array(m, n, 0, dense);
}

void sli_fold_unsqueeze(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *x = constant_arg(m, n, "self");
  if (!x || x->type.ndim == SLI_PT_DIMS) return;
  int dim = sli_pt_dim(m, n, "dim", x->type.ndim + 1, 0);
  sli_pt_array *a = sli_pt_array_view(&m->arena, x);
  memmove(a->stride + dim + 1, a->stride + dim, (size_t)(x->type.ndim - dim) * sizeof *a->stride);
  memmove(a->type.dim + dim + 1, a->type.dim + dim,
          (size_t)(x->type.ndim - dim) * sizeof *a->type.dim);
  a->stride[dim] = 0, a->type.dim[dim] = 1;
  a->type.ndim++;
  set_view(m, n, 0, a);
}

/* Makes a view with repeated dims. New dims come first. */
void sli_fold_expand(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *x = constant_arg(m, n, "self");
  if (!x || !sli_pt_fits(x, out_type(n))) return;
  sli_pt_array *a = sli_pt_array_view(&m->arena, x);
  int shift = out_type(n)->ndim - x->type.ndim;
  for (int d = out_type(n)->ndim - 1; d >= 0; d--)
    a->stride[d] = d < shift || (x->type.dim[d - shift] == 1) ? 0 : x->stride[d - shift];
  a->type = *out_type(n);
  set_view(m, n, 0, a);
}

void sli_fold_permute(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *x = constant_arg(m, n, "self");
  int order[SLI_PT_DIMS];
  if (!x || !sli_pt_order(m, n, x->type.ndim, order)) return;
  sli_pt_array *y = sli_pt_array_view(&m->arena, x);
  for (int d = 0; d < x->type.ndim; d++)
    y->stride[d] = x->stride[order[d]], y->type.dim[d] = x->type.dim[order[d]];
  set_view(m, n, 0, y);
}

static int64_t slice_start(const sli_import *m, const sli_pt_node *n, int64_t length) {
  int64_t start = sli_pt_whole(m, n, "start", 0);
  if (start < 0) start = SLI_MAX(start + length, 0);
  return SLI_MIN(start, length);
}

void sli_fold_slice(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *x = constant_arg(m, n, "self");
  if (!x || !x->type.ndim) return;
  int dim = sli_pt_dim(m, n, "dim", x->type.ndim, 0);
  int64_t length = x->type.dim[dim], begin = slice_start(m, n, length), step, end;
  step = sli_pt_whole(m, n, "step", 1), end = sli_pt_whole(m, n, "end", INT64_MAX);
  if (end < 0) end += length;
  end = SLI_MAX(SLI_MIN(end, length), begin);
  if (step < 1) return;
  step = SLI_MIN(step, SLI_MAX(length, 1));
  sli_pt_array *y = sli_pt_array_view(&m->arena, x);
  y->type.dim[dim] = (end - begin + step - 1) / step;
  if (y->type.dim[dim]) y->offset += begin * x->stride[dim];
  y->stride[dim] *= step;
  set_view(m, n, 0, y);
}

void sli_fold_select(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *x = constant_arg(m, n, "self");
  if (!x || !x->type.ndim) return;
  int dim = sli_pt_dim(m, n, "dim", x->type.ndim, 0), after = x->type.ndim - dim - 1;
  int64_t at = sli_pt_whole(m, n, "index", 0);
  if (at < 0) at += x->type.dim[dim];
  if (at < 0 || at >= x->type.dim[dim]) return;
  sli_pt_array *y = sli_pt_array_view(&m->arena, x);
  y->offset += at * x->stride[dim];
  memmove(y->stride + dim, y->stride + dim + 1, (size_t)after * sizeof *y->stride);
  memmove(y->type.dim + dim, y->type.dim + dim + 1, (size_t)after * sizeof *y->type.dim);
  y->type.ndim--;
  set_view(m, n, 0, y);
}

void sli_fold_split(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *x = constant_arg(m, n, "self");
  if (!x || !x->type.ndim) return;
  int dim = sli_pt_dim(m, n, "dim", x->type.ndim, 0);
  int64_t at = 0;
  for (int i = 0; i < n->nouts; i++) {
    const sli_pt_type *part = n->outs[i] ? &n->outs[i]->type : NULL;
    if (!part || part->ndim != x->type.ndim || part->dim[dim] > x->type.dim[dim] - at) return;
    sli_pt_array *y = sli_pt_array_view(&m->arena, x);
    y->type.dim[dim] = part->dim[dim];
    y->offset += at * x->stride[dim];
    at += part->dim[dim];
    set_view(m, n, i, y);
  }
}

/* ---- parts --------------------------------------------------------------------------------- */

/* Copies x into y with its first element at `begin`. */
static void put_part(const sli_pt_array *x, sli_pt_array *y, const int64_t *begin,
                     const int64_t *step) {
  int64_t count = sli_pt_elements(&x->type), index[SLI_PT_DIMS] = {0};
  if (x->type.ndim != y->type.ndim || count > SLI_PT_MOST) return;
  for (int64_t i = 0; i < count; i++, sli_pt_step(&x->type, index)) {
    int64_t from = x->offset, to = 0;
    bool inside = true;
    for (int d = 0; d < x->type.ndim; d++) {
      int64_t at = begin[d] + index[d] * (step ? step[d] : 1);
      inside &= at >= 0 && at < y->type.dim[d];
      from += index[d] * x->stride[d], to += at * y->stride[d];
    }
    if (inside) sli_pt_set(y, to, sli_pt_at(x, from));
  }
}

void sli_fold_cat(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_arg *list = sli_pt_arg_find(n, "tensors");
  if (!list || list->kind != SLI_PT_LIST) return;
  for (int i = 0; i < list->list.count; i++)
    if (list->list.of[i].kind != SLI_PT_VALUE || !sli_constant(m, list->list.of[i].value)) return;
  bool stacks = strstr(n->target, ".stack.") != NULL;
  int dim = sli_pt_dim(m, n, "dim", out_type(n)->ndim, 0);
  sli_pt_array *y = out_type(n)->ndim ? make_out(m, n) : NULL;
  int64_t begin[SLI_PT_DIMS] = {0};
  for (int i = 0; y && i < list->list.count; i++) {
    sli_pt_array *x = sli_pt_array_view(&m->arena, sli_constant(m, list->list.of[i].value));
    if (stacks) {
      if (x->type.ndim == SLI_PT_DIMS) return;
      for (int d = x->type.ndim++; d > dim; d--)
        x->type.dim[d] = x->type.dim[d - 1], x->stride[d] = x->stride[d - 1];
      x->type.dim[dim] = 1, x->stride[dim] = 0;
    }
    if (x->type.ndim != y->type.ndim) continue; /* an empty tensor of one dim */
    put_part(x, y, begin, NULL);
    begin[dim] += x->type.dim[dim];
  }
}

void sli_fold_pad(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *x = constant_arg(m, n, "self");
  const sli_pt_arg *mode = sli_pt_arg_find(n, "mode");
  int64_t pad[2 * SLI_PT_DIMS], begin[SLI_PT_DIMS] = {0};
  int count = sli_pt_wholes(m, n, "pad", 2 * SLI_PT_DIMS, pad);
  if (!x || count < 0 || (mode && mode->kind == SLI_PT_TEXT && strcmp(mode->text, "constant")))
    return;
  sli_pt_type type = x->type;
  for (int i = 0; i < count / 2; i++) {
    int d = x->type.ndim - 1 - i;
    if (d < 0 || llabs(pad[2 * i]) > SLI_PT_MOST || llabs(pad[2 * i + 1]) > SLI_PT_MOST) return;
    type.dim[d] += pad[2 * i] + pad[2 * i + 1];
  }
  sli_pt_array *y = make_like(m, n, &type);
  int64_t all = y ? sli_pt_elements(&y->type) : 0;
  double value = sli_pt_number(m, n, "value", 0);
  for (int64_t i = 0; i < all; i++) sli_pt_set(y, i, value);
  for (int i = 0; i < count / 2; i++) begin[x->type.ndim - 1 - i] = pad[2 * i];
  if (y) put_part(x, y, begin, NULL);
}

/* Replaces a part of a whole: slice, select, and calls that only change the shape. */
void sli_fold_put(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *x = constant_arg(m, n, n->args[0].name), *part = constant_arg(m, n, "put");
  if (!x || !part || !sli_pt_same_dims(&x->type, out_type(n))) return;
  int64_t begin[SLI_PT_DIMS] = {0}, step[SLI_PT_DIMS];
  for (int d = 0; d < SLI_PT_DIMS; d++) step[d] = 1;
  sli_pt_array *y = sli_pt_array_cast(&m->arena, x, x->type.dtype);
  sli_pt_array *p = sli_pt_array_view(&m->arena, part);
  if (!y) return;
  if (strstr(n->target, "slice")) {
    int dim = sli_pt_dim(m, n, "dim", x->type.ndim, 0);
    begin[dim] = slice_start(m, n, x->type.dim[dim]);
    step[dim] = sli_pt_whole(m, n, "step", 1);
    if (step[dim] < 1 || step[dim] > SLI_PT_MOST || p->type.dim[dim] > SLI_PT_MOST) return;
  } else if (strstr(n->target, "select")) {
    int dim = sli_pt_dim(m, n, "dim", x->type.ndim, 0);
    begin[dim] = sli_pt_whole(m, n, "index", 0);
    if (begin[dim] < 0) begin[dim] += x->type.dim[dim];
    if (begin[dim] < 0 || begin[dim] >= x->type.dim[dim] || p->type.ndim >= x->type.ndim) return;
    for (int d = p->type.ndim++; d > dim; d--)
      p->type.dim[d] = p->type.dim[d - 1], p->stride[d] = p->stride[d - 1];
    p->type.dim[dim] = 1, p->stride[dim] = 0;
  } else {
    int64_t count = sli_pt_elements(&x->type);
    if (sli_pt_elements(&part->type) != count) return;
    for (int64_t i = 0; i < count; i++) sli_pt_set(y, i, sli_pt_get(part, i));
    sli_pt_out_array(m, n, 0, y);
    return;
  }
  put_part(p, y, begin, step);
  sli_pt_out_array(m, n, 0, y);
}

void sli_fold_roll(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *x = constant_arg(m, n, "self");
  int64_t shifts[SLI_PT_DIMS], dims[SLI_PT_DIMS], by[SLI_PT_DIMS] = {0};
  int count = sli_pt_wholes(m, n, "shifts", SLI_PT_DIMS, shifts);
  if (!x || count < 1 || sli_pt_wholes(m, n, "dims", SLI_PT_DIMS, dims) != count) return;
  for (int i = 0; i < count; i++) {
    int64_t dim = dims[i] < 0 ? dims[i] + x->type.ndim : dims[i];
    if (dim < 0 || dim >= x->type.ndim || llabs(shifts[i]) > SLI_PT_MOST) return;
    by[dim] = shifts[i];
  }
  sli_pt_array *y = make_like(m, n, &x->type);
  int64_t all = y ? sli_pt_elements(&y->type) : 0, index[SLI_PT_DIMS] = {0};
  for (int64_t i = 0; i < all; i++, sli_pt_step(&y->type, index)) {
    int64_t from = x->offset;
    for (int d = 0; d < x->type.ndim; d++) {
      int64_t length = x->type.dim[d];
      from += ((index[d] - by[d]) % length + length) % length * x->stride[d];
    }
    sli_pt_set(y, i, sli_pt_at(x, from));
  }
}

/* repeat(repeats), repeat_interleave(repeats, dim). */
void sli_fold_repeat(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *x = constant_arg(m, n, "self");
  bool interleaves = strstr(n->target, "interleave") != NULL;
  (void)sli_pt_arg_find(n, "repeats"); /* the result's dims say how often */
  if (!x || (interleaves && !sli_pt_arg_find(n, "dim"))) return;
  int shift = out_type(n)->ndim - x->type.ndim;
  if (shift < 0 || (interleaves && shift) || !sli_pt_elements(&x->type)) return;
  sli_pt_array *y = make_out(m, n);
  int64_t all = y ? sli_pt_elements(&y->type) : 0, index[SLI_PT_DIMS] = {0};
  for (int64_t i = 0; i < all; i++, sli_pt_step(&y->type, index)) {
    int64_t from = x->offset;
    for (int d = 0; d < x->type.ndim; d++) {
      int64_t at = index[d + shift], length = x->type.dim[d];
      from += (interleaves ? at * length / y->type.dim[d + shift] : at % length) * x->stride[d];
    }
    sli_pt_set(y, i, sli_pt_at(x, from));
  }
}

/* ---- indexed ------------------------------------------------------------------------------- */

/* index.Tensor with integer arrays for the leading dims. Masks are not supported. */
void sli_fold_index(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *x = constant_arg(m, n, "self"), *by[SLI_PT_DIMS] = {0};
  const sli_pt_arg *list = sli_pt_arg_find(n, "indices");
  if (!x || !list || list->kind != SLI_PT_LIST || list->list.count > x->type.ndim) return;
  int count = list->list.count, first = -1, last = -1, ndim = 0;
  for (int i = 0; i < count; i++) {
    if (list->list.of[i].kind != SLI_PT_VALUE) continue;
    by[i] = sli_constant(m, list->list.of[i].value);
    if (!by[i] || by[i]->mask || (last >= 0 && last != i - 1)) return;
    if (first < 0) first = i;
    last = i;
    ndim = SLI_MAX(ndim, by[i]->type.ndim);
  }
  if (first < 0 || !sli_pt_elements(&x->type)) return;
  sli_pt_type type = {.ndim = x->type.ndim - (last - first + 1) + ndim};
  if (type.ndim > SLI_PT_DIMS) return;
  for (int d = 0; d < type.ndim; d++)
    type.dim[d] = d < first          ? x->type.dim[d]
                  : d < first + ndim ? out_type(n)->dim[d]
                                     : x->type.dim[d - ndim + (last - first + 1)];
  sli_pt_type picked = {.ndim = ndim};
  memcpy(picked.dim, type.dim + first, (size_t)ndim * sizeof *type.dim);
  for (int i = first; i <= last; i++)
    if (!sli_pt_fits(by[i], &picked)) return;
  sli_pt_array *y = make_like(m, n, &type);
  int64_t all = y ? sli_pt_elements(&y->type) : 0, index[SLI_PT_DIMS] = {0};
  for (int64_t i = 0; i < all; i++, sli_pt_step(&y->type, index)) {
    int64_t from = x->offset;
    for (int d = 0; d < x->type.ndim; d++) {
      int64_t at = d < first ? index[d] : d > last ? index[d - (last - first + 1) + ndim] : 0;
      if (d >= first && d <= last)
        at = sli_pt_integer(sli_pt_at(by[d], sli_pt_broadcast(by[d], ndim, index + first)));
      if (at < 0) at += x->type.dim[d];
      if (at < 0 || at >= x->type.dim[d]) at = 0;
      from += at * x->stride[d];
    }
    sli_pt_set(y, i, sli_pt_at(x, from));
  }
}

/* index_put(self, [indices of all leading dims], values). */
void sli_fold_index_put(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *x = constant_arg(m, n, "self"), *values = constant_arg(m, n, "values");
  const sli_pt_arg *list = sli_pt_arg_find(n, "indices");
  if (!x || !values || !list || list->kind != SLI_PT_LIST || list->list.count != 1) return;
  const sli_pt_array *by =
      list->list.of[0].kind == SLI_PT_VALUE ? sli_constant(m, list->list.of[0].value) : NULL;
  int64_t given = sli_pt_elements(&values->type);
  if (!by || by->mask || x->type.ndim != 1 || !sli_pt_same_dims(&x->type, out_type(n))) return;
  if (given != 1 && given != sli_pt_elements(&by->type)) return;
  sli_pt_array *y = sli_pt_array_cast(&m->arena, x, x->type.dtype);
  int64_t count = y ? sli_pt_elements(&by->type) : 0;
  for (int64_t i = 0; i < count; i++) {
    int64_t at = sli_pt_integer(sli_pt_get(by, i));
    if (at < 0) at += x->type.dim[0];
    if (at >= 0 && at < x->type.dim[0]) sli_pt_set(y, at, sli_pt_get(values, given > 1 ? i : 0));
  }
  sli_pt_out_array(m, n, 0, y);
}

void sli_fold_gather(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *x = constant_arg(m, n, "self"), *by = constant_arg(m, n, "index");
  if (!x || !by) return;
  bool selects = strstr(n->target, "index_select") != NULL;
  int dim = sli_pt_dim(m, n, "dim", x->type.ndim, 0);
  sli_pt_type type = selects ? x->type : by->type;
  if (!x->type.ndim || (selects && by->type.ndim != 1) || by->type.ndim > x->type.ndim) return;
  if (selects) type.dim[dim] = by->type.dim[0];
  for (int d = 0; d < x->type.ndim; d++)
    if (type.ndim != x->type.ndim || !x->type.dim[d] || (d != dim && type.dim[d] > x->type.dim[d]))
      return;
  sli_pt_array *y = make_like(m, n, &type);
  int64_t all = y ? sli_pt_elements(&y->type) : 0, index[SLI_PT_DIMS] = {0};
  for (int64_t i = 0; i < all; i++, sli_pt_step(&y->type, index)) {
    int64_t from = x->offset;
    int64_t at = sli_pt_integer(selects ? sli_pt_get(by, index[dim]) : sli_pt_get(by, i));
    if (at < 0 || at >= x->type.dim[dim]) at = 0;
    for (int d = 0; d < x->type.ndim; d++) from += (d == dim ? at : index[d]) * x->stride[d];
    sli_pt_set(y, i, sli_pt_at(x, from));
  }
}

/* ---- along dims ---------------------------------------------------------------------------- */

/* Returns the first argument, converted to the type that the call asks for. */
static const sli_pt_array *converted(sli_import *m, const sli_pt_node *n) {
  const sli_pt_array *x = constant_arg(m, n, "self");
  sli_pt_dtype dtype = sli_pt_type_arg(n, "dtype");
  return x && dtype && dtype != x->type.dtype ? sli_pt_array_cast(&m->arena, x, dtype) : x;
}

void sli_fold_cumsum(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *x = converted(m, n);
  if (!x || !x->type.ndim) return;
  int dim = sli_pt_dim(m, n, "dim", x->type.ndim, 0);
  sli_pt_array *y = make_like(m, n, &x->type);
  int64_t all = y ? sli_pt_elements(&y->type) : 0, index[SLI_PT_DIMS] = {0};
  for (int64_t i = 0; i < all; i++, sli_pt_step(&y->type, index)) {
    double before = index[dim] ? sli_pt_at(y, i - y->stride[dim]) : 0;
    sli_pt_set(y, i, before + sli_pt_get(x, i));
  }
}

/* diff(self, n=1, dim, prepend). */
void sli_fold_diff(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *x = constant_arg(m, n, "self"), *before = constant_arg(m, n, "prepend");
  if (!x || sli_pt_whole(m, n, "n", 1) != 1 || sli_pt_arg_find(n, "append")) return;
  if (!before && sli_pt_arg_find(n, "prepend")) return;
  int dim = sli_pt_dim(m, n, "dim", x->type.ndim, x->type.ndim - 1);
  if (!x->type.ndim || (before && before->type.ndim != x->type.ndim)) return;
  for (int d = 0; before && d < x->type.ndim; d++)
    if (d != dim && before->type.dim[d] != x->type.dim[d]) return;
  int64_t shift = before ? before->type.dim[dim] : 0;
  sli_pt_type type = x->type;
  type.dim[dim] = SLI_MAX(x->type.dim[dim] + shift - 1, 0);
  sli_pt_array *y = make_like(m, n, &type);
  int64_t all = y ? sli_pt_elements(&y->type) : 0, index[SLI_PT_DIMS] = {0};
  for (int64_t i = 0; i < all; i++, sli_pt_step(&y->type, index)) {
    double value[2];
    for (int k = 0; k < 2; k++) {
      int64_t at = index[dim] + k;
      const sli_pt_array *from = at < shift ? before : x;
      int64_t place = from->offset;
      for (int d = 0; d < x->type.ndim; d++)
        place += (d != dim ? index[d] : at < shift ? at : at - shift) * from->stride[d];
      value[k] = sli_pt_at(from, place);
    }
    sli_pt_set(y, i, y->mask ? value[0] != value[1] : value[1] - value[0]);
  }
}

/* tril, triu: row->one(0) is 1 for the lower triangle. */
void sli_fold_triangle(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  const sli_pt_array *x = constant_arg(m, n, "self");
  if (!x || x->type.ndim < 2) return;
  bool lower = strstr(row->target, "tril") != NULL;
  int64_t diagonal = sli_pt_whole(m, n, "diagonal", 0);
  sli_pt_array *y = make_like(m, n, &x->type);
  int64_t all = y ? sli_pt_elements(&y->type) : 0, index[SLI_PT_DIMS] = {0};
  for (int64_t i = 0; i < all; i++, sli_pt_step(&y->type, index)) {
    int64_t off = index[y->type.ndim - 1] - index[y->type.ndim - 2];
    if (lower ? off <= diagonal : off >= diagonal) sli_pt_set(y, i, sli_pt_get(x, i));
  }
}

/* Determines the type of a reduction over dims. */
static void reduced_type(const sli_pt_type *x, uint32_t axes, bool keep, sli_pt_type *out) {
  *out = (sli_pt_type){.dtype = x->dtype};
  for (int d = 0; d < x->ndim; d++) {
    bool reduced = axes >> d & 1;
    if (keep || !reduced) out->dim[out->ndim++] = reduced ? 1 : x->dim[d];
  }
}

/* sum, mean, any, all, amax: row->two combines elements, and mean divides. */
void sli_fold_reduce(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  const sli_pt_array *x = converted(m, n);
  if (!x || !row->two || n->nouts != 1) return;
  uint32_t axes = sli_pt_axes(m, n, "dim", x->type.ndim);
  sli_pt_type type;
  reduced_type(&x->type, axes, sli_pt_flag(n, "keepdim", false), &type);
  if (sli_pt_elements(&x->type) > SLI_PT_MOST) return;
  sli_pt_array *y = make_like(m, n, &type);
  if (!y) return;
  int64_t all = sli_pt_elements(&x->type), index[SLI_PT_DIMS] = {0};
  int64_t outs = sli_pt_elements(&y->type), each = outs ? all / outs : 0;
  bool keep = sli_pt_flag(n, "keepdim", false), mean = strstr(n->target, ".mean.") != NULL;
  double *sum = sli_arena_alloc(&m->arena, ((size_t)outs + 1) * sizeof *sum);
  unsigned char *begun = sli_arena_alloc(&m->arena, (size_t)outs + 1);
  for (int64_t i = 0; i < all; i++, sli_pt_step(&x->type, index)) {
    int64_t to = 0;
    for (int d = 0, k = 0; d < x->type.ndim; d++) {
      bool reduced = axes >> d & 1;
      if (!reduced) to += index[d] * y->stride[keep ? d : k];
      if (!reduced) k++;
    }
    double v = sli_pt_get(x, i);
    sum[to] = begun[to] ? row->two(sum[to], v) : v;
    begun[to] = 1;
  }
  for (int64_t i = 0; i < outs; i++) sli_pt_set(y, i, mean ? sum[i] / (double)each : sum[i]);
}

void sli_fold_argmax(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_array *x = constant_arg(m, n, "self");
  if (!x || !sli_pt_arg_find(n, "dim")) return;
  int dim = sli_pt_dim(m, n, "dim", x->type.ndim, 0);
  bool keep = sli_pt_flag(n, "keepdim", false);
  sli_pt_type type;
  reduced_type(&x->type, 1u << dim, keep, &type);
  if (!x->type.ndim || !sli_pt_elements(&x->type)) return;
  sli_pt_array *y = make_like(m, n, &type);
  int64_t all = y ? sli_pt_elements(&y->type) : 0, index[SLI_PT_DIMS] = {0};
  for (int64_t i = 0; i < all; i++, sli_pt_step(&y->type, index)) {
    int64_t base = x->offset, best = 0;
    for (int d = 0, k = 0; d < x->type.ndim; d++)
      if (d != dim) base += index[k++] * x->stride[d];
      else if (keep) k++;
    for (int64_t j = 1; j < x->type.dim[dim]; j++)
      if (sli_pt_at(x, base + j * x->stride[dim]) > sli_pt_at(x, base + best * x->stride[dim]))
        best = j;
    sli_pt_set(y, i, (double)best);
  }
}

/* meshgrid(tensors, indexing="ij"). */
void sli_fold_meshgrid(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_arg *list = sli_pt_arg_find(n, "tensors"), *order = sli_pt_arg_find(n, "indexing");
  if (!list || list->kind != SLI_PT_LIST || list->list.count != n->nouts) return;
  bool swapped = order && order->kind == SLI_PT_TEXT && !strcmp(order->text, "xy");
  for (int i = 0; i < n->nouts; i++) {
    const sli_pt_array *x =
        list->list.of[i].kind == SLI_PT_VALUE ? sli_constant(m, list->list.of[i].value) : NULL;
    if (!x || !n->outs[i] || n->outs[i]->type.ndim != n->nouts || x->type.ndim > 1) return;
    sli_pt_array *y = sli_pt_array_view(&m->arena, x);
    int at = swapped && i < 2 ? 1 - i : i;
    int64_t stride = x->type.ndim ? x->stride[0] : 0, length = x->type.ndim ? x->type.dim[0] : 1;
    memset(y->stride, 0, sizeof y->stride);
    y->type = n->outs[i]->type;
    y->type.dim[at] = length;
    y->stride[at] = stride;
    set_view(m, n, i, y);
  }
}
