/* What the C files of kernels/cuda share. */
#ifndef SLUICE_CUDA_DEVICE_H
#define SLUICE_CUDA_DEVICE_H

#include <cuda_runtime.h>

#include <sluice/status.h>

/* Makes `device` the calling thread's. */
sl_status sli_cuda_use(int device);

/* SL_OK, or "GPU <device> <what>: <error>". */
sl_status sli_cuda_check(cudaError_t error, int device, const char *what);

#endif
