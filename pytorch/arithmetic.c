/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise calls. */
#include <math.h>
#include <string.h>

#include <sluice/functions.h>

#include "ops/functions.h"
#include "pytorch/emit.h"
#include "pytorch/rows.h"
#include "pytorch/whole.h"

/* ---- one number ---------------------------------------------------------------------------- */

void sli_emit_one(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  sl_tensor *x = sli_pt_f32(m, sli_pt_first(n));
  sli_pt_out(m, n, 0, sl_op1_at(m->at, m->g, row->op, NULL, x));
}

void sli_emit_gelu(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_arg *form = sli_pt_arg_find(n, "approximate");
  bool tanh_form = form && form->kind == SLI_PT_TEXT && !strcmp(form->text, "tanh");
  sl_tensor *x = sli_pt_in(m, n, "self");
  sli_pt_out(m, n, 0, sl_op1_at(m->at, m->g, tanh_form ? &sl_op_gelu : &sl_op_gelu_erf, NULL, x));
}

void sli_emit_square(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sl_tensor *x = sli_pt_in(m, n, "self");
  sli_pt_out(m, n, 0, sl_mul_at(m->at, m->g, x, x));
}

void sli_emit_reciprocal(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sl_tensor *x = sli_pt_in(m, n, "self");
  sli_pt_out(m, n, 0, sl_op2_at(m->at, m->g, &sl_op_div, NULL, sli_pt_filled_like(m, x, 1), x));
}

void sli_emit_leaky(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sl_tensor *x = sli_pt_in(m, n, "self");
  double slope = sli_pt_number(m, n, "negative_slope", 0.01);
  sl_tensor *below = sl_clamp_at(m->at, m->g, x, -INFINITY, 0);
  sl_tensor *above = sl_op1_at(m->at, m->g, &sl_op_relu, NULL, x);
  sli_pt_out(m, n, 0, sl_add_at(m->at, m->g, above, sl_scale_at(m->at, m->g, below, (float)slope)));
}

void sli_emit_clamp(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  double low = sli_pt_number(m, n, "min", -INFINITY), high = sli_pt_number(m, n, "max", INFINITY);
  sl_tensor *x = sli_pt_in(m, n, "self");
  /* Unlike the op clamp, PyTorch has no gradient at the bounds. The upper one wins. */
  const sl_attrs attrs = {.function.number = SLI_FUNCTION_hardtanh,
                          .function.c = (float)fmin(low, high),
                          .function.u = (float)high};
  if (low == -INFINITY && high == INFINITY) sli_pt_out(m, n, 0, x);
  else sli_pt_out(m, n, 0, sl_op1_at(m->at, m->g, &sl_op_function, &attrs, sli_pt_narrow(m, x)));
}

void sli_emit_pow(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  double e = NAN;
  sl_tensor *x = sli_pt_in(m, n, "self"), *y = NULL;
  if (!sli_pt_scalar(m, sli_pt_arg_find(n, "exponent"), &e)) {
    const sli_pt_value *base = sli_pt_arg_value(n, "self"), *by = sli_pt_arg_value(n, "exponent");
    sli_pt_out(m, n, 0,
               sli_pt_function2(m, SLI_FUNCTION2_pow, sli_pt_operand(m, n, "self", by),
                                sli_pt_operand(m, n, "exponent", base)));
    return;
  }
  if (e == 2) y = sl_mul_at(m->at, m->g, x, x);
  else if (e == 3) y = sl_mul_at(m->at, m->g, sl_mul_at(m->at, m->g, x, x), x);
  else if (e == 4) y = sl_mul_at(m->at, m->g, x, x), y = sl_mul_at(m->at, m->g, y, y);
  else if (e == 1) y = x;
  else if (e == 0.5) y = sl_op1_at(m->at, m->g, &sl_op_sqrt, NULL, x);
  else if (e == -0.5) y = sl_op1_at(m->at, m->g, &sl_op_rsqrt, NULL, x);
  else if (e == -1) y = sl_op2_at(m->at, m->g, &sl_op_div, NULL, sli_pt_filled_like(m, x, 1), x);
  else y = sli_pt_function2(m, SLI_FUNCTION2_pow, x, sli_pt_filled_like(m, x, e));
  sli_pt_out(m, n, 0, y);
}

/* ---- two numbers --------------------------------------------------------------------------- */

