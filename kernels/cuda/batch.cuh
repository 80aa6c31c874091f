/* SPDX-License-Identifier: Apache-2.0 */
/* The batch, whose readers GPU kernels may call. */
#ifndef SLUICE_CUDA_BATCH_CUH
#define SLUICE_CUDA_BATCH_CUH

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define inline __host__ __device__ inline
#include <sluice/batch.h>
#undef inline
#else
#include <sluice/batch.h>
#endif

#endif
