/* SPDX-License-Identifier: Apache-2.0 */
/* OpenBLAS's f32 matrix product, loaded on first use. */
#ifndef SLUICE_OPENBLAS_H
#define SLUICE_OPENBLAS_H

#include <stdbool.h>
#include <stdint.h>

/* C[m, n] = op(A)[m, k] op(B)[k, n], or C += that. Row-major; stored rows of A and B are a_row and
 * b_row numbers apart. */
typedef struct sli_sgemm {
  int64_t m, n, k, a_row, b_row;
  bool a_transposed, b_transposed, add;
  const float *a, *b;
  float *c;
} sli_sgemm;

/* Returns true if OpenBLAS can be used. False: not installed, a build that threads may not share,
 * or no address space; then the other functions must not be called. Callable from any thread. */
bool sli_openblas(void);
/* Returns the library's name for itself, "OpenBLAS 0.3.21". */
const char *sli_openblas_name(void);
/* Multiplies on this thread; other threads may call at the same time. */
void sli_openblas_multiply(const sli_sgemm *s);

#endif