static sl_tensor *binary(sli_import *m, const sl_op *op, const sli_pt_node *n, const char *left,
                         const char *right) {
  const sli_pt_value *a = sli_pt_arg_value(n, left), *b = sli_pt_arg_value(n, right);
  sl_tensor *x = sli_pt_operand(m, n, left, b), *y = sli_pt_operand(m, n, right, a);
  if (x && y && x->type.dtype != y->type.dtype) x = sli_pt_narrow(m, x), y = sli_pt_narrow(m, y);
  bool plain = x && y && sl_type_equal(&x->type, &y->type) && x->type.dtype == SL_F32;
  if (op == &sl_op_add_broadcast && plain) op = &sl_op_add;
  if (op == &sl_op_mul_broadcast && plain) op = &sl_op_mul;
  return sl_op2_at(m->at, m->g, op, NULL, x, y);
}

void sli_emit_two(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  sli_pt_out(m, n, 0, binary(m, row->op, n, "self", "other"));
}

/* Finds the number that an argument is, if the other argument is a non-constant tensor. */
static bool number_of(sli_import *m, const sli_pt_node *n, const char *name, const char *other,
                      double *out) {
  const sli_pt_value *v = sli_pt_arg_value(n, other);
  const sli_pt_arg *arg = sli_pt_arg_find(n, name);
  if (!v || sli_constant(m, v)) return false;
  if (arg && arg->kind == SLI_PT_VALUE && !arg->value->symbol &&
      arg->value->type.ndim > v->type.ndim)
    return false;
  if (!sli_pt_scalar(m, arg, out)) return false;
  /* The number may be an array of equal elements that is the larger operand. */
  const sli_pt_value *a = sli_pt_arg_value(n, name);
  for (int d = 1; a && d <= a->type.ndim; d++)
    if (a->type.dim[a->type.ndim - d] > 1 && v->type.dim[v->type.ndim - d] == 1) return false;
  return true;
}

/* Returns one argument plus `by` times another. */
static sl_tensor *combined(sli_import *m, const sli_pt_node *n, const char *left, const char *right,
                           double by) {
  const sli_pt_value *a = sli_pt_arg_value(n, left), *b = sli_pt_arg_value(n, right);
  sl_tensor *x = sli_pt_narrow(m, sli_pt_operand(m, n, left, b));
  sl_tensor *y = sli_pt_narrow(m, sli_pt_operand(m, n, right, a));
  return sl_add_at(m->at, m->g, x, sl_scale_at(m->at, m->g, y, (float)by));
}

/* Adds a number. A loss plus 0, with which sums of losses begin, remains a sum that devices share.
 */
static sl_tensor *plus(sli_import *m, sl_tensor *x, double v) {
  if (x && !x->type.ndim && v == 0) return x;
  return sl_add_constant_at(m->at, m->g, x, (float)v);
}

void sli_emit_add(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  double v, alpha = sli_pt_number(m, n, "alpha", 1);
  if (number_of(m, n, "other", "self", &v))
    sli_pt_out(m, n, 0, plus(m, sli_pt_in(m, n, "self"), alpha * v));
  else if (number_of(m, n, "self", "other", &v) && alpha == 1)
    sli_pt_out(m, n, 0, plus(m, sli_pt_in(m, n, "other"), v));
  else if (alpha == 1) sli_pt_out(m, n, 0, binary(m, &sl_op_add_broadcast, n, "self", "other"));
  else sli_pt_out(m, n, 0, combined(m, n, "self", "other", alpha));
}

void sli_emit_sub(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  double v, alpha = sli_pt_number(m, n, "alpha", 1);
  if (number_of(m, n, "other", "self", &v))
    sli_pt_out(m, n, 0,
               sl_add_constant_at(m->at, m->g, sli_pt_in(m, n, "self"), (float)(-alpha * v)));
  else if (number_of(m, n, "self", "other", &v) && alpha == 1) {
    sl_tensor *minus = sl_op1_at(m->at, m->g, &sl_op_neg, NULL, sli_pt_in(m, n, "other"));
    sli_pt_out(m, n, 0, sl_add_constant_at(m->at, m->g, minus, (float)v));
  } else if (alpha == 1) sli_pt_out(m, n, 0, binary(m, &sl_op_sub, n, "self", "other"));
  else sli_pt_out(m, n, 0, combined(m, n, "self", "other", -alpha));
}

/* rsub(self, other) is other - alpha self. */
void sli_emit_rsub(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  double v, alpha = sli_pt_number(m, n, "alpha", 1);
  if (number_of(m, n, "other", "self", &v)) {
    sl_tensor *x = sli_pt_in(m, n, "self");
    sl_tensor *minus = alpha == 1 ? sl_op1_at(m->at, m->g, &sl_op_neg, NULL, x)
                                  : sl_scale_at(m->at, m->g, x, (float)-alpha);
    sli_pt_out(m, n, 0, sl_add_constant_at(m->at, m->g, minus, (float)v));
  } else if (alpha != 1) sli_pt_out(m, n, 0, combined(m, n, "other", "self", -alpha));
  else sli_pt_out(m, n, 0, binary(m, &sl_op_sub, n, "other", "self"));
}

