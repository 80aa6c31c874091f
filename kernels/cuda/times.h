/* How long steps take on the device. */
#ifndef SLUICE_CUDA_TIMES_H
#define SLUICE_CUDA_TIMES_H

#include <cuda_runtime.h>

#include "kernels/cuda/program.h"

/* Of the firings of one queue. */
typedef struct sli_cuda_times sli_cuda_times;

sli_cuda_times *sli_cuda_times_create(void);
void sli_cuda_times_destroy(sli_cuda_times *times);

/* Is this firing of a program to be timed? Asked once for each. */
bool sli_cuda_times_want(sli_cuda_program *program);

/* Marks the stream: before the first step of a firing whose fence will be this (step NULL),
 * and after each one that was launched. The calling thread has chosen its device. */
cudaError_t sli_cuda_times_mark(sli_cuda_times *times, cudaStream_t stream, uint64_t fence,
                                const sli_cuda_step *step);

/* Adds what is known when all firings up to this fence are complete to their calls' times. */
cudaError_t sli_cuda_times_read(sli_cuda_times *times, uint64_t completed);

#endif
