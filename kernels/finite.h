/* Where an array on a GPU stops being finite. */
#ifndef SLUICE_KERNELS_FINITE_H
#define SLUICE_KERNELS_FINITE_H

#include <sluice/op.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SLI_CUDA_FINITE_BLOCKS = 128, SLI_CUDA_FINITE_SCRATCH = SLI_CUDA_FINITE_BLOCKS * 8 };

/* The first element that is not finite, and its value, or -1: of f32, f64 and bf16. Waits for the
 * stream, so it stands in no launch that is captured. What fails is the stream's last error.
 * scratch[SLI_CUDA_FINITE_SCRATCH] on the device. */
int64_t sli_cuda_first_not_finite(const sl_type *type, const void *data, void *scratch, void *stream,
                                  double *value);

#ifdef __cplusplus
}
#endif

#endif
