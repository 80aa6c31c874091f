/* SPDX-License-Identifier: Apache-2.0 */
/* Interface of kernels/cuda, for other code that drives a GPU and between its C files. */
#ifndef SLUICE_KERNELS_CUDA_CUDA_H
#define SLUICE_KERNELS_CUDA_CUDA_H

#include <cuda_runtime.h>

#include <sluice/status.h>

/* Makes `device` the calling thread's current device. */
sl_status sli_cuda_use(int device);

/* Records, for this thread, that a library failed during a launch. The failure is kept until
 * sli_cuda_take_failure(). `why` must stay valid. */
void sli_cuda_launch_failed(const char *why);
/* Returns the recorded failure and clears it; NULL if there is none. */
const char *sli_cuda_take_failure(void);

/* Makes `device` current, and enables peer access between it and all GPUs that called this before,
 * if the machine allows it, so that copies between them are direct. Kernels never read another
 * GPU's memory; their inputs are copied first. */
sl_status sli_cuda_meet(int device);

/* Returns SL_OK, or fails with "GPU <device> <what>: <error>". */
sl_status sli_cuda_check(cudaError_t error, int device, const char *what);

#endif
