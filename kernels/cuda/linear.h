/* What products of all kinds share: a handle for each device, and what kernels may rely on. */
#ifndef SLUICE_CUDA_LINEAR_H
#define SLUICE_CUDA_LINEAR_H

#include <sluice/status.h>

#include "kernels/cuda/blas.h"

/* The library, and the calling thread's device's handle, which lives as long as the process. */
sl_status sli_cuda_product_handle(const sli_blas **blas, cublasLtHandle_t *handle);

/* Matrices are aligned to so many bytes; sums are never taken in the order of arrival. */
cublasStatus_t sli_cuda_product_preference(const sli_blas *blas, uint64_t workspace,
                                           uint32_t alignment, cublasLtMatmulPreference_t *made);

#endif
