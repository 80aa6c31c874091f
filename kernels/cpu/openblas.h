/* OpenBLAS's matrix product in f32, looked for when it is first wanted. */
#ifndef SLUICE_OPENBLAS_H
#define SLUICE_OPENBLAS_H

#include <stdbool.h>
#include <stdint.h>

/* C[m, n] = op(A)[m, k] op(B)[k, n], or C += that; row-major, A and B with a_row and b_row numbers from one row as it
 * is stored to the next. */
typedef struct sli_sgemm {
  int64_t m, n, k, a_row, b_row;
  bool a_transposed, b_transposed, add;
  const float *a, *b;
  float *c;
} sli_sgemm;

/* Any thread. False: it is not installed, is a build that threads may not share, or has no room; nothing else is to be
 * called then. */
bool sli_openblas(void);
/* "OpenBLAS 0.3.21", as it calls itself. */
const char *sli_openblas_name(void);
/* On this thread; others may call at the same time. */
void sli_openblas_multiply(const sli_sgemm *s);

#endif
