/* SPDX-License-Identifier: Apache-2.0 */
/* Operands of batched matrix products and of their gradients, for CPU and CUDA. */
#ifndef SLUICE_OPS_MATMUL_H
#define SLUICE_OPS_MATMUL_H

#include "ops/space.h"

#ifdef __cplusplus
extern "C" {
#endif

/* C[m, n] = op(A)[m, k] op(B)[k, n] for every position of `batch`, whose strides count matrices.
 * Dims that the output lacks are summed. A and B are inputs a and b of the call. */
typedef struct sli_matmul {
  int64_t m, n, k;
  bool a_transposed, b_transposed;
  int a, b;
  sli_space batch;
} sli_matmul;

sli_matmul sli_matmul_of(const sl_call *call);

#ifdef __cplusplus
}
#endif
#endif
