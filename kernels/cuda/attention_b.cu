/* SPDX-License-Identifier: Apache-2.0 */
/* Backward pass of attention in bf16 (attention_backward.cuh). */
#include "kernels/cuda/attention_backward.cuh"

namespace sli {

template void attend_b(const attention<bf16> &, void *);

sl_status prepare_attend_b(sl_dtype dtype, int64_t dim) {
  cudaError_t error = dtype == SL_BF16 ? allow_all<bf16, false>(dim) : allow_attend_b_f32(dim);
  if (!error && dtype == SL_F32) error = allow_attend_sweep_b(dim);
  if (!error) return SL_OK;
  return sl_fail(SL_E_DEVICE, "gradients of attention with heads of %lld: %s", (long long)dim,
                 cudaGetErrorString(error));
}

} // namespace sli
