/* SPDX-License-Identifier: Apache-2.0 */
/* Search for the first non-finite element of an array on a GPU. */
#ifndef SLUICE_KERNELS_FINITE_H
#define SLUICE_KERNELS_FINITE_H

#include <sluice/op.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SLI_CUDA_FINITE_BLOCKS = 128, SLI_CUDA_FINITE_SCRATCH = SLI_CUDA_FINITE_BLOCKS * 8 };

/* Returns the first non-finite element of an f32, f64 or bf16 array and sets *value, or returns -1.
 * Waits for the stream, so no captured launch may contain it. A failure is left as the stream's
 * last error. scratch[SLI_CUDA_FINITE_SCRATCH] is on the device. */
int64_t sli_cuda_first_not_finite(const sl_type *type, const void *data, void *scratch,
                                  void *stream, double *value);

#ifdef __cplusplus
}
#endif

#endif
