/* SPDX-License-Identifier: Apache-2.0 */
/* References of the arithmetic ops, in double precision. */
#ifndef SLUICE_TESTS_SUPPORT_REFERENCE_MATH_H
#define SLUICE_TESTS_SUPPORT_REFERENCE_MATH_H

#include "tests/support/reference_kernels.h"

#define REF_UNARY(name, expression)                                                            \
  static inline void ref_##name(const sl_attrs *attrs, const sl_type *type, double *const *in, \
                                double *const *out) {                                          \
    const double c = (double)attrs->function.c, u = (double)attrs->function.u;                 \
    (void)c, (void)u;                                                                          \
    for (int64_t i = 0; i < sl_type_elements(&type[0]); i++) {                                 \
      double x = in[0][i];                                                                     \
      out[0][i] = (expression);                                                                \
    }                                                                                          \
  }
REF_UNARY(silu, x / (1 + exp(-x)))
REF_UNARY(sigmoid, 1 / (1 + exp(-x)))
REF_UNARY(exp, exp(x))
REF_UNARY(log, log(x))
REF_UNARY(sqrt, sqrt(x))
REF_UNARY(rsqrt, 1 / sqrt(x))
REF_UNARY(abs, fabs(x))
REF_UNARY(clamp, fmin(fmax(x, c), u))
REF_UNARY(softcap, c *tanh(x / c))
REF_UNARY(gelu_erf, x *erfc(-x *sqrt(0.5)) / 2)
REF_UNARY(erf, erf(x))
REF_UNARY(sin, sin(x))
REF_UNARY(cos, cos(x))
REF_UNARY(softplus, x > 20 ? x : log1p(exp(x)))
REF_UNARY(floor, floor(x))
REF_UNARY(detach, x)
REF_UNARY(neg, -x)
REF_UNARY(scale, x *c)
REF_UNARY(add_constant, x + c)

/* ---- broadcasting ---------------------------------------------------------------- */

typedef double ref_three(double a, double b, double c);

/* Returns the index of position `at` of dims dim[ndim] in an array that broadcasts there. */
static inline int64_t ref_place(const sl_type *type, int ndim, const int64_t *dim, int64_t at) {
  int64_t place = 0, step = 1;
  for (int d = ndim - 1; d >= ndim - type->ndim; at /= dim[d--]) {
    int64_t own = type->dim[d - (ndim - type->ndim)];
    if (own > 1) place += at % dim[d] * step;
    step *= own;
  }
  return place;
}

static inline void ref_broadcast(int nin, const sl_type *type, double *const *in, double *out,
                                 ref_three *fn) {
  int64_t dim[SL_MAX_DIMS], n = 1;
  int ndim = 0;
  for (int i = 0; i < nin; i++) ndim = type[i].ndim > ndim ? type[i].ndim : ndim;
  for (int d = 0; d < ndim; d++) {
    dim[d] = 1;
    for (int i = 0; i < nin; i++)
      if (d >= ndim - type[i].ndim && type[i].dim[d - ndim + type[i].ndim] > 1)
        dim[d] = type[i].dim[d - ndim + type[i].ndim];
    n *= dim[d];
  }
  for (int64_t e = 0; e < n; e++) {
    double x[3] = {0};
    for (int i = 0; i < nin; i++) x[i] = in[i][ref_place(&type[i], ndim, dim, e)];
    out[e] = fn(x[0], x[1], x[2]);
  }
}

