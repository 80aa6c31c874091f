/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise calls that become several ops. */
#include <math.h>
#include <string.h>

#include <sluice/functions.h>

#include "ops/functions.h"
#include "pytorch/emit.h"

#define ONE(op, x) sl_op1_at(m->at, m->g, &sl_op_##op, NULL, x)
#define TWO(op, a, b) sl_op2_at(m->at, m->g, &sl_op_##op, NULL, a, b)
#define ADD(a, b) sl_add_at(m->at, m->g, a, b)
#define MUL(a, b) sl_mul_at(m->at, m->g, a, b)
#define SCALE(x, by) sl_scale_at(m->at, m->g, x, (float)(by))
#define SHIFT(x, by) sl_add_constant_at(m->at, m->g, x, (float)(by))
#define CLAMP(x, low, high) sl_clamp_at(m->at, m->g, x, (float)(low), (float)(high))

void sli_emit_of(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  sli_pt_out(m, n, 0, row->of(m, n));
}

static sl_tensor *self(sli_import *m, const sli_pt_node *n) {
  return n->nargs ? sli_pt_in(m, n, n->args[0].name) : NULL;
}

/* Converts a mask to f32. */
static sl_tensor *flags(sli_import *m, sl_tensor *mask) {
  return mask ? sl_cast_at(m->at, m->g, mask, SL_F32) : NULL;
}

/* ---- by number ------------------------------------------------------------------------------ */

sl_tensor *sli_pt_function(sli_import *m, int function, sl_tensor *x) {
  const sl_attrs attrs = {.function.number = function};
  return sl_op1_at(m->at, m->g, &sl_op_function, &attrs, sli_pt_narrow(m, x));
}

sl_tensor *sli_pt_function2(sli_import *m, int function, sl_tensor *a, sl_tensor *b) {
  const sl_attrs attrs = {.function.number = function};
  return sl_op2_at(m->at, m->g, &sl_op_function2, &attrs, sli_pt_narrow(m, a), sli_pt_narrow(m, b));
}

/* Functions that have the name of their call. */
static const char *const names[] = {
#define FUNCTION(name, ...) #name,
#include "ops/functions.def"
};
static const char *const names2[] = {
#define FUNCTION2(name, ...) #name,
#include "ops/functions.def"
};

static int find_name(const char *const *list, int count, const sli_pt_node *n) {
  const char *name = strstr(n->target, "special_") ? n->target + 13 : n->target + 5;
  size_t length = strcspn(name, ".");
  int i = 0;
  while (i < count && (strncmp(list[i], name, length) != 0 || list[i][length])) i++;
  return i;
}

sl_tensor *sli_of_function(sli_import *m, const sli_pt_node *n) {
  int i = find_name(names, SLI_FUNCTIONS, n);
  return i < SLI_FUNCTIONS ? sli_pt_function(m, i, self(m, n)) : NULL;
}

sl_tensor *sli_of_function2(sli_import *m, const sli_pt_node *n) {
  int i = find_name(names2, SLI_FUNCTIONS2, n);
  const sli_pt_value *a = sli_pt_arg_value(n, "self"), *b = sli_pt_arg_value(n, "other");
  sl_tensor *x = sli_pt_operand(m, n, "self", b), *y = sli_pt_operand(m, n, "other", a);
  return i < SLI_FUNCTIONS2 ? sli_pt_function2(m, i, x, y) : NULL;
}

/* ---- exponentials and logarithms ------------------------------------------------------------ */

sl_tensor *sli_of_log_sigmoid(sli_import *m, const sli_pt_node *n) {
  return ONE(neg, ONE(softplus, ONE(neg, self(m, n))));
}
/* log(1 + e^(beta x)) / beta; x where beta x is above the threshold. */
sl_tensor *sli_of_softplus(sli_import *m, const sli_pt_node *n) {
  sl_tensor *x = self(m, n);
  double beta = sli_pt_number(m, n, "beta", 1), top = sli_pt_number(m, n, "threshold", 20);
  if (beta == 1 && top == 20) return ONE(softplus, x);
  sl_tensor *scaled = beta == 1 ? x : SCALE(x, beta);
  sl_tensor *y = SCALE(ONE(softplus, scaled), 1 / beta);
  if (top == 20 || !x) return y;
  sl_tensor *above = TWO(gt, scaled, sli_pt_filled_like(m, x, top));
  return sl_op3_at(m->at, m->g, &sl_op_where, NULL, above, x, y);
}
/* log(x / (1 - x)), with x clamped to [eps, 1 - eps]. */
sl_tensor *sli_of_logit(sli_import *m, const sli_pt_node *n) {
  sl_tensor *x = self(m, n);
  double eps = sli_pt_number(m, n, "eps", -1);
  if (eps >= 0) x = CLAMP(x, eps, 1 - eps);
  return sli_pt_function(m, SLI_FUNCTION_logit, x);
}