void sli_emit_mul(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  double v;
  if (number_of(m, n, "other", "self", &v))
    sli_pt_out(m, n, 0, sl_scale_at(m->at, m->g, sli_pt_in(m, n, "self"), (float)v));
  else if (number_of(m, n, "self", "other", &v))
    sli_pt_out(m, n, 0, sl_scale_at(m->at, m->g, sli_pt_in(m, n, "other"), (float)v));
  else sli_pt_out(m, n, 0, binary(m, &sl_op_mul_broadcast, n, "self", "other"));
}

/* Divides and rounds the quotient down, or towards zero. */
static sl_tensor *divided(sli_import *m, const sli_pt_node *n, bool down) {
  const sli_pt_value *a = sli_pt_arg_value(n, "self"), *b = sli_pt_arg_value(n, "other");
  return sli_pt_function2(m, down ? SLI_FUNCTION2_floor_div : SLI_FUNCTION2_trunc_div,
                          sli_pt_operand(m, n, "self", b), sli_pt_operand(m, n, "other", a));
}

void sli_emit_div(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  double v;
  const sli_pt_arg *mode = sli_pt_arg_find(n, "rounding_mode");
  sl_tensor *y;
  if (mode && mode->kind == SLI_PT_TEXT) y = divided(m, n, !strcmp(mode->text, "floor"));
  else if (number_of(m, n, "other", "self", &v))
    y = sl_scale_at(m->at, m->g, sli_pt_in(m, n, "self"), (float)(1 / v));
  else y = binary(m, &sl_op_div, n, "self", "other");
  sli_pt_out(m, n, 0, y);
}

void sli_emit_floor_divide(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *x = sli_pt_arg_value(n, "self");
  double v;
  bool number = number_of(m, n, "other", "self", &v);
  if (x && sli_made_of(m, x)->sorted && number) /* indices of rows that repeat v times */
    *sli_made_of(m, n->outs[0]) = (sli_made){.sorted = true, .each = (int64_t)v, .needed = true};
  else sli_pt_out(m, n, 0, divided(m, n, true));
}

/* Comparisons make i32 masks of 0 and 1. */
void sli_emit_compare(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  sl_tensor *of[2];
  if (sli_pt_integers(m, n, "self", "other", of))
    sli_pt_out(m, n, 0, sl_op2_at(m->at, m->g, row->op, NULL, of[0], of[1]));
  else sli_pt_out(m, n, 0, binary(m, row->op, n, "self", "other"));
}

/* where(condition, self, other) and masked_fill(self, mask, value). */
void sli_emit_where(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  bool fills = sli_pt_arg_find(n, "mask") != NULL;
  const char *mask = fills ? "mask" : "condition", *yes = fills ? "value" : "self",
             *no = fills ? "self" : "other";
  const sli_pt_value *values[] = {sli_pt_arg_value(n, mask), sli_pt_arg_value(n, yes),
                                  sli_pt_arg_value(n, no)};
  const sli_pt_value *widest = NULL; /* the largest tensor that is not a constant */
  for (int i = 0; i < 3; i++)
    if (values[i] && !sli_constant(m, values[i]) &&
        (!widest || values[i]->type.ndim > widest->type.ndim ||
         sli_pt_elements(&values[i]->type) > sli_pt_elements(&widest->type)))
      widest = values[i];
  sl_tensor *c = sli_pt_operand(m, n, mask, widest), *a = sli_pt_operand(m, n, yes, widest),
            *b = sli_pt_operand(m, n, no, widest);
  c = sli_pt_narrow(m, c), a = sli_pt_narrow(m, a), b = sli_pt_narrow(m, b);
  if (c && c->type.dtype == SL_F32) c = sl_cast_at(m->at, m->g, c, SL_I32);
  sli_pt_out(m, n, 0, sl_op3_at(m->at, m->g, &sl_op_where, NULL, c, a, b));
}

/* ---- types --------------------------------------------------------------------------------- */

/* Converts floats to integers, whose fractions are dropped. Numbers that are no integer of 32 bits
 * end the run. */
