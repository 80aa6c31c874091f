/* SPDX-License-Identifier: Apache-2.0 */
/* Measurement of the time that steps take on the device. */
#ifndef SLUICE_KERNELS_CUDA_TIMES_H
#define SLUICE_KERNELS_CUDA_TIMES_H

#include <cuda_runtime.h>

#include "kernels/cuda/program.h"

/* Times of the firings of one queue. */
typedef struct sli_cuda_times sli_cuda_times;

sli_cuda_times *sli_cuda_times_create(void);
void sli_cuda_times_destroy(sli_cuda_times *times);

/* Returns true if this firing of a program is to be timed. Must be called once per firing. */
bool sli_cuda_times_want(sli_cuda_program *program);

/* Marks the stream: before the first step of a firing (step NULL), and after each launched step.
 * `fence` is the firing's future fence. The calling thread has set its device. */
cudaError_t sli_cuda_times_mark(sli_cuda_times *times, cudaStream_t stream, uint64_t fence,
                                const sli_cuda_step *step);

/* Adds the measurements of all firings up to fence `completed`, which are complete, to the times of
 * their calls. */
cudaError_t sli_cuda_times_read(sli_cuda_times *times, uint64_t completed);

#endif