/* ---- whole numbers -------------------------------------------------------------------------- */

sl_tensor *sli_of_ceil(sli_import *m, const sli_pt_node *n) {
  return ONE(neg, ONE(floor, ONE(neg, self(m, n))));
}
/* Rounds towards zero, each sign separately. */
static sl_tensor *truncated(sli_import *m, sl_tensor *x) {
  return TWO(sub, ONE(floor, ONE(relu, x)), ONE(floor, ONE(relu, ONE(neg, x))));
}
sl_tensor *sli_of_trunc(sli_import *m, const sli_pt_node *n) { return truncated(m, self(m, n)); }
sl_tensor *sli_of_frac(sli_import *m, const sli_pt_node *n) {
  sl_tensor *x = self(m, n);
  return TWO(sub, x, truncated(m, x));
}
sl_tensor *sli_of_sign(sli_import *m, const sli_pt_node *n) {
  sl_tensor *x = self(m, n), *zero = x ? sli_pt_filled_like(m, x, 0) : NULL;
  return TWO(sub, flags(m, TWO(gt, x, zero)), flags(m, TWO(lt, x, zero)));
}
sl_tensor *sli_of_isnan(sli_import *m, const sli_pt_node *n) {
  sl_tensor *x = self(m, n);
  return TWO(ne, x, x);
}
sl_tensor *sli_of_isinf(sli_import *m, const sli_pt_node *n) {
  sl_tensor *x = self(m, n);
  return TWO(eq, ONE(abs, x), x ? sli_pt_filled_like(m, x, INFINITY) : NULL);
}
sl_tensor *sli_of_isfinite(sli_import *m, const sli_pt_node *n) {
  sl_tensor *x = self(m, n);
  return TWO(lt, ONE(abs, x), x ? sli_pt_filled_like(m, x, INFINITY) : NULL);
}

/* ---- activations ---------------------------------------------------------------------------- */

