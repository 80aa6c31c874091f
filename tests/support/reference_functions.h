/* SPDX-License-Identifier: Apache-2.0 */
/* References of the functions by number that claims.h calls, and of functions of integers. */
#ifndef SLUICE_TESTS_SUPPORT_REFERENCE_FUNCTIONS_H
#define SLUICE_TESTS_SUPPORT_REFERENCE_FUNCTIONS_H

#include "ops/functions.h"
#include "tests/support/reference_math.h"

static inline void ref_function(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                double *const *out) {
  for (int64_t e = 0; e < sl_type_elements(type); e++) {
    double v = in[0][e];
    if (attrs->function.number == SLI_FUNCTION_atan) out[0][e] = atan2(v, 1);
    else if (attrs->function.number == SLI_FUNCTION_length) out[0][e] = pow(v, 0.5);
    else out[0][e] = fmin(fmax(v, (double)attrs->function.c), (double)attrs->function.u);
  }
}

static inline double ref_pow(double a, double b, double c) { return (void)c, exp(b * log(a)); }
static inline double ref_angle(double a, double b, double c) { return (void)c, atan(a / b); }
static inline void ref_function2(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                 double *const *out) {
  ref_broadcast(2, type, in, out[0],
                attrs->function.number == SLI_FUNCTION2_pow ? ref_pow : ref_angle);
}

static inline double ref_modulo(double a, double b, double c) {
  return (void)c, b != 0 ? a - b * floor(a / b) : 0;
}
static inline double ref_byte(double a, double b, double c) {
  return (void)c, a - b < 0 ? a - b + 256 : a - b;
}
static inline void ref_whole(const sl_attrs *attrs, const sl_type *type, double *const *in,
                             double *const *out) {
  ref_broadcast(2, type, in, out[0],
                attrs->function.number == SLI_WHOLE_remainder ? ref_modulo : ref_byte);
}

static inline void ref_whole_reduce(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                    double *const *out) {
  int64_t along, n = ref_left(type, attrs->along.axes);
  for (int64_t e = 0; e < n; e++) out[0][e] = 0;
  for (int64_t e = 0; e < sl_type_elements(type); e++) {
    double *to = &out[0][ref_goes_to(type, attrs->along.axes, e, &along)];
    *to = attrs->function.number == SLI_WHOLE_add ? *to + in[0][e] : fmax(*to, in[0][e]);
  }
}

#endif