#define REF_BROADCAST(name, nin, expression)                                                   \
  static inline double ref_##name##_of(double a, double b, double c) {                         \
    (void)b, (void)c;                                                                          \
    return expression;                                                                         \
  }                                                                                            \
  static inline void ref_##name(const sl_attrs *attrs, const sl_type *type, double *const *in, \
                                double *const *out) {                                          \
    (void)attrs;                                                                               \
    ref_broadcast(nin, type, in, out[0], ref_##name##_of);                                     \
  }
REF_BROADCAST(add_any, 2, a + b)
REF_BROADCAST(sub, 2, a - b)
REF_BROADCAST(mul_any, 2, a *b)
REF_BROADCAST(div, 2, a / b)
REF_BROADCAST(maximum, 2, fmax(a, b))
REF_BROADCAST(minimum, 2, fmin(a, b))
REF_BROADCAST(lt, 2, a < b)
REF_BROADCAST(le, 2, a <= b)
REF_BROADCAST(gt, 2, a > b)
REF_BROADCAST(ge, 2, a >= b)
REF_BROADCAST(eq, 2, a == b)
REF_BROADCAST(ne, 2, a != b)
REF_BROADCAST(where, 3, a != 0 ? b : c)

static inline void ref_matmul(const sl_attrs *attrs, const sl_type *type, double *const *in,
                              double *const *out) {
  const sl_type *a = &type[0], *b = &type[1];
  bool ta = attrs->product.left_transposed, tb = attrs->product.transposed;
  int64_t M = a->dim[a->ndim - (ta ? 1 : 2)], K = a->dim[a->ndim - (ta ? 2 : 1)];
  int64_t N = b->dim[b->ndim - (tb ? 2 : 1)], dim[SL_MAX_DIMS], count = 1;
  int ndim = (a->ndim > b->ndim ? a->ndim : b->ndim) - 2;
  sl_type as = *a, bs = *b;
  as.ndim -= 2, bs.ndim -= 2;
  for (int d = 0; d < ndim; d++) {
    int64_t x = d < ndim - as.ndim ? 1 : as.dim[d - ndim + as.ndim];
    int64_t y = d < ndim - bs.ndim ? 1 : bs.dim[d - ndim + bs.ndim];
    count *= dim[d] = x > y ? x : y;
  }
  for (int64_t s = 0; s < count; s++) {
    const double *x = in[0] + ref_place(&as, ndim, dim, s) * M * K;
    const double *y = in[1] + ref_place(&bs, ndim, dim, s) * K * N;
    for (int64_t m = 0; m < M; m++)
      for (int64_t n = 0; n < N; n++) {
        double sum = 0;
        for (int64_t k = 0; k < K; k++)
          sum += x[ta ? k * M + m : m * K + k] * y[tb ? n * K + k : k * N + n];
        out[0][(s * M + m) * N + n] = sum;
      }
  }
}

/* ---- along dims -------------------------------------------------------------------- */

/* Returns the output element that x's element `e` belongs to, and its index among those in
 * *along. */
static inline int64_t ref_goes_to(const sl_type *x, uint32_t axes, int64_t e, int64_t *along) {
  int64_t to = 0, step = 1, step_along = 1;
  *along = 0;
  if (!axes) axes = UINT32_MAX;
  for (int d = x->ndim - 1; d >= 0; e /= x->dim[d--]) {
    int64_t at = e % x->dim[d];
    if (axes >> d & 1) *along += at * step_along, step_along *= x->dim[d];
    else to += at * step, step *= x->dim[d];
  }
  return to;
}

static inline int64_t ref_left(const sl_type *x, uint32_t axes) {
  int64_t n = 1;
  for (int d = 0; axes && d < x->ndim; d++)
    if (!(axes >> d & 1)) n *= x->dim[d];
  return n;
}

static inline void ref_reduce_sum(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                  double *const *out) {
  int64_t along, n = ref_left(type, attrs->along.axes);
  double factor = attrs->along.factor != 0 ? (double)attrs->along.factor : 1;
  for (int64_t e = 0; e < n; e++) out[0][e] = 0;
  for (int64_t e = 0; e < sl_type_elements(type); e++)
    out[0][ref_goes_to(type, attrs->along.axes, e, &along)] += in[0][e] * factor;
}

static inline void ref_mean(const sl_attrs *attrs, const sl_type *type, double *const *in,
                            double *const *out) {
  ref_reduce_sum(attrs, type, in, out);
  out[0][0] /= (double)sl_type_elements(type);
}

static inline void ref_reduce_max(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                  double *const *out) {
  int64_t along, n = ref_left(type, attrs->along.axes);
  for (int64_t e = 0; e < n; e++) out[0][e] = -INFINITY;
  for (int64_t e = 0; e < sl_type_elements(type); e++) {
    int64_t to = ref_goes_to(type, attrs->along.axes, e, &along);
    if (in[0][e] > out[0][to]) out[0][to] = in[0][e], out[1][to] = (double)along;
  }
}

static inline void ref_softmax_of(const sl_attrs *attrs, const sl_type *x, const double *in,
                                  double *out, bool is_log) {
  uint32_t axes = attrs->along.axes ? attrs->along.axes : 1u << (x->ndim - 1);
  int64_t along, n = sl_type_elements(x);
  double *sum = calloc((size_t)n, sizeof *sum);
  for (int64_t e = 0; e < n; e++) sum[ref_goes_to(x, axes, e, &along)] += exp(in[e]);
  for (int64_t e = 0; e < n; e++) {
    double total = sum[ref_goes_to(x, axes, e, &along)];
    out[e] = is_log ? in[e] - log(total) : exp(in[e]) / total;
  }
  free(sum);
}

static inline void ref_softmax(const sl_attrs *attrs, const sl_type *type, double *const *in,
                               double *const *out) {
  ref_softmax_of(attrs, type, in[0], out[0], false);
}

static inline void ref_log_softmax(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                   double *const *out) {
  ref_softmax_of(attrs, type, in[0], out[0], true);
}

#endif
