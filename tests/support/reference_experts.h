/* SPDX-License-Identifier: Apache-2.0 */
/* References of the mixture-of-experts ops, in double precision. */
#ifndef SLUICE_TESTS_SUPPORT_REFERENCE_EXPERTS_H
#define SLUICE_TESTS_SUPPORT_REFERENCE_EXPERTS_H

#include "tests/support/reference_math.h"

static inline void ref_grouped_linear(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                      double *const *out) {
  int64_t rows = sl_type_elements(&type[1]),
          each = type[0].ndim == type[1].ndim ? sl_type_last(&type[1]) : 1;
  int64_t N = type[2].dim[1], K = type[2].dim[2];
  for (int64_t r = 0; r < rows; r++) {
    int64_t e = (int64_t)in[1][r] - attrs->place.first;
    bool here = in[1][r] >= 0 && e >= 0 && e < type[2].dim[0];
    for (int64_t n = 0; n < N; n++) {
      double sum = 0;
      for (int64_t k = 0; k < K && here; k++)
        sum += in[0][r / each * K + k] * in[2][(e * N + n) * K + k];
      out[0][r * N + n] = sum;
    }
  }
}

static inline void ref_combine(const sl_attrs *attrs, const sl_type *type, double *const *in,
                               double *const *out) {
  int64_t rows = sl_type_rows(&type[1]), k = sl_type_last(&type[1]), N = sl_type_last(&type[0]);
  (void)attrs;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t n = 0; n < N; n++) {
      double sum = 0;
      for (int64_t j = r * k; j < (r + 1) * k; j++) sum += in[1][j] * in[0][j * N + n];
      out[0][r * N + n] = sum;
    }
}

/* Drops tokens over the limit: a token's rank counts the tokens of the same expert with a larger
 * weight, or an equal weight and a smaller index. */
static inline void ref_expert_limit(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                    double *const *out) {
  int64_t n = sl_type_elements(&type[0]);
  double most = ceil((double)attrs->experts.factor * (double)n / (double)attrs->experts.count);
  for (int64_t a = 0; a < n; a++) {
    int64_t before = 0;
    for (int64_t b = 0; b < n; b++)
      before += in[0][b] == in[0][a] && (in[1][b] != in[1][a] ? in[1][b] > in[1][a] : b < a);
    out[0][a] = (double)before < most ? in[0][a] : -1;
  }
}

/* Takes the largest p that has room, pair by pair: the row of the largest p left, the first of
 * equal ones, and its width. */
static inline void ref_bit_choice(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                  double *const *out) {
  int64_t widths = sl_type_last(&type[0]), places = sl_type_elements(&type[0]);
  double room[64], rows[64] = {0};
  for (int64_t r = 0; r < places / widths; r++)
    if (in[1][r] >= 0) rows[(int)in[1][r]]++;
  for (int64_t i = 0; i < attrs->experts.count * widths; i++)
    room[i] = attrs->experts.ncapacities
                  ? ceil((double)attrs->experts.capacity[i % widths] * rows[i / widths] / 1e6)
                  : 1e9;
  for (int64_t i = 0; i < places; i++) out[0][i] = 0;
  for (int64_t best = 0; best >= 0;) {
    best = -1;
    for (int64_t i = 0; i < places; i++) {
      int64_t row = i / widths;
      bool taken = false, limited = attrs->experts.ncapacities && in[1][row] >= 0;
      for (int64_t v = 0; v < widths; v++) taken |= out[0][row * widths + v] > 0;
      if (taken || (limited && room[(int)in[1][row] * widths + i % widths] < 1)) continue;
      if (best < 0 || in[0][i] > in[0][best]) best = i;
    }
    if (best < 0) return;
    int expert = (int)in[1][best / widths];
    if (attrs->experts.ncapacities && expert >= 0) room[expert * widths + best % widths]--;
    out[0][best] = 1;
  }
}

#endif
