/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for all products: a handle per device, and constraints on the choice of kernels. */
#ifndef SLUICE_KERNELS_CUDA_LINEAR_H
#define SLUICE_KERNELS_CUDA_LINEAR_H

#include <sluice/status.h>

#include "kernels/cuda/blas.h"

/* Returns the library and the handle of the calling thread's device, which lives as long as the
 * process. */
sl_status sli_cuda_product_handle(const sli_blas **blas, cublasLtHandle_t *handle);

/* Requires matrices aligned to `alignment` bytes, and excludes kernels that add sums in the order
 * of arrival. */
cublasStatus_t sli_cuda_product_preference(const sli_blas *blas, uint64_t workspace,
                                           uint32_t alignment, cublasLtMatmulPreference_t *made);

#endif