/* x between two bounds, with gradient 0 at the bounds. */
sl_tensor *sli_of_hardtanh(sli_import *m, const sli_pt_node *n) {
  bool six = strstr(n->target, "relu6") != NULL;
  const sl_attrs attrs = {.function.number = SLI_FUNCTION_hardtanh,
                          .function.c = (float)sli_pt_number(m, n, "min_val", six ? 0 : -1),
                          .function.u = (float)sli_pt_number(m, n, "max_val", six ? 6 : 1)};
  return sl_op1_at(m->at, m->g, &sl_op_function, &attrs, self(m, n));
}
sl_tensor *sli_of_mish(sli_import *m, const sli_pt_node *n) {
  sl_tensor *x = self(m, n);
  return MUL(x, ONE(tanh, ONE(softplus, x)));
}
/* Returns x above 0 and alpha (e^(x by) - 1) below, both times `scale`. */
static sl_tensor *exponential(sli_import *m, sl_tensor *x, double alpha, double scale, double by) {
  sl_tensor *below = CLAMP(by == 1 ? x : SCALE(x, by), -INFINITY, 0);
  below = sli_pt_function(m, SLI_FUNCTION_expm1, below);
  sl_tensor *y = ADD(ONE(relu, x), SCALE(below, alpha));
  return scale == 1 ? y : SCALE(y, scale);
}
sl_tensor *sli_of_elu(sli_import *m, const sli_pt_node *n) {
  return exponential(m, self(m, n), sli_pt_number(m, n, "alpha", 1),
                     sli_pt_number(m, n, "scale", 1), sli_pt_number(m, n, "input_scale", 1));
}
sl_tensor *sli_of_celu(sli_import *m, const sli_pt_node *n) {
  double alpha = sli_pt_number(m, n, "alpha", 1);
  return exponential(m, self(m, n), alpha, 1, 1 / alpha);
}
sl_tensor *sli_of_selu(sli_import *m, const sli_pt_node *n) {
  return exponential(m, self(m, n), 1.6732632423543772, 1.0507009873554805, 1);
}
/* The slope below 0 is a weight, per channel or for all channels. */
sl_tensor *sli_of_prelu(sli_import *m, const sli_pt_node *n) {
  sl_tensor *x = sli_pt_in(m, n, "self"), *w = sli_pt_in(m, n, "weight");
  if (!x || !w) return NULL;
  sl_type to = {.dtype = SL_F32, .ndim = SLI_MAX(x->type.ndim, 1)};
  for (int d = 0; d < to.ndim; d++) to.dim[d] = 1;
  to.dim[to.ndim > 1 ? 1 : 0] = sl_type_elements(&w->type);
  w = sli_pt_reshape(m, w, &to);
  return ADD(ONE(relu, x), MUL(CLAMP(x, -INFINITY, 0), w));
}
sl_tensor *sli_of_glu(sli_import *m, const sli_pt_node *n) {
  sl_tensor *x = self(m, n), *part[2] = {NULL, NULL};
  if (!x || !x->type.ndim) return NULL;
  int dim = sli_pt_dim(m, n, "dim", x->type.ndim, -1);
  int64_t half = sl_dim(x, dim) / 2;
  sl_split_at(m->at, m->g, x, dim, 2, (int64_t[]){half, half}, part);
  return MUL(part[0], ONE(sigmoid, part[1]));
}
sl_tensor *sli_of_softshrink(sli_import *m, const sli_pt_node *n) {
  sl_tensor *x = self(m, n);
  double off = sli_pt_number(m, n, "lambd", 0.5);
  return TWO(sub, ONE(relu, SHIFT(x, -off)), ONE(relu, SHIFT(ONE(neg, x), -off)));
}
sl_tensor *sli_of_hardshrink(sli_import *m, const sli_pt_node *n) {
  sl_tensor *x = self(m, n);
  if (!x) return NULL;
  sl_tensor *off = sli_pt_filled_like(m, x, sli_pt_number(m, n, "lambd", 0.5));
  return MUL(x, flags(m, TWO(gt, ONE(abs, x), off)));
}
sl_tensor *sli_of_threshold(sli_import *m, const sli_pt_node *n) {
  sl_tensor *x = self(m, n);
  if (!x) return NULL;
  sl_tensor *off = sli_pt_filled_like(m, x, sli_pt_number(m, n, "threshold", 0));
  return sl_op3_at(m->at, m->g, &sl_op_where, NULL, TWO(gt, x, off), x,
                   sli_pt_filled_like(m, x, sli_pt_number(m, n, "value", 0)));
}

/* ---- of several numbers --------------------------------------------------------------------- */

/* self + value tensor1 tensor2, or tensor1 / tensor2. */
sl_tensor *sli_of_addc(sli_import *m, const sli_pt_node *n) {
  sl_tensor *a = sli_pt_in(m, n, "tensor1"), *b = sli_pt_in(m, n, "tensor2");
  sl_tensor *y = strstr(n->target, "addcdiv") ? TWO(div, a, b) : MUL(a, b);
  double value = sli_pt_number(m, n, "value", 1);
  return ADD(sli_pt_in(m, n, "self"), value == 1 ? y : SCALE(y, value));
}
/* self + weight (end - self). */
sl_tensor *sli_of_lerp(sli_import *m, const sli_pt_node *n) {
  const sli_pt_value *a = sli_pt_arg_value(n, "self");
  sl_tensor *x = sli_pt_in(m, n, "self"), *w = sli_pt_operand(m, n, "weight", a);
  return ADD(x, MUL(w, TWO(sub, sli_pt_in(m, n, "end"), x)));
}
sl_tensor *sli_of_clamp(sli_import *m, const sli_pt_node *n) {
  const sli_pt_value *a = sli_pt_arg_value(n, "self");
  sl_tensor *x = sli_pt_in(m, n, "self");
  if (sli_pt_arg_find(n, "min")) x = TWO(maximum, x, sli_pt_operand(m, n, "min", a));
  if (sli_pt_arg_find(n, "max")) x = TWO(minimum, x, sli_pt_operand(m, n, "max", a));
  return x;
}
/* base ^ exponent, where one is a number and the other a tensor. */
sl_tensor *sli_of_powers(sli_import *m, const sli_pt_node *n) {
  double base = sli_pt_number(m, n, "self", NAN);
  sl_tensor *e = sli_pt_in(m, n, "exponent");
  if (base > 0 || !e) return ONE(exp, SCALE(e, log(base)));
  return sli_pt_function2(m, SLI_FUNCTION2_pow, sli_pt_filled_like(m, e, base), e);
}