static sl_tensor *without_fraction(sli_import *m, sl_tensor *t) {
  const sl_attrs attrs = {.cast.refuses = SLI_CAST_FITS};
  t = sli_pt_narrow(m, t);
  return t && t->type.dtype == SL_F32 ? sl_op1_at(m->at, m->g, &sl_op_cast, &attrs, t) : t;
}

/* to(dtype): floats are f32; integers and masks are i32. */
void sli_emit_cast(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *x = sli_pt_first(n);
  sl_tensor *t = sli_pt_tensor(m, x);
  if (!t) return;
  sli_pt_dtype from = x->type.dtype, to = n->outs[0]->type.dtype;
  if (sli_pt_floats(to)) t = t->type.dtype == SL_I32 ? sl_cast_at(m->at, m->g, t, SL_F32) : t;
  else if (to == SLI_PT_BOOL) t = sli_pt_truth(m, t, from);
  else if (sli_pt_floats(from)) t = sli_pt_wrapped(m, without_fraction(m, t), to);
  else if (to != from && from != SLI_PT_BOOL) t = sli_pt_wrapped(m, sli_pt_i32(m, x), to);
  sli_pt_out(m, n, 0, t);
  sli_made_of(m, n->outs[0])->ids = sli_made_of(m, x)->ids;
}

void sli_emit_detach(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sl_tensor *x = sli_pt_tensor(m, sli_pt_arg_value(n, "self"));
  bool floats = x && x->type.dtype != SL_I32;
  sli_pt_out(m, n, 0, floats ? sl_op1_at(m->at, m->g, &sl_op_detach, NULL, x) : x);
}

void sli_emit_nothing(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)m, (void)n, (void)row;
}

/* ---- random numbers ------------------------------------------------------------------------ */

void sli_emit_dropout(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  double p = sli_pt_number(m, n, "p", 0.5);
  if (!sli_pt_flag(n, "train", true)) p = 0;
  sl_tensor *x = sli_pt_in(m, n, n->args[0].name);
  sli_pt_out(m, n, 0, p > 0 ? sl_dropout_at(m->at, m->g, x, (float)p) : x);
}

/* Makes a tensor of the shape that an argument lists, with the rows of a microbatch. */
static sl_tensor *shaped(sli_import *m, const sli_pt_node *n) {
  const sli_pt_type *to = &n->outs[0]->type;
  sl_type type = {.dtype = SL_F32, .ndim = to->ndim}, rows = {.dtype = SL_F32, .ndim = to->ndim};
  if (to->ndim > SL_MAX_DIMS) return NULL;
  memcpy(type.dim, to->dim, sizeof type.dim);
  if (!to->ndim || !sli_pt_may_be_rows(m, to, 0) || to->dim[0] != m->exported)
    return sl_filled_at(m->at, m->g, type, 0, NULL);
  for (int d = 0; d < to->ndim; d++) rows.dim[d] = d ? 1 : m->rows;
  type.dim[0] = m->rows;
  const sli_rows first = {.dim = {{1, 1, false}}};
  sl_tensor *zeros = sli_pt_reshape_rows(m, sli_pt_row_zeros(m), &rows, &first);
  return zeros ? sl_expand_at(m->at, m->g, zeros, type) : NULL;
}

/* rand, randn, rand_like and similar. */
void sli_emit_draw(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  const sli_pt_value *self = sli_pt_arg_value(n, "self");
  sl_tensor *like = self ? sli_pt_tensor(m, self) : shaped(m, n);
  sli_pt_out(m, n, 0,
             row->op == &sl_op_normal ? sl_normal_at(m->at, m->g, like, 0, 1)
                                      : sl_uniform_at(m->at, m->g, like, 0, 1));
}

/* bernoulli(self), bernoulli(self, p), bernoulli_(self, p): 1 where a random number is below the
 * probability. An empty tensor to be filled contributes only its shape. */
void sli_emit_bernoulli(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *self = sli_pt_arg_value(n, "self");
  bool fills = strstr(n->target, "bernoulli_") != NULL && self && sli_constant(m, self);
  sl_tensor *x = fills ? shaped(m, n) : sli_pt_f32(m, self), *p = x;
  if (x && (fills || sli_pt_arg_find(n, "p")))
    p = sli_pt_filled_like(m, x, sli_pt_number(m, n, "p", 0.5));
  sl_tensor *drawn = x ? sl_uniform_at(m->at, m->g, x, 0, 1) : NULL;
  sl_tensor *yes = sl_op2_at(m->at, m->g, &sl_op_lt, NULL, drawn, p);
  sli_pt_out(m, n, 0, yes ? sl_cast_at(m->at, m->g, yes, SL_F32) : NULL);
}
