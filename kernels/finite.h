/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of arrays on a GPU: the first non-finite element, and copies for checks on the host. */
#ifndef SLUICE_KERNELS_FINITE_H
#define SLUICE_KERNELS_FINITE_H

#include <sluice/op.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SLI_CUDA_FINITE_BLOCKS = 128, SLI_CUDA_FINITE_SCRATCH = SLI_CUDA_FINITE_BLOCKS * 8 };

/* Returns the first non-finite element of an f32, f64 or bf16 array and sets *value, or returns -1.
 * Waits for the stream, so no captured launch may contain it. On failure, the stream's last error
 * is set. scratch[SLI_CUDA_FINITE_SCRATCH] is on the device. */
int64_t sli_cuda_first_not_finite(const sl_type *type, const void *data, void *scratch,
                                  void *stream, double *value);

/* Copies bytes from the device to the host and waits for the stream. Returns false on failure, with
 * the stream's last error set. */
bool sli_cuda_fetch(void *to, const void *from, size_t bytes, void *stream);

#ifdef __cplusplus
}
#endif

#endif
