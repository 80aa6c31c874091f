/* SPDX-License-Identifier: Apache-2.0 */
/* References of losses with weighted rows, in double precision, like those of reference_math.h. */
#ifndef SLUICE_TESTS_SUPPORT_REFERENCE_LOSSES_H
#define SLUICE_TESTS_SUPPORT_REFERENCE_LOSSES_H

#include <math.h>

#include <sluice/ops.h>

static inline void ref_share(const sl_attrs *attrs, const sl_type *type, double *const *in,
                             double *const *out) {
  (void)type;
  out[0][0] = in[0][0] * (attrs->user ? *(const double *)attrs->user : 1);
}

static inline double ref_ignored(const sl_attrs *attrs) {
  return attrs->loss.ignore == INT32_MIN ? 0 : attrs->loss.ignore ? attrs->loss.ignore : -100;
}

static inline void ref_target_weight(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                     double *const *out) {
  out[0][0] = 0;
  for (int64_t r = 0; r < sl_type_elements(&type[0]); r++)
    if (in[0][r] != ref_ignored(attrs)) out[0][0] += in[1] ? in[1][(int64_t)in[0][r]] : 1;
}

static inline void ref_weighted_cross_entropy(const sl_attrs *attrs, const sl_type *type,
                                              double *const *in, double *const *out) {
  int64_t R = sl_type_rows(&type[0]), V = sl_type_last(&type[0]);
  double loss = 0;
  for (int64_t r = 0; r < R; r++) {
    const double *x = in[0] + r * V;
    double total = 0, lse = 0;
    out[1][r] = 0;
    if (in[1][r] == ref_ignored(attrs)) continue;
    for (int64_t c = 0; c < V; c++) total += exp(x[c]);
    out[1][r] = lse = log(total);
    for (int64_t c = 0; c < V; c++) {
      double counts = (double)attrs->loss.spread +
                      (c == (int64_t)in[1][r] ? 1 - (double)attrs->loss.smoothing : 0);
      loss += counts * (in[3] ? in[3][c] : 1) * (lse - x[c]);
    }
  }
  out[0][0] = loss / in[2][0];
}

#endif
