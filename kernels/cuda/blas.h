/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt, loaded when the first product is created, because it is large and a CPU run of a build
 * with CUDA does not need it. */
#ifndef SLUICE_KERNELS_CUDA_BLAS_H
#define SLUICE_KERNELS_CUDA_BLAS_H

#include <cublasLt.h>

#include <sluice/status.h>

/* clang-format off */
#define SLI_BLAS_FUNCTIONS(X)                                                        \
  X(cublasLtCreate)                                                                  \
  X(cublasLtDestroy)                                                                 \
  X(cublasLtGetStatusString)                                                         \
  X(cublasLtMatmul)                                                                  \
  X(cublasLtMatmulAlgoGetHeuristic)                                                  \
  X(cublasLtMatmulDescCreate)                                                        \
  X(cublasLtMatmulDescDestroy)                                                       \
  X(cublasLtMatmulDescSetAttribute)                                                  \
  X(cublasLtMatmulPreferenceCreate)                                                  \
  X(cublasLtMatmulPreferenceDestroy)                                                 \
  X(cublasLtMatmulPreferenceSetAttribute)                                            \
  X(cublasLtMatrixLayoutCreate)                                                      \
  X(cublasLtMatrixLayoutDestroy)                                                     \
  X(cublasLtMatrixLayoutSetAttribute)
/* clang-format on */

typedef struct sli_blas {
#define X(name) __typeof__(&name) name;
  SLI_BLAS_FUNCTIONS(X)
#undef X
} sli_blas;

/* Returns the library, always the same one. Callable from any thread. */
sl_status sli_blas_load(const sli_blas **blas);

#endif
