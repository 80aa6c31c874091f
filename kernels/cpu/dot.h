/* SPDX-License-Identifier: Apache-2.0 */
/* Products of short rows, at the baseline of the architecture. */
#ifndef SLUICE_KERNELS_CPU_DOT_H
#define SLUICE_KERNELS_CPU_DOT_H

#include <stdint.h>

/* y += x row */
static inline void sli_add_row(float *restrict y, float x, const float *restrict row, int64_t n) {
  for (int64_t d = 0; d < n; d++) y[d] += x * row[d];
}

/* Returns the dot product, from sums of numbers LANES apart, added in order. */
static inline float sli_dot(const float *x, const float *y, int64_t n) {
  enum { LANES = 16 };
  float part[LANES] = {0}, sum = 0;
  int64_t d = 0;
  for (; d + LANES <= n; d += LANES)
    for (int l = 0; l < LANES; l++) part[l] += x[d + l] * y[d + l];
  for (int l = 0; d < n; d++, l++) part[l] += x[d] * y[d];
  for (int l = 0; l < LANES; l++) sum += part[l];
  return sum;
}

#endif
