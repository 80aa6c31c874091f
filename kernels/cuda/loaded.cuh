/* SPDX-License-Identifier: Apache-2.0 */
/* Memory lent by the disk's queue, whose readers GPU kernels may call. */
#ifndef SLUICE_CUDA_LOADED_CUH
#define SLUICE_CUDA_LOADED_CUH

#include <sluice/graph.h>

#include "kernels/cuda/batch.cuh"

#ifdef __CUDACC__
#define inline __host__ __device__ inline
#endif
extern "C" {
#include "ops/expert_loads.h"
#include "ops/planes.h"
}
#ifdef __CUDACC__
#undef inline
#endif

#endif
