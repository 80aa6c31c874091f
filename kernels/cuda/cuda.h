/* What others that drive a GPU ask of kernels/cuda, and its C files of each other. */
#ifndef SLUICE_CUDA_CUDA_H
#define SLUICE_CUDA_CUDA_H

#include <cuda_runtime.h>

#include <sluice/status.h>

/* Makes `device` the calling thread's. */
sl_status sli_cuda_use(int device);

/* A library that a launch calls has failed: kept for this thread until it is taken. `why` stays
 * valid. */
void sli_cuda_launch_failed(const char *why);
/* NULL: nothing has. */
const char *sli_cuda_take_failure(void);

/* The calling thread's again; this GPU and all that have met before reach each other's memory from
 * now on, where the machine lets them, so that copies between them go straight. Kernels never
 * read another GPU's memory: what they need is copied first. */
sl_status sli_cuda_meet(int device);

/* SL_OK, or "GPU <device> <what>: <error>". */
sl_status sli_cuda_check(cudaError_t error, int device, const char *what);

#endif
