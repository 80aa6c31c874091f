/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by tiles in bf16 (attention_forward.cuh). */
#include "kernels/cuda/attention_forward.cuh"

namespace sli {

template void attend(const attention<bf16> &, void *);

sl_status prepare_attend(sl_dtype dtype, int64_t dim) {
  if (dim > MOST_DIM)
    return sl_fail(SL_E_UNSUPPORTED, "attention with heads of %lld: at most %d in training on GPUs",
                   (long long)dim, MOST_DIM);
  cudaError_t error = dtype == SL_BF16 ? allow_all<bf16>(dim) : allow_attend_f32(dim);
  if (!error && dtype == SL_F32) error = allow_attend_sweep(dim);
  if (!error) return prepare_attend_b(dtype, dim);
  return sl_fail(SL_E_DEVICE, "attention with heads of %lld: %s", (long long)dim,
                 cudaGetErrorString(error));
}

} // namespace sli
