/* What the rows of arithmetic compute, written down plainly in double precision. */
#ifndef SLUICE_TESTS_REFERENCE_MATH_H
#define SLUICE_TESTS_REFERENCE_MATH_H

#include "tests/support/reference_kernels.h"

#define REF_UNARY(name, expression)                                                      \
  static inline void ref_##name(const sl_attrs *attrs, const sl_type *type,              \
                                double *const *in, double *const *out) {                 \
    const double c = (double)attrs->value, u = (double)attrs->upper;                     \
    (void)c, (void)u;                                                                    \
    for (int64_t i = 0; i < sl_type_elements(&type[0]); i++) {                           \
      double x = in[0][i];                                                               \
      out[0][i] = (expression);                                                          \
    }                                                                                    \
  }
REF_UNARY(silu, x / (1 + exp(-x)))
REF_UNARY(sigmoid, 1 / (1 + exp(-x)))
REF_UNARY(exp, exp(x))
REF_UNARY(log, log(x))
REF_UNARY(sqrt, sqrt(x))
REF_UNARY(rsqrt, 1 / sqrt(x))
REF_UNARY(abs, fabs(x))
REF_UNARY(clamp, fmin(fmax(x, c), u))
REF_UNARY(neg, -x)
REF_UNARY(scale, x * c)
REF_UNARY(add_constant, x + c)

#endif
